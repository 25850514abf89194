# SPDX-License-Identifier: Apache-2.0
"""PyTorch training scripts that load data in three ways, to measure the cost of recording them. They do not use DIESEL.

jpeg: photographs decoded and cropped by PIL in DataLoader workers. reads: samples put together from small records of a
big file. A worker reads each record and checks its checksum, 100,000 records per second. threads: 63 threads of a pool read files and prepare
samples for the trainer, which is the 64th.

Each runs for --seconds and writes when each step began (CLOCK_MONOTONIC) as JSON to --trace.
"""
import argparse
import concurrent.futures
import hashlib
import io
import json
import os
import pathlib
import time

import numpy
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

READ_BYTES, USED_BYTES, READS_PER_SAMPLE = 4096, 48, 256
POOL_THREADS = 63
CROP = 112


class Photos(Dataset):
    def __init__(self, folder):
        self.paths = sorted(pathlib.Path(folder).rglob("*.jpg"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with open(self.paths[index], "rb") as file:
            with Image.open(io.BytesIO(file.read())) as image:
                photo = image.convert("RGB")
        left, top = (int(x) for x in numpy.random.randint(0, 100, 2))
        crop = photo.crop((left, top, left + 250, top + 250)).resize((CROP, CROP))
        return torch.from_numpy(numpy.asarray(crop).copy()).permute(2, 0, 1).float() / 255, index % 10


class Records(Dataset):
    """Records whose parts are far apart in one big file."""

    def __init__(self, path, samples):
        self.path, self.samples, self.fd = path, samples, None
        self.n_parts = os.path.getsize(path) // READ_BYTES

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        if self.fd is None:
            self.fd = os.open(self.path, os.O_RDONLY)
        parts = numpy.random.randint(0, self.n_parts, READS_PER_SAMPLE).tolist()
        pieces, checksum = [], 0
        for part in parts:
            record = os.pread(self.fd, READ_BYTES, part * READ_BYTES)
            checksum ^= hashlib.blake2b(record, digest_size=8).digest()[0]
            pieces.append(record[:USED_BYTES])
        data = b"".join(pieces)
        return torch.from_numpy(numpy.frombuffer(data, dtype=numpy.uint8)[:12288].copy()).reshape(3, 64, 64), checksum % 10


def model_of(width):
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, width, 3, padding=1, stride=2), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(16 * width, 10))


def endless(loader):
    while True:
        yield from loader


def pooled(folder):
    """Yields batches from a pool of threads: 63 samples each, one batch ahead."""
    paths = sorted(pathlib.Path(folder).rglob("*.bin"))

    def sample(index):
        values = numpy.frombuffer(paths[index % len(paths)].read_bytes(), dtype=numpy.uint8)[:12288]
        return torch.from_numpy(numpy.sqrt(values.astype(numpy.float32))).reshape(3, 64, 64)

    with concurrent.futures.ThreadPoolExecutor(POOL_THREADS) as pool:
        at, ahead = 0, None
        while True:
            batch = [pool.submit(sample, at + i) for i in range(POOL_THREADS)]
            at += POOL_THREADS
            if ahead:
                yield torch.stack([future.result() for future in ahead]), torch.arange(POOL_THREADS) % 10
            ahead = batch


def batches_of(options):
    if options.kind == "jpeg":
        return endless(DataLoader(Photos(options.data), batch_size=16, shuffle=True, num_workers=2))
    if options.kind == "reads":
        return endless(DataLoader(Records(options.data, 1_000_000), batch_size=16, num_workers=1))
    return pooled(options.data)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=("jpeg", "reads", "threads"))
    parser.add_argument("--data", required=True, help="folder of files; for `reads` the big file")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--trace", required=True)
    options = parser.parse_args()
    model = model_of(8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    begins, end = [], time.monotonic() + options.seconds
    for images, labels in batches_of(options):
        begins.append(time.monotonic())
        if begins[-1] > end:
            break
        loss = torch.nn.functional.cross_entropy(model(images.float()), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with open(options.trace, "w", encoding="ascii") as file:
        json.dump(begins, file)


if __name__ == "__main__":
    main()
