# SPDX-License-Identifier: Apache-2.0
"""A subset's samples from a cold disk: one epoch of each N-th sample of 400 MiB, shuffled, 4 KiB and 110 KB; what is read from storage for it.

Against the whole dataset by the same loader, whose chunks are read whole, and PyTorch's DataLoader over the subset's files without
and with two workers. Page, name and inode caches of the machine are dropped before each epoch, dieseld is started anew, and the ways
alternate; from the construction of the loader to the last batch, imports left out.

    bench_subset.py [--size BYTES ...]
"""
import argparse
import json
import os
import sys
import time

import support
from jobs import raw_peers
from serving import Daemon, pack

DATASET_BYTES = int(os.environ.get("DIESEL_BENCH_MIB", 400)) << 20
ROUNDS = int(os.environ.get("DIESEL_BENCH_ROUNDS", 3))
SIZES = (4096, 110_000)
EVERY = {4096: (1000, 200, 1), 110_000: (100, 20, 10, 1)}
BATCH = 16
WAYS = ("diesel", "torch-0", "torch-2")


def epoch(way, source, dataset, every):
    """Runs in a process of its own: seconds, samples, and for diesel bytes read from storage."""
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
    from jobs import apart
    source = folder / "files"
    support.random_files(source, DATASET_BYTES // size, size)
    dataset = pack(source, folder / "packed")
    for k in range(ROUNDS):
        for every in EVERY[size]:
            for way in WAYS if every > 1 else WAYS[:1]:
                argv = [sys.executable, __file__, "--epoch", way, source, dataset, every]
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


def main():
    if "--epoch" in sys.argv:
        way, source, dataset, every = sys.argv[2:]
        epoch(way, source, dataset, int(every))
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", nargs="+", type=int, choices=SIZES, default=SIZES)
    options, raw, figures = parser.parse_args(), [], {}
    if os.geteuid() != 0:
        support.skip("dropping the caches for cold runs needs root")
    for size in options.size:
        with support.Scratch() as folder:
            measure(folder, size, raw)
        figures |= figures_of(raw, size)
    support.result_write("subset", raw, **figures)


if __name__ == "__main__":
    main()
