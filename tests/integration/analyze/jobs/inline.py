# SPDX-License-Identifier: Apache-2.0
"""Jobs whose trainer loads its data itself and reads no file for it, or does no backward pass: inline.py SHAPE.

The jobs do not use DIESEL; the clock is train.py's. Samples of `memory` are made by computing or by sleeping, and those
of `mapped` are slices of a mapped file. `shard` requests each batch one step ahead, as accelerate's DataLoaderShard
does, and with it Hugging Face's Trainer. `infer` computes under no_grad.
"""
import argparse
import os
import tempfile
import time

import numpy
import torch
from torch.utils.data import DataLoader, Dataset

import convert_frame
import train

COMPILING_S = 0.6
SAMPLE = 3 * train.SIDE * train.SIDE


class Memory(Dataset):
    def __init__(self, options):
        self.options = options
        self.images = torch.rand(16, 3, train.SIDE, train.SIDE)

    def __len__(self):
        return self.options.steps * self.options.batch // self.options.epochs

    def __getitem__(self, index):
        train.hold(self.options.prep_ms / 1000)
        time.sleep(self.options.sleep_ms / 1000)
        return self.images[index % len(self.images)], index % 10


class Mapped(Memory):
    """One large mapped file, like Arrow tables. A sample costs computing on its pages."""

    def __init__(self, options):
        super().__init__(options)
        with tempfile.NamedTemporaryFile(delete=False) as file:
            file.write(os.urandom(SAMPLE * 256))
        self.bytes = numpy.memmap(file.name, dtype=numpy.uint8, mode="r").reshape(256, SAMPLE)
        os.unlink(file.name)

    def __getitem__(self, index):
        train.compute(self.options.prep_ms / 1000)
        image = self.bytes[index % 256].astype(numpy.float32) / 255
        return torch.from_numpy(image).reshape(3, train.SIDE, train.SIDE), index % 10


class Shard(DataLoader):
    """A loader whose next() requests the batch after the one that it returns."""

    def __iter__(self):
        batches = super().__iter__()
        ahead = next(batches)
        while True:
            try:
                batch, ahead = ahead, next(batches)
            except StopIteration:
                yield ahead
                return
            yield batch


def infer(options, loader, clock):
    model = train.Model()
    model.eval()
    for _ in range(options.epochs):
        batches = iter(loader)
        while True:
            clock.begin()
            batch = next(batches, None)
            clock.end()
            if batch is None:
                break
            with torch.no_grad():
                model(batch[0])
            train.compute(options.step_ms / 1000)
            clock.step()


def own_loop(options, clock):
    """No DataLoader and no file: from outside, loading cannot be distinguished from computing."""
    samples = Memory(options)

    def batches():
        for first in range(0, len(samples), options.batch):
            yield torch.utils.data.default_collate([samples[first + i] for i in range(options.batch)])

    train.train(options, batches, clock)


def interrupted(options, loader, samples, clock):
    """Three epochs, with a validation pass before the second one and compiling before the third."""
    held_out = DataLoader(samples, batch_size=options.batch, sampler=range(10 * options.batch))
    model = train.Model()
    before = [lambda: None, lambda: [model(images) for images, _ in held_out],
              lambda: convert_frame.compile_frame(COMPILING_S)]

    def epoch():
        with torch.no_grad():
            before.pop(0)()
        return loader

    train.train(options, epoch, clock)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shape", choices=("memory", "mapped", "shard", "infer", "own", "interrupted"))
    parser.add_argument("--data", help="not used")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--prep-ms", type=float, default=2, help="a sample")
    parser.add_argument("--sleep-ms", type=float, default=0, help="a sample")
    parser.add_argument("--step-ms", type=float, default=8)
    return parser.parse_args()


def main():
    options = parse()
    torch.set_num_threads(1)
    clock = train.Clock()
    kind = Shard if options.shape == "shard" else DataLoader
    samples = Mapped(options) if options.shape == "mapped" else Memory(options)
    loader = kind(samples, batch_size=options.batch, num_workers=options.workers)
    if options.shape == "infer":
        infer(options, loader, clock)
    elif options.shape == "interrupted":
        interrupted(options, loader, samples, clock)
    elif options.shape == "own":
        own_loop(options, clock)
    else:
        train.train(options, lambda: loader, clock)
    train.report(argparse.Namespace(trace=None), clock)


if __name__ == "__main__":
    main()
