# SPDX-License-Identifier: Apache-2.0
"""A loop that uses only NumPy: its own loader reads a file per sample, and a step is arithmetic. arrays.py --data FOLDER

With --thread another thread loads, two batches ahead, as loaders for JAX do.
"""
import argparse
import hashlib
import json
import os
import queue
import threading
import time

import numpy

BLOCK = bytes(1 << 17)


def compute(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        hashlib.sha256(BLOCK)


def batches(options):
    paths = sorted(os.path.join(options.data, name) for name in os.listdir(options.data))
    for first in range(0, options.steps * options.batch, options.batch):
        rows = []
        for index in range(first, first + options.batch):
            with open(paths[index % len(paths)], "rb") as file:
                rows.append(numpy.frombuffer(file.read(), dtype=numpy.uint8))
            compute(options.prep_ms / 1000)
        yield numpy.stack(rows)


def ahead(loader, depth=2):
    ready = queue.Queue(depth)
    threading.Thread(target=lambda: [ready.put(batch) for batch in loader], daemon=True).start()
    while True:
        yield ready.get()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--prep-ms", type=float, default=2)
    parser.add_argument("--step-ms", type=float, default=8)
    parser.add_argument("--thread", action="store_true")
    options = parser.parse_args()
    loader, weights = batches(options), numpy.zeros(20000)
    if options.thread:
        loader = ahead(loader)
    begin, wait = time.monotonic(), 0.0
    for _ in range(options.steps):
        before = time.monotonic()
        batch = next(loader)
        wait += time.monotonic() - before
        weights += batch.mean(axis=0)
        compute(options.step_ms / 1000)
    wall = time.monotonic() - begin
    print(json.dumps({"wall_s": wall, "steps": options.steps, "wait": wait / wall, "pid": os.getpid(),
                      "tid": threading.get_native_id()}))


if __name__ == "__main__":
    main()
