# SPDX-License-Identifier: Apache-2.0
"""Measures how many accelerators this machine keeps at least 85 % busy, after MLPerf Storage's RetinaNet. A process simulates an accelerator:
it takes a batch of 24 JPEG files of 322,960 bytes (MLPerf: 322,957), reads every byte, and sleeps 47.55 ms (jobs/storage.py). Each is a
rank with its share of the 7,680 files. Busy is the nominal time slept divided by the whole time.

diesel_loader is compared with PyTorch's DataLoader on the same files with 0, 1 and 2 workers per accelerator. Batches are one tensor, or
lists of samples, as torchvision's detection jobs have them. Both read from memory: the daemon's cache, or the page cache.

Each way gets more accelerators until it does not keep them busy. It starts from one in short runs that do not count. In each round it then
starts a few below the number that it kept busy, unless another way of the same loader kept far more. The ways alternate.

Then 960 of the files are decoded to 3 x 800 x 800 (RetinaNet's size), uint8, by dieseld and by torchvision with Pillow in as many workers as
cores. Where not even one accelerator is kept busy, samples per second count.

    bench_storage.py [--only bytes|decoded]
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import support
from jobs import photographs
from jobs.storage_figures import BATCH, BYTES, STEP_S, SUM
from peers.environments import IMAGES, python_of, versions
from serving import Daemon, pack

FILES = {mode: int(os.environ.get("DIESEL_BENCH_FILES", n)) for mode, n in {"bytes": 7680, "decoded": 960}.items()}
N_DIFFERENT = 160
ROUNDS = int(os.environ.get("DIESEL_BENCH_ROUNDS", 5))
SECONDS = float(os.environ.get("DIESEL_BENCH_SECONDS", 10))
SCOUT_S, BELOW = min(2.0, SECONDS), 2
BUSY, MOST = 0.85, 160
CORES = len(os.sched_getaffinity(0))
WAYS = {
    "bytes": {f"{loader}{suffix}": (loader.partition("-")[0], workers, lists)
              for lists, suffix in ((0, ""), (1, "-lists"))
              for loader, workers in (("diesel", 0), ("torch-0", 0), ("torch-1", 1), ("torch-2", 2))},
    "decoded": {"diesel": ("diesel", 0, 0), "torch": ("torch", CORES, 0)},
}


def make_files(folder, n):
    files = photographs.of_length(min(N_DIFFERENT, n), 1024, 768, BYTES, SUM)
    for i in range(n):
        photographs.put(folder, i, files[i % len(files)])


def line_of(process, error):
    line = process.stdout.readline()
    if not line:
        error.seek(0)
        sys.exit(f"the simulated accelerators ended with exit status {process.wait()}: {(error.read().strip().splitlines() or ['?'])[-1]}")
    return line


def run(python, way, decoded, dataset, n, seconds):
    """Runs this many accelerators at the same time. All begin together."""
    argv = [python, support.ROOT / "bench/jobs/storage.py", *way, int(decoded), dataset, seconds, n]
    with tempfile.TemporaryFile("w+") as error, \
            subprocess.Popen(list(map(str, argv)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=error, text=True,
                             env=os.environ | {"CUDA_VISIBLE_DEVICES": ""}) as ranks:
        line_of(ranks, error)
        with support.Steal() as steal:
            ranks.stdin.write("\n")
            ranks.stdin.flush()
            done = json.loads(line_of(ranks, error))
    return {"accelerators": n, "steal": steal.ratio, "looked_s": support.median(d["looked"] / d["steps"] for d in done),
            "busy": sum(d["steps"] * STEP_S / d["seconds"] for d in done) / n,
            "per_s": sum(d["steps"] * BATCH / d["seconds"] for d in done)}


def climb(python, mode, name, dataset, k, first):
    """Climbs from `first` accelerators up to the first number that is not kept busy, or down to the first number that is. Each step changes the
    number by a half; in a round, by a sixteenth and at least one. k: the round, or None if the run does not count."""
    n, up = first, None
    while 1 <= n <= MOST:
        done = run(python, WAYS[mode][name], mode == "decoded", dataset, n, SCOUT_S if k is None else SECONDS)
        print(f"  {'scouting' if k is None else f'round {k}'}: {mode} {name:13} {n:2} accelerators: {done['busy']:.2f} busy, "
              f"{done['per_s']:.0f} samples/s, reading the bytes {1000 * done['looked_s']:.1f} ms per batch", flush=True)
        yield {"mode": mode, "way": name, "round": k, **done}
        kept = done["busy"] >= BUSY
        up = kept if up is None else up
        if kept != up:
            return
        n += max(1, n // (2 if k is None else 16)) * (1 if up else -1)


def scouted_well(scouted, name):
    """Returns the number of accelerators that a way must have kept busy to be measured in rounds: three quarters of the best way with the same
    loader."""
    return 0.75 * max(kept for other, kept in scouted.items() if other.partition("-")[0] == name.partition("-")[0])


def figures_of(raw, mode):
    """Returns for each way the maximum number of accelerators that it kept busy and its maximum samples per second, of the medians over
    the rounds."""
    figures = {}
    for name in WAYS[mode]:
        mine = {}
        for row in raw:
            if row["way"] == name and row["mode"] == mode and row["round"] is not None:
                mine.setdefault(row["accelerators"], []).append(row)
        if not mine:
            continue
        kept = max((n for n, rows in mine.items() if support.median(row["busy"] for row in rows) >= BUSY), default=0)
        most = max(support.median(row["per_s"] for row in rows) for rows in mine.values())
        key = f"{mode}_{name.replace('-', '_')}"
        figures |= {f"{key}_accelerators": kept, f"{key}_a_core": kept / CORES, f"{key}_per_s": most}
        print(f"{mode:8} {name:13} keeps {kept} accelerators {100 * BUSY:.0f} % busy, {kept / CORES:g} per core; at most {most:.0f} samples/s, "
              f"enough for {most * STEP_S / BATCH:.1f} accelerators", flush=True)
    return figures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=list(WAYS))
    only = parser.parse_args().only
    modes, raw, figures = [only] if only else list(WAYS), [], {}
    python, why = python_of("torch", *IMAGES["torch"])
    python = python or sys.executable
    print(f"torch: {why or versions(python, *IMAGES['torch'][0])}", flush=True)
    with support.Scratch() as folder:
        for mode in modes:
            make_files(folder / mode, FILES[mode])
            pack(folder / mode, folder / f"{mode}.diesel")
        with Daemon(folder, "--cache", "10G", "--metrics", "off", "--decoded-cache", "0"):
            for mode in modes:
                source = {name: folder / (f"{mode}.diesel" if loader == "diesel" else mode) for name, (loader, _, _) in WAYS[mode].items()}
                scouted = {name: max((row["accelerators"] for row in climb(python, mode, name, source[name], None, 1)
                                      if row["busy"] >= BUSY), default=0) for name in WAYS[mode]}
                first = {name: max(1, kept - BELOW) for name, kept in scouted.items() if kept >= scouted_well(scouted, name)}
                for k in range(ROUNDS):
                    for name in first:
                        raw += climb(python, mode, name, source[name], k, first[name])
                figures |= figures_of(raw, mode)
    support.result_write("storage", raw, **figures)


if __name__ == "__main__":
    main()
