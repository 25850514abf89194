# SPDX-License-Identifier: Apache-2.0
"""Reads samples by number in random order, 64 at a time, with the dataset in the cache of dieseld (job.py).

Compares with the loader's own order, and Grain with the dataset with Grain over its own ArrayRecord source, whose file is in the page
cache. Grain prepares 16 batches ahead (GRAIN_AHEAD). Each run is a process of its own; the ways alternate. CPU seconds are the job's, without those of dieseld."""
import argparse
import os
import pathlib
import random
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import support
from jobs import apart
from peers.environments import python_of, versions
from serving import Daemon, pack

from job import WAYS

PACKAGES = ["grain", "array_record", "numpy"]
SIZES = {4096: 50_000, 110_000: 3_000}  # bytes of a sample: samples
ROUNDS = int(os.environ.get("DIESEL_BENCH_ROUNDS", 5))
SECONDS = float(os.environ.get("DIESEL_BENCH_SECONDS", 4))
JOB = support.ROOT / "bench/by_number/job.py"


def make(folder, python, size, n):
    """Returns the data of each way."""
    tree, rng = folder / f"tree{size}", random.Random(1)
    tree.mkdir()
    for i in range(n):
        (tree / f"{i:06d}.bin").write_bytes(rng.randbytes(size))
    records = folder / f"{size}.array_record"
    code = "import pathlib, sys; from job import write_records; write_records(pathlib.Path(sys.argv[1]), sys.argv[2])"
    subprocess.run([python, "-c", code, tree, records], check=True, cwd=JOB.parent)
    packed = pack(tree, folder / f"{size}.diesel")
    return {way: records if way == "grain-records" else packed for way in WAYS}


def main():
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    python, why = python_of("grain", PACKAGES, "grain, array_record, numpy")
    if not python:
        support.skip(f"needs Grain: {why}")
    print(versions(python, *PACKAGES), flush=True)
    raw, figures = [], {}
    with support.Scratch() as folder, Daemon(folder, "--cache", "2G"):
        folder = pathlib.Path(folder)
        for size, n in SIZES.items():
            data = make(folder, python, size, n)
            for k in range(ROUNDS):
                for way in WAYS:
                    raw.append({"way": way, "size": size, "round": k, **apart.run([python, JOB, way, data[way], n, SECONDS])})
    for size in SIZES:
        for way in WAYS:
            mine = [r for r in raw if r["way"] == way and r["size"] == size]
            name = f"{way.replace('-', '_')}_{size}"
            figures[f"{name}_per_s"] = support.median(r["per_s"] for r in mine)
            print(f"{size:7} bytes, {way:14} {figures[f'{name}_per_s']:9.0f} samples/s, "
                  f"{support.median(r['per_cpu_s'] for r in mine):9.0f} per CPU second", flush=True)
        for name, way, base in (("packed_of_order", "packed", "order"), ("of_order", "items", "order"), ("of_order_list", "items", "order_list"),
                                ("of_records", "grain", "grain_records"), ("packed_of_records", "grain_packed", "grain_records")):
            figures[f"{name}_{size}"] = figures[f"{way}_{size}_per_s"] / figures[f"{base}_{size}_per_s"]
    support.result_write("by_number", raw, **figures)


if __name__ == "__main__":
    try:
        main()
    except apart.Failed as failure:
        sys.exit(str(failure))
