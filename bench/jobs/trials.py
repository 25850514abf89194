# SPDX-License-Identifier: Apache-2.0
"""Runs of one unmodified training script (bench/jobs/train.py) on files of a throttled disk, for benchmarks that compare
the analyzer with real runs: warm, cold, partly warm, with batches from memory, recorded.

    with trials.prepared(options) as bench:      # skips where a disk cannot be throttled
        with bench.turn():
            run = bench.run(config, cached=0.5)  # {"seconds": ..., "disturbed": ..., ...}
"""
import collections
import contextlib
import fcntl
import itertools
import json
import os
import random
import subprocess
import sys
import time

import support

N_FILES, FILE_BYTES, BATCH = 1300, 110_000, 16
ROUNDS, ATTEMPTS = 4, 3

# By default, glibc's rules for returning freed memory to the kernel depend on earlier frees. Then the same model had none or 5,500 page faults per
# step, from run to run, and a step took 22 or 40 ms, so runs would not be comparable.
MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(4 << 30),
          "MALLOC_TOP_PAD_": str(64 << 20)}

# mbps: read limit of the disk; prep: transforms per sample, about 18 us each; forwards: passes per step, about 3.4 ms each
Config = collections.namedtuple("Config", "workers mbps prep forwards steps")


class Trials:
    def __init__(self, folder, options):
        self.folder, self.rounds, self.attempts, self.lock = folder, options.rounds, options.attempts, options.lock
        self.warmed = False
        self.end = time.monotonic() + 60 * options.minutes
        self.files = support.random_files(folder / "files", N_FILES, FILE_BYTES)
        os.sync()

    def argv(self, config):
        return [support.PYTHON, str(support.ROOT / "bench/jobs/train.py"), "--data", str(self.folder / "files"),
                "--workers", str(config.workers), "--prep", str(config.prep), "--repeat", str(config.forwards),
                "--steps", str(config.steps), "--width", "32", "--batch", str(BATCH)]

    @property
    def time_left(self):
        return time.monotonic() < self.end

    @contextlib.contextmanager
    def turn(self):
        """Holds the lock, if one was named, during a measurement, so that several benchmarks take turns."""
        with contextlib.ExitStack() as stack:
            if self.lock:
                file = stack.enter_context(open(self.lock, "a", encoding="ascii"))
                fcntl.flock(file, fcntl.LOCK_EX)
            if not self.warmed:
                self.warm()
                self.warmed = True
            yield

    def warm(self):
        """A short run, not measured: otherwise libraries that a job maps at its first step would be read at the throttled disk's pace, and
        that is neither loading nor computing."""
        subprocess.run([support.PYTHON, str(support.ROOT / "bench/jobs/train.py"), "--steps", "3", "--workers", "2",
                        "--data", str(self.folder / "files")], stdout=subprocess.DEVNULL, check=True)

    def make_resident(self, config, cached):
        """Keeps this share of the files that the job reads in the page cache, and evicts the rest. The script reads as many files as it
        needs samples, each once."""
        used = self.files[:config.steps * BATCH]
        warm = set(random.Random(7).sample(used, round(cached * len(used))))
        support.evict(path for path in self.files if path not in warm)
        for path in warm:
            path.read_bytes()
        return (len(used) - len(warm)) * FILE_BYTES

    def run_once(self, config, cached, synthetic, recording, options):
        argv, out = self.argv(config), self.folder / "clock"
        environment = os.environ | MALLOC
        if recording:
            argv = [support.program("diesel-analyze"), "record", *options, "-o", str(recording), "--",
                    *argv, "--trace", str(recording.with_suffix(".trace"))]
        else:
            environment |= support.shim("synthetic" if synthetic else "clock", out)
        expected = self.make_resident(config, cached)
        with support.Throttle(self.folder, bps=config.mbps * 1_000_000) as slow, support.Steal() as steal:
            done = subprocess.run(slow.command([*support.PREFERRED, *argv]), stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, check=False, env=environment, start_new_session=True)
            read = slow.read_bytes()
        if done.returncode:
            sys.exit(f"{config}: the job failed: {done.stderr.decode()[-500:]}")
        clock = json.loads(done.stdout.splitlines()[-1])
        wrong_reads = read is not None and abs(read - expected) > 0.03 * N_FILES * FILE_BYTES
        return {"seconds": clock["wall_s"] if recording else support.shim_seconds(out), "clock": clock,
                "read_bytes": read, "steal": steal.ratio, "neighbours": steal.neighbours,
                "disturbed": steal.disturbed or wrong_reads}

    def run(self, config, cached=0.0, synthetic=False, recording=None, options=()):
        """Returns the least disturbed of a few runs. cached: share of the files in the page cache. recording: path to record to."""
        runs = []
        for _ in range(self.attempts):
            runs.append(self.run_once(config, 1.0 if synthetic else cached, synthetic, recording, options))
            if not runs[-1]["disturbed"]:
                break
        best = min(runs, key=lambda run: (run["disturbed"], run["steal"] + run["neighbours"]))
        return best if recording is None else runs[-1]  # the recording is the last run's


def closest_pair(values, distance):
    """Returns the two values that agree best, or None with fewer than two."""
    return min(itertools.combinations(values, 2), key=lambda pair: distance(*pair), default=None)


def add_arguments(parser):
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="maximum number of rounds (default: %(default)s)")
    parser.add_argument("--attempts", type=int, default=ATTEMPTS, help="maximum attempts for a disturbed run (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=1e6, help="start no further measurement after this many minutes")
    parser.add_argument("--lock", metavar="FILE", help="hold a lock on FILE during each measurement")


@contextlib.contextmanager
def prepared(options):
    with support.Scratch() as folder:
        if why := support.Throttle.why_not(folder):
            support.skip(why)
        yield Trials(folder, options)


def names_of(parser, options, known):
    if unknown := set(options.configs) - set(known):
        parser.error(f"no configuration {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    return options.configs or list(known)


def report_of(recording):
    return json.loads(subprocess.run([support.program("diesel-analyze"), "report", "--format", "json", str(recording)],
                                     stdout=subprocess.PIPE, check=True).stdout)
