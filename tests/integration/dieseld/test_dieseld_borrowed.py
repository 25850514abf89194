# SPDX-License-Identifier: Apache-2.0
"""Tests that memory beyond the jobs' claims stays while no other program needs it, and is freed when one does."""
import os
import pathlib
import subprocess
import sys
import time

from dieseld_support import BIN, MIB, Case, chunk_files, dataset, main, probe


HOG = """
import mmap, sys
held = []
for line in sys.stdin:
    held.append(mmap.mmap(-1, int(line)))
    for page in range(0, int(line), 4096):
        held[-1][page] = 1
    print("taken", flush=True)
"""


class MemoryGroup:
    """A memory control group of its own, version 1 or 2."""

    def __init__(self, limit):
        v1, v2 = pathlib.Path("/sys/fs/cgroup/memory"), pathlib.Path("/sys/fs/cgroup")
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if v1.exists() else ("memory.max", "memory.current")
        self.folder, self.limit = (v1 if v1.exists() else v2) / f"diesel-test-{os.getpid()}", limit
        self.folder.mkdir()
        try:
            (self.folder / names[0]).write_text(str(limit))
        except OSError:
            self.folder.rmdir()
            raise
        self.usage = self.folder / names[1]

    def command(self, command):
        return ["/bin/sh", "-c", f'echo $$ >{self.folder}/cgroup.procs && exec "$@"', "sh", *command]

    def remove(self):
        """Removes it when its last process is gone: the daemon's children end a little later than the daemon."""
        for _ in range(6000):
            try:
                return self.folder.rmdir()
            except OSError:
                time.sleep(0.01)
        raise RuntimeError(f"{self.folder} does not become empty")

    def left(self):
        return self.limit - int(self.usage.read_text())


class Borrowed(Case):
    def ctl(self, daemon, verb, *arguments):
        command = [os.path.join(BIN, "dieselctl"), verb, *arguments, "--socket", daemon.socket]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout

    def read(self, daemon, kind, *options):
        """Returns the chunks that this job read from storage."""
        path, source = dataset(kind)
        before = daemon.status()["cache"]["reads"]
        probe(daemon, path, "--source", source, "--batch", 128, *options)
        return daemon.status()["cache"]["reads"] - before

    def test_a_chunk_is_read_once_over_epochs_and_jobs(self):
        daemon, chunks = self.daemon("--window", "1", cache="256M"), len(chunk_files(dataset("packed")[0]))
        self.ctl(daemon, "set", "cache=16M")
        path, source = dataset("packed")
        p = self.start_probe(daemon, path, "--source", source, "--batch", 128, "--epochs", 1000, "--pause-us", 4000)
        status = daemon.wait_for("a claim of less", lambda s: s["sessions"] and s["cache"]["borrowed_bytes"] > 20 * MIB)
        self.assertEqual(status["jobs"][0]["knobs"]["cache-bytes"]["value"], 16 * MIB)
        self.assertGreater(status["jobs"][0]["memory"]["borrowed_bytes"], 20 * MIB)
        for verb in ("status", "why"):
            self.assertRegex(self.ctl(daemon, verb), "MiB claimed, .* MiB borrowed")
        epoch = status["sessions"][0]["epoch"]
        status = daemon.wait_for("two epochs more", lambda s: s["sessions"][0]["epoch"] >= epoch + 2)
        self.assertEqual(status["cache"]["reads"], chunks)
        p.kill()
        daemon.wait_for("its end", lambda s: not s["sessions"])
        # The next job finds everything in memory, also with another dataset's job in between.
        self.read(daemon, "views")
        self.assertEqual(self.read(daemon, "packed", "--epochs", 2), 0)
        cache = daemon.status()["cache"]
        self.assertEqual(cache["claimed_bytes"], cache["slot_bytes"])
        self.assertEqual(cache["borrowed_bytes"], cache["segment_bytes"] + cache["snapshot_bytes"])

    def test_who_wants_the_space_gets_it(self):
        daemon = self.daemon(cache="64M")
        self.read(daemon, "packed")
        borrowed = daemon.status()["cache"]["borrowed_bytes"]
        self.assertGreater(borrowed, 40 * MIB)
        # The cache has no space for 40 MiB next to 48 MiB: older chunks are evicted, and those just read stay.
        self.read(daemon, "views", "--epochs", 2)
        self.assertEqual(self.read(daemon, "views"), 0)
        cache = daemon.status()["cache"]
        self.assertLessEqual(cache["segment_bytes"] + cache["slot_bytes"] + cache["snapshot_bytes"], 64 * MIB)
        self.assertGreater(self.read(daemon, "packed"), 0)

    def test_memory_that_gets_short_comes_back(self):
        try:
            group = MemoryGroup(512 * MIB)
        except OSError as error:
            self.skipTest(f"no memory control group to be had: {error}")
        self.addCleanup(group.remove)
        daemon = self.daemon(prefix=group.command)
        self.addCleanup(daemon.stop)
        for kind in ("packed", "views"):
            self.read(daemon, kind)
        before = daemon.status()["cache"]["borrowed_bytes"]
        self.assertGreater(before, 80 * MIB)
        hog = subprocess.Popen(group.command([sys.executable, "-c", HOG]), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               text=True)
        self.addCleanup(hog.wait)
        self.addCleanup(hog.stdout.close)
        self.addCleanup(hog.stdin.close)
        # 64 MiB must stay free, of which 44 are missing then.
        print(group.left() - 20 * MIB, file=hog.stdin, flush=True)
        self.assertEqual(hog.stdout.readline(), "taken\n")
        daemon.wait_for("less that is borrowed", lambda s: s["cache"]["borrowed_bytes"] < before - 20 * MIB)
        self.settle(lambda: group.left() > 40 * MIB, "the group's memory")
        # The remaining chunks still serve, and the evicted ones are read again.
        self.read(daemon, "packed")

    def settle(self, predicate, what):
        for _ in range(6000):
            if predicate():
                return
            time.sleep(0.01)
        self.fail(f"{what} did not come back")


if __name__ == "__main__":
    main()
