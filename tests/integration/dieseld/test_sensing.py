# SPDX-License-Identifier: Apache-2.0
"""Tests dieseld's measurements of real PyTorch jobs against the jobs' own clocks, and its fallbacks without the
programs, the privilege or the sensor process."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import unittest

from common.commands import needs
from common.processes import family, process_stat
from common.waiting import wait_until
import dieseld_support as support

ROOT = pathlib.Path(__file__).resolve().parents[3]
JOB = [sys.executable, str(ROOT / "tests/integration/dieseld/sensed_job.py")]
SAMPLE = re.compile(r"job (\d+): by (\w+): device (\S+) fetch (\S+) prep (\S+) checkpoint (\S+) starved (\S+) "
                    r"other (\S+), (\S+) samples/s, (\S+) steps/s")


def samples(daemon, source=None, job=None):
    """Returns the debug log's samples, oldest first: (job, source, device, fetch, prep, ..., samples/s, steps/s)."""
    found = [(int(m[0]), m[1], *map(float, m[2:])) for m in SAMPLE.findall(daemon.output())]
    return [s for s in found if source in (None, s[1]) and job in (None, s[0])]


def children(pid):
    """Returns {name: pid} of a process's children and grandchildren."""
    return {process_stat(child)[0]: child for child in family(pid)[1:] if process_stat(child)}


def capabilities(pid):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"CapEff:\s*(\w+)", text)[1], 16)


class Job:
    def __init__(self, daemon, path, *options):
        environment = dict(os.environ, DIESEL_SOCKET=daemon.socket)
        self.process = subprocess.Popen([*JOB, path, *map(str, options)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, env=environment)

    def end(self):
        """Returns the job's own clock: one dict per second."""
        out, _ = self.process.communicate(timeout=60)
        assert self.process.returncode == 0
        return [json.loads(line) for line in out.splitlines()]


class Sensing(support.Case):
    compares_clocks = True

    def sensing(self, *options, **more):
        return self.daemon("-v", "--tune", "dry-run", "--history", "off", *options, **more)

    def observe(self, daemon, path, *options, source, seconds=8):
        """Returns (the daemon's samples, the job's seconds) of a job, without its first ones."""
        job = Job(daemon, path, *options)
        self.addCleanup(job.process.kill)
        wait_until(f"{seconds} samples by {source}", lambda: len(samples(daemon, source)) >= seconds + 2, 90)
        clock = job.end()
        return samples(daemon, source)[2:seconds + 2], clock[2:]

    def near_clock(self, seen, clock):
        """Compares the shares of waiting by both."""
        sensed = sum(s[3] + s[4] for s in seen) / len(seen)
        told = sum(c["waited"] for c in clock) / sum(c["covered"] for c in clock)
        self.assertLess(abs(sensed - told), 0.15, f"sensed {sensed:.3f}, the job's clock says {told:.3f}")
        return sensed


def needs_bpf():
    probe = subprocess.run([os.path.join(support.BIN, "diesel-analyze"), "check", "--json"], capture_output=True)
    if os.geteuid() or b'"bpf"' not in probe.stdout and probe.returncode:
        raise unittest.SkipTest("no privilege to load BPF programs")


class Bpf(Sensing):
    @classmethod
    def setUpClass(cls):
        needs_bpf()

    def test_a_job_bound_by_its_device_is_seen_so(self):
        daemon = self.sensing()
        path, _ = support.dataset("packed")
        seen, clock = self.observe(daemon, path, "--step-ms", 30, source="bpf")
        self.assertLess(self.near_clock(seen, clock), 0.3)
        told = sum(c["steps"] for c in clock) / sum(c["covered"] for c in clock)
        steps = sum(s[9] for s in seen) / len(seen)
        self.assertLess(abs(steps - told), 0.35 * told)
        self.assertLess(abs(64 * steps - sum(s[8] for s in seen) / len(seen)), 0.35 * 64 * told)
        # The division of the rest comes with the first detailed slice: its shares sum to 1.
        whole = [s for s in samples(daemon, "bpf") if s[7] == s[7]]
        self.assertTrue(whole, daemon.output())
        for s in whole:
            self.assertAlmostEqual(sum(s[2:8]), 1, delta=0.01)


class Processes(Sensing):
    compares_clocks = False

    @classmethod
    def setUpClass(cls):
        needs_bpf()

    def test_privileges_are_given_up(self):
        daemon = self.sensing()
        path, _ = support.dataset("packed")
        job = Job(daemon, path, "--step-ms", 30)
        wait_until("sensing", lambda: samples(daemon, "bpf"))
        found = children(daemon.process.pid)
        bpf, perfmon, ptrace, read = (1 << bit for bit in (39, 38, 19, 2))
        self.assertEqual(capabilities(found["dieseld-ksensor"]), bpf | perfmon | ptrace | read)
        self.assertEqual(capabilities(found["dieseld-sensor"]), perfmon | ptrace | read)
        self.assertFalse(capabilities(daemon.process.pid) & ~0xe, "more than serving takes")
        job.end()

    def test_a_sensor_that_dies_is_started_again(self):
        daemon = self.sensing()
        path, _ = support.dataset("packed")
        job = Job(daemon, path, "--step-ms", 30)
        wait_until("sensing", lambda: samples(daemon, "bpf"))
        first = children(daemon.process.pid)["dieseld-sensor"]
        n = len(samples(daemon, "client"))
        os.kill(first, signal.SIGKILL)
        wait_until("samples without it", lambda: len(samples(daemon, "client")) > n)
        self.assertEqual(daemon.output().count("ended by signal 9"), 1, daemon.output())
        second = wait_until("another child", lambda: children(daemon.process.pid).get("dieseld-sensor"))
        self.assertNotEqual(first, second)
        n = len(samples(daemon, "bpf"))
        wait_until("sensing again", lambda: len(samples(daemon, "bpf")) > n + 1)
        # A child that hangs holds the programs, so its keeper kills it.
        os.kill(second, signal.SIGSTOP)
        wait_until("one that moves", lambda: children(daemon.process.pid).get("dieseld-sensor") not in (None, second))
        self.assertEqual(daemon.output().count("did not respond for several seconds"), 1, daemon.output())
        n = len(samples(daemon, "bpf"))
        wait_until("sensing again", lambda: len(samples(daemon, "bpf")) > n + 1)
        status = subprocess.run([support.CTL, "status", "--socket", daemon.socket], capture_output=True, text=True).stdout
        self.assertIn("sensing   by BPF: ", status)
        self.assertIn("2 restarts", status)
        # Without the keeper no new child starts; jobs continue.
        os.kill(children(daemon.process.pid)["dieseld-ksensor"], signal.SIGKILL)
        n = len(samples(daemon, "client"))
        wait_until("samples without a keeper", lambda: len(samples(daemon, "client")) > n + 2)
        self.assertIn("restart dieseld to measure stalls by BPF again", daemon.output())
        clock = job.end()
        self.assertGreater(clock[-1]["steps"], 0)


class Unprivileged(Sensing):
    def test_wait_times_of_clients_are_seen(self):
        if not shutil.which("setpriv") or os.geteuid():
            self.skipTest("needs root and setpriv, to take the privilege away")
        dropped = ["setpriv", "--bounding-set", "-bpf,-perfmon,-sys_admin"]
        daemon = self.sensing(prefix=lambda command: dropped + command)
        path, _ = support.dataset("packed")
        seen, clock = self.observe(daemon, path, "--step-ms", 30, source="client")
        self.assertLess(self.near_clock(seen, clock), 0.3)
        self.assertEqual(daemon.output().count("cannot measure stalls by BPF"), 1, daemon.output())
        self.assertFalse(samples(daemon, "bpf"))


if __name__ == "__main__":
    needs("torch")
    support.main()
