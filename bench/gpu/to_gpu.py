# SPDX-License-Identifier: Apache-2.0
"""Brings samples as they are stored to the GPU, in batches, for some seconds after one epoch that is not counted.

    to_gpu.py WAY DATASET SAMPLE_BYTES SECONDS WORKERS [--standin]

slots: diesel_loader, device="cuda", no functions: CUDA reads the daemon's slots. workers: the same with a function in worker processes.
torch: PyTorch's DataLoader over single files, pin_memory, .to(non_blocking=True). pinned, pageable: one batch in such memory, copied
repeatedly, which shows the link's speed. Every batch is summed up on the device. Prints, as JSON, bytes, seconds, CPU seconds of this
process with its descendants, and the sum of one epoch."""
import argparse
import json
import os
import pathlib
import sys
import time

HERE = pathlib.Path(__file__).resolve()
sys.path[:0] = [str(HERE.parent.parent), str(HERE.parent.parent.parent / "tests/integration/loader")]
import torch
import torch.utils.data
from jobs import usage

BATCH = 64
OURS, THEIRS, LINK = ("slots", "workers"), ("torch",), ("pinned", "pageable")


class Files(torch.utils.data.Dataset):
    def __init__(self, folder):
        self.paths = sorted(os.path.join(root, name) for root, _, names in os.walk(folder) for name in names)

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        with open(self.paths[i], "rb") as file:
            return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)


def same(data):
    return data.clone()


class Loop:
    """An epoch is 20 copies of one batch."""

    def __init__(self, size, pinned):
        self.batch = torch.randint(0, 256, (BATCH, size), dtype=torch.uint8)
        self.batch = self.batch.pin_memory() if pinned else self.batch

    def __iter__(self):
        return (self.batch.to("cuda", non_blocking=True) for _ in range(20))


def ours(dataset, workers):
    import diesel_loader.torch
    options = {"transform": same, "num_workers": workers} if workers else {}
    loader = diesel_loader.torch.DataLoader(dataset, BATCH, shuffle=True, batches=diesel_loader.torch.Batches(device="cuda"), **options)
    return lambda: (data for data, _ in loader)


def theirs(folder, workers):
    loader = torch.utils.data.DataLoader(Files(folder), BATCH, shuffle=True, num_workers=workers, pin_memory=True, persistent_workers=True)
    return lambda: (batch.to("cuda", non_blocking=True) for batch in loader)


def epoch(batches, synchronize, late):
    """Returns (bytes, sum over them). late: a batch has arrived only after synchronize() (the stand-in has no streams)."""
    total, n_bytes = None, 0
    for data in batches:
        if late:
            synchronize()
        part = data.view(torch.int32).sum(dtype=torch.int64)
        total = part if total is None else total + part
        n_bytes += data.numel()
    synchronize()
    return n_bytes, int(total)


def measure(options, synchronize):
    if options.way in OURS:
        batches = ours(options.dataset, options.workers if options.way == "workers" else 0)
    elif options.way in THEIRS:
        batches = theirs(options.dataset, options.workers)
    else:
        loop = Loop(options.size, options.way == "pinned")
        batches = lambda: iter(loop)  # noqa: E731
    _, total = epoch(batches(), synchronize, options.standin)
    begin, cpu, n_bytes = time.perf_counter(), usage.cpu_of([os.getpid()]), 0
    while time.perf_counter() - begin < options.seconds:
        n_bytes += epoch(batches(), synchronize, options.standin)[0]
    return {"bytes": n_bytes, "seconds": time.perf_counter() - begin, "cpu_s": usage.cpu_of([os.getpid()]) - cpu,
            "sum": None if options.way in LINK else total}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=OURS + THEIRS + LINK)
    parser.add_argument("dataset")
    parser.add_argument("size", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("workers", type=int)
    parser.add_argument("--standin", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.standin:
        from standin_cuda import StandInCuda
        standin = StandInCuda(late=0)
        with standin.installed():
            done = measure(options, standin.synchronize)
    else:
        done = measure(options, torch.cuda.synchronize)
    print(json.dumps(done), flush=True)
    os._exit(0)  # a loader's processes may be in mid-epoch


if __name__ == "__main__":
    main()
