# SPDX-License-Identifier: Apache-2.0
"""Parts of the stock jobs: samples and a model that cost CPU time, and the plain training loop."""
import os
import pathlib
import time

import numpy
import torch
from torch.utils.data import Dataset

SIDE, CHANNELS, CLASSES = 64, 3, 10
VALUES = SIDE * SIDE * CHANNELS
BATCH = 8
SAMPLE_CPU_S = 0.004


def busy(values, cpu_s=SAMPLE_CPU_S):
    """Takes cpu_s of CPU time of this thread in NumPy, as a transform would."""
    end = time.thread_time() + cpu_s
    while time.thread_time() < end:
        values = 1 - numpy.abs(1 - 1.999 * numpy.sqrt(values * values))
    return values


class Memory(Dataset):
    """Samples from memory: no file is read."""

    def __init__(self, samples, cpu_s=SAMPLE_CPU_S):
        self.samples, self.cpu_s = samples, cpu_s
        self.values = numpy.random.default_rng(1).random((64, VALUES), dtype=numpy.float32)

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        values = busy(self.values[index % 64], self.cpu_s)
        return torch.from_numpy(values).reshape(CHANNELS, SIDE, SIDE), index % CLASSES


class Files(Dataset):
    """A file of random bytes per sample."""

    def __init__(self, folder, cpu_s=0.0):
        self.paths = sorted(str(path) for path in pathlib.Path(folder).rglob("*.bin"))
        self.cpu_s = cpu_s

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with open(self.paths[index], "rb") as file:
            data = numpy.frombuffer(file.read(), dtype=numpy.uint8)
        values = busy(data[:VALUES].astype(numpy.float32) / 255, self.cpu_s)
        return torch.from_numpy(values).reshape(CHANNELS, SIDE, SIDE), index % CLASSES


class Model(torch.nn.Module):
    """passes: forward passes per step, which set how slow the device is."""

    def __init__(self, passes=8, width=32):
        super().__init__()
        self.passes = passes
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(CHANNELS, width, 3, padding=1, stride=2), torch.nn.ReLU(),
            torch.nn.Conv2d(width, width, 3, padding=1, stride=2), torch.nn.ReLU(),
            torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(16 * width, CLASSES))

    def forward(self, images):
        return sum(self.layers(images) for _ in range(self.passes)) / self.passes


def optimizer_of(model):
    return torch.optim.SGD(model.parameters(), lr=0.01)


def train_step(model, optimizer, batch):
    loss = torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def train(clock, loader, model=None, batches=iter, after_step=None, after_epoch=None):
    """Runs epochs of the loader until the clock has enough steps. batches: clock.batches, where the loader is not PyTorch's."""
    model = Model() if model is None else model
    optimizer = optimizer_of(model)
    while True:
        for batch in batches(loader):
            train_step(model, optimizer, batch)
            del batch  # the cost of freeing it belongs to the step, not to the next wait
            if clock.step():
                return
            if after_step:
                after_step(model, optimizer)
        if after_epoch:
            after_epoch(model)


def random_files(folder, count, size=VALUES):
    """Makes class folders of random bytes, as raw samples."""
    for index in range(count):
        path = pathlib.Path(folder) / f"{index % CLASSES}" / f"{index:06d}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(size))
