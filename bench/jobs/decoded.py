# SPDX-License-Identifier: Apache-2.0
"""Iterates over images for WARM seconds, or until the daemon's tuner has settled, then for SECONDS that count:
RandomResizedCrop(224), flip, normalised float32, by dieseld, batches of 64.

    decoded.py DATASET WARM SECONDS

Prints, as JSON, samples, seconds, CPU seconds of the machine, and the daemon's figures of the job's decoded copies at the start of SECONDS."""
import itertools
import json
import os
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import support
from jobs import usage

from diesel_loader import transforms
from diesel_loader.numpy import DataLoader, Decode

TRANSFORM = transforms.Compose([
    transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
    transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])])


def batches(loader):
    for epoch in itertools.count():
        loader.set_epoch(epoch)
        yield from loader


def decoded_copies():
    jobs = json.loads(subprocess.run([support.program("dieselctl"), "jobs", "--json", "--socket", os.environ["DIESEL_SOCKET"]], check=True,
                                     capture_output=True, text=True).stdout)["jobs"]
    job = next(job for job in jobs if job["pid"] == os.getpid())
    return {"decoded_bytes": job["memory"]["decoded_bytes"], "with_decoded": job["decoding"]["samples_with_decoded_copy"],
            "knob": job["knobs"]["decoded-bytes"]["value"]}


def main():
    dataset, warm_s, seconds = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
    source = batches(DataLoader(dataset, 64, shuffle=True, seed=1, transform=TRANSFORM, decode=Decode(native="require")))
    end, n = time.monotonic() + warm_s, 0
    while time.monotonic() < end:
        next(source)
    found, begin, cpu = decoded_copies(), time.monotonic(), usage.busy_s()
    while time.monotonic() < begin + seconds:
        n += len(next(source)[0])
    print(json.dumps({"samples": n, "seconds": time.monotonic() - begin, "cpu_s": usage.busy_s() - cpu, **found}))


if __name__ == "__main__":
    main()
