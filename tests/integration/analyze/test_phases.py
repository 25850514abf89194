# SPDX-License-Identifier: Apache-2.0
"""Tests named ranges: NVTX by a stand-in library, and real USDT markers, with and without semaphores."""
import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import exact

BIN = os.environ.get("DIESEL_BIN", "build/release/bin")
LIB = os.environ.get("DIESEL_LIB", "build/release/lib")
STANDIN = os.environ.get("DIESEL_STANDIN", "build/release/standin")
ANALYZE = os.path.join(BIN, "diesel-analyze")
DIESEL = os.path.join(LIB, "libdiesel.so")
JOB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "phases_job.py")
STEPS = 20


def run(*args, **kwargs):
    return subprocess.run([str(a) for a in args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=120, **kwargs)


def standin(name):
    return os.path.join(STANDIN, "ranges", name)


class Phases(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="diesel-phases-")
        path = os.path.join(cls.folder, "s.db")
        done = run(ANALYZE, "record", "-o", path, "--", sys.executable, JOB, standin("libnvToolsExt.so.1"),
                   standin("libusdt.so"), standin("libusdt-counted.so"), DIESEL, STEPS)
        assert done.returncode == 0, done.stderr
        cls.clock = json.loads(done.stdout)
        done = run(ANALYZE, "report", path, "--format", "json")
        assert done.returncode == 0, done.stderr
        cls.report = json.loads(done.stdout)
        cls.text = run(ANALYZE, "report", path).stdout
        cls.phases = {p["name"]: p for p in cls.report["phases"]}

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder, ignore_errors=True)

    def check(self, name, clock_name, n=STEPS):
        phase = self.phases[name]
        # The window ends one median step after the last step's mark, so that step's ranges may be cut.
        self.assertLessEqual(phase["count"], n)
        self.assertGreaterEqual(phase["count"], n - n // STEPS)
        clock_s = self.clock[clock_name]
        self.assertLessEqual(phase["seconds"], clock_s + 0.002)
        self.assertGreaterEqual(phase["seconds"], 0.85 * clock_s * phase["count"] / n)

    def test_nvtx(self):
        self.check("backward", "backward")
        self.check("loss", "loss")

    def test_nvtx_attributes_and_domains(self):
        self.check("attributes", "attributes", 2 * STEPS)

    def test_usdt(self):
        self.check("forward", "forward")
        self.assertFalse([name for name in self.phases if "stranger" in name or "neither" in name])

    def test_semaphore_says_that_somebody_listens(self):
        self.assertEqual(self.clock["listeners"][0], -1)
        self.assertGreaterEqual(self.clock["listeners"][1], 1)

    def test_libdiesels_own(self):
        self.assertIn(self.phases["diesel:next"]["count"], (STEPS, STEPS - 1))
        wait_s = (self.report["shares"]["fetch_stall"] + self.report["shares"]["prep_stall"]) * self.report["wall_s"]
        self.assertAlmostEqual(self.phases["diesel:next"]["seconds"], wait_s, places=6)

    def test_long_names_are_cut(self):
        cut = [name for name in self.phases if name.startswith("a name of more")]
        self.assertEqual([len(name) for name in cut], [63])

    def test_text_shows_them(self):
        for name in ("backward", "forward", "diesel:next"):
            self.assertIn(" x " + name, self.text)

    def test_libdiesel_carries_its_markers(self):
        """The ELF notes that bpftrace and perf look for."""
        notes = run("readelf", "-n", os.path.realpath(DIESEL)).stdout
        for name in ("next_begin", "next_end", "wait_begin", "wait_end"):
            self.assertIn("Name: " + name, notes)
        self.assertNotIn("Semaphore: 0x000000000000000" + "1", notes)


def no_library():
    try:
        ctypes.CDLL(DIESEL)
    except OSError as error:  # built with a sanitizer
        return "Python cannot load libdiesel: %s" % error
    return None


if __name__ == "__main__":
    exact.main(also=no_library)
