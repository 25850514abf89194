# SPDX-License-Identifier: Apache-2.0
"""Measures the gain from decoded copies in the cache. dieseld decodes JPEG images of 500 x 375 pixels and 100 KB to normalised float32 tensors of
3 x 224 x 224 by RandomResizedCrop and flip (jobs/decoded.py). It has memory for half of the decoded dataset (3 bytes per pixel), and caches either
only encoded samples or also decoded copies, as its tuner decides. Both ways have the same --cache: that half, and space for batches and decoders.
Each run is a process and a daemon of its own. The first minute, in which the tuner decides and dieseld makes the copies, does not count. Rates are
samples per second and per CPU second of the machine, so nothing else should run.

    ./dev bench decoded            figures, bench/results/forms.json
    ./dev bench decoded --large    photographs of 2000 x 1500 pixels, most of whose crops are decoded at half size, with memory for half of the
                                   dataset at that scale; bench/results/forms-large.json
"""
import argparse
import os
import sys

import support
from jobs import apart, photographs
from serving import Daemon, pack

N = int(os.environ.get("DIESEL_BENCH_FILES", 0))
ROUNDS = int(os.environ.get("DIESEL_BENCH_ROUNDS", 5))
SECONDS = float(os.environ.get("DIESEL_BENCH_SECONDS", 10))
WARM = float(os.environ.get("DIESEL_BENCH_WARM", 60))
OTHER = 384 << 20  # batches of 64 tensors, and two decoders
WAYS = {"encoded": ("--decoded-cache", "0"), "decoded": ()}
# Number of images, columns, rows, quality, and the scale at which most of their crops are decoded.
SMALL, LARGE = (3000, 500, 375, 99, 1), (400, 2000, 1500, 90, 2)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--large", action="store_true")
    is_large = parser.parse_args().large
    n, width, height, quality, by = LARGE if is_large else SMALL
    n, raw, figures = N or n, [], {}
    half = n * (width // by) * (height // by) * 3 // 2
    with support.Scratch() as folder, support.Steal() as steal:
        figures["image_bytes"] = photographs.write(folder / "images", n, width, height, quality)
        figures["half_bytes"] = half
        path = pack(folder / "images", folder / "images.diesel")
        for k in range(ROUNDS):
            for way, options in WAYS.items():
                with Daemon(folder, "--cache", half + OTHER, "--metrics", "off", *options):
                    done = apart.run([sys.executable, support.ROOT / "bench/jobs/decoded.py", path, WARM, SECONDS])
                raw.append({"way": way, "round": k, **done})
                print(f"{way:8} {done['samples'] / done['seconds']:6.0f} samples/s, {done['samples'] / done['cpu_s']:6.0f} per CPU second; "
                      f"decoded copies of {done['with_decoded']} samples, {done['decoded_bytes'] >> 20} MiB", flush=True)
    for unit in ("seconds", "cpu_s"):
        per = {way: support.median(r["samples"] / r[unit] for r in raw if r["way"] == way) for way in WAYS}
        name = "per_s" if unit == "seconds" else "per_cpu_s"
        figures |= {f"encoded_{name}": per["encoded"], f"decoded_{name}": per["decoded"], f"ratio_{name}": per["decoded"] / per["encoded"]}
    support.result_write("decoded-large" if is_large else "decoded", raw, **figures)
    print(f"steal {steal.ratio:.3f}")


if __name__ == "__main__":
    main()
