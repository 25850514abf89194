# SPDX-License-Identifier: Apache-2.0
"""Compares jobs that do not use DIESEL while `dieseld --assist` runs with the same jobs without any dieseld.

The job is jobs/plain_files.py: plain PyTorch reads 2,000 files of 110 KB whole, one open() per sample, in shuffled batches of 32. Its
DataLoader has 2 workers. The job computes nothing (bare), or a step of a small network per batch (computes).

    slow    bare, five epochs on storage that is simulated by a FUSE file system where each read takes 5 ms, caches dropped before each
            epoch: samples per second of the first epoch, in which dieseld learns, of the second, in which it tries, and of later ones
    memory  local disk, files in the page cache: samples per second and per CPU second of the job, over all epochs including the first
    cold    local disk, caches of the machine dropped before each epoch: the same figures
    calls   system calls of a process that is no training job, jobs/small_calls.c: nanoseconds per call

Each run is a process of its own, and imports are not counted. Runs with and without dieseld alternate. Figures are medians of the rounds,
ratios are medians of the rounds' ratios. The sums over the bytes read must agree.

    bench_assist.py [--only slow|memory|cold|calls ...]
"""
import argparse
import contextlib
import os
import pathlib
import subprocess

import support
from jobs import apart, usage
from serving import Daemon

ROUNDS = int(os.environ.get("DIESEL_BENCH_ROUNDS", 5))
SECONDS = float(os.environ.get("DIESEL_BENCH_SECONDS", 10))
FILES, FILE_BYTES, READ_MS = 2000, 110_000, 5
SLOW_EPOCHS = 5
WHATS = ("slow", "memory", "cold", "calls")
WAYS = ("plain", "assist")


def watches(daemon):
    """Returns whether dieseld's watcher has loaded the BPF programs, after which it drops root."""
    for pid in usage.tree(daemon.process.pid):
        with contextlib.suppress(OSError):  # the process ended
            status = pathlib.Path(f"/proc/{pid}/status").read_text()
            if status.startswith("Name:\tdieseld-assist\n") and "\nUid:\t65534\t" in status:
                return True
    if daemon.process.poll() is not None:
        raise SystemExit("dieseld has ended")
    return False


@contextlib.contextmanager
def helped(folder, way):
    """Runs dieseld --assist, or nothing for the way `plain`."""
    if way == "plain":
        yield
        return
    with Daemon(folder, "--assist", "--cache", 64 << 20, "--metrics", "off", "--history", "off") as daemon:
        support.wait_for(lambda: watches(daemon), "dieseld --assist watches")
        yield


@contextlib.contextmanager
def slow_storage(source, where):
    """Mounts the folder `source` at `where`, where each read takes READ_MS."""
    with subprocess.Popen([support.program("fuse_mirror"), source, where], stderr=subprocess.DEVNULL,
                          env=os.environ | {"FUSE_MIRROR_READ_MS": str(READ_MS)}):
        support.wait_for(lambda: os.path.ismount(where), f"{where} is mounted")
        try:
            yield where
        finally:
            subprocess.run(["umount", "-l", where], check=True)


class Ground:
    """The files' places: the local disk, and memory behind simulated slow storage."""

    def __init__(self, folder, memory, only):
        self.folder, self.files, self.where, self.behind = folder, folder / "files", folder / "mounted", memory / "files"
        self.where.mkdir()
        if {"memory", "cold"} & set(only):
            support.random_files(self.files, FILES, FILE_BYTES)
        if "slow" in only:
            support.random_files(self.behind, FILES, FILE_BYTES)
        self.small_calls = support.build(folder, support.ROOT / "bench/jobs/small_calls.c")
        os.sync()

    def job(self, way, files, caches, epochs, seconds, computes):
        argv = [*support.PREFERRED, support.PYTHON, support.ROOT / "bench/jobs/plain_files.py", files, caches, epochs, seconds, computes]
        return apart.run([*argv, support.program("dieselctl")] if way == "assist" else argv)

    def measure(self, what, way, computes):
        with contextlib.ExitStack() as stack:
            files = stack.enter_context(slow_storage(self.behind, self.where)) if what == "slow" else self.files
            stack.enter_context(helped(self.folder, way))
            if what == "calls":
                return apart.run([*support.PREFERRED, self.small_calls, SECONDS / 10, __file__])
            support.warm("torch")
            epochs, seconds = (SLOW_EPOCHS, 0) if what == "slow" else (2, SECONDS)
            return self.job(way, files, "memory" if what == "memory" else "cold", epochs, seconds, computes)


def rates(found):
    return [found["samples"] / seconds for seconds in found["seconds"]]


def text(what, found):
    if what == "calls":
        return ", ".join(f"{name} {ns:.0f} ns" for name, ns in found.items())
    said = found["assist"]
    by_epoch = ", ".join(f"{rate:.0f}" for rate in rates(found)[:8])
    return f"samples/s by epoch {by_epoch}" + (f"; {said['state']}: {said['why']}" if said else "")


def over(raw, what, computes, value):
    """Returns name -> value() of each way, as the median of the rounds, and the median of the rounds' ratios."""
    rows = [row for row in raw if (row["what"], row["computes"]) == (what, computes)]
    found = {way: [value(row["found"]) for row in rows if row["way"] == way] for way in WAYS}
    ratios = [helped / plain for plain, helped in zip(found["plain"], found["assist"])]
    return {way: support.median(found[way]) for way in WAYS} | {"ratio": support.median(ratios)}


def figures_of(raw):
    figures = {}

    def add(name, *of):
        figures.update({f"{name}_{way}": value for way, value in over(raw, *of).items()})

    there = {(row["what"], row["computes"]) for row in raw}
    if ("slow", "bare") in there:
        add("slow_epoch1", "slow", "bare", lambda found: rates(found)[0])
        add("slow_epoch2", "slow", "bare", lambda found: rates(found)[1])
        add("slow_later", "slow", "bare", lambda found: (SLOW_EPOCHS - 2) * found["samples"] / sum(found["seconds"][2:]))
    for what, computes in sorted(there):
        if what in ("memory", "cold"):
            add(f"{what}_{computes}", what, computes,
                lambda found: len(found["seconds"]) * found["samples"] / sum(found["seconds"]))
            add(f"{what}_{computes}_a_cpu_second", what, computes,
                lambda found: len(found["seconds"]) * found["samples"] / found["cpu_s"])
    if ("calls", "bare") in there:
        for name in ("getppid", "read", "write", "openat"):
            add(f"{name}_ns", "calls", "bare", lambda found, name=name: found[name])
    return figures


def check(raw):
    for slow in (True, False):
        if len({row["found"]["sum"] for row in raw if row["what"] != "calls" and (row["what"] == "slow") == slow}) > 1:
            raise SystemExit("jobs with and without dieseld did not read the same bytes")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="+", choices=WHATS, default=WHATS)
    only = parser.parse_args().only
    if os.geteuid() != 0:
        support.skip("dieseld --assist and dropping caches need root")
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        support.skip("needs /dev/fuse")
    support.prefer()
    raw = []
    with support.Scratch() as folder, support.Scratch("/dev/shm") as memory:
        ground = Ground(folder, memory, only)
        for number in range(ROUNDS):
            for what in only:
                for computes in ("bare", "computes") if what in ("memory", "cold") else ("bare",):
                    for k in range(len(WAYS)):
                        way = WAYS[(number + k) % len(WAYS)]
                        with support.Steal() as steal:
                            found = ground.measure(what, way, computes)
                        raw.append({"what": what, "computes": computes, "way": way, "steal": steal.ratio, "found": found})
                        kind = f"{what}, simulated" if what == "slow" else f"{what}, {computes}" if what != "calls" else what
                        print(f"  {kind:16} {way:6} {text(what, found)}, steal {100 * steal.ratio:.1f} %", flush=True)
    check(raw)
    support.result_write("assist", raw, **figures_of(raw))


if __name__ == "__main__":
    main()
