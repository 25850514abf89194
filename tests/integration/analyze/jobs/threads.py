# SPDX-License-Identifier: Apache-2.0
"""Training with threads of its own process as loaders: `python`, a ThreadPoolExecutor, or the path of libloader_pool.so, whose threads do
not use Python."""
import collections
import concurrent.futures
import ctypes
import json
import sys

import torch

import train


class Futures:
    """Yields batches in order, a few ahead."""

    def __init__(self, options, ahead=4):
        self.samples, self.options, self.ahead = train.Samples(options), options, ahead

    def load(self, batch):
        first = batch * self.options.batch
        images, labels = zip(*(self.samples[i] for i in range(first, first + self.options.batch)))
        return torch.stack(images), torch.tensor(labels)

    def __iter__(self):
        with concurrent.futures.ThreadPoolExecutor(self.options.workers) as pool:
            pending = collections.deque()
            for batch in range(self.options.steps):
                pending.append(pool.submit(self.load, batch))
                if len(pending) == self.ahead:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()


class Native:
    def __init__(self, options, path):
        self.options, self.library = options, ctypes.CDLL(path)
        self.library.loader_pool_open.restype = ctypes.c_void_p
        self.library.loader_pool_open.argtypes = [ctypes.c_char_p, ctypes.c_uint, ctypes.c_uint, ctypes.c_uint,
                                                  ctypes.c_uint64]
        self.library.loader_pool_next.argtypes = self.library.loader_pool_close.argtypes = [ctypes.c_void_p]

    def __iter__(self):
        options = self.options
        pool = self.library.loader_pool_open(options.data.encode(), options.workers, options.steps, options.batch,
                                             int(options.prep_ms * 1e6))
        images = torch.rand(options.batch, 3, train.SIDE, train.SIDE)
        labels = torch.arange(options.batch) % 10
        while self.library.loader_pool_next(pool):
            yield images, labels
        self.library.loader_pool_close(pool)


def main():
    options = train.parse(sys.argv[2:])
    torch.set_num_threads(1)
    loader = Futures(options) if sys.argv[1] == "python" else Native(options, sys.argv[1])
    clock = train.Clock()
    train.train(options, lambda: loader, clock)
    train.report(options, clock)


if __name__ == "__main__":
    main()
