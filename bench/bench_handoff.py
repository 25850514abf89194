# SPDX-License-Identifier: Apache-2.0
"""Passes arrays of 32 MiB from a worker process to the trainer (jobs/handoff.py).
The ways are diesel_loader, PyTorch's DataLoader, and SPDL with and without its arena. Each run is a process of its own; the ways alternate.

Needs a Python that has torch and spdl from PyPI: DIESEL_STOCK_PYTHON names one.

Also measures how long next() takes where a batch is ready, with samples of 64 bytes and batches of 8."""
import argparse
import os
import struct
import sys

import support
from jobs import apart
from peers.stock_python import Pythons
from serving import Daemon, pack

N = int(os.environ.get("DIESEL_BENCH_ARRAYS", 150))
ROUNDS = int(os.environ.get("DIESEL_BENCH_ROUNDS", 5))
WAYS = ("diesel", "torch", "spdl", "spdl-queue")
READY = """
import os, sys, time, diesel_loader.torch
loader = diesel_loader.torch.DataLoader(sys.argv[1], batch_size=8, shuffle=True)
for _ in loader:
    pass
times = []
for _ in range(6):
    batches = iter(loader)
    for _ in range(len(loader)):
        while not loader._stream.session.n_ready:
            time.sleep(1e-4)
        begin = time.perf_counter_ns()
        batch = next(batches)
        times.append(time.perf_counter_ns() - begin)
        del batch
times.sort()
print(times[len(times) // 2] / 1000)
"""


def files(folder, n, size):
    (folder / "c").mkdir(parents=True)
    for i in range(n):
        (folder / "c" / f"{i:05d}.bin").write_bytes(struct.pack("<I", i).ljust(size, b"\0"))


def main():
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    python, raw, figures = Pythons([]).for_job("torch spdl")[0], [], {}
    with support.Scratch() as folder:
        files(folder / "numbers", N, 4)
        files(folder / "small", 4096, 64)
        numbers, small = (pack(folder / name, folder / f"{name}.diesel") for name in ("numbers", "small"))
        with Daemon(folder):
            for k in range(ROUNDS):
                for way in WAYS:
                    argv = [python, support.ROOT / "bench/jobs/handoff.py", way, numbers, N]
                    raw.append({"way": way, "round": k, **apart.run(argv, timeout_s=300)})
                raw.append({"way": "ready", "round": k, "next_us": apart.run([python, "-c", READY, str(small)])})
    for way in WAYS:
        mine = [r for r in raw if r["way"] == way]
        figures[f"{way}_mb_per_s"] = support.median(r["mb_per_s"] for r in mine)
        figures[f"{way}_cpu_s"] = support.median(r["trainer_cpu_s"] for r in mine)
        print(f"{way:10} {figures[f'{way}_mb_per_s']:7.0f} MB/s, trainer's CPU {figures[f'{way}_cpu_s']:5.2f} s", flush=True)
    figures["next_us"] = support.median(r["next_us"] for r in raw if r["way"] == "ready")
    figures |= {name: raw[0][name] for name in ("torch", "spdl")}
    support.result_write("handoff", raw, **{name.replace("-", "_"): value for name, value in figures.items()})


if __name__ == "__main__":
    try:
        main()
    except apart.Failed as failure:
        sys.exit(str(failure))
