# SPDX-License-Identifier: Apache-2.0
"""Reads from storage: four ranks, three epochs of a dataset that fits, then the next job, with a tuned daemon.

Memory that no process needs costs nothing, so a chunk should be read once, by whichever rank, epoch or job comes first.
The cases are storage that is so fast that nothing needs to be cached, storage that becomes slow after the first epoch, and storage that was
slow and becomes fast. At the end another process in the daemon's memory control group needs the memory, and the program measures how long
it waits.

--small: less memory than the dataset needs. Samples are 110 KB, and the cache is 25, 50 and 75 % of the dataset. The peer is PyTorch's
DataLoader with 0 and 2 workers over the same bytes in files. A control group limits its page cache to the same size, and its processes' own
memory comes on top. The disk is either not throttled or throttled. A run is four epochs of one loader, and the first does not count. The ways
alternate, and figures are medians of rounds. Bytes read from storage are the kernel's count for the processes: those of all epochs, less the
dataset once, so that prefetched bytes count.

    bench_cache.py [--ranks N] [--epochs N]
    bench_cache.py --small [--disk real|throttled]
    bench_cache.py --stage [slow|paced|disk ...]    jobs/stage.py
    bench_cache.py --subset [BYTES ...]             jobs/subset.py: samples of BYTES bytes
"""
import argparse
import contextlib
import json
import mmap
import os
import pathlib
import subprocess
import sys
import threading
import time

import support
from jobs import apart, stage, subset
from serving import Daemon, pack

NAME = "cache"
MIB = 1 << 20
FILE_BYTES, N_FILES, BATCH, PAUSE_US = 128 << 10, 5912, 16, 40000  # 739 MiB
SLOW_BPS, CACHE = 60 * MIB, "5.9G"
LEAST_LEFT = 256 * MIB

ROUNDS = int(os.environ.get("DIESEL_BENCH_ROUNDS", 5))
# With less, the memory that the DataLoader's processes allocate between two samples of their memory use does not fit in a page cache of 25 %, and
# the kernel kills them.
SMALL_BYTES = max(400, int(os.environ.get("DIESEL_BENCH_MIB", 400))) * MIB
SAMPLE_BYTES, SMALL_EPOCHS = 110_000, 4
PERCENTS, DISKS = (25, 50, 75), {"real": None, "throttled": 100 * MIB}
WAYS = ("diesel", "torch-0", "torch-2")


def status(daemon):
    command = [support.program("daemon_probe"), "--status", "--socket", daemon.socket]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def epochs_of(daemon, ranks, epochs, dataset, between=lambda epoch: None):
    """Returns the reads from storage in each epoch of a job of `ranks` ranks. Calls between(epoch) when all have begun the epoch."""
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


class PageCache(MemoryGroup):
    """Limits the page cache of the processes of the group to `space` bytes, in addition to their other memory, which is sampled ten times a
    second."""

    def __init__(self, space):
        super().__init__(space)
        self.space, self.seen, self._stop = space, [], threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        super().__enter__()
        self._thread.start()
        return self

    def _run(self):
        while not self._stop.wait(0.1):
            held = dict(line.split() for line in (self.folder / "memory.stat").read_text().splitlines())
            cached = int(held["cache"] if "cache" in held else held["file"]) - int(held["shmem"])
            self.seen.append(cached)
            other = max(0, int((self.folder / self.names[1]).read_text()) - cached)
            with contextlib.suppress(OSError):  # more memory is in use than the kernel can reclaim at once; the next call tries again
                (self.folder / self.names[0]).write_text(str(self.space + other))

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()
        super().__exit__()


def caches_dropped():
    """Returns how often any program has dropped the page cache of the machine."""
    return int(dict(line.split() for line in pathlib.Path("/proc/vmstat").read_text().splitlines())["drop_pagecache"])


class Small:
    """The dataset in files and packed, and one run over it."""

    def __init__(self, folder):
        self.folder, self.files, self.bytes = folder, folder / "files", SMALL_BYTES // SAMPLE_BYTES * SAMPLE_BYTES
        self.paths = support.random_files(self.files, SMALL_BYTES // SAMPLE_BYTES, SAMPLE_BYTES)
        self.dataset = pack(self.files, folder / "packed")
        os.sync()
        support.warm("torch")

    def run(self, way, disk, percent):
        """Repeats the run, up to three times, if another program dropped the caches meanwhile."""
        for _ in range(3):
            before = caches_dropped()
            with support.Steal() as steal:
                found = self._run(way, disk, percent)
            if caches_dropped() == before:
                break
        return {"way": way, "disk": disk, "percent": percent, "steal": steal.ratio,
                "load": os.getloadavg()[0], "caches_dropped": caches_dropped() - before, **self._figures(found), "found": found}

    def _run(self, way, disk, percent):
        """Returns the figures that jobs/small_memory.py prints, and the largest size of the cache."""
        space = self.bytes * percent // 100
        support.evict([*self.paths, *(self.folder / "packed/chunks").glob("*.chunk")])
        with support.Throttle(self.folder, bps=DISKS[disk]) as throttle:
            if way != "diesel":
                with PageCache(space) as group:
                    found = self._job(way, self.files, 0, throttle.group, group.folder)
                return found | {"cached_bytes": max(group.seen)}
            with Daemon(self.folder, "--metrics", "off", "--history", "off", "--cache", space, prefix=throttle.command) as daemon:
                found = self._job(way, self.dataset, daemon.process.pid)
                return found | {"cached_bytes": daemon.peak_rss_bytes, "reads": status(daemon)["cache"]["reads"]}

    def _job(self, way, data, reader, *groups):
        return apart.run([support.PYTHON, support.ROOT / "bench/jobs/small_memory.py", way, data, SAMPLE_BYTES, SMALL_EPOCHS, reader, *groups],
                         CUDA_VISIBLE_DEVICES="")

    def _figures(self, found):
        """Returns samples per second, and bytes read per epoch as a share of the dataset's, both after the first epoch."""
        later = SMALL_EPOCHS - 1
        return {"rate": later * found["samples"] / sum(found["seconds"][1:]),
                "read": (sum(found["read_bytes"]) - self.bytes) / later / self.bytes}


def small(disks):
    raw = []
    with support.Scratch() as folder:
        if why := support.Throttle.why_not(folder):
            support.skip(why)
        ground = Small(folder)
        for number, disk, percent in ((n, d, p) for n in range(ROUNDS) for d in disks for p in PERCENTS):
            for k in range(len(WAYS)):
                way = WAYS[(number + k) % len(WAYS)]
                raw.append(ground.run(way, disk, percent))
                row = raw[-1]
                print(f"  {disk:9} {percent} % {way:8} {row['rate']:6.0f} samples/s, {row['read']:.2f} of the dataset read per epoch, "
                      f"at most {row['found']['cached_bytes'] / MIB:.0f} MiB; load {row['load']:.1f}, "
                      f"steal {100 * row['steal']:.0f} %, caches dropped {row['caches_dropped']} times", flush=True)
        if len({row["found"]["sum"] for row in raw}) > 1:
            sys.exit("the ways did not all read the same bytes")
    support.result_write("cache_small", raw, **small_figures(raw))


def small_figures(raw):
    figures = {}
    for disk, percent in dict.fromkeys((row["disk"], row["percent"]) for row in raw):
        rate, read = ({way: support.median(row[what] for row in raw if (row["way"], row["disk"], row["percent"]) == (way, disk, percent))
                       for way in WAYS} for what in ("rate", "read"))
        best = max(WAYS[1:], key=rate.get)
        figures |= {f"{disk}_{percent}_{way.replace('-', '_')}_{what}": value
                    for what, of in (("rate", rate), ("read", read)) for way, value in of.items()}
        figures |= {f"{disk}_{percent}_ratio": rate["diesel"] / rate[best],
                    f"{disk}_{percent}_reads_ratio": read["diesel"] / min(read[way] for way in WAYS[1:])}
    return figures


def take(n_bytes):
    """Runs in a separate process: takes n_bytes of memory, and waits to be ended."""
    held = mmap.mmap(-1, n_bytes)
    for page in range(0, n_bytes, 4096):
        held[page] = 1
    print("taken", flush=True)
    time.sleep(600)


def release(folder, dataset, options):
    """Returns the seconds from another program's allocation until the group again has twice the reserve free."""
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
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--stage", nargs="*", choices=stage.WHATS)
    parser.add_argument("--subset", nargs="*", type=int, choices=subset.SIZES)
    parser.add_argument("--disk", choices=DISKS)
    options = parser.parse_args()
    if options.stage is not None:
        stage.run(options.stage or stage.WHATS)
        return
    if options.subset is not None:
        subset.run(options.subset or subset.SIZES)
        return
    if options.small:
        small([options.disk] if options.disk else list(DISKS))
        return
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
