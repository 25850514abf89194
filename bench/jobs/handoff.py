# SPDX-License-Identifier: Apache-2.0
"""Passes arrays of 32 MiB from one worker process to the trainer in one way: `handoff.py WAY DATASET N` prints JSON.

The worker makes each array by the same call, so that its pages are written there, and the trainer reads a value of every page. Ways:

    diesel        a transform in a worker of diesel_loader
    torch         a worker of PyTorch's DataLoader: its queue, and a file in /dev/shm for each tensor
    spdl          iterate_in_subprocess with a pool of shared-memory segments
    spdl-queue    the same without a pool"""
import importlib.metadata
import json
import multiprocessing
import resource
import sys
import time

import numpy
import torch
import torch.utils.data

BYTES = 32 << 20
PAGE = 4096
AHEAD = 3


def array(i):
    return torch.from_numpy(numpy.full(BYTES, i % 251, dtype=numpy.uint8))


class Arrays(torch.utils.data.Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return array(i)


def number_of(data):
    return array(int.from_bytes(bytes(data.tolist()), "little"))


def first(samples):
    return samples[0][0]


def diesel(dataset, n):
    import diesel_loader.torch
    decode = diesel_loader.torch.Decode(loader=number_of, random_state=None)
    return diesel_loader.torch.DataLoader(dataset, 1, decode=decode, collate_fn=first, num_workers=1, prefetch_factor=AHEAD)


def pytorch(dataset, n):
    return torch.utils.data.DataLoader(Arrays(n), None, num_workers=1, prefetch_factor=AHEAD, persistent_workers=True)


class Source:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return map(array, range(self.n))


def spdl(dataset, n, arena=True):
    import functools

    from spdl.pipeline import SharedMemorySegmentPool, iterate_in_subprocess
    multiprocessing.set_start_method("spawn")  # its pool takes its locks from the default start method
    pool = SharedMemorySegmentPool(BYTES + (1 << 20), AHEAD + 2) if arena else None
    return iterate_in_subprocess(functools.partial(Source, n), buffer_size=AHEAD, arena=pool)


def spdl_queue(dataset, n):
    return spdl(dataset, n, arena=False)


WAYS = {"diesel": diesel, "torch": pytorch, "spdl": spdl, "spdl-queue": spdl_queue}


def epoch(loader, n):
    seen = []
    cpu, own, start = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.perf_counter()
    for data in loader:
        pages = data[::PAGE]
        if int(pages.max()) != int(pages.min()):
            raise SystemExit("an array does not repeat one number")
        seen.append(int(pages[0]))
    seconds = time.perf_counter() - start
    if sorted(seen) != sorted(i % 251 for i in range(n)):
        raise SystemExit(f"other arrays arrived than were made: {seen}")
    return {"mb_per_s": n * BYTES / 1e6 / seconds, "trainer_cpu_s": time.process_time() - cpu, "seconds": seconds,
            "faults": resource.getrusage(resource.RUSAGE_SELF).ru_minflt - own}


def main():
    torch.set_num_threads(1)
    way, dataset, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
    loader = WAYS[way](dataset, n)
    epoch(loader, n)  # not counted: this epoch makes processes and memory
    versions = {name: importlib.metadata.version(name) for name in ("torch", "spdl")}
    print(json.dumps({**epoch(loader, n), **versions}), flush=True)
    del loader  # ends its processes and removes named memory; SPDL's stay at the end of the process


if __name__ == "__main__":
    main()
