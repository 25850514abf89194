# SPDX-License-Identifier: Apache-2.0
"""An ordinary PyTorch training script, with whose own clock the analyzer's report is compared.

It does not use DIESEL. At the end it prints one JSON line: the shares of the time from before the first
next(loader) to the end of the last step that its clock measured around next(loader) and around its
checkpoints. The time of creating the loader's iterator does not count, as in any training loop that times its batches.
"""
import argparse
import json
import os
import time

import numpy
import torch
from torch.utils.data import DataLoader, Dataset


class Files(Dataset):
    """Random bytes from one file per sample, or from memory; `prep` times a small numpy transform."""

    def __init__(self, folder, samples, prep, size):
        self.paths = sorted(os.path.join(root, name) for root, _, names in os.walk(folder or ".")
                            for name in names) if folder else None
        self.samples, self.prep = samples, prep
        self.memory = numpy.random.default_rng(1).integers(0, 256, size, dtype=numpy.uint8)

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        if self.paths:
            with open(self.paths[index % len(self.paths)], "rb") as file:
                data = numpy.frombuffer(file.read(), dtype=numpy.uint8)
        else:
            data = self.memory
        values = data[:64 * 64 * 3].astype(numpy.float32) / 255
        for _ in range(self.prep):  # numpy holds the GIL or not, as in real transforms; values stay random, because
            values = 1 - numpy.abs(1 - 1.999 * numpy.sqrt(values * values))  # constants make the device faster
        return torch.from_numpy(values).reshape(3, 64, 64), index % 10


class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(3, width, 3, padding=1, stride=2), torch.nn.ReLU(),
            torch.nn.Conv2d(width, width, 3, padding=1, stride=2), torch.nn.ReLU(),
            torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(16 * width, 10))

    def forward(self, images):
        return self.layers(images)


def save(model, optimizer, ballast, path):
    """Saves as careful training code does: a temporary file, fsync, rename."""
    with open(path + ".tmp", "wb") as file:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "ballast": ballast}, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".tmp", path)


def train(options):
    torch.manual_seed(1)
    dataset = Files(options.data, options.steps * options.batch // options.epochs, options.prep, options.size)
    loader = DataLoader(dataset, batch_size=options.batch, shuffle=True, num_workers=options.workers,
                        persistent_workers=options.persistent and options.workers > 0)
    model = Model(options.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    ballast = torch.randn(options.checkpoint_mb * 1024 * 256)
    waits, checkpoints, steps, turnover, trace = [], 0.0, 0, 0.0, []
    begin = end = None
    for _ in range(options.epochs):
        renew = time.monotonic()
        batches = iter(loader)
        turnover += time.monotonic() - renew if begin else 0
        while True:
            before = time.monotonic()
            begin = begin or before
            batch = next(batches, None)
            after = time.monotonic()
            if batch is None or (options.seconds and after - begin > options.seconds):
                break
            waits.append(after - before)
            trace.append((before, after))
            for _ in range(options.repeat):
                loss = torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
            if options.checkpoint_every and steps % options.checkpoint_every == 0:
                before = time.monotonic()
                save(model, optimizer, ballast, options.checkpoint)
                checkpoints += time.monotonic() - before
            batch = loss = None  # the cost of freeing it belongs to the step, not to the next wait
            end = time.monotonic()
    wall = end - begin
    if options.trace:
        with open(options.trace, "w", encoding="ascii") as file:
            json.dump(trace, file)
    return {"wall_s": wall, "steps": steps, "wait": sum(waits) / wall, "checkpoint": checkpoints / wall,
            "turnover": turnover / wall, "samples_per_s": steps * options.batch / wall}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="folder of files (default: samples from memory)")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=0, help="stop after this time, even if steps are left")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--persistent", action="store_true")
    parser.add_argument("--prep", type=int, default=0, help="transforms per sample, about 50 us each")
    parser.add_argument("--size", type=int, default=64 * 64 * 3, help="bytes per sample, for samples from memory")
    parser.add_argument("--width", type=int, default=8, help="channels of the model")
    parser.add_argument("--repeat", type=int, default=1, help="forward passes per step; more passes act as a slower device")
    parser.add_argument("--checkpoint", help="file to write")
    parser.add_argument("--checkpoint-every", type=int, default=0, help="steps")
    parser.add_argument("--checkpoint-mb", type=int, default=0, help="MiB in addition to the model")
    parser.add_argument("--trace", help="file for the start and the end of every wait (CLOCK_MONOTONIC)")
    print(json.dumps(train(parser.parse_args())), flush=True)


if __name__ == "__main__":
    main()
