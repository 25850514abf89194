# SPDX-License-Identifier: Apache-2.0
"""A training loop that reads its samples in the way of one of several real loaders: shape_job.py SHAPE SOURCE [WORKERS].

It does not use the recorder. Its own clock is the ground truth. At the end it prints one JSON line with the time in reads,
in decoding and in the rest of the steps, from the first batch to the last step.
"""
import contextlib
import ctypes
import json
import os
import resource
import sys
import time

import numpy
import torch

STEPS, BATCH = 40, 4
SAMPLE = 32768


class Files:
    """One file per sample, in a local folder or a FUSE mount."""

    def __init__(self, source):
        self.paths = [os.path.join(source, name) for name in sorted(os.listdir(source))]

    def __len__(self):
        return len(self.paths)

    def read(self, index):
        with open(self.paths[index], "rb", buffering=0) as file:
            return file.read()


class Lmdb:
    def __init__(self, source):
        import lmdb
        self.environment = lmdb.open(source, readonly=True, lock=False, readahead=False)
        self.count = self.environment.stat()["entries"]

    def __len__(self):
        return self.count

    def read(self, index):
        with self.environment.begin(buffers=True) as transaction:
            return bytes(transaction.get(b"%08d" % index))


class Hdf5:
    def __init__(self, source):
        import h5py
        self.data = h5py.File(source, "r")["data"]

    def __len__(self):
        return self.data.shape[0]

    def read(self, index):
        return self.data[index].tobytes()


class Http:
    """A new connection per sample, like plain urllib."""

    def __init__(self, source):
        import urllib.request
        self.open, (self.url, count) = urllib.request.urlopen, source.split(",")
        self.count = int(count)

    def __len__(self):
        return self.count

    def read(self, index):
        with self.open("%s/%d" % (self.url, index)) as answer:
            return answer.read()


class Session:
    """One persistent connection, like requests."""

    def __init__(self, source):
        import requests
        self.url, count = source.split(",")
        self.count, self.session = int(count), requests.Session()

    def __len__(self):
        return self.count

    def read(self, index):
        return self.session.get("%s/%d" % (self.url, index)).content


class Direct:
    """pread() that bypasses the page cache."""

    def __init__(self, source):
        import mmap
        self.fd = os.open(source, os.O_RDONLY | os.O_DIRECT)
        self.count = os.fstat(self.fd).st_size // SAMPLE
        self.buffer = mmap.mmap(-1, SAMPLE)

    def __len__(self):
        return self.count

    def read(self, index):
        os.preadv(self.fd, [self.buffer], index * SAMPLE)
        return self.buffer[:]


class Ring:
    MODES = {"uring": (0, 0), "sqpoll": (1, 0), "async": (2, 0), "uring-direct": (0, 1)}

    def __init__(self, source):
        self.library = ctypes.CDLL(os.environ["RING_READER"])
        self.library.ring_reader_open.restype = ctypes.c_void_p
        self.library.ring_reader_read.restype = ctypes.c_int64
        self.library.ring_reader_read.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_char_p]
        self.reader = self.library.ring_reader_open(source.encode(), *self.MODES[sys.argv[1]])
        if not self.reader:
            sys.exit(77)
        self.count = os.stat(source).st_size // SAMPLE
        self.buffer = ctypes.create_string_buffer(SAMPLE)

    def __len__(self):
        return self.count

    def read(self, index):
        if self.library.ring_reader_read(self.reader, index * SAMPLE, SAMPLE, self.buffer) != SAMPLE:
            raise OSError("short read")
        return self.buffer.raw


SHAPES = {"files": Files, "lmdb": Lmdb, "hdf5": Hdf5, "http": Http, "session": Session, "direct": Direct,
          **{mode: Ring for mode in Ring.MODES}}


def decode(data):
    """Decodes for about a millisecond, in numpy."""
    values = numpy.frombuffer(data, dtype=numpy.uint8)[:12288].astype(numpy.float32) / 255
    for _ in range(60):
        values = numpy.sqrt(values * values + 1) - 0.5
    return torch.from_numpy(values)


class Samples(torch.utils.data.Dataset):
    """A dataset for DataLoader: each worker opens the source itself."""

    def __init__(self, shape, source):
        self.shape, self.source, self.reader, self.count = shape, source, None, len(SHAPES[shape](source))

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if not self.reader:
            self.reader = SHAPES[self.shape](self.source)
        return decode(self.reader.read(index))


def voluntary_switches():
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


class Inline:
    """Batches that the trainer reads itself, with a clock around each read, and a count of the sleeps in it."""

    def __init__(self, shape, source, order):
        self.reader, self.order, self.fetch_s = SHAPES[shape](source), order, 0.0
        self.sleeps = 0

    def __iter__(self):
        for at in range(0, len(self.order), BATCH):
            samples = []
            for index in self.order[at:at + BATCH]:
                sleeps, begin = voluntary_switches(), time.perf_counter()
                data = self.reader.read(index)
                self.fetch_s += time.perf_counter() - begin
                self.sleeps += voluntary_switches() - sleeps
                samples.append(decode(data))
            yield torch.stack(samples)


def warm_up(model):
    """Loads the parts of libraries that a first batch would load, which takes long with a cold page cache."""
    data = bytes(SAMPLE)
    with torch.no_grad():
        model(torch.stack([decode(data), decode(data)]))


def slow_down():
    """Makes reading from here on as slow as the group that READING_GROUP names."""
    if group := os.environ.get("READING_GROUP"):
        with open(group, "w", encoding="ascii") as procs:
            procs.write(str(os.getpid()))


def main():
    shape, source, workers = sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 0
    torch.set_num_threads(1)
    with contextlib.suppress(AttributeError, OSError):  # OpenBLAS's other threads would spin
        ctypes.CDLL("libblas.so.3").openblas_set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(12288, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64))
    samples = Samples(shape, source)
    warm_up(model)
    slow_down()
    order = numpy.random.default_rng(7).permutation(len(samples))[:STEPS * BATCH].tolist()
    if workers:
        batches = torch.utils.data.DataLoader(samples, batch_size=BATCH, sampler=order, num_workers=workers)
    else:
        batches = Inline(shape, source, order)
    iterator = iter(batches)
    begin, wait_s = time.perf_counter(), 0.0
    for _ in range(len(order) // BATCH):
        asked = time.perf_counter()
        batch = next(iterator)
        wait_s += time.perf_counter() - asked
        model(batch).square().mean().backward()
        model.zero_grad()
    wall_s = time.perf_counter() - begin
    print(json.dumps({"wait": wait_s / wall_s, "fetch": getattr(batches, "fetch_s", 0) / wall_s, "wall_s": wall_s,
                      "sleeps": getattr(batches, "sleeps", 0)}),
          flush=True)


if __name__ == "__main__":
    main()
