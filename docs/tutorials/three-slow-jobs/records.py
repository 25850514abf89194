# SPDX-License-Identifier: Apache-2.0
"""A training job that reads small records at random from one LMDB file.

    python3 records.py FILE [--no-readahead] [--steps N]

--no-readahead is the fix: the kernel then reads the pages of a record and not their neighbours.
"""
import argparse
import time

import lmdb
import numpy
import torch
from torch import nn

FEATURES = 768  # float32 values of a record: 3 KiB


class Records(torch.utils.data.Dataset):
    def __init__(self, path, readahead):
        self.path, self.readahead, self.table = path, readahead, None
        with lmdb.open(path, subdir=False, readonly=True, lock=False) as table:
            self.n_records = table.stat()["entries"]

    def __len__(self):
        return self.n_records

    def __getitem__(self, index):
        if self.table is None:  # each worker opens the file once
            self.table = lmdb.open(self.path, subdir=False, readonly=True, lock=False, readahead=self.readahead)
        with self.table.begin(buffers=True) as transaction:
            record = transaction.get(b"%08d" % index)
            return torch.from_numpy(numpy.frombuffer(record, dtype=numpy.float32).copy()), index % 10


def make(path, n_records):
    rng = numpy.random.default_rng(1)
    with lmdb.open(path, subdir=False, map_size=n_records * 8192 + (1 << 20)) as table:
        for begin in range(0, n_records, 1000):
            with table.begin(write=True) as transaction:
                for index in range(begin, min(begin + 1000, n_records)):
                    transaction.put(b"%08d" % index, rng.standard_normal(FEATURES, dtype=numpy.float32).tobytes())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("--make", type=int, metavar="RECORDS", help="make a file of this many records instead of training")
    parser.add_argument("--no-readahead", action="store_true")
    parser.add_argument("--steps", type=int, default=150)
    args = parser.parse_args()
    if args.make:
        make(args.path, args.make)
        return
    torch.manual_seed(1)
    torch.set_num_threads(1)
    loader = torch.utils.data.DataLoader(Records(args.path, not args.no_readahead), batch_size=32, shuffle=True,
                                         num_workers=2)
    model = nn.Sequential(nn.Linear(FEATURES, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(),
                          nn.Linear(1024, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    n_samples, begin = 0, None
    for features, labels in loader:
        begin = begin or time.perf_counter()
        loss = nn.functional.cross_entropy(model(features), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        n_samples += len(labels)
        if n_samples == 32 * args.steps:
            break
    print(f"{(n_samples - 32) / (time.perf_counter() - begin):.1f} samples/s")


if __name__ == "__main__":
    main()
