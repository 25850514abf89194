# SPDX-License-Identifier: Apache-2.0
"""An ordinary PyTorch training script in many shapes, whose own clock is the ground truth.

It does not use DIESEL. At its end it prints one JSON line. The line has its wall time from the first next() to the
end of the last step, and the share of it that its clock measured around next(), per thread where there are several.
Work is measured in units of time, not of instructions, so that a slower machine does not change it.
"""
import argparse
import hashlib
import json
import multiprocessing
import os
import sys
import threading
import time

import numpy
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

SIDE = 32
BLOCK = bytes(1 << 17)


def compute(seconds):
    """Occupies a core for this long in C code that releases the interpreter lock, as decoders do."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        hashlib.sha256(BLOCK)


def hold(seconds):
    """Occupies a core and the interpreter lock for this long: pure Python."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


class Samples(Dataset):
    """A file per sample and some preparation; every `slow_every`-th sample takes `slow` longer."""

    def __init__(self, options):
        self.paths = sorted(os.path.join(options.data, name) for name in os.listdir(options.data))
        self.options = options

    def __len__(self):
        return self.options.steps * self.options.batch // self.options.epochs

    def __getitem__(self, index):
        options = self.options
        with open(self.paths[index % len(self.paths)], "rb", buffering=0) as file:
            data = numpy.frombuffer(file.read(), dtype=numpy.uint8)
            if options.fetch_ms:  # a slow store
                time.sleep(0)
        (hold if options.hold else compute)(options.prep_ms / 1000)
        if options.slow_every and index // options.batch % options.slow_every == options.slow_every - 1:
            compute(options.slow_ms / 1000)
        image = numpy.resize(data, 3 * SIDE * SIDE).astype(numpy.float32) / 255
        return torch.from_numpy(image).reshape(3, SIDE, SIDE), index % 10


class Stream(IterableDataset):
    def __init__(self, options):
        self.samples = Samples(options)

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        for index in range(first, len(self.samples), step):
            yield self.samples[index]


def worker_init(number):
    os.environ["SHAPES_WORKER"] = str(number)
    numpy.random.seed(number)


def stand_in_for_pinning():
    """Runs torch's own pin-memory thread without the pinning itself, as there is no GPU here."""
    import torch.utils.data._utils.pin_memory as pin
    from torch.utils.data import dataloader

    pin.pin_memory = lambda data, device=None: data
    torch.cuda.set_device = lambda device: None
    torch.cuda.is_available = lambda: True
    torch.cuda.current_device = lambda: 0
    if hasattr(torch, "accelerator"):
        torch.accelerator.is_available = lambda: True
        torch.accelerator.current_accelerator = lambda: torch.device("cuda")
        torch.accelerator.set_device_index = lambda device: None
        torch.accelerator.current_device_index = lambda: 0
    return dataloader


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, stride=2), torch.nn.ReLU(),
                                          torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(),
                                          torch.nn.Linear(128, 10))

    def forward(self, images):
        return self.layers(images)


def loader_of(options):
    keywords = {"batch_size": options.batch, "num_workers": options.workers, "timeout": options.timeout,
                "persistent_workers": options.persistent, "pin_memory": options.pin}
    if options.workers:
        keywords.update(multiprocessing_context=options.context, worker_init_fn=worker_init)
    if options.pin:
        stand_in_for_pinning()
    return DataLoader(Stream(options) if options.iterable else Samples(options), **keywords)


class Clock:
    """Usage: begin() before next(), end() after it, step() at the end of a step."""

    def __init__(self):
        self.first = self.last = None
        self.waits, self.trace, self.steps = [], [], 0

    def begin(self):
        self.before = time.monotonic()
        self.first = self.first or self.before

    def end(self):
        after = time.monotonic()
        self.waits.append(after - self.before)
        self.trace.append((self.before, after))

    def step(self):
        self.steps += 1
        self.last = time.monotonic()

    def result(self):
        wall = self.last - self.first
        return {"wall_s": wall, "steps": self.steps, "wait": sum(self.waits[:self.steps]) / wall,
                "pid": os.getpid(), "tid": threading.get_native_id()}


def train(options, batches_of, clock, model=None):
    model = model or Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(options.epochs):
        batches = iter(batches_of())
        while True:
            clock.begin()
            batch = next(batches, None)
            clock.end()
            if batch is None:
                break
            compute(options.step_ms / 1000)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()
            optimizer.step()
            batch = None
            clock.step()


def parse(words=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="folder of files")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--context", default="fork")
    parser.add_argument("--persistent", action="store_true")
    parser.add_argument("--pin", action="store_true")
    parser.add_argument("--iterable", action="store_true")
    parser.add_argument("--hold", action="store_true", help="prepare in pure Python, with the lock held")
    parser.add_argument("--timeout", type=float, default=0)
    parser.add_argument("--step-ms", type=float, default=10)
    parser.add_argument("--prep-ms", type=float, default=2, help="a sample")
    parser.add_argument("--fetch-ms", type=float, default=0, help="a sample")
    parser.add_argument("--slow-every", type=int, default=0, help="batches")
    parser.add_argument("--slow-ms", type=float, default=0)
    parser.add_argument("--bystander", action="store_true", help="another process of the same context, no worker")
    parser.add_argument("--trace", help="file for begin and end of every wait (CLOCK_MONOTONIC)")
    parser.add_argument("--wait", action="store_true", help="for a line on standard input before it begins")
    return parser.parse_args(words)


def report(options, clock):
    if options.trace:
        with open(options.trace, "w", encoding="ascii") as file:
            json.dump(clock.trace, file)
    print(json.dumps(clock.result()), flush=True)


def main():
    options = parse()
    torch.set_num_threads(1)
    if options.wait:
        print("ready", flush=True)
        sys.stdin.readline()
    clock = Clock()
    if options.bystander:
        multiprocessing.get_context(options.context).Process(target=time.sleep, args=(1000,), daemon=True).start()
    loader = loader_of(options)
    train(options, lambda: loader, clock)
    report(options, clock)


if __name__ == "__main__":
    main()
