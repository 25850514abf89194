# SPDX-License-Identifier: Apache-2.0
"""Python transforms in worker processes: diesel_loader against PyTorch's DataLoader, by number of workers.

Both have the same files (16 KiB of random bytes), the same transform, batches of 64, persistent workers and a warm page cache. They run one
epoch after one that is not counted. There are two transforms. `cheap` makes 16,384 floats of the bytes (a batch is 4 MiB), so that the cost
of the hand-off shows. `dear` also hashes them for about half a millisecond, so that the use of workers shows. `trainer` is the CPU time of
the trainer's process per batch: its own hand-off, as the consumer only reads one number.

The sums over all batches of both must agree. With another Python than the distribution's (DIESEL_PYTHON), the figures go to
workers-torch-VERSION.json.
"""
import argparse
import hashlib
import itertools
import os
import sys
import time

import support
import torch
import torch.utils.data
from serving import Daemon, pack

import diesel_loader.torch

N_FILES = int(os.environ.get("DIESEL_BENCH_FILES", 3000))
ROUNDS = int(os.environ.get("DIESEL_BENCH_ROUNDS", 2))
FILE_BYTES, BATCH, WORKERS = 16384, 64, (0, 1, 2, 4)


def cheap(data):
    return data.to(torch.float32).div_(255)


def dear(data):
    buffer = memoryview(data.numpy())
    for _ in range(16):
        hashlib.blake2b(buffer)
    return cheap(data)


class Files(torch.utils.data.Dataset):
    def __init__(self, paths, transform):
        self.paths, self.transform = [os.fspath(path) for path in paths], transform

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        with open(self.paths[i], "rb", buffering=0) as f:
            data = bytearray(f.read())
        return self.transform(torch.frombuffer(data, dtype=torch.uint8)), 0


def epoch(loader):
    """Runs one epoch in which every float is read. trainer: CPU seconds of this process per batch."""
    total, n, cpu, start = 0, 0, time.process_time(), time.perf_counter()
    for data, _ in loader:
        data.sum()
        total += int((data[:, 0] * 255).round().sum())
        n += 1
    seconds = time.perf_counter() - start
    return {"samples_per_s": N_FILES / seconds, "trainer_s": (time.process_time() - cpu) / n, "sum": total}


def ours(dataset, transform, workers):
    loader = diesel_loader.torch.DataLoader(dataset, BATCH, transform=transform, num_workers=workers,
                                            decode=diesel_loader.torch.Decode(random_state=None))
    for _ in loader:
        pass
    work = loader._stream.work
    before = work.handoff_ns, work.worker_handoff_ns, work.n_handoffs
    result = epoch(loader)
    n = max(1, work.n_handoffs - before[2])
    result["handoff_s"] = (work.handoff_ns - before[0]) / n / 1e9
    result["worker_s"] = (work.worker_handoff_ns - before[1]) / n / 1e9
    loader.close()
    return result


def pytorchs(paths, transform, workers):
    loader = torch.utils.data.DataLoader(Files(paths, transform), BATCH, num_workers=workers,
                                         persistent_workers=workers > 0)
    for _ in loader:
        pass
    return epoch(loader)


def best(raw, loader, transform, workers):
    return max((r for r in raw if (r["loader"], r["transform"], r["workers"]) == (loader, transform, workers)),
               key=lambda r: r["samples_per_s"])


def measure(raw, folder, paths):
    dataset = pack(folder / "raw", folder / "packed", "--order", "source")
    with Daemon(folder):
        for transform, workers in itertools.product((cheap, dear), WORKERS):
            where = {"transform": transform.__name__, "workers": workers}
            for _ in range(ROUNDS):
                raw.append({"loader": "diesel", **where, **ours(dataset, transform, workers)})
                raw.append({"loader": "torch", **where, **pytorchs(paths, transform, workers)})
            report(*where.values(), best(raw, "diesel", *where.values()), best(raw, "torch", *where.values()))


def report(transform, workers, mine, peer):
    print(f"{transform:5} {workers} workers: diesel {mine['samples_per_s']:7.0f} samples/s, trainer "
          f"{mine['trainer_s'] * 1e6:6.0f} us per batch (hand-off {mine['handoff_s'] * 1e6:4.0f}, in the worker "
          f"{mine['worker_s'] * 1e6:4.0f}); PyTorch {peer['samples_per_s']:7.0f}, trainer "
          f"{peer['trainer_s'] * 1e6:6.0f}", flush=True)


def main():
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    torch.set_num_threads(1)
    raw, figures = [], {}
    with support.Scratch() as folder:
        measure(raw, folder, support.random_files(folder / "raw", N_FILES, FILE_BYTES))
    if len({r["sum"] for r in raw}) != 1:
        raise SystemExit("the loaders did not read the same bytes")
    for transform, workers in itertools.product(("cheap", "dear"), WORKERS):
        mine, peer = best(raw, "diesel", transform, workers), best(raw, "torch", transform, workers)
        figures[f"{transform}_{workers}_ratio"] = mine["samples_per_s"] / peer["samples_per_s"]
    figures["handoff_us"] = best(raw, "diesel", "cheap", 1)["handoff_s"] * 1e6
    figures["worker_handoff_us"] = best(raw, "diesel", "cheap", 1)["worker_s"] * 1e6
    ours = os.path.samefile(sys.prefix, "/usr")
    support.result_write("workers" if ours else f"workers-torch-{torch.__version__.split('+')[0]}", raw,
                         torch=torch.__version__, **figures)


if __name__ == "__main__":
    main()
