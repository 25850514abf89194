# SPDX-License-Identifier: Apache-2.0
"""Helpers of the tests of recorded jobs: data, recording a job, the report, and the job's own clock to compare it with."""
import contextlib
import functools
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest

from forked import Script

BIN = os.environ.get("DIESEL_BIN", "build/release/bin")
LIB = os.environ.get("DIESEL_LIB", "build/release/lib")
ANALYZE = os.path.join(BIN, "diesel-analyze")
JOBS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "jobs")
PYTHON = sys.executable
# Tolerance, as a share of the time: the job's clock is read around next(), and the report is made from outside, on a machine with other
# work.
WAIT_POINTS = 0.10


ATTEMPTS = 3


def repeated(test):
    """Repeats a test that compares two clocks: another process may take the cores away between the two readings, which is no error of
    either. The test has to pass once in a few runs, and a real error shows in all of them."""

    @functools.wraps(test)
    def attempts(self):
        for left in reversed(range(ATTEMPTS)):
            try:
                return test(self)
            except self.failureException as error:
                if not left:
                    raise
                print("again: %s: %s" % (test.__name__, str(error)[:300]), file=sys.stderr)

    attempts.compares_clocks = True
    return attempts


def run(*args, **kwargs):
    return subprocess.run([str(a) for a in args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=200, **kwargs)


def forked(test, script, *words, environment=None):
    """Returns the job, which has imported torch and begins at its go(). The end of the test ends it."""
    job = Script(script, *words, environment=environment, imported="torch", held=True)
    test.addCleanup(job.end)
    return job


def attached(test, recording, *options, prefix=()):
    """Starts a recorder of running processes, and returns it when it is ready. The end of the test ends it."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(recording)
    recorder = subprocess.Popen([*prefix, ANALYZE, "record", "-o", recording, *map(str, options)], stderr=subprocess.PIPE, text=True,
                                start_new_session=True)
    test.addCleanup(recorder.stderr.close)
    test.addCleanup(recorder.wait)
    test.addCleanup(recorder.kill)
    while recorder.poll() is None:
        try:
            with contextlib.closing(sqlite3.connect(f"file:{recording}?mode=ro", uri=True)) as db:
                if db.execute("SELECT count(*) FROM info WHERE key = 'start_ns'").fetchone()[0]:
                    return recorder
        except sqlite3.Error:  # being created
            pass
        time.sleep(0.01)
    raise AssertionError("no recording began: " + recorder.communicate()[1])


def recorded(test, recording, script, *words, options=()):
    """Records a job that has imported torch, from the moment in which it begins. Returns what it printed."""
    job = forked(test, script, *words)
    recorder = attached(test, recording, "-p", job.pid, *options)
    job.go()
    out, err = job.communicate()
    _, text = recorder.communicate(timeout=60)
    test.assertEqual((job.returncode, recorder.returncode), (0, 0), err + text)
    return out


class Shapes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="diesel-shapes-")
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.data = os.path.join(cls.folder, "data")
        os.mkdir(cls.data)
        for i in range(64):
            with open(os.path.join(cls.data, "%03d" % i), "wb") as file:
                file.write(os.urandom(20000))

    def setUp(self):
        self.recording = os.path.join(self.folder, "s.db")

    def job(self, name, *words, first=()):
        return [PYTHON, os.path.join(JOBS, name), *first, "--data", self.data, *(str(w) for w in words)]

    def record(self, command, options=(), env=None, status=0):
        done = run(ANALYZE, "record", "-o", self.recording, *options, "--", *command, env=env)
        self.assertEqual(done.returncode, status, done.stderr)
        return done

    def report(self, *options):
        done = run(ANALYZE, "report", "--format", "json", self.recording, *options)
        self.assertIn(done.returncode, (0, 3), done.stderr)
        return json.loads(done.stdout)

    def launch(self, name, *words, first=(), options=(), env=None):
        """Records the job from the start of its program. Returns the report and the job's own clock."""
        done = self.record(self.job(name, *words, first=first), options, env)
        return self.report(), json.loads(done.stdout.splitlines()[-1])

    def measure(self, name, *words, first=(), options=()):
        """Records a job that has imported torch, from the moment in which it begins. Returns the report and the job's own clock."""
        out = recorded(self, self.recording, *self.job(name, *words, first=first)[1:], options=options)
        return self.report(), json.loads(out.splitlines()[-1])

    def check(self, report, clock, loader, points=WAIT_POINTS):
        """Checks that the report agrees with the job's clock, and assigns the time to its causes."""
        self.assertIsNone(report["insufficient"], report)
        shares = report["shares"]
        said = "report %s, clock %s" % (shares, clock)
        self.assertEqual(report["loader"], loader, said)
        self.assertAlmostEqual(shares["fetch_stall"] + shares["prep_stall"], clock["wait"], delta=points, msg=said)
        self.assertLess(shares["other"], 0.05, said)
        self.assertAlmostEqual(sum(v or 0 for k, v in shares.items() if k != "gpu_wait"), 1, places=6)
        self.assertEqual(report["steps"], clock["steps"], said)
        self.assertAlmostEqual(report["wall_s"], clock["wall_s"], delta=0.15 * clock["wall_s"], msg=said)
        self.assertEqual(report["job"]["trainer_tgid"], clock["pid"])
        self.assertEqual(report["job"]["trainer_tid"], clock["tid"])

    def evidence(self, report, what):
        return sum(e["seconds"] for e in report["evidence"] if what in e["what"])
