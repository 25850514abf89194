# SPDX-License-Identifier: Apache-2.0
"""Samples as they are stored, 4 KiB and 110 KB, shuffled: diesel_loader against the loaders of PyPI, each on its own format.

Ways: jobs/raw_peers.py. Each run is a process of its own; the ways alternate. Cold: page, name and inode caches of the machine dropped,
dieseld restarted; one epoch from the construction of the loader to the last batch. Warm: later epochs of the same loader, at
least 10 s. Rates are samples per second, and per CPU second of the processes that belong to the way, including the daemon. Also measured:
the time to the first batch, cold and of a new loader while all is warm, and fio's sequential read of as many bytes with O_DIRECT. The
sums over all bytes of all ways must agree.

Peers are installed from PyPI; the output names any that does not install or run.

    bench_peers.py [--only WAY ...] [--size BYTES ...]
    bench_peers.py --table                                 the last measurement, in the layout of README.md
"""
import argparse
import json
import os
import shutil
import sys

import support
from jobs import apart
from jobs.raw_peers import WAYS
from peers.environments import IMAGES, python_of, versions
from serving import Daemon, pack

DATASET_BYTES = int(os.environ.get("DIESEL_BENCH_MIB", 400)) << 20
ROUNDS = int(os.environ.get("DIESEL_BENCH_ROUNDS", 5))
SECONDS = float(os.environ.get("DIESEL_BENCH_SECONDS", 10))
SIZES = (4096, 110_000)
BUDGET = 1 << 30
SLACK = 64 << 20
RAW = (["torch", "numpy", "litdata", "mosaicml-streaming", "webdataset", "spdl", "grain"],
       "torch, litdata, streaming, webdataset, spdl.pipeline, grain")


def is_ours(way):
    return way == "diesel"


def pythons(ways):
    found = {}
    for name, needs in {"raw": RAW, "ffcv": IMAGES["ffcv"]}.items():
        if any((way == "ffcv") == (name == "ffcv") for way in ways):
            found[name], why = python_of(name, *needs)
            print(f"{name}: {why or versions(found[name], *needs[0])}", flush=True)
    return {way: found["ffcv" if way == "ffcv" else "raw"] or (sys.executable if is_ours(way) else None) for way in ways}


def job(name):
    return support.ROOT / "bench" / "jobs" / f"{name}.py"


def datasets(folder, ways, python, failed):
    """Makes the dataset that each way reads. Ways of one peer share it."""
    made, source = {}, folder / "files"
    for way in ways:
        write, data = WAYS[way][1], folder / way.partition("-")[0]
        if is_ours(way):
            made[way] = pack(source, folder / "packed")
        elif write is None:
            made[way] = source
        else:
            if not data.exists():
                try:
                    apart.run([python[way], job("raw_peers"), way, source, data])
                except apart.Failed as failure:
                    failed[way] = str(failure)
                    shutil.rmtree(data, ignore_errors=True)
                    continue
            made[way] = data
    return made


def run(folder, way, python, data, size):
    argv = [python, job("raw"), way, data, size, SECONDS]
    if not is_ours(way):
        return apart.run(argv, CUDA_VISIBLE_DEVICES="")
    with Daemon(folder, "--cache", BUDGET, "--metrics", "off") as daemon:
        done = apart.run(argv, CUDA_VISIBLE_DEVICES="")
        return done | {"peak_rss_bytes": daemon.peak_rss_bytes}


def measure(folder, size, ways, python, raw, failed):
    n = DATASET_BYTES // size // 256 * 256
    support.random_files(folder / "files", n, size)
    made = datasets(folder, ways, python, failed)
    for k in range(ROUNDS):
        raw.append({"way": "fio", "size": size, "round": k, "bytes_per_s": support.sequential_read(folder / "sequential", n * size)})
        for way in [way for way in made if way not in failed]:
            with support.Steal() as steal:
                try:
                    done = run(folder, way, python[way], made[way], size)
                except apart.Failed as failure:
                    failed[way] = str(failure)
                    continue
            raw.append({"way": way, "size": size, "round": k, "steal": steal.ratio, **done})
            print(f"  {size:6} {way:12} " + ", ".join(f"{phase} {done[phase]['samples'] / done[phase]['seconds']:9.0f}/s"
                                                     for phase in ("cold", "warm")), flush=True)


def summary(raw, size):
    """Returns figures of one size: diesel against the best of the others."""
    figures, rows = {}, [r for r in raw if r["size"] == size]
    ways = {r["way"] for r in rows} - {"fio"}
    rate = {(way, phase, per): support.median(r[phase]["samples"] / r[phase][per] for r in rows if r["way"] == way)
            for way in ways for phase in ("cold", "warm") for per in ("seconds", "own_cpu_s")}
    for way in sorted(ways, key=lambda way: -rate[way, "warm", "seconds"]):
        mine = [r for r in rows if r["way"] == way]
        print(f"{size:6} {way:12} cold {rate[way, 'cold', 'seconds']:8.0f}/s, warm {rate[way, 'warm', 'seconds']:8.0f}/s, "
              f"per CPU second {rate[way, 'warm', 'own_cpu_s']:8.0f}; first batch {1e3 * support.median(r['first_s'] for r in mine):6.0f} ms "
              f"cold, {1e3 * support.median(r['again_s'] for r in mine):6.0f} ms warm", flush=True)
    for (way, phase, per), value in rate.items():
        figures[f"{way.replace('-', '_')}_{phase}_{'per_s' if per == 'seconds' else 'per_cpu_s'}_{size}"] = value
    if "diesel" in ways:
        mine = [r for r in rows if r["way"] == "diesel"]
        for phase, per in ((phase, per) for phase in ("cold", "warm") for per in ("seconds", "own_cpu_s")):
            if others := [rate[way, phase, per] for way in ways if not is_ours(way)]:
                figures[f"{phase}_ratio_{'per_s' if per == 'seconds' else 'per_cpu_s'}_{size}"] = rate["diesel", phase, per] / max(others)
        figures[f"fio_bytes_per_s_{size}"] = support.median(r["bytes_per_s"] for r in rows if r["way"] == "fio")
        figures[f"cold_of_fio_{size}"] = rate["diesel", "cold", "seconds"] * size / figures[f"fio_bytes_per_s_{size}"]
        figures[f"first_batch_cold_ms_{size}"] = 1e3 * support.median(r["first_s"] for r in mine)
        figures[f"first_batch_warm_ms_{size}"] = 1e3 * support.median(r["again_s"] for r in mine)
        figures[f"memory_within_budget_{size}"] = int(max(r["peak_rss_bytes"] for r in mine) <= BUDGET + SLACK)
    return figures


NAMES = {"diesel": "diesel_loader", "ffcv": "FFCV", "litdata": "LitData",
         "torch": "PyTorch's DataLoader, a file a sample", "streaming": "MosaicML Streaming", "webdataset": "WebDataset", "spdl": "SPDL",
         "grain": "Grain"}


def table():
    """Prints the faster (when warm) of the ways with and without workers, the fastest first."""
    figures = json.loads((support.RESULTS / "peers.json").read_text())["figures"]
    for size in SIZES:
        best = {}
        for way in WAYS:
            values = [figures.get(f"{way.replace('-', '_')}_{of}_{size}") for of in
                      ("cold_per_s", "warm_per_s", "cold_per_cpu_s", "warm_per_cpu_s")]
            name = NAMES[way if way in NAMES else way.partition("-")[0]]
            if None not in values and values[1] > best.get(name, [0, 0])[1]:
                best[name] = values
        if best:
            print(f"| samples of {size} bytes | cold | warm | per CPU second: cold | warm |\n|---|---|---|---|---|")
        for name, values in sorted(best.items(), key=lambda row: -row[1][1]):
            print(f"| {name} | " + " | ".join(f"{value:,.0f}" for value in values) + " |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--size", nargs="+", type=int, choices=SIZES, default=SIZES)
    parser.add_argument("--table", action="store_true")
    options, raw, figures, failed = parser.parse_args(), [], {}, {}
    if options.table:
        table()
        return
    if os.geteuid() != 0:
        support.skip("dropping the caches for the cold runs needs root")
    if not shutil.which("fio"):
        support.skip("needs fio (apt install fio)")
    python = pythons(options.only)
    ways = [way for way in options.only if python[way]]
    for size in options.size:
        with support.Scratch() as folder:
            measure(folder, size, ways, python, raw, failed)
        figures |= summary(raw, size)
        if len({r["sum"] for r in raw if r["size"] == size and "sum" in r}) > 1:
            sys.exit(f"not all loaders read the same bytes: { {r['way']: r['sum'] for r in raw if r['size'] == size and 'sum' in r} }")
    support.result_write("peers", raw, **figures)
    for way, why in failed.items():
        print(f"{way}: {why}", flush=True)
    sys.exit(1 if "diesel" in failed else 0)


if __name__ == "__main__":
    main()
