# SPDX-License-Identifier: Apache-2.0
"""GPU waits on a stand-in libcuda (tests/standin): there is no GPU here, and nothing below claims one.

What the report says is held against the job's own clock and the stand-in's own log."""
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import session_file as s

BIN = os.environ.get("DIESEL_BIN", "build/release/bin")
LIB = os.environ.get("DIESEL_LIB", "build/release/lib")
STANDIN = os.environ.get("DIESEL_STANDIN", "build/release/standin")
ANALYZE = os.path.join(BIN, "diesel-analyze")
DIESEL = os.path.join(LIB, "libdiesel.so")
JOB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpu_job.py")


def run(*args, **kwargs):
    return subprocess.run([str(a) for a in args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=120, **kwargs)


def standin(prologue=1):
    return os.path.join(STANDIN, str(prologue), "libcuda.so.1")


class Gpu(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="diesel-gpu-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.path = os.path.join(self.folder, "s.db")
        self.log_path = os.path.join(self.folder, "log")

    def record(self, *command, **environment):
        environment = {"DIESEL_STANDIN_LOG": self.log_path, "DIESEL_STANDIN_KERNEL_US": "1000", **environment}
        done = run(ANALYZE, "record", "-o", self.path, "--", *command, env={**os.environ, **environment})
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def report(self):
        done = run(ANALYZE, "report", self.path, "--format", "json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def job(self, *words, prologue=1, library=None, steps=30, wait_ms=5, launches=10, **environment):
        """Runs the job; returns its own clock and the report."""
        done = self.record(sys.executable, JOB, library or standin(prologue), DIESEL, steps, wait_ms, launches,
                           *words, **environment)
        return json.loads(done.stdout), self.report()

    def log(self, kind):
        with open(self.log_path) as f:
            return [line.split() for line in f if line.startswith(kind)]

    def check_sync(self, clock, report):
        """The job's own clock around its synchronisations, but for time that it had no core."""
        gpu_s = report["gpu"]["wait_s"]
        starved_s = report["shares"]["cpu_starved"] * report["wall_s"]
        self.assertLessEqual(gpu_s, clock["sync"] + 0.001)
        self.assertGreaterEqual(gpu_s + starved_s, 0.97 * clock["sync"] - 0.002)
        self.assertAlmostEqual(report["shares"]["gpu_wait"] * report["wall_s"], gpu_s, places=6)
        self.assertLessEqual(report["shares"]["gpu_wait"], report["shares"]["device"] + 1e-9)

    def check_starved(self, report):
        """Never above what the stand-in knows that it was idle for."""
        session = s.Session(self.path)
        inside = 0
        marks = [e for e in session.of(s.MARK) if e.kind in (1, 2)]
        waits = [(a.end_ns, b.end_ns) for a, b in zip(marks, marks[1:]) if (a.kind, b.kind) == (1, 2)]
        for _, _, _, begin, end in self.log("idle"):
            inside += sum(max(0, min(int(end), b) - max(int(begin), a)) for a, b in waits)
        inside *= 1e-9
        self.assertLessEqual(report["gpu"]["starved_s"], inside + 0.0005)
        return inside


class Waits(Gpu):
    def test_spinning(self):
        clock, report = self.job(DIESEL_STANDIN_WAIT="spin")
        self.check_sync(clock, report)
        self.assertGreater(report["gpu"]["spin_s"], 0.9 * report["gpu"]["wait_s"])
        self.assertIn("standin", report["gpu"]["library"])
        self.assertEqual(report["gpu"]["launches"], 300)
        (call,) = report["gpu"]["calls"]
        self.assertEqual((call["name"], call["calls"]), ("cuStreamSynchronize", 30))

    def test_blocking(self):
        clock, report = self.job(DIESEL_STANDIN_WAIT="block")
        self.check_sync(clock, report)
        self.assertLess(report["gpu"]["spin_s"], 0.3 * report["gpu"]["wait_s"])
        # Asleep in the driver is no unexplained sleep.
        self.assertLess(report["shares"]["other"], 0.02)


def why_not():
    if os.geteuid() != 0:
        return "recording needs root"
    if not glob.glob(standin()):
        return "no stand-in was built in " + STANDIN
    done = run(ANALYZE, "check")
    return None if done.returncode == 0 else "this machine cannot record:\n" + done.stdout


if __name__ == "__main__":
    reason = why_not()
    if reason:
        print("skipped: " + reason)
        sys.exit(77)
    unittest.main()
