# SPDX-License-Identifier: Apache-2.0
"""Small files: diesel_loader against PyTorch's DataLoader over the raw files, cold and warm, in one run.

100,000 files of 4 KiB of random bytes in class folders, shuffled, batch 256, every byte read by the consumer. The peer runs the fastest
code we know, without an image library: one os.read per file, and one join and one frombuffer per batch. The better of 0 and 2 workers
counts. Cold: page, name and inode caches of the machine dropped, dieseld restarted. Warm: the second and later epochs of the same loader.
Times run from the construction of the loader to the last batch, so start-up counts; modules are loaded before.

The sums over all bytes of both must agree, so that no loader wins by reading less.
"""
import argparse
import os
import time

import numpy
import support
import torch
import torch.utils.data
from serving import Daemon, pack

import diesel_loader.torch

N_FILES = int(os.environ.get("DIESEL_BENCH_FILES", 100_000))
FILE_BYTES = 4096
BATCH = 256
ROUNDS = int(os.environ.get("DIESEL_BENCH_ROUNDS", 3))
BUDGET = 1 << 30
SMALL_BUDGET = 128 << 20  # a cache smaller than the dataset
SLACK = 64 << 20


class Files(torch.utils.data.Dataset):
    def __init__(self, paths):
        classes = {name: i for i, name in enumerate(sorted({path.parent.name for path in paths}))}
        self.paths = [os.fspath(path) for path in paths]
        self.labels = [classes[path.parent.name] for path in paths]

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        fd = os.open(self.paths[i], os.O_RDONLY)
        data = os.read(fd, FILE_BYTES)
        os.close(fd)
        return data, self.labels[i]


def collate(samples):
    data = torch.frombuffer(bytearray(b"".join(sample[0] for sample in samples)), dtype=torch.uint8)
    return data.view(len(samples), FILE_BYTES), torch.tensor([sample[1] for sample in samples])


def epoch(make_loader):
    """Returns (seconds, seconds to the first batch, sum over all bytes) of one epoch."""
    start, first, total = time.perf_counter(), None, 0
    for data, labels in make_loader():
        first = first or time.perf_counter() - start
        total += int(data.numpy().view(numpy.uint64).sum()) + int(labels.sum())
    return time.perf_counter() - start, first, total % (1 << 64)


def torch_loader(files, workers):
    return torch.utils.data.DataLoader(files, batch_size=BATCH, shuffle=True, collate_fn=collate,
                                       num_workers=workers)


def measure(raw, name, phase, make_loader, before=lambda: None):
    for attempt in range(3):
        before()
        with support.Steal() as steal:
            seconds, first, total = epoch(make_loader)
        if not steal.burst:
            break
    raw.append({"loader": name, "phase": phase, "seconds": seconds, "first_batch_s": first, "sum": total,
                "samples_per_s": N_FILES / seconds, "steal": steal.ratio})
    print(f"  {phase:5} {name:10} {N_FILES / seconds:10.0f} samples/s, first batch {first * 1e3:6.0f} ms", flush=True)


def diesel_round(raw, scratch, dataset):
    """Runs a cold epoch on a new daemon, then warm ones of the same loader."""
    support.drop_caches()
    with Daemon(scratch, "--cache", BUDGET) as daemon:
        loaders = []

        def cold():
            loaders.append(diesel_loader.torch.DataLoader(dataset, batch_size=BATCH, shuffle=True, seed=1))
            return loaders[0]

        measure(raw, "diesel", "cold", cold, before=loaders.clear)
        for _ in range(2):
            measure(raw, "diesel", "warm", lambda: loaders[0])
        cpu_s = daemon.cpu_s()
        loaders.clear()
    raw.append({"loader": "diesel", "phase": "memory", "peak_rss_bytes": daemon.peak_rss_bytes, "cpu_s": cpu_s})


def small_budget_round(raw, scratch, dataset):
    """Runs one epoch with a cache smaller than the dataset, and returns the daemon's resident memory."""
    with Daemon(scratch, "--cache", SMALL_BUDGET) as daemon:
        loader = diesel_loader.torch.DataLoader(dataset, batch_size=BATCH, shuffle=True, seed=1)
        measure(raw, "diesel", "small", lambda: loader)
    raw.append({"loader": "diesel", "phase": "small_memory", "peak_rss_bytes": daemon.peak_rss_bytes})


def torch_round(raw, files, workers):
    name = f"torch-{workers}"
    measure(raw, name, "cold", lambda: torch_loader(files, workers), before=support.drop_caches)
    for _ in range(2):
        measure(raw, name, "warm", lambda: torch_loader(files, workers))


def rate(raw, name, phase):
    return support.median([r["samples_per_s"] for r in raw if (r["loader"], r["phase"]) == (name, phase)])


def main():
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    if os.geteuid() != 0:
        support.skip("dropping the caches for the cold runs needs root")
    raw = []
    with support.Scratch() as scratch:
        paths = support.random_files(scratch / "raw", N_FILES, FILE_BYTES)
        dataset = pack(scratch / "raw", scratch / "packed")
        files = Files(paths)
        for _ in range(ROUNDS):
            diesel_round(raw, scratch, dataset)
            for workers in (0, 2):
                torch_round(raw, files, workers)
        small_budget_round(raw, scratch, dataset)
    sums = {r["sum"] for r in raw if "sum" in r}
    if len(sums) != 1:
        raise SystemExit(f"the loaders did not read the same bytes: sums {sums}")
    figures = {}
    for phase in ("cold", "warm"):
        peer = max(rate(raw, "torch-0", phase), rate(raw, "torch-2", phase))
        figures[f"{phase}_ratio"] = rate(raw, "diesel", phase) / peer
        figures[f"{phase}_samples_per_s"] = rate(raw, "diesel", phase)
        figures[f"{phase}_torch_samples_per_s"] = peer
    figures["first_batch_s"] = support.median([r["first_batch_s"] for r in raw
                                               if (r["loader"], r["phase"]) == ("diesel", "cold")])
    peak = max(r["peak_rss_bytes"] for r in raw if r["phase"] == "memory")
    figures["budget_mib"], figures["peak_rss_mib"] = BUDGET >> 20, peak / (1 << 20)
    small = raw[-1]["peak_rss_bytes"]
    figures["small_budget_mib"], figures["small_peak_rss_mib"] = SMALL_BUDGET >> 20, small / (1 << 20)
    figures["memory_within_budget"] = int(peak <= BUDGET + SLACK and small <= SMALL_BUDGET + SLACK)
    support.result_write("loader", raw, **figures)


if __name__ == "__main__":
    main()
