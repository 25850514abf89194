# SPDX-License-Identifier: Apache-2.0
"""Reads a subset's samples from a cold disk: one epoch of each N-th sample of 400 MiB, shuffled, 4 KiB and 110 KB, and counts the bytes read from
storage.

Other ways are the whole dataset by the same loader, whose chunks are read whole, and PyTorch's DataLoader over the subset's files without
and with two workers. Before each epoch, the page, name and inode caches of the machine are dropped and dieseld is started again. The ways
alternate. Times run from the construction of the loader to the last batch, without imports. For bench_cache.py --subset.

    subset.py WAY FILES DATASET N       one epoch, in a process of its own
"""
import json
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import support
from jobs import apart, raw_peers
from serving import Daemon, pack

DATASET_BYTES = int(os.environ.get("DIESEL_BENCH_MIB", 400)) << 20
ROUNDS = int(os.environ.get("DIESEL_BENCH_ROUNDS", 3))
SIZES = [4096, 110_000]
EVERY = {4096: (1000, 200, 1), 110_000: (100, 20, 10, 1)}
BATCH = 16
WAYS = ("diesel", "torch-0", "torch-2")


def epoch(way, source, dataset, every):
    """Runs one epoch, and prints, as JSON, seconds, samples, and for diesel bytes read from storage."""
    import torch.utils.data

    import diesel_loader
    from diesel_loader.torch import DataLoader
    support.drop_caches()
    begin = time.perf_counter()
    if way == "diesel":
        part = diesel_loader.Dataset(dataset)
        loader = DataLoader(part[::every] if every > 1 else part, BATCH, shuffle=True, seed=1)
        n = sum(len(batch[0]) for batch in loader)
    else:
        files = raw_peers._Files(raw_peers.files(source)[::every])
        n = sum(len(batch) for batch in torch.utils.data.DataLoader(files, BATCH, shuffle=True, collate_fn=raw_peers.join,
                                                                    num_workers=int(way.partition("-")[2])))
    done = {"seconds": time.perf_counter() - begin, "samples": n}
    if way == "diesel":
        done["read_bytes"] = sum(job["read_bytes"] for job in diesel_loader.status()["jobs"])
    print(json.dumps(done), flush=True)


def measure(folder, size, raw):
    source = folder / "files"
    support.random_files(source, DATASET_BYTES // size, size)
    dataset = pack(source, folder / "packed")
    for k in range(ROUNDS):
        for every in EVERY[size]:
            for way in WAYS if every > 1 else WAYS[:1]:
                argv = [sys.executable, __file__, way, source, dataset, every]
                with support.Steal() as steal:
                    if way == "diesel":
                        with Daemon(folder, "--cache", "1G", "--metrics", "off"):
                            done = apart.run(argv)
                    else:
                        done = apart.run(argv)
                raw.append({"way": way, "size": size, "every": every, "round": k, "steal": steal.ratio, **done})


def figures_of(raw, size):
    figures = {}
    for every in EVERY[size]:
        rows = {way: [r for r in raw if (r["way"], r["size"], r["every"]) == (way, size, every)] for way in WAYS}
        for way in WAYS if every > 1 else WAYS[:1]:
            figures[f"{way.replace('-', '_')}_s_{size}_{every}"] = support.median(r["seconds"] for r in rows[way])
        figures[f"read_mib_{size}_{every}"] = support.median(r["read_bytes"] for r in rows["diesel"]) / (1 << 20)
    return figures


def run(sizes=SIZES):
    """Measures, and writes the result."""
    raw, figures = [], {}
    if os.geteuid() != 0:
        support.skip("dropping the caches for cold runs needs root")
    for size in sizes:
        with support.Scratch() as folder:
            measure(folder, size, raw)
        figures |= figures_of(raw, size)
    support.result_write("subset", raw, **figures)


if __name__ == "__main__":
    epoch(*sys.argv[1:4], int(sys.argv[4]))
