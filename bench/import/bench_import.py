# SPDX-License-Identifier: Apache-2.0
"""Reads rows like those of MLPerf Storage's Flux (an encoded image of 100 to 700 KB, an embedding, a caption) by job.py.

Hugging Face's datasets and pyarrow read Parquet files, and diesel_loader reads the dataset of `dieselctl pack parquet:`. All files are in the page cache, the
packed dataset in that of dieseld. Each run is a process of its own; the ways alternate. CPU seconds are the job's, without those of
dieseld. The first line says how long packing takes."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import support
from jobs import apart
from peers.environments import python_of, versions
from serving import Daemon

from job import WAYS

PACKAGES = ["datasets", "pyarrow", "numpy", "pillow"]
ROWS = int(os.environ.get("DIESEL_BENCH_SAMPLES", 1024))
ROUNDS = int(os.environ.get("DIESEL_BENCH_ROUNDS", 3))
SECONDS = float(os.environ.get("DIESEL_BENCH_SECONDS", 4))
JOB = support.ROOT / "bench/import/job.py"


def pack(python, source, dataset):
    """Returns (bytes per second, samples per second) of an import."""
    begin = time.perf_counter()
    done = subprocess.run([support.program("dieselctl"), "pack", "--json", f"parquet:{source}", dataset], check=True, capture_output=True, text=True,
                          env=os.environ | {"DIESEL_PYTHON": python})
    said, elapsed = json.loads(done.stdout), time.perf_counter() - begin
    return said["bytes"] / elapsed, said["samples"] / elapsed


def main():
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    python, why = python_of("import", PACKAGES, "datasets, pyarrow, numpy, PIL")
    if not python:
        support.skip(f"needs datasets: {why}")
    print(versions(python, *PACKAGES), flush=True)
    raw, figures = [], {}
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
    with support.Scratch() as folder, Daemon(folder, "--cache", "2G"):
        folder = pathlib.Path(folder)
        source, packed = folder / "rows", folder / "rows.diesel"
        source.mkdir()
        subprocess.run([python, "-c", "import sys; from job import write; write(sys.argv[1], int(sys.argv[2]))", source, str(ROWS)], check=True, cwd=JOB.parent)
        figures["pack_bytes_per_s"], figures["pack_per_s"] = pack(python, source, packed)
        print(f"packing {figures['pack_bytes_per_s'] / 1e6:.0f} MB/s, {figures['pack_per_s']:.0f} samples/s", flush=True)
        for k in range(ROUNDS):
            for way in WAYS:
                raw.append({"way": way, "round": k, **apart.run([python, JOB, way, packed if way == "diesel" else source, ROWS, SECONDS])})
    for way in WAYS:
        for unit in ("per_s", "per_cpu_s"):
            figures[f"{way}_{unit}"] = support.median(r[unit] for r in raw if r["way"] == way)
        print(f"{way:10} {figures[f'{way}_per_s']:9.0f} samples/s, {figures[f'{way}_per_cpu_s']:9.0f} per CPU second", flush=True)
    for way in ("streaming", "map", "pyarrow"):
        for unit in ("per_s", "per_cpu_s"):
            figures[f"of_{way}_{unit}"] = figures[f"diesel_{unit}"] / figures[f"{way}_{unit}"]
    support.result_write("import", raw, **figures)


if __name__ == "__main__":
    try:
        main()
    except apart.Failed as failure:
        sys.exit(str(failure))
