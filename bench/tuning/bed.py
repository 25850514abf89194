# SPDX-License-Identifier: Apache-2.0
"""The test bed of the tuner's benchmarks: a packed dataset on a throttled disk, a dieseld whose settings are a file,
and jobs (jobs/feed.py) whose steps are recorded.

    with Bed() as bed, bed.serving(Knobs(...)) as daemon, bed.job("diesel", workers=0, transform=False) as job:
        job.dial(passes=0, device_ms=20)
        daemon.apply(Knobs(...))
        figures = job.measure(seconds=2)        # samples/s, CPU and memory over whole epochs
"""
import contextlib
import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import time
from dataclasses import dataclass

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "jobs"))
import support
from jobs.usage import busy_s, cpu_of, smaps, tree
from serving import pack

RECORD_BYTES, DIAL_BYTES = 24, 24  # jobs/feed.py: RECORD and DIAL
MIB = 1 << 20
FILE_BYTES, N_FILES, BATCH = 96 << 10, 1360, 16  # 127.5 MiB: 85 batches per epoch
CHUNK_BYTES = 4 * MIB
DATASET_BYTES = FILE_BYTES * N_FILES
WINDOW_CHUNKS = 4
NO_WAIT = 0.03


@dataclass(frozen=True)
class Knobs:
    """Knobs that the tuner may choose; client_workers is the job's num_workers."""
    cache_bytes: int
    prefetch: int = 8
    daemon_workers: int = 2
    client_workers: int = 0

    def text(self):
        return (f"cache {self.cache_bytes // MIB} MiB, prefetch {self.prefetch}, daemon workers {self.daemon_workers}, "
                f"client workers {self.client_workers}")


class JobEnded(Exception):
    """The job ended before the benchmark stopped it: the daemon refused the job, or the job failed. Its own message is on standard error."""


class Bed:
    """Dataset, throttle and template process, for the time of the block."""

    def __init__(self, n_files=N_FILES, file_bytes=FILE_BYTES):
        self.n_files, self.file_bytes = n_files, file_bytes
        self.data_bytes = n_files * file_bytes
        self.steps_per_epoch = n_files // BATCH
        self.serial = 0

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.folder = stack.enter_context(support.Scratch())
            if why := support.Throttle.why_not(self.folder):
                support.skip(why)
            support.random_files(self.folder / "files", self.n_files, self.file_bytes)
            self.dataset = pack(self.folder / "files", self.folder / "packed", "--chunk-size", f"{CHUNK_BYTES // MIB}M")
            os.sync()
            self.slow = stack.enter_context(support.Throttle(self.folder))
            support.warm("torch")
            self.template = subprocess.Popen(
                [support.PYTHON, str(support.ROOT / "bench/jobs/feed.py")], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, text=True, env=os.environ | _malloc())
            stack.callback(self._stop_template)
            if self.template.stdout.readline().strip() != "ready":
                sys.exit("the template process of the jobs did not start")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self._stack.close()

    def _stop_template(self):
        self.template.stdin.close()
        self.template.wait()

    def another_dataset(self):
        """Packs the same files once more: another dataset to the daemon."""
        return pack(self.folder / "files", self.path("packed"), "--chunk-size", f"{CHUNK_BYTES // MIB}M")

    def path(self, name):
        self.serial += 1
        return self.folder / f"{name}-{self.serial}"

    def serving(self, knobs, *options, tune="off", free=False, prefix=None):
        """tune: off, and the knobs are exactly these; else the daemon's mode, and cache_bytes is its limit. free: the other knobs are not
        configured, so that they can be set. prefix: command(argv) that puts the daemon in its group; by default in the throttled group."""
        return Serving(self, knobs, options, tune, free, prefix or self.slow.command)

    def job(self, loader, **what):
        return Job(self, loader, **what)


def _malloc():
    from jobs import trials
    return trials.MALLOC


class Serving:
    """A dieseld with its own configuration file. options: more arguments. apply() changes the file and has the daemon read it."""

    def __init__(self, bed, knobs, options, tune, free, prefix):
        self.bed, self.knobs, self.options, self.prefix = bed, knobs, ("--tune", tune, *options), prefix
        self.free = free or tune != "off"

    def __enter__(self):
        self.config = self.bed.path("dieseld.ini")
        self.socket = self.bed.path("dieseld.sock")
        self._write(self.knobs)
        argv = [support.program("dieseld"), "--socket", str(self.socket), "--config", str(self.config), "--metrics", "off",
                *map(str, self.options)]
        self.process = subprocess.Popen(self.prefix(argv), stderr=open(self.bed.folder / "dieseld.log", "ab"))
        for _ in range(500):
            if self.socket.exists() or self.process.poll() is not None:
                break
            time.sleep(0.02)
        if self.process.poll() is not None:
            sys.exit(f"dieseld ended with {self.process.returncode}: {(self.bed.folder / 'dieseld.log').read_text()[-500:]}")
        return self

    def _write(self, knobs):
        text = f"[dieseld]\ncache = {knobs.cache_bytes}\n"
        if not self.free:
            text += f"prefetch = {knobs.prefetch}\nworkers = {knobs.daemon_workers}\n"
        self.config.write_text(text)

    def apply(self, knobs):
        self.knobs = knobs
        self._write(knobs)
        self.process.send_signal(signal.SIGHUP)

    def status(self):
        done = subprocess.run([support.program("dieselctl"), "status", "--json", "--socket", str(self.socket)],
                              stdout=subprocess.PIPE, check=True)
        return json.loads(done.stdout)

    def ctl(self, *argv):
        return subprocess.run([support.program("dieselctl"), *map(str, argv), "--socket", str(self.socket)],
                              capture_output=True, text=True, check=False)

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Job:
    """One training process. Its trace is read back as (end, wait, samples) per step."""

    def __init__(self, bed, loader, workers=0, transform=False, passes=0, device_ms=0.0, socket=None, data=None, groups=()):
        self.bed, self.loader = bed, loader
        self.trace, self.dial_path = bed.path("trace"), bed.path("dial")
        self.what = {"loader": loader, "workers": workers, "transform": transform, "batch": BATCH,
                     "data": str(data or (bed.dataset if loader == "diesel" else bed.folder / "files")),
                     "socket": str(socket) if socket else None, "trace": str(self.trace), "dial": str(self.dial_path),
                     "window": WINDOW_CHUNKS, "groups": [str(group) for group in groups], "cuda": stand_in()}
        self.passes, self.device_ms = passes, device_ms

    def prepare(self):
        self.trace.write_bytes(b"")
        self.dial_path.write_bytes(bytes(DIAL_BYTES))
        self.dial(self.passes, self.device_ms)

    def __enter__(self):
        self.prepare()
        self.bed.template.stdin.write(json.dumps(self.what) + "\n")
        self.bed.template.stdin.flush()
        self.pid = int(self.bed.template.stdout.readline())
        return self

    def dial(self, passes, device_ms, stop=0):
        self.passes, self.device_ms = passes, device_ms
        with open(self.dial_path, "r+b") as file:
            file.write(struct.pack("<ddd", passes, device_ms, stop))

    def steps(self, begin=0.0, end=float("inf")):
        """Returns the steps (end, wait, samples) that ended within [begin, end]. The first record is the job's start."""
        data = self.trace.read_bytes()
        rows = struct.iter_unpack("<ddd", data[:len(data) // RECORD_BYTES * RECORD_BYTES])
        return [row for row in rows if begin <= row[0] <= end]

    def n_steps(self):
        return max(0, self.trace.stat().st_size // RECORD_BYTES - 1)

    @property
    def alive(self):
        return pathlib.Path(f"/proc/{self.pid}").exists()

    def wait_steps(self, count, timeout_s=60):
        """Waits until `count` steps in total are done. Returns false at the timeout."""
        end = time.monotonic() + timeout_s
        while self.n_steps() < count:
            if not self.alive:
                raise JobEnded(self.what["loader"])
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True

    def __exit__(self, *_):
        self.dial(self.passes, 0, stop=1)
        end = time.monotonic() + 10
        while self.alive and time.monotonic() < end:
            time.sleep(0.01)
        for pid in [*tree(self.pid), self.pid] if self.alive else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def rate_of(steps):
    """Returns samples per second between the first and the last of these steps."""
    if len(steps) < 2:
        return 0.0
    return sum(step[2] for step in steps[1:]) / (steps[-1][0] - steps[0][0])


def waited(steps):
    """Returns the share of the time between the first and the last of these steps that was spent waiting for batches."""
    return sum(step[1] for step in steps[1:]) / (steps[-1][0] - steps[0][0]) if len(steps) > 1 else 1.0


def measure(bed, daemon, job, seconds=1.5, epochs=1):
    """Measures rate, CPU and memory over at least `seconds` and `epochs` times an epoch's steps, from now."""
    roots = [job.pid, *([daemon.process.pid] if daemon else [])]
    with support.Steal() as steal:
        busy, cpu, begin, first = busy_s(), cpu_of(roots), time.monotonic(), job.n_steps()
        time.sleep(seconds)
        # The rate of a job that hardly waits does not depend on which part of an epoch it measures.
        waits = epochs and waited(job.steps(begin)) > NO_WAIT
        whole = job.wait_steps(first + epochs * bed.steps_per_epoch, timeout_s=6 * seconds + 6) if waits else False
        end, cpu, busy = time.monotonic(), cpu_of(roots) - cpu, busy_s() - busy
    steps = job.steps(begin, end)
    if len(steps) > bed.steps_per_epoch:  # whole epochs: each reads every chunk once
        steps = steps[-(len(steps) - 1) // bed.steps_per_epoch * bed.steps_per_epoch - 1:]
    return {"rate": rate_of(steps), "cpu": cpu / (end - begin), "memory": memory_of(daemon, job), "steal": steal.ratio,
            "others": max(0.0, busy - cpu) / (end - begin), "seconds": end - begin, "whole": whole, "wait": waited(steps)}


def memory_of(daemon, job):
    """Returns the bytes that loading takes: the daemon, the job's worker processes and the trainer's share of segments. Memory that several
    processes map is divided among them, so the sum counts it once."""
    workers = sum(smaps(pid, "Pss") for pid in tree(job.pid)) + smaps(job.pid, "Pss_Shmem")
    return workers + (sum(smaps(pid, "Pss") for pid in (daemon.process.pid, *tree(daemon.process.pid))) if daemon else 0)


def stand_in():
    """Returns the path of the tests' stand-in libcuda, or None if it is not built."""
    for path in sorted((pathlib.Path(support.program("dieseld")).parent.parent / "standin").glob("*/libcuda.so.1")):
        return str(path)
    return None
