# SPDX-License-Identifier: Apache-2.0
"""Tests GPU waits on a stand-in libcuda (tests/standin): there is no GPU here, and nothing below claims one.

The tests compare the report with the job's own clock and the stand-in's own log."""
import ctypes
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import exact
import recording_file as s

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
    compares_clocks = True

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
        """Runs the job. Returns its own clock and the report."""
        done = self.record(sys.executable, JOB, library or standin(prologue), DIESEL, steps, wait_ms, launches,
                           *words, **environment)
        return json.loads(done.stdout), self.report()

    def log(self, kind):
        with open(self.log_path) as f:
            return [line.split() for line in f if line.startswith(kind)]

    def check_sync(self, clock, report):
        """Compares with the job's own clock around its synchronisations, except time in which it had no core."""
        gpu_s = report["gpu"]["wait_s"]
        starved_s = report["shares"]["cpu_starved"] * report["wall_s"]
        self.assertLessEqual(gpu_s, clock["sync"] + 0.001)
        self.assertGreaterEqual(gpu_s + starved_s, 0.97 * clock["sync"] - 0.002)
        self.assertAlmostEqual(report["shares"]["gpu_wait"] * report["wall_s"], gpu_s, places=6)
        self.assertLessEqual(report["shares"]["gpu_wait"], report["shares"]["device"] + 1e-9)

    def check_count(self, seen, expected, step):
        """The window ends one median step after the last step's mark, so that step may be cut."""
        self.assertLessEqual(seen, expected)
        self.assertGreaterEqual(seen, expected - step)

    def check_starved(self, report):
        """The value must never exceed the idle time by the stand-in's log."""
        recording = s.Recording(self.path)
        inside = 0
        marks = [e for e in recording.of(s.MARK) if e.kind in (1, 2)]
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
        self.check_count(report["gpu"]["launches"], 300, 10)
        (call,) = report["gpu"]["calls"]
        self.assertEqual(call["name"], "cuStreamSynchronize")
        self.check_count(call["calls"], 30, 1)

    def test_steps_that_only_the_device_tells_of(self):
        """The recorder sees no backward pass and no loader, so a burst of launches and the wait for it is a step."""
        clock, report = self.job("unmarked", steps=40, DIESEL_STANDIN_WAIT="spin")
        self.assertIsNone(report["insufficient"])
        self.check_count(report["steps"], 40, 2)
        self.assertEqual((report["loader"], report["verdict"]), ("none", "device-bound"))
        starved_s = report["shares"]["cpu_starved"] * report["wall_s"]
        self.assertLessEqual(report["gpu"]["wait_s"], clock["sync"] + 0.001)
        self.assertGreaterEqual(report["gpu"]["wait_s"] + starved_s, 0.9 * clock["sync"])
        self.assertEqual({action["confidence"] for action in report["actions"]}, {"low"})

    def test_blocking(self):
        clock, report = self.job(DIESEL_STANDIN_WAIT="block")
        self.check_sync(clock, report)
        self.assertLess(report["gpu"]["spin_s"], 0.3 * report["gpu"]["wait_s"])
        # Sleep in the driver is not unexplained.
        self.assertLess(report["shares"]["other"], 0.02)

    def test_every_kind_of_first_instruction(self):
        for prologue, expensive in ((1, False), (2, False), (3, False), (4, True)):
            with self.subTest(prologue=prologue):
                clock, report = self.job(prologue=prologue, steps=10, DIESEL_STANDIN_WAIT="block")
                self.check_sync(clock, report)
                self.check_count(report["gpu"]["launches"], 100, 10)
                probes = report["gpu"]["probes"]
                self.assertEqual(probes["refused"], 0)
                self.assertEqual(probes["expensive"], probes["functions"] if expensive else 0)
                self.assertEqual(probes["functions"], 18)
                os.unlink(self.path)

    def test_every_synchronising_call(self):
        for name in ("cuStreamSynchronize_ptsz", "cuCtxSynchronize", "cuEventSynchronize", "cuMemcpyDtoH_v2",
                     "cuMemcpyDtoH_v2_ptds"):
            with self.subTest(name=name):
                clock, report = self.job("sync", name, steps=10, DIESEL_STANDIN_WAIT="block")
                self.check_sync(clock, report)
                (call,) = report["gpu"]["calls"]
                self.assertEqual(call["name"], name)
                self.check_count(call["calls"], 10, 1)
                self.check_count(report["gpu"]["copies"], 10 if "Memcpy" in name else 0, 1)
                os.unlink(self.path)

    def test_copies_within_next_are_data_wait(self):
        clock, report = self.job("copy_in_next", "no_sync", wait_ms=0, launches=5, DIESEL_STANDIN_WAIT="block")
        self.assertAlmostEqual(report["gpu"]["wait_s"], 0, places=6)
        self.assertEqual(report["gpu"]["calls"][0]["name"], "cuMemcpyHtoD_v2")
        self.assertGreater(report["gpu"]["calls"][0]["seconds"], 0.5 * clock["stall"])
        wait_s = (report["shares"]["fetch_stall"] + report["shares"]["prep_stall"]) * report["wall_s"]
        self.assertAlmostEqual(wait_s, clock["stall"], delta=0.05 * clock["stall"])

    def test_other_threads_wait_apart(self):
        clock, report = self.job("other_thread", DIESEL_STANDIN_WAIT="block")
        self.check_sync(clock, report)
        calls = {c["name"]: c for c in report["gpu"]["calls"]}
        self.assertGreater(calls["cuEventSynchronize"]["calls"], 0)
        self.assertLessEqual(report["gpu"]["wait_s"], calls["cuStreamSynchronize"]["seconds"] + 1e-6)

    def test_asynchronous_copies(self):
        """Copies to pinned memory are work; copies to pageable memory wait."""
        for pageable in "01":
            clock, report = self.job("copy_after", "cuMemcpyDtoHAsync_v2", steps=20, DIESEL_STANDIN_PAGEABLE=pageable,
                                     DIESEL_STANDIN_COPY_US="3000", DIESEL_STANDIN_WAIT="block")
            # A busy machine may take the core away in any call, for moments.
            waited = sum(c["seconds"] for c in report["gpu"]["calls"] if c["name"] == "cuMemcpyDtoHAsync_v2")
            self.assertEqual(waited > 0.5 * 20 * 0.003, pageable == "1")
            self.check_count(report["gpu"]["copies"], 20, 1)
            clock["sync"] += clock["copies"] if pageable == "1" else 0
            self.check_sync(clock, report)
            os.unlink(self.path)


class Libraries(Gpu):
    def test_copy_under_another_name(self):
        copy = os.path.join(self.folder, "driver-of-mine.so")
        shutil.copy(standin(), copy)
        clock, report = self.job(library=copy, DIESEL_STANDIN_WAIT="block")
        self.check_sync(clock, report)
        self.assertEqual(report["gpu"]["library"], copy)

    def test_file_deleted_under_the_job(self):
        copy = os.path.join(self.folder, "libcuda.so.1")
        shutil.copy(standin(), copy)
        job = subprocess.Popen([sys.executable, JOB, copy, DIESEL, "20", "5", "10", "wait_for_input"],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                               env={**os.environ, "DIESEL_STANDIN_WAIT": "block", "DIESEL_STANDIN_KERNEL_US": "1000"})
        self.addCleanup(job.stdout.close)
        self.assertEqual(job.stdout.readline(), "ready\n")
        os.unlink(copy)
        shutil.copy(standin(2), copy)
        report, clock = self.attach(job)
        self.check_sync(clock, report)

    def attach(self, job):
        recorder = subprocess.Popen([ANALYZE, "-v", "record", "-o", self.path, "-p", str(job.pid)],
                                    stderr=subprocess.PIPE, text=True)
        for line in recorder.stderr:
            if "diesel_mark" in line:
                break
        job.stdin.write("go\n")
        job.stdin.close()
        clock = json.loads(job.stdout.readline())
        job.wait()
        text = recorder.stderr.read()
        recorder.stderr.close()
        self.assertEqual(recorder.wait(), 0, text)
        return self.report(), clock

    def test_without_libcuda(self):
        clock, report = self.job(library="none")
        self.assertIsNone(report["gpu"])
        self.assertIsNone(report["shares"]["gpu_wait"])
        self.assertGreater(report["steps"], 20)

    def test_libdiesel_under_another_name(self):
        copy = os.path.join(self.folder, "loader.so")
        shutil.copy(os.path.realpath(DIESEL), copy)
        self.record(sys.executable, JOB, "none", copy, 20, 2, 0)
        self.assertEqual(self.report()["steps"], 20)


class Processes(Gpu):
    def test_forked_children(self):
        """The parent opened the library; the children, which started after its probes were attached, use it."""
        done = self.record(sys.executable, JOB, standin(), DIESEL, 20, 5, 10, "fork", 2, DIESEL_STANDIN_WAIT="block")
        clocks = {c["pid"]: c for c in map(json.loads, done.stdout.splitlines())}
        self.assertEqual(len(clocks), 2)
        totals = {e.tgid: e for e in s.Recording(self.path).of(s.GPU_TOTALS)}
        self.assertEqual(set(totals), set(clocks))
        for pid, clock in clocks.items():
            self.assertEqual((totals[pid].n_launches, totals[pid].n_waits), (200, 20))
            self.assertLessEqual(totals[pid].wait_ns * 1e-9, clock["sync"] + 0.001)
        report = self.report()
        self.check_sync(clocks[report["job"]["trainer_tgid"]], report)

    def test_two_jobs_only_one_recorded(self):
        other = subprocess.Popen([sys.executable, JOB, standin(), DIESEL, "100000", "2", "5", "unrecorded"])
        self.addCleanup(other.wait)
        self.addCleanup(other.kill)
        clock, report = self.job(DIESEL_STANDIN_WAIT="block")
        self.assertIsNone(other.poll())
        self.check_sync(clock, report)
        self.check_count(report["gpu"]["launches"], 300, 10)
        self.assertEqual([e.tgid for e in s.Recording(self.path).of(s.GPU_TOTALS)], [clock["pid"]])


class Cost(Gpu):
    def test_too_many_launches_are_not_counted_for_ever(self):
        """Above the budget the recorder detaches the probes of launches. Waits stay exact, and the report says so."""
        clock, report = self.job(steps=60, wait_ms=5, launches=20000, DIESEL_STANDIN_KERNEL_US="0",
                                 DIESEL_STANDIN_WAIT="block")
        self.assertFalse(report["gpu"]["launches_known"])
        self.assertGreater(report["gpu"]["launches"], 0)
        self.assertLess(report["gpu"]["launches"], 60 * 20000)
        (call,) = report["gpu"]["calls"]
        self.check_count(call["calls"], 60, 1)
        self.assertIn("too many", run(ANALYZE, "report", self.path).stdout)


class Nvml(Gpu):
    """Tests utilisation, also by a stand-in of NVML."""

    compares_clocks = False

    def utilization(self, **environment):
        folder = os.path.join(os.path.abspath(STANDIN), "nvml")
        _, report = self.job(steps=120, LD_LIBRARY_PATH=folder, DIESEL_STANDIN_WAIT="block", **environment)
        os.unlink(self.path)
        return report["gpu"]["utilization"]

    def test_mean_of_all_gpus_where_the_job_is_on_none(self):
        self.assertAlmostEqual(self.utilization(DIESEL_STANDIN_UTILIZATION="40"), 0.7)

    def test_gpus_of_the_job(self):
        # The test's own process is no part of the job, but the job's PID is not known before.
        self.assertAlmostEqual(self.utilization(DIESEL_STANDIN_UTILIZATION="40", DIESEL_STANDIN_PID="of-job"), 0.4)

    def test_not_there_or_broken(self):
        self.assertIsNone(self.utilization(DIESEL_STANDIN_NVML="broken"))
        _, report = self.job(DIESEL_STANDIN_WAIT="block")
        self.assertIsNone(report["gpu"]["utilization"])

    def test_check_says_what_is_there(self):
        found = json.loads(run(ANALYZE, "check", "--json").stdout)["findings"]
        here = {f["name"]: f["detail"] for f in found}
        self.assertIn("libcuda", here)
        environment = {**os.environ, "LD_LIBRARY_PATH": os.path.join(os.path.abspath(STANDIN), "nvml") + ":" +
                       os.path.dirname(os.path.abspath(standin(4)))}
        found = json.loads(run(ANALYZE, "check", "--json", env=environment).stdout)["findings"]
        details = {f["name"]: f["detail"] for f in found}
        self.assertIn("standin/4/libcuda.so.1: 18 functions to probe, 18 of them", details["libcuda"])
        self.assertEqual(details["nvml"], "works")


class Starved(Gpu):
    def test_bound_holds_and_is_close(self):
        """One stream, synchronised every step: the GPU is idle for all of the data wait."""
        for sync in ("cuStreamSynchronize", "cuCtxSynchronize", "cuMemcpyDtoH_v2"):
            clock, report = self.job("sync", sync, wait_ms=8, DIESEL_STANDIN_WAIT="block")
            idle_s = self.check_starved(report)
            self.assertGreater(report["gpu"]["starved_s"], 0.9 * idle_s)
            self.assertGreater(idle_s, 0.5 * clock["stall"])
            os.unlink(self.path)

    def test_nothing_is_claimed_where_nothing_is_known(self):
        """An event may have work queued behind it; without a synchronisation, the idle time is unknown."""
        for words in (("sync", "cuEventSynchronize"), ("no_sync",)):
            _, report = self.job(*words, wait_ms=8, DIESEL_STANDIN_WAIT="block")
            self.assertEqual(report["gpu"]["starved_s"], 0)
            os.unlink(self.path)

    def test_device_that_is_busy_during_the_wait(self):
        """The work queued ahead takes longer than the wait for data."""
        _, report = self.job("no_sync", "copy_after", "cuMemcpyHtoD_v2", wait_ms=4, launches=20,
                             DIESEL_STANDIN_KERNEL_US="200", DIESEL_STANDIN_WAIT="block")
        self.check_starved(report)


def no_stand_in():
    try:
        ctypes.CDLL(DIESEL)
    except OSError as error:  # built with a sanitizer
        return "Python cannot load libdiesel: %s" % error
    return None if glob.glob(standin()) else "no stand-in was built in " + STANDIN


if __name__ == "__main__":
    exact.main(also=no_stand_in)
