# SPDX-License-Identifier: Apache-2.0
"""Measures the time from a client's connecting to its first batch, with datasets of 1,000, 100,000 and 10 million samples of 64 bytes.

    cold      a new daemon, and nothing of the dataset in the page cache
    warm      a new daemon; snapshot and chunks are in the page cache
    second    the next client of that daemon

Each client is a process of its own; its imports are left out. Sizes alternate, medians of rounds. Also measured:
the time of a label's first look-up, and memory: the copy of the snapshot, and the growth of the daemon's own.

    bench_start.py [--sizes N,N] [--keep FOLDER]
"""
import argparse
import contextlib
import json
import os
import pathlib
import subprocess

import support
from serving import Daemon

NAME = "start"
ROUNDS = int(os.environ.get("DIESEL_BENCH_ROUNDS", 5))
SIZES = (1_000, 100_000, 10_000_000)
BYTES, CACHE = 64, "4G"


def make(folder, n):
    """Makes the dataset of n samples."""
    path = folder / f"{n}"
    if not (path / "snapshot").exists():
        subprocess.run([support.program("many_samples"), path, str(n), str(BYTES)], check=True)
    return path


def client(dataset):
    command = [support.PYTHON, pathlib.Path(__file__).parent / "jobs/start.py", dataset]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=300)
    return json.loads(done.stdout)


def own_bytes(daemon):
    """Returns the daemon's own memory, without memory that it shares with clients."""
    for line in pathlib.Path(f"/proc/{daemon.process.pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return None


def one_round(folder, dataset):
    figures = {}
    for way in ("cold", "warm"):
        if way == "cold":
            support.evict([dataset / "snapshot", *(dataset / "chunks").iterdir()])
        with Daemon(folder, "--cache", CACHE, "--metrics", "off") as daemon:
            before = own_bytes(daemon)
            figures[way] = client(dataset)
            figures["daemon_bytes"] = own_bytes(daemon) - before
            figures["second"] = client(dataset)
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=lambda text: [int(n) for n in text.split(",")], default=SIZES)
    parser.add_argument("--keep", type=pathlib.Path, help="keep the datasets in this folder, or use the ones that are there")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(support.Scratch())
        datasets = {n: make(options.keep or folder, n) for n in options.sizes}
        os.sync()
        rounds = {n: [] for n in options.sizes}
        with support.Steal() as steal:
            for _ in range(ROUNDS):
                for n, dataset in datasets.items():
                    rounds[n].append(one_round(folder, dataset))
        raw, figures = {"rounds": rounds, "steal": steal.ratio, "neighbours": steal.neighbours}, {}
        for n, dataset in datasets.items():
            row = {f"{way}_{what}": support.median([r[way][what] for r in rounds[n]])
                   for way in ("cold", "warm", "second") for what in ("open_s", "first_batch_s", "look_up_s")}
            row["snapshot_bytes_a_sample"] = (dataset / "snapshot").stat().st_size / n
            row["daemon_bytes"] = support.median([r["daemon_bytes"] for r in rounds[n]])
            print(f"{n:>9,} samples: " + ", ".join(f"{what} {value:.4g}" for what, value in row.items()))
            figures |= {f"{n}_{way}_first_batch_ms": row[f"{way}_first_batch_s"] * 1000 for way in ("cold", "warm", "second")}
            raw[str(n)] = row
    support.result_write(NAME, raw, **figures)


if __name__ == "__main__":
    main()
