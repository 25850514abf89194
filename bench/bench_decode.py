# SPDX-License-Identifier: Apache-2.0
"""JPEG images of 500 x 375 pixels to normalised tensors of 3 x 224 x 224 by RandomResizedCrop and flip: dieseld, diesel_loader's
worker processes in Python, and torchvision's ImageFolder under PyTorch's DataLoader (jobs/decode.py). Each run is a process of
its own, at least 10 s long; the ways alternate. Samples a second, and samples a CPU second, of which the daemon's are part: it is the
machine's CPU time, so nothing else should run.

The images are parts of photographs (Debian's mate-backgrounds), warm in the page cache."""
import json
import os
import pathlib
import random
import subprocess
import sys

import support
from PIL import Image
from serving import Daemon, pack

N = int(os.environ.get("DIESEL_BENCH_FILES", 800))
ROUNDS = int(os.environ.get("DIESEL_BENCH_ROUNDS", 5))
SECONDS = float(os.environ.get("DIESEL_BENCH_SECONDS", 10))
WAYS = ("diesel", "python", "torchvision")
PHOTOGRAPHS = pathlib.Path("/usr/share/backgrounds/mate")


def make_images(folder):
    """N crops of the photographs in two classes; the mean of their lengths in bytes."""
    rng, n_bytes = random.Random(3), 0
    sources = sorted(PHOTOGRAPHS.glob("*/*.jpg"))
    if not sources:
        support.skip("needs the package mate-backgrounds")
    for c in "ab":
        (folder / c).mkdir(parents=True)
    per = -(-N // len(sources))
    for k, source in enumerate(sources):
        with Image.open(source) as image:
            image = image.convert("RGB")
        for i in range(k * per, min((k + 1) * per, N)):
            scale = rng.uniform(1, max(1, min(image.width / 500, image.height / 375) / 2))
            width, height = min(int(500 * scale), image.width), min(int(375 * scale), image.height)
            left, top = rng.randint(0, image.width - width), rng.randint(0, image.height - height)
            path = folder / "ab"[i % 2] / f"{i:05d}.jpg"
            image.crop((left, top, left + width, top + height)).resize((500, 375), Image.LANCZOS).save(path, quality=93)
            n_bytes += path.stat().st_size
    return n_bytes / N


def run(way, dataset):
    done = subprocess.run([sys.executable, support.ROOT / "bench/jobs/decode.py", way, dataset, str(SECONDS)], capture_output=True,
                          text=True, check=False, timeout=600)
    if done.returncode:
        sys.exit(f"{way}: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def main():
    raw, figures = [], {}
    with support.Scratch() as folder, support.Steal() as steal:
        figures["image_bytes"] = make_images(folder / "images")
        dataset = pack(folder / "images", folder / "images.diesel")
        with Daemon(folder, "--cache", "2G"):
            for k in range(ROUNDS):
                for way in WAYS:
                    raw.append({"way": way, "round": k, **run(way, folder / "images" if way == "torchvision" else dataset)})
    for way in WAYS:
        mine = [r for r in raw if r["way"] == way]
        figures[f"{way}_per_s"] = support.median(r["samples"] / r["seconds"] for r in mine)
        figures[f"{way}_per_cpu_s"] = support.median(r["samples"] / r["cpu_s"] for r in mine)
        print(f"{way:12} {figures[f'{way}_per_s']:6.0f} samples/s, {figures[f'{way}_per_cpu_s']:6.0f} a CPU second", flush=True)
    support.result_write("decode", raw, **figures)
    print(f"steal {steal.ratio:.3f}, other processes {steal.neighbours:.3f}")


if __name__ == "__main__":
    main()
