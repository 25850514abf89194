# SPDX-License-Identifier: Apache-2.0
"""Reads from storage: four ranks, three epochs of a dataset that fits, then the next job, with a tuned daemon.

Memory that nobody wants costs nothing, so a chunk should be read once, by whichever rank, epoch or job comes first.
Cases: storage that is fast enough to keep nothing; storage that becomes slow after the first epoch; and
one that was slow and becomes fast. At the end something else in the daemon's memory control group wants the room: how long until it has it.

    bench_cache.py [--ranks N] [--epochs N]
"""
import argparse
import contextlib
import json
import mmap
import os
import pathlib
import subprocess
import time

import support
from serving import Daemon, pack

NAME = "cache"
MIB = 1 << 20
FILE_BYTES, N_FILES, BATCH, PAUSE_US = 128 << 10, 5912, 16, 40000  # 739 MiB
SLOW_BPS, CACHE = 60 * MIB, "5.9G"
LEAST_LEFT = 256 * MIB


def status(daemon):
    command = [support.program("daemon_probe"), "--status", "--socket", daemon.socket]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def epochs_of(daemon, ranks, epochs, dataset, between=lambda epoch: None):
    """Reads from storage in each epoch of a job of so many ranks; between(epoch) when all have begun it."""
    probes = [subprocess.Popen([support.program("daemon_probe"), "--dataset", dataset, "--socket", daemon.socket, "--batch",
                                str(BATCH), "--rank", str(r), "--world", str(ranks), "--epochs", str(epochs), "--pause-us",
                                str(PAUSE_US), "--touch"], stdout=subprocess.DEVNULL) for r in range(ranks)]
    before, reads, epoch, last = status(daemon)["cache"]["reads"], [], 0, None
    while any(p.poll() is None for p in probes):
        last = status(daemon)
        if epoch + 1 < epochs and len(last["sessions"]) == ranks and min(s["epoch"] for s in last["sessions"]) > epoch:
            epoch += 1
            reads.append(last["cache"]["reads"] - before - sum(reads))
            between(epoch)
        time.sleep(0.05)
    reads.append(status(daemon)["cache"]["reads"] - before - sum(reads))
    if any(p.returncode for p in probes):
        raise RuntimeError("a rank failed")
    return reads, last["cache"]


def case(folder, dataset, options, bps_by_epoch):
    with contextlib.ExitStack() as stack:
        throttle = stack.enter_context(support.Throttle(folder))
        throttle.change(bps=bps_by_epoch.get(0))
        daemon = stack.enter_context(Daemon(folder, "--metrics", "off", "--cache", options.cache, prefix=throttle.command))
        begin = time.monotonic()
        first, at_end = epochs_of(daemon, options.ranks, options.epochs, dataset,
                                  lambda epoch: epoch in bps_by_epoch and throttle.change(bps=bps_by_epoch[epoch]))
        seconds = time.monotonic() - begin
        following, _ = epochs_of(daemon, options.ranks, 1, dataset)
    return {"reads_by_epoch": first, "next_job_reads": following[0], "seconds": round(seconds, 1),
            "claimed_mib": round(at_end.get("claimed_bytes", 0) / MIB), "borrowed_mib": round(at_end.get("borrowed_bytes", 0) / MIB)}


class MemoryGroup:
    def __init__(self, limit):
        parent = pathlib.Path("/sys/fs/cgroup/memory")
        self.limit, v1 = limit, parent.exists()
        self.folder = (parent if v1 else parent.parent) / f"diesel-bench-{os.getpid()}"
        self.names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if v1 else ("memory.max", "memory.current")

    def __enter__(self):
        self.folder.mkdir()
        (self.folder / self.names[0]).write_text(str(self.limit))
        return self

    def __exit__(self, *_):
        while True:
            with contextlib.suppress(OSError):
                return self.folder.rmdir()
            time.sleep(0.05)

    def command(self, argv):
        return ["/bin/sh", "-c", f'echo $$ >{self.folder}/cgroup.procs && exec "$@"', "sh", *map(str, argv)]

    def left(self):
        return self.limit - int((self.folder / self.names[1]).read_text())


def take(n_bytes):
    """In a process of its own: takes so much memory, and waits to be ended."""
    held = mmap.mmap(-1, n_bytes)
    for page in range(0, n_bytes, 4096):
        held[page] = 1
    print("taken", flush=True)
    time.sleep(600)


def release(folder, dataset, options):
    """Seconds from another program's taking the memory until the group has twice the reserve left again."""
    with MemoryGroup(1536 * MIB) as group, Daemon(folder, "--metrics", "off", "--cache", "1G", prefix=group.command) as daemon:
        epochs_of(daemon, options.ranks, 1, dataset)
        borrowed, wanted = status(daemon)["cache"]["borrowed_bytes"], 2 * group.limit // 16
        code = f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r}); import bench_cache as b; " \
               f"b.take({group.left() - 32 * MIB})"
        hog = subprocess.Popen(group.command([support.PYTHON, "-c", code]), stdout=subprocess.PIPE, text=True)
        try:
            hog.stdout.readline()
            begin = time.monotonic()
            while group.left() < wanted * 0.95 and time.monotonic() < begin + 20:
                time.sleep(0.01)
            seconds = time.monotonic() - begin
        finally:
            hog.kill()
            hog.wait()
        return {"seconds": round(seconds, 2), "borrowed_before_mib": round(borrowed / MIB),
                "given_back_mib": round((borrowed - status(daemon)["cache"]["borrowed_bytes"]) / MIB)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--cache", default=CACHE)
    parser.add_argument("--without-release", action="store_true")
    options = parser.parse_args()
    with support.Scratch() as folder:
        if why := support.Throttle.why_not(folder):
            support.skip(why)
        support.random_files(folder / "files", N_FILES, FILE_BYTES)
        dataset = pack(folder / "files", folder / "packed", "--chunk-size", "4M")
        os.sync()
        chunks = len(list((folder / "packed/chunks").glob("*.chunk")))
        raw = {"chunks": chunks,
               "fast": case(folder, dataset, options, {}),
               "slow then fast": case(folder, dataset, options, {0: SLOW_BPS, 1: None}),
               "fast then slow": case(folder, dataset, options, {1: SLOW_BPS})}
        if not options.without_release:
            raw["release"] = release(folder, dataset, options)
    for name, figures in raw.items():
        print(f"{name:16} {figures}")
    support.result_write(NAME, raw, chunks=chunks, **{f"later_reads_{name.replace(' ', '_')}":
                         sum(raw[name]["reads_by_epoch"][1:]) + raw[name]["next_job_reads"]
                         for name in ("fast", "slow then fast", "fast then slow")})


if __name__ == "__main__":
    main()
