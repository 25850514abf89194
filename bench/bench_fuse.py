# SPDX-License-Identifier: Apache-2.0
"""Reads a dataset as files: `dieselctl mount` is compared with the same files on the disk's own file system, and with libfuse's passthrough_ll
(with cache=always, built from the source in Debian's libfuse3-dev) over these.

Files of 4 KiB, and of 110 KB, of random bytes in class folders, read by a C program, jobs/read_files.c, one after the other:

    cold      caches of the machine dropped, daemon and mounts new: all files in order of names, small files also shuffled, and also
              a random 1/200 of the large files, so that most of these are in different chunks
    first     bytes in memory (the page cache, the daemon's cache), mounts new: all files
    again     the same files over and over, which the kernel caches; also 8 parts of 512 bytes of each large file
    find, cp  cold: `find -size +0` and `cp -r` of the small files into memory

Then ImageFolder with two workers reads images of 100 KB for two epochs, both counted, on storage that is simulated to be slow by a blkio
group on the real disk. It reads plain files, the mount, or diesel_loader by its one changed line, each cold. With diesel_loader, dieseld
decodes, or (python) the same Python code as for files. Bytes of the mount and of diesel_loader come from a cache that holds the dataset, and
the plain files' second epoch comes from the page cache.

Each run is a process of its own. Ways alternate, and figures are medians of rounds. The sums over the bytes read must agree.

    bench_fuse.py [--only 4K|110K|imagefolder ...]
"""
import argparse
import contextlib
import json
import os
import pathlib
import random
import resource
import shutil
import subprocess
import tempfile
import time

import support
from jobs import apart, photographs
from serving import Daemon, pack

ROUNDS = int(os.environ.get("DIESEL_BENCH_ROUNDS", 5))
SECONDS = float(os.environ.get("DIESEL_BENCH_SECONDS", 10))
SCALE = min(1.0, SECONDS / 10)  # shorter runs have fewer files
SIZES = {"4K": (4096, int(15_000 * SCALE)), "110K": (110_000, int(4_000 * SCALE))}
IMAGES, IOPS, BPS = int(1_200 * SCALE), 100, 10_000_000
WAYS = ("ext4", "passthrough_ll", "diesel")
EXAMPLES = pathlib.Path("/usr/share/doc/libfuse3-dev/examples")
CACHE = 2 << 30


def passthrough(folder):
    """Builds libfuse's passthrough_ll, unchanged."""
    source = EXAMPLES / "passthrough_ll.c"
    if not source.exists():
        support.skip(f"{source} is missing: install libfuse3-dev")
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "fuse3"], capture_output=True, text=True, check=True).stdout.split()
    return support.build(folder, source, "-w", *flags)


class Ground:
    """The files of one size, also packed, and the ways to them."""

    def __init__(self, folder, name, programs):
        size, count = SIZES[name]
        self.folder, self.name, self.programs = folder / name, name, programs
        self.files, self.where = self.folder / "files", self.folder / "mounted"
        self.where.mkdir(parents=True)
        self.paths = [str(path.relative_to(self.files)) for path in support.random_files(self.files, count, size)]
        self.dataset = pack(self.files, self.folder / "packed")
        os.sync()
        self.sums = {}
        self.lists = {"ordered": self._list("ordered", self.paths),
                      "shuffled": self._list("shuffled", random.Random(2).sample(self.paths, len(self.paths))),
                      "few": self._list("few", random.Random(3).sample(self.paths, len(self.paths) // 200))}

    def _list(self, name, paths):
        path = self.folder / name
        path.write_text("\n".join(paths) + "\n")
        return path

    @contextlib.contextmanager
    def mounted(self, way):
        """Mounts a way's file system, and returns the folder where the files are."""
        if way == "ext4":
            yield self.files
            return
        command = [support.program("dieselctl"), "mount", "-f", self.dataset, self.where]
        if way != "diesel":
            command = [self.programs["passthrough_ll"], "-f", "-o", f"source={self.files},cache=always", self.where]
        with mounted(command, self.where):
            yield self.where

    @contextlib.contextmanager
    def fresh(self, way):
        """Returns the folder of the files, none of which is in memory."""
        with contextlib.ExitStack() as stack:
            if way == "diesel":
                stack.enter_context(Daemon(self.folder, "--cache", CACHE, "--metrics", "off"))
            support.drop_caches()
            yield stack.enter_context(self.mounted(way))

    def read(self, mode, seconds, where, order="ordered"):
        """Returns files per second."""
        with self.lists[order].open() as paths, tempfile.TemporaryFile("w+") as out:
            subprocess.run([self.programs["read_files"], mode, str(seconds), where], stdin=paths, stdout=out, check=True)
            out.seek(0)
            told = json.load(out)
        kind = mode, order == "few"
        if mode == "whole" and self.sums.setdefault(kind, told["sum"]) != told["sum"]:
            raise SystemExit(f"{where} does not have the bytes that were written")
        return told["files"] / told["seconds"]


@contextlib.contextmanager
def mounted(command, where):
    """Runs the process that serves the mount, in the foreground: so that it stays in this session and has the same priority as all other processes
    here."""
    with subprocess.Popen(command) as process:
        support.wait_for(lambda: os.path.ismount(where) or process.poll() is not None, f"{where} is mounted")
        try:
            yield
        finally:
            unmount(where)


def unmount(where):
    for _ in range(100):
        if subprocess.run(["fusermount3", "-u", where], capture_output=True, check=False).returncode == 0:
            return
        time.sleep(0.1)
    raise SystemExit(f"{where} cannot be unmounted")


def timed(argv):
    begin = time.perf_counter()
    subprocess.run(list(map(str, argv)), stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin


def one_way(ground, way):
    """Returns (item, files per second) of one way in one round."""
    n, small = len(ground.paths), ground.name == "4K"
    with ground.fresh(way) as where:
        yield "cold", ground.read("whole", 0, where)
    if small:
        with ground.fresh(way) as where:
            yield "cold_shuffled", ground.read("whole", 0, where, "shuffled")
        with ground.fresh(way) as where:
            yield "find", n / timed(["find", where, "-type", "f", "-size", "+0"])
        with ground.fresh(way) as where, tempfile.TemporaryDirectory(dir="/dev/shm") as copy:
            yield "cp", n / timed(["cp", "-r", where, copy])
    else:
        with ground.fresh(way) as where:
            yield "cold_few", ground.read("whole", 0, where, "few")
    with contextlib.ExitStack() as stack:
        if way == "diesel":
            stack.enter_context(Daemon(ground.folder, "--cache", CACHE, "--metrics", "off"))
        with ground.mounted(way) as where:  # the first pass reads everything into memory
            ground.read("whole", 0, where)
        with ground.mounted(way) as where:
            yield "first", ground.read("whole", 0, where)
            yield "again", ground.read("whole", SECONDS, where)
            if not small:
                yield "parts", ground.read("parts", SECONDS, where)


def files(name, folder, programs, raw):
    ground = Ground(folder, name, programs)
    for number in range(ROUNDS):
        for k in range(len(WAYS)):
            way = WAYS[(number + k) % len(WAYS)]
            with support.Steal() as steal:
                found = dict(one_way(ground, way))
            raw.append({"size": name, "way": way, "steal": steal.ratio, "files_per_s": found})
            print(f"  {name:4} {way:14} " + ", ".join(f"{what} {rate:.0f}" for what, rate in found.items()), flush=True)
    shutil.rmtree(ground.folder)


def figures_of_files(raw):
    def rate(size, way, what):
        found = [r["files_per_s"][what] for r in raw if (r.get("size"), r["way"]) == (size, way)]
        return support.median(found)

    figures = {}
    for size in SIZES:
        for what in next((r["files_per_s"] for r in raw if r.get("size") == size), {}):
            for way in WAYS:
                figures[f"{size}_{what}_{way}"] = rate(size, way, what)
            for peer in WAYS[:2]:
                figures[f"{size}_{what}_over_{peer}"] = rate(size, "diesel", what) / rate(size, peer, what)
    return figures


def imagefolder(folder, raw):
    """Runs rounds of the three ways on storage that is simulated to be slow."""
    folder.mkdir()
    source, where = folder / "photos", folder / "mounted"
    where.mkdir()
    photographs.write(source, IMAGES, 500, 375, 99)
    dataset = pack(source, folder / "packed")
    os.sync()
    if why := support.Throttle.why_not(folder):
        print(f"  imagefolder is left out: {why}")
        return
    job, ways = support.ROOT / "bench/jobs/imagefolder.py", ("plain", "mount", "changed_line", "changed_line_python")
    for number in range(ROUNDS):
        for k in range(len(ways)):
            way = ways[(number + k) % len(ways)]
            with contextlib.ExitStack() as stack:
                support.drop_caches()
                support.warm("torch", "torchvision", "diesel_loader.torch")
                steal = stack.enter_context(support.Steal())
                slow = stack.enter_context(support.Throttle(folder, iops=IOPS, bps=BPS))
                if way != "plain":
                    stack.enter_context(Daemon(folder, "--cache", CACHE, "--metrics", "off", prefix=slow.command))
                if way == "mount":
                    stack.enter_context(mounted(slow.command([support.program("dieselctl"), "mount", "-f", dataset, where]), where))
                path = {"plain": source, "mount": where}.get(way, dataset)
                kind = {"changed_line": "diesel", "changed_line_python": "python"}.get(way, "files")
                told = apart.run(slow.command([*support.PREFERRED, support.PYTHON, job, kind, path, 2]))
            rates = [told["images"] / seconds for seconds in told["seconds"]]
            raw.append({"way": way, "steal": steal.ratio, "images_per_s": rates, "labels": told["labels"]})
            print(f"  images {way:14} " + ", ".join(f"epoch {i + 1} {rate:.0f}" for i, rate in enumerate(rates)), flush=True)


def figures_of_images(raw):
    figures = {}
    if len({r["labels"] for r in raw if "labels" in r}) > 1:
        raise SystemExit("the ways did not read the same images")
    for i in range(2):
        rates = {}
        for r in raw:
            if "labels" in r:
                rates.setdefault(r["way"], []).append(r["images_per_s"][i])
        rates = {way: support.median(found) for way, found in rates.items()}
        figures |= {f"slow_epoch{i + 1}_{way}": rate for way, rate in rates.items()}
        if rates:
            figures[f"slow_epoch{i + 1}_mount_over_plain"] = rates["mount"] / rates["plain"]
            for way in ("changed_line", "changed_line_python"):
                figures[f"slow_epoch{i + 1}_mount_over_{way}"] = rates["mount"] / rates[way]
    return figures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="+", choices=(*SIZES, "imagefolder"), default=(*SIZES, "imagefolder"))
    only = parser.parse_args().only
    if os.geteuid() != 0:
        support.skip("dropping caches needs root")
    if not os.access("/dev/fuse", os.R_OK | os.W_OK) or not shutil.which("fusermount3"):
        support.skip("needs /dev/fuse and fusermount3")
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if most < SIZES["4K"][1] + 500:
        support.skip(f"passthrough_ll needs a file descriptor per file, and the hard limit is {most} (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    support.prefer()
    raw = []
    with support.Scratch() as folder:
        programs = {"passthrough_ll": passthrough(folder), "read_files": support.build(folder, support.ROOT / "bench/jobs/read_files.c")}
        for name in only:
            if name == "imagefolder":
                print(f"  storage limited to {IOPS} reads and {BPS // 1_000_000} MB per second by a blkio group (simulated)", flush=True)
                imagefolder(folder / name, raw)
            else:
                files(name, folder / name, programs, raw)
    support.result_write("fuse", raw, **figures_of_files(raw), **figures_of_images(raw))


if __name__ == "__main__":
    main()
