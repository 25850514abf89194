# SPDX-License-Identifier: Apache-2.0
"""Tests diesel-analyze for a new user: it prints lines with working commands, and leaves nothing behind."""
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BIN = os.path.abspath(os.environ.get("DIESEL_BIN", "build/release/bin"))
ANALYZE = os.path.join(BIN, "diesel-analyze")
JOB = [sys.executable, "-c", "import time; time.sleep(0.6)"]
FORKS = """
import os, sys, time
child = os.fork()
if child:
    print(child, flush=True)
time.sleep(60)
"""


class FirstVerdict(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="diesel-test-")
        self.addCleanup(folder.cleanup)
        self.folder, self.temporary = folder.name, os.path.join(folder.name, "tmp")
        os.mkdir(self.temporary)
        self.env = {**os.environ, "TMPDIR": self.temporary, "PATH": "/usr/bin:/bin"}

    def analyze(self, *words, **more):
        return subprocess.run([ANALYZE, *words], capture_output=True, text=True, timeout=120, env=self.env, cwd=self.folder, check=False, **more)

    def start(self, *words, **more):
        process = subprocess.Popen(words, env=self.env, cwd=self.folder, start_new_session=True, **more)

        def end():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.addCleanup(end)
        return process

    def test_nothing_is_left(self):
        """The output does not name the temporary recording, but shows how to keep and draw one."""
        line = self.analyze("--unprivileged", "--", *JOB).stderr.splitlines()[0]
        self.assertNotIn(self.temporary, line)
        self.assertEqual(os.listdir(self.temporary), [])
        command, = re.findall("`([^`]*)`", line)
        self.assertEqual(command, f"{ANALYZE} report s.db -o s.html")
        self.analyze("--unprivileged", "-o", "s.db", "--", *JOB)
        subprocess.run(command, shell=True, cwd=self.folder, env=self.env, capture_output=True, check=False)  # insufficient data
        with open(os.path.join(self.folder, "s.html"), encoding="utf-8") as page:
            self.assertIn("<html", page.read())

    def test_sudo(self):
        """sudo has a PATH of its own."""
        if os.geteuid() != 0:
            self.skipTest("becomes another user")
        os.chmod(self.folder, 0o755)
        done = self.analyze("check", preexec_fn=lambda: os.setresuid(65534, 65534, 65534))
        self.assertIn(f"`sudo {ANALYZE}`", done.stdout)

    def test_a_broken_pipe(self):
        read, write = os.pipe()
        os.close(read)
        process = self.start(ANALYZE, "--unprivileged", "--", *JOB, stderr=write)
        os.close(write)
        process.wait(timeout=120)
        self.assertEqual(os.listdir(self.temporary), [])

    def test_a_recording_that_is_under_way(self):
        recorder = self.start(ANALYZE, "record", "--unprivileged", "-o", "s.db", "--", "sleep", "60", stderr=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while b"diesel" not in self.content() or "no such table" in (said := self.analyze("report", "s.db").stderr) or "is not a recording" in said:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)
        self.assertIn("s.db is still being recorded", said)
        self.assertNotIn("killed", said)
        recorder.send_signal(signal.SIGKILL)
        recorder.wait()
        # Its child that was about to become the job may hold the file a moment longer.
        while "is still being recorded" in (said := self.analyze("report", "s.db").stderr):
            self.assertLess(time.monotonic(), end)
        self.assertIn("s.db was cut off: the recorder was killed", said)

    def content(self):
        try:
            with open(os.path.join(self.folder, "s.db"), "rb") as file:
                return b"diesel" if file.read(16).startswith(b"SQLite format 3") else b""
        except FileNotFoundError:
            return b""

    def test_a_worker_is_not_the_trainer(self):
        parent = self.start(sys.executable, "-c", FORKS, stdout=subprocess.PIPE, text=True)
        child = parent.stdout.readline().strip()
        parent.stdout.close()
        said = self.analyze("--unprivileged", "-d", "300ms", "-p", child).stderr
        self.assertIn(f"process {child} is a child of process {parent.pid}", said)
        self.assertEqual(re.findall("`([^`]*)`", said)[0], f"{ANALYZE} -p {parent.pid}")
        said = subprocess.run(re.findall("`([^`]*)`", said)[0] + " --unprivileged -d 300ms", shell=True, capture_output=True, text=True,
                              check=False, timeout=120, env=self.env, cwd=self.folder).stderr
        self.assertNotIn("is a child of", said)


if __name__ == "__main__":
    unittest.main()
