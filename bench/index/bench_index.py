# SPDX-License-Identifier: Apache-2.0
"""Trains from tar shards and from LMDB where they are: `dieselctl index` against WebDataset and python-lmdb (job.py).

Cold: nothing of the files in the page cache, and a new dieseld. Warm: the second epoch. Shards also hold JPEG images, which
both sides decode and crop; no way can be faster cold than fio's direct reads of the same shards, next to it. LMDB also with
several jobs at a time, each with an order of its own. Each job is a process of its own; the ways alternate. Also times indexing."""
import argparse
import contextlib
import itertools
import os
import pathlib
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import support
from jobs import apart, photographs
from peers.environments import python_of, versions
from serving import Daemon

from job import COLUMN_WAYS, IMAGE_WAYS, LMDB_WAYS, TAR_WAYS, noise, write_shards

PACKAGES = ["torch", "torchvision", "webdataset", "lmdb", "numpy", "pillow"]
ROUNDS = int(os.environ.get("DIESEL_BENCH_ROUNDS", 3))
READERS = (1, 2, 4, 8)
JOB = support.ROOT / "bench/index/job.py"
SHARDS = 12
SIZES = {110_000: 1000, 12_000: 10_000}   # mean bytes of an image as stored: samples of each shard
SIZE = 110_000                            # of MDS and LitData
IMAGES, PIXELS, QUALITY = 80, (500, 375), 99  # images of each shard that are decoded, as those of bench_decode.py
ROWS = int(os.environ.get("DIESEL_BENCH_ROWS", 12_000))  # of MDS and LitData, of the same size
RECORDS, RECORD = 100_000, 4096           # samples of LMDB, and their bytes


def evict(*files):
    """Removes the files from the page cache."""
    for file in files:
        with open(file, "rb") as opened:
            os.fdatasync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def index(source, dataset):
    begin = time.perf_counter()
    subprocess.run([support.program("dieselctl"), "index", source, "--output", dataset], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def served(folder, way):
    """A dieseld that has nothing in memory yet, where the way needs one. A copy of the dataset would not do for a running one: chunks
    that it has of another copy are not read again."""
    return Daemon(folder, "--cache", "3G") if "diesel" in way else contextlib.nullcontext()


def of_shards(folder, python, raw, of, n, images, ways):
    """Measures the ways with shards of n such images each. Returns the seconds that indexing took."""
    shards, dataset = folder / of, folder / f"{of}.diesel"
    write_shards(shards, SHARDS, n, images)
    files = sorted(shards.glob("*.tar"))
    index_s = index(shards, dataset)
    mean = sum(file.stat().st_size for file in files) / (SHARDS * n)
    for number in range(ROUNDS):
        evict(*files)
        raw.append({"of": of, "way": "disk", "round": number, "n": 1, "cold_s": mean / support.direct_read(*files)})
        for way in ways:
            evict(*files)
            with served(folder, way):
                raw.append({"of": of, "way": way, "round": number, **apart.run([*support.PREFERRED, python, JOB, way, dataset if "diesel" in way else shards])})
    shutil.rmtree(shards)
    return index_s


def of_tar(folder, python, raw):
    figures = {}
    for size, n in SIZES.items():
        figures["members_per_s"] = 3 * SHARDS * n / of_shards(folder, python, raw, f"tar_{size}", n, noise(SHARDS * n, size), TAR_WAYS)
        figures |= tell(raw, f"tar_{size}", TAR_WAYS, "diesel")
    print(f"indexing: {figures['members_per_s']:.0f} tar members/s")
    return figures


def of_images(folder, python, raw):
    images = (photographs.encoded(image, QUALITY) for image in itertools.islice(photographs.parts(*PIXELS), SHARDS * IMAGES))
    of_shards(folder, python, raw, "images", IMAGES, images, IMAGE_WAYS)
    return tell(raw, "images", IMAGE_WAYS, "images-diesel")


def tell(raw, of, ways, ours):
    """Prints samples per second, and returns them, with ours as multiples of the best other way and of the disk."""
    figures = {}
    for kind in ("cold", "warm"):
        rates = {way: support.median(r["n"] / r[f"{kind}_s"] for r in raw if r["of"] == of and r["way"] == way)
                 for way in (*ways, *(["disk"] if kind == "cold" else []))}
        for way, rate in rates.items():
            figures[f"{of}_{plain(way)}_{kind}_per_s"] = rate
            print(f"{of:12} {way:16} {kind} {rate:9.0f} samples/s", flush=True)
        figures[f"{of}_{kind}_ratio"] = rates[ours] / max(rates[way] for way in ways if way != ours)
    figures[f"{of}_cold_of_disk"] = figures[f"{of}_{plain(ours)}_cold_per_s"] / figures[f"{of}_disk_cold_per_s"]
    return figures


def of_lmdb(folder, python, raw):
    database = folder / "records.lmdb"
    subprocess.run([python, "-c", "import sys; from job import write_lmdb; write_lmdb(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))", database,
                    str(RECORDS), str(RECORD)], check=True, cwd=JOB.parent)
    dataset = folder / "lmdb.diesel"
    index(database, dataset)
    for number in range(ROUNDS):
        for n in READERS:
            for way in LMDB_WAYS:
                evict(database / "data.mdb")
                data = dataset if way == "lmdb-diesel" else database
                with served(folder, way), ThreadPoolExecutor(n) as pool:
                    told = list(pool.map(lambda seed: apart.run([*support.PREFERRED, python, JOB, way, data, seed]), range(n)))  # noqa: B023
                raw.append({"of": "lmdb", "way": way, "round": number, "readers": n, "cold": sum(t["n"] for t in told) / max(t["cold_s"] for t in told),
                            "warm": sum(t["n"] for t in told) / max(t["warm_s"] for t in told),
                            **{name: sum(t[name] for t in told) / sum(2 * t["n"] for t in told) for name in ("major_faults", "switches")}})
    return tell_lmdb(raw)


def tell_lmdb(raw):
    figures = {}
    for n in READERS:
        for way in LMDB_WAYS:
            mine = [r for r in raw if r["of"] == "lmdb" and r["way"] == way and r["readers"] == n]
            told = {name: support.median(r[name] for r in mine) for name in ("cold", "warm", "major_faults", "switches")}
            figures |= {f"{plain(way)}_{n}_{name}": value for name, value in told.items()}
            print(f"LMDB, {way:12} {n} readers: " + ", ".join(f"{name} {value:.3g}" for name, value in told.items()), flush=True)
        figures[f"lmdb_{n}_ratio"] = figures[f"lmdb_diesel_{n}_cold"] / figures[f"lmdb_torch_{n}_cold"]
    return figures


def of_columns(folder, python, raw):
    """MDS shards and LitData chunks, by their own packages."""
    for name, ways in COLUMN_WAYS.items():
        source, dataset = folder / name, folder / f"{name}.diesel"
        subprocess.run([python, "-c", f"import sys; from job import write_{name}; write_{name}(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))", source,
                        str(ROWS), str(SIZE)], check=True, cwd=JOB.parent)
        index(source, dataset)
        for number in range(ROUNDS):
            for way in ways:
                evict(*(path for path in source.iterdir() if path.is_file()))
                data = dataset if way.endswith("diesel") else source
                with served(folder, way):
                    raw.append({"of": name, "way": way, "round": number, **apart.run([*support.PREFERRED, python, JOB, way, data])})


def tell_columns(raw):
    """Prints the rates, and returns the figures."""
    figures = {}
    for name, ways in COLUMN_WAYS.items():
        for kind in ("cold", "warm"):
            for way in ways:
                figures[f"{plain(way)}_{kind}_per_s"] = median = support.median(r["n"] / r[f"{kind}_s"] for r in raw if r["way"] == way)
                print(f"{way:14} {kind} {median:9.0f} samples/s", flush=True)
            figures[f"{name}_{kind}_ratio"] = figures[f"{name}_diesel_{kind}_per_s"] / max(figures[f"{name}_{w}_{kind}_per_s"] for w in (0, 2))
    return figures


def columns():
    # The folder hides an incompatible torchvision, which they would import.
    os.environ["PYTHONPATH"] = f"{support.ROOT}/tests/integration/importing/site:{os.environ.get('PYTHONPATH', '')}"
    python, why = python_of("columns", ["--requirement", str(support.ROOT / "tests/integration/importing/packages_torch.txt")], "streaming, litdata")
    if not python:
        support.skip(f"needs MosaicML Streaming and LitData: {why}")
    print(versions(python, "torch", "mosaicml-streaming", "litdata"), flush=True)
    os.environ["DIESEL_PYTHON"] = python
    raw = []
    with support.Scratch() as folder:
        of_columns(pathlib.Path(folder), python, raw)
    support.result_write("index_columns", raw, **tell_columns(raw))


def plain(way):
    return way.replace("-", "_")


PARTS = {"tar": of_tar, "images": of_images, "lmdb": of_lmdb}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--columns", action="store_true", help="MDS and LitData instead, against their own loaders")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="some of the parts")
    arguments = parser.parse_args()
    with contextlib.suppress(PermissionError):
        support.prefer()
    if arguments.columns:
        columns()
        return
    if not shutil.which("fio"):
        support.skip("needs fio (apt install fio)")
    python, why = python_of("index", PACKAGES, "torch, torchvision, webdataset, lmdb, numpy, PIL")
    if not python:
        support.skip(f"needs WebDataset and torchvision: {why}")
    print(versions(python, *PACKAGES), flush=True)
    os.environ["DIESEL_PYTHON"] = python
    raw, figures = [], {}
    with support.Scratch() as folder:
        for part in arguments.only:
            figures |= PARTS[part](pathlib.Path(folder), python, raw)
    support.result_write("index", raw, **figures)


if __name__ == "__main__":
    try:
        main()
    except apart.Failed as failure:
        sys.exit(str(failure))
