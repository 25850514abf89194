# SPDX-License-Identifier: Apache-2.0
"""Runs one contender through a scenario from a cold start: a tuned daemon, the default settings, PyTorch's usual ones, a
hill climber on the same knobs, TensorFlow's AUTOTUNE. All see the same phases of device, transform, disk and neighbour at
the same times after their first request for a batch, the same bytes and the same limit of memory for cached data.
"""
import contextlib
import json
import os
import pathlib
import subprocess
import threading
import time

from tuning import bed as testbed
import support
from tuning.bed import MIB, RECORD_BYTES
from jobs import usage
from peers.tensorflow_job import TensorflowJob
from tuning.climber import Climber

STEADY_S = 12.0     # seconds at the end of each phase in which steady throughput is measured
SAMPLE_S = 0.5      # seconds between two samples of knobs and CPU
MEMORY_EVERY = 4    # samples per sample of memory, for which the kernel walks every process's page tables
SLACK = 16 * MIB     # growth of a peer's own memory after which its limit follows


class Neighbour:
    """Computes on one core for `busy` of every `period` seconds while the block runs."""

    CODE = ("import sys, time\nbusy, period = map(float, sys.argv[1:])\n"
            "while True:\n end = time.monotonic() + busy\n while time.monotonic() < end: pass\n time.sleep(period - busy)\n")

    def __init__(self, neighbour):
        self.neighbour = neighbour

    def __enter__(self):
        self.process = self.neighbour and subprocess.Popen(
            [support.PYTHON, "-c", self.CODE, str(self.neighbour.busy), str(self.neighbour.period)])

    def __exit__(self, *_):
        if self.process:
            self.process.kill()
            self.process.wait()


class MemoryGroup:
    """Limits the page cache that the kernel keeps for the processes of the group (cgroup v1). The group's limit is `cache_bytes` and their
    other memory."""

    ROOT = pathlib.Path("/sys/fs/cgroup/memory")

    def __init__(self, cache_bytes):
        self.cache_bytes, self.path = cache_bytes, None

    def __enter__(self):
        if (self.ROOT / "memory.limit_in_bytes").exists():
            self.path = self.ROOT / f"diesel-bench-{os.getpid()}-{time.monotonic_ns()}"
            self.path.mkdir()
            self.follow()
        return self

    def follow(self):
        """Sets the limit to the memory in use now plus the cache."""
        if not self.path:
            return
        held = dict(line.split() for line in (self.path / "memory.stat").read_text().splitlines())
        limit = self.cache_bytes + int(held["rss"]) + int(held["shmem"]) + SLACK
        with contextlib.suppress(OSError):  # more memory is in use than the kernel can reclaim at once; the next call tries again
            (self.path / "memory.limit_in_bytes").write_text(str(limit))

    def usage(self):
        return int((self.path / "memory.usage_in_bytes").read_text()) if self.path else 0

    def __exit__(self, *_):
        for _ in range(50):
            if not self.path:
                return
            with contextlib.suppress(OSError):
                self.path.rmdir()
                return
            time.sleep(0.1)


class Watch:
    """Samples knobs, CPU and memory of a contender. Sampling takes a few percent of a core from the contenders, so all that are compared
    are watched in the same way."""

    def __init__(self, roots, memory, job):
        self.roots, self.memory, self.job = roots, memory, job
        self.rows = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def _run(self):
        while not self._stop.wait(SAMPLE_S):
            with contextlib.suppress(OSError, ValueError, KeyError, subprocess.CalledProcessError):
                memory = self.rows[-1]["memory"] if len(self.rows) % MEMORY_EVERY else self.memory()
                self.rows.append({"at": time.monotonic(), "cpu": usage.cpu_of(self.roots), "busy": usage.busy_s(),
                                  "memory": memory, "job": self.job()})

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()


def job_knobs(daemon):
    """Returns the knobs of the only job, as `dieselctl jobs` reports them."""
    done = daemon.ctl("jobs", "--json")
    found = json.loads(done.stdout)
    jobs = found["jobs"] if isinstance(found, dict) else found
    if not jobs:
        return None
    return {"knobs": {name: knob["value"] for name, knob in jobs[0]["knobs"].items()},
            "tuner": jobs[0].get("tuner"), "now": jobs[0].get("now")}


def watched(daemon, job):
    return Watch([job.pid, daemon.process.pid], lambda: testbed.memory_of(daemon, job), lambda: job_knobs(daemon))


@contextlib.contextmanager
def contender(bed, scenario, name, options=(), tensorflow=None):
    """Yields (job, watch) of the contender, started and not yet given its first phase."""
    with contextlib.ExitStack() as stack:
        if name in ("torch", "tfdata", "tfpython"):
            group = stack.enter_context(MemoryGroup(scenario.limit_bytes))
            groups = [bed.slow.group, *([group.path] if group.path else [])]
            job = (bed.job("torch", workers=os.cpu_count(), transform=scenario.transform, groups=groups) if name == "torch"
                   else TensorflowJob(bed, scenario, groups, tensorflow, name == "tfpython"))
            _start_dial(job, scenario)
            job = stack.enter_context(job)
            watch = Watch([job.pid], group.usage, group.follow)
        else:
            start = scenario.default()
            daemon = stack.enter_context(bed.serving(start, *options, tune="on" if name == "tuned" else "off",
                                                     free=name == "climber"))
            workers = "auto" if name in ("tuned", "climber") and scenario.transform else 0
            job = bed.job("diesel", workers=workers, transform=scenario.transform, socket=daemon.socket)
            _start_dial(job, scenario)
            job = stack.enter_context(job)
            watch = watched(daemon, job)
            job.daemon = daemon
            if name == "climber":
                stack.enter_context(Climber(daemon, job, start, scenario))
        with watch:
            yield job, watch
        if getattr(job, "daemon", None):
            job.why = job.daemon.ctl("why", "--json").stdout


def _start_dial(job, scenario):
    job.passes, job.device_ms = scenario.phases[0].passes, scenario.phases[0].device_ms


def run(bed, scenario, name, options=(), tensorflow=None):
    """Runs the whole timeline. Returns steps, watched rows, and steady figures of each phase."""
    support.drop_caches()
    bed.slow.change()
    mbps = scenario.phases[0].mbps
    bed.slow.change(bps=mbps * 1_000_000 if mbps else None)
    phases = []
    with Neighbour(scenario.neighbour), support.Steal() as steal, \
            contender(bed, scenario, name, options, tensorflow) as (job, watch):
        begin = start_of(job)
        at = begin
        for phase in scenario.phases:
            if phase.mbps != mbps:  # only on a change, because setting a limit takes a second without any limit
                mbps = phase.mbps
                bed.slow.change(bps=mbps * 1_000_000 if mbps else None)
            job.dial(phase.passes, phase.device_ms)
            phases.append({"begin": at - begin})
            at += phase.seconds
            time.sleep(max(0, at - time.monotonic()))
            if not job.alive:
                raise SystemExit(f"{name}: the job ended early; its message is on standard error")
            phases[-1].update(steady(job, watch, at - STEADY_S, at))
        cpu = watch.rows[-1]["cpu"]
    steps = job.steps()
    return {"contender": name, "steal": steal.ratio, "phases": phases, "seconds": at - begin,
            "area": sum(step[2] for step in steps if step[0] <= at), "cpu_s": cpu,
            "memory_mean": sum(r["memory"] for r in watch.rows) / len(watch.rows),
            "memory_peak": max(r["memory"] for r in watch.rows),
            "curve": curve(steps, begin, at), "knobs": changes(watch.rows, begin), "why": getattr(job, "why", None),
            "tuner": [{"at": round(row["at"] - begin, 1), **row["job"]} for row in watch.rows[::4] if row["job"]]}


def start_of(job):
    """Returns the time at which the job began to request data."""
    for _ in range(6000):
        if job.trace.stat().st_size >= RECORD_BYTES:
            return job.steps()[0][0]
        if not job.alive:
            raise SystemExit(f"{job.what['loader']}: the job exited immediately")
        time.sleep(0.01)
    raise SystemExit(f"{job.what['loader']}: the job did not start")


def steady(job, watch, begin, end):
    steps = job.steps(begin, end)
    rows = [row for row in watch.rows if begin <= row["at"] <= end]
    seconds = rows[-1]["at"] - rows[0]["at"] if len(rows) > 1 else 0
    others = (rows[-1]["busy"] - rows[0]["busy"] - rows[-1]["cpu"] + rows[0]["cpu"]) / seconds if seconds else None
    return {"others": others, "rate": testbed.rate_of(steps), "wait": sum(step[1] for step in steps) / (end - begin),
            "cpu": (rows[-1]["cpu"] - rows[0]["cpu"]) / seconds if seconds else None,
            "memory": support.median([row["memory"] for row in rows]) if rows else None}


def curve(steps, begin, end):
    """Returns samples delivered in each second."""
    seconds = [0.0] * (int(end - begin) + 1)
    for at, _, samples in steps:
        if begin <= at <= end:
            seconds[int(at - begin)] += samples
    return seconds


def changes(rows, begin):
    """Returns [(seconds after the start, knobs)] where they changed."""
    found, last = [], None
    for row in rows:
        knobs = row["job"] and row["job"]["knobs"]
        if knobs and None not in knobs.values() and knobs != last:
            last = knobs
            found.append((round(row["at"] - begin, 2), last))
    return found


def settled_s(times, begin, end, quiet_s=10.0):
    """Returns the seconds after `begin` until at most one change is made in every `quiet_s` seconds that follow, up to `end`."""
    inside = sorted(t for t in times if begin <= t <= end)
    for i, at in enumerate([begin, *inside]):
        later = [t for t in inside if t > at]
        if all(b - a > quiet_s for a, b in zip(later, later[1:])):
            return at - begin
    return end - begin
