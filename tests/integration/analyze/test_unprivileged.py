# SPDX-License-Identifier: Apache-2.0
"""Tests diesel-analyze as an ordinary user, on real PyTorch jobs that measure themselves."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from common.commands import needs
import exact
import recording_file as s

BIN = pathlib.Path(os.environ.get("DIESEL_BIN", "build/release/bin"))
JOB = pathlib.Path(__file__).resolve().parents[3] / "bench/jobs/train.py"
PYTHON = "/usr/bin/python3"
NOBODY = 65534
AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
# The job's own clock and a sampled report agree within 5 points on a quiet machine; a test must pass on any.
POINTS = 0.15


class Unprivileged(unittest.TestCase):
    """A folder with a copy of the program and of the job, to which an ordinary user has access."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="diesel-unprivileged-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        os.chmod(self.folder, 0o777)
        self.program, self.job = self.folder / "diesel-analyze", self.folder / "train.py"
        shutil.copy(BIN / "diesel-analyze", self.program)
        shutil.copy(JOB, self.job)
        os.chmod(self.program, 0o755)
        os.chmod(self.job, 0o644)
        self.recording = self.folder / "s.db"

    def run_as_nobody(self, *args, **kwargs):
        return subprocess.run([*AS_NOBODY, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, timeout=200, cwd="/", check=False, **kwargs)

    def report(self):
        done = self.run_as_nobody(self.program, "report", "--format", "json", self.recording)
        self.assertIn(done.returncode, (0, 3), done.stderr)
        return json.loads(done.stdout)

    def record(self, *job):
        done = self.run_as_nobody(self.program, "record", "-o", self.recording, "--", *job)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def train(self, *args):
        """Returns the job's clock and the report of a recorded run."""
        done = self.record(PYTHON, self.job, "--width", 16, *args)
        return json.loads(done.stdout.splitlines()[-1]), self.report()


class Jobs(Unprivileged):
    compares_clocks = True

    def agrees(self, clock, report):
        shares = report["shares"]
        self.assertIsNone(report["insufficient"], report["insufficient"])
        self.assertTrue(report["approximate"])
        self.assertAlmostEqual(sum(shares[name] or 0 for name in shares if name != "gpu_wait"), 1, places=6)
        # A short job on a busy machine gives few samples, and the report says how few.
        low, high = (sum(report["share_intervals"][name][end] for name in ("fetch_stall", "prep_stall")) for end in range(2))
        self.assertTrue(low - POINTS <= clock["wait"] <= high + POINTS, (clock, shares, report["share_intervals"]))
        self.assertAlmostEqual(shares["checkpoint_stall"], clock["checkpoint"], delta=POINTS)
        for name, (low, high) in report["share_intervals"].items():
            self.assertTrue(0 <= low <= shares[name] <= high <= 1, name)

    def test_two_workers_that_prepare(self):
        clock, report = self.train("--workers", 2, "--steps", 60, "--prep", 100, "--repeat", 4)
        self.agrees(clock, report)
        self.assertEqual((report["loader"], report["method"]), ("workers", "sampled"))
        self.assertEqual(report["workers"]["count"], 2)
        self.assertLess(report["shares"]["fetch_stall"], POINTS)  # the job reads no files
        self.assertTrue(30 <= report["steps"] <= 90, report["steps"])
        done = self.run_as_nobody(self.program, "what-if", self.recording, "--workers", 8)
        self.assertEqual(done.returncode, 3)
        self.assertRegex(done.stderr, r"no prediction, because the job was sampled without privilege. Record it as root .*\n$")

    def test_no_workers(self):
        files = self.folder / "files"
        files.mkdir()
        for i in range(200):
            (files / f"{i}.bin").write_bytes(os.urandom(60_000))
        os.chmod(files, 0o755)
        clock, report = self.train("--workers", 0, "--steps", 60, "--prep", 60, "--repeat", 16, "--data", files)
        self.agrees(clock, report)
        self.assertEqual(report["loader"], "inline")
        self.assertLess(report["shares"]["fetch_stall"], POINTS)  # files are in the page cache

    def test_checkpoints(self):
        clock, report = self.train("--workers", 1, "--steps", 150, "--prep", 4, "--repeat", 8, "--checkpoint-every", 15,
                                   "--checkpoint-mb", 40, "--checkpoint", self.folder / "checkpoint.pt")
        self.agrees(clock, report)
        self.assertGreater(report["shares"]["checkpoint_stall"], 0.01)

    def test_attach(self):
        with subprocess.Popen([*AS_NOBODY, PYTHON, self.job, "--width", "16", "--workers", "2", "--prep", "100",
                               "--repeat", "4", "--steps", "100000", "--seconds", "60"],
                              stdout=subprocess.DEVNULL, cwd="/") as job:
            try:
                time.sleep(4)  # imports
                done = self.run_as_nobody(self.program, "record", "-o", self.recording, "-d", "5s", "-p", job.pid)
                self.assertEqual(done.returncode, 0, done.stderr)
            finally:
                job.send_signal(signal.SIGTERM)
        report = self.report()
        self.assertEqual(report["job"]["trainer_tgid"], job.pid)
        self.assertTrue(report["job"]["attached"])
        self.assertEqual(report["loader"], "workers")

    def test_a_program_that_may_not_be_read(self):
        """The kernel hides the program's calls, descriptors and I/O from its own user; states and CPU time stay visible."""
        hidden = self.folder / "python3"
        shutil.copy(os.path.realpath(PYTHON), hidden)
        os.chmod(hidden, 0o711)
        done = self.record(hidden, self.job, "--width", 16, "--workers", 2, "--steps", 240, "--seconds", 5, "--prep", 200, "--repeat", 4)
        report = self.report()
        self.agrees(json.loads(done.stdout.splitlines()[-1]), report)
        self.assertEqual(report["loader"], "workers")
        low, high = report["share_intervals"]["prep_stall"]
        self.assertGreater(high - low, 0.1)

    def test_in_a_container(self):
        """Runs in a PID namespace of its own, with no privilege outside of it."""
        inside = [*AS_NOBODY, "unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
        if subprocess.run([*inside, "true"], stderr=subprocess.DEVNULL, cwd="/", check=False).returncode:
            self.skipTest("no user namespaces here")
        done = subprocess.run([*inside, self.program, "record", "-o", self.recording, "--", PYTHON, self.job, "--width",
                               "16", "--workers", "2", "--steps", "60", "--prep", "100", "--repeat", "4"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=200, cwd="/",
                              check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.agrees(json.loads(done.stdout.splitlines()[-1]), self.report())


class Recorder(Unprivileged):
    def test_falls_back_in_one_line_and_keeps_the_command_s_status(self):
        done = self.run_as_nobody(self.program, "--", "sh", "-c", "echo hello; sleep 0.2; exit 6")
        self.assertEqual((done.returncode, done.stdout), (6, "hello\n"))
        self.assertEqual(sum("will be approximate" in line for line in done.stderr.splitlines()), 1, done.stderr)

    def test_can_be_asked_for(self):
        done = self.run_as_nobody(self.program, "record", "--unprivileged", "-o", self.recording, "--", "sleep", "0.2")
        self.assertEqual(done.returncode, 0)
        self.assertNotIn("warning", done.stderr)
        recording = s.Recording(str(self.recording))
        self.assertEqual((recording.info["sampled"], recording.info["complete"]), ("1", "1"))

    def test_command_that_does_not_exist(self):
        done = self.run_as_nobody(self.program, "record", "-o", self.recording, "--", "/nonexistent/command")
        self.assertEqual(done.returncode, 127)
        self.assertFalse(self.recording.exists())

    def test_process_that_does_not_exist(self):
        with subprocess.Popen(["true"]) as gone:
            gone.wait()
        done = self.run_as_nobody(self.program, "record", "--unprivileged", "-o", self.recording, "-p", gone.pid)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"no process {gone.pid}", done.stderr)

    def test_ten_thousand_processes_leave_a_small_recording(self):
        script = "import os\nfor i in range(10000):\n  p = os.fork()\n  if p == 0: os._exit(0)\n  os.waitpid(p, 0)\n"
        self.record(PYTHON, "-c", script)
        self.assertLess(self.recording.stat().st_size, 4 << 20)
        self.assertEqual(self.report()["verdict"], "insufficient data")

    def test_check_says_what_is_there_and_what_privilege_adds(self):
        done = self.run_as_nobody(self.program, "check")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("approximate", done.stdout)
        for word in ("setcap", "docker", "CAP_PERFMON", "sampler: schedstat"):
            self.assertIn(word.lower(), done.stdout.lower())


if __name__ == "__main__":
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        print("SKIP unprivileged: becoming an ordinary user needs root and setpriv")
        sys.exit(77)
    needs("torch")
    exact.run_chosen()
