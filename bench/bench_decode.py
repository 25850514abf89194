# SPDX-License-Identifier: Apache-2.0
"""Decodes JPEG images of 500 x 375 pixels and 100 KB to normalised float32 tensors of 3 x 224 x 224 by RandomResizedCrop and flip
(jobs/decode.py, jobs/decode_peers.py). The ways are:
- dieseld, on files as they are and packed with restart markers, and diesel_loader's worker processes in Python
- torchvision with Pillow and with its own decoder, under PyTorch's DataLoader
- SPDL, NVIDIA DALI without a GPU, and FFCV
- libjpeg-turbo's decoding only, for comparison

Each run is a process of its own, at least 10 s long, and the ways alternate. Rates are samples per second and per CPU second. The latter
is the machine's CPU time, which includes the daemon's, so nothing else should run. The daemon caches no decoded copies, so it decodes each
sample each time.

The images are parts of photographs (Debian's mate-backgrounds), warm in the page cache. Peers are installed from PyPI; the output names any that
does not install or run.

    bench_decode.py [--only WAY ...]
"""
import argparse
import os
import subprocess
import sys

import support
from jobs import apart, photographs
from peers.environments import IMAGES, python_of, versions
from serving import Daemon, pack

N = int(os.environ.get("DIESEL_BENCH_FILES", 800))
ROUNDS = int(os.environ.get("DIESEL_BENCH_ROUNDS", 5))
SECONDS = float(os.environ.get("DIESEL_BENCH_SECONDS", 10))
QUALITY = 99  # at a lower quality, these smooth photographs are smaller than images of cameras and data sets
WAYS = {"diesel": "torch", "diesel-restarts": "torch", "python": "torch", "torchvision": "torch", "torchvision-io": "torch",
        "spdl": "torch", "dali": "dali", "ffcv": "ffcv", "whole": None}
OURS = {"diesel": (), "diesel-restarts": ("--jpeg-restarts",), "python": ()}


def pythons(ways):
    """Returns the Python of each environment that these ways need, and prints the missing ones."""
    found = {None: sys.executable}
    for name in {WAYS[way] for way in ways} - {None}:
        found[name], why = python_of(name, *IMAGES[name])
        print(f"{name}: {why or versions(found[name], *IMAGES[name][0])}", flush=True)
    if not found.get("torch"):
        found["torch"] = sys.executable
    return found


def datasets(folder, ways):
    """Makes the dataset that each way reads."""
    made, usage = {}, subprocess.run([support.program("dieselctl"), "pack", "--help"], capture_output=True, text=True, check=True).stdout
    for way in ways:
        options = OURS.get(way)
        if options is None:
            made[way] = folder / "images"
        elif all(option in usage for option in options):
            made[way] = pack(folder / "images", folder / f"{way}.diesel", *options)
        else:
            print(f"{way} is left out: dieselctl pack has no option {options[0]}", flush=True)
    return made


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="+", choices=WAYS, default=list(WAYS))
    ways, raw, figures, failed = parser.parse_args().only, [], {}, {}
    python = pythons(ways)
    with support.Scratch() as folder, support.Steal() as steal:
        figures["image_bytes"] = photographs.write(folder / "images", N, 500, 375, QUALITY)
        made = datasets(folder, ways)
        with Daemon(folder, "--cache", "4G", "--metrics", "off", "--decoded-cache", "0"):
            for k in range(ROUNDS):
                for way in [way for way in made if way not in failed and python[WAYS[way]]]:
                    try:
                        done = apart.run([python[WAYS[way]], support.ROOT / "bench/jobs/decode.py", way, made[way], SECONDS],
                                         CUDA_VISIBLE_DEVICES="")
                    except apart.Failed as failure:
                        failed[way] = str(failure)
                        print(f"{way}: {failure}", flush=True)
                    else:
                        raw.append({"way": way, "round": k, **done})
    for way in [way for way in made if any(r["way"] == way for r in raw)]:
        mine, key = [r for r in raw if r["way"] == way], way.replace("-", "_")
        figures[f"{key}_per_s"] = support.median(r["samples"] / r["seconds"] for r in mine)
        figures[f"{key}_per_cpu_s"] = support.median(r["samples"] / r["cpu_s"] for r in mine)
        own = support.median(r["samples"] / r["own_cpu_s"] for r in mine)
        print(f"{way:16} {figures[f'{key}_per_s']:6.0f} samples/s, {figures[f'{key}_per_cpu_s']:6.0f} per CPU second of the machine, "
              f"{own:6.0f} per CPU second of its own processes", flush=True)
    support.result_write("decode", raw, **figures)
    print(f"steal {steal.ratio:.3f}")
    if failed:
        sys.exit(1 if set(failed) & set(OURS) else 0)


if __name__ == "__main__":
    main()
