# SPDX-License-Identifier: Apache-2.0
"""Tests diesel-analyze on jobs that load their data in ways of their own: bench/jobs/fresh, each for a moment. This test checks the
verdicts; bench/jobs/fresh/bench_fresh.py measures their accuracy."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import exact

RUN = pathlib.Path(__file__).resolve().parents[3] / "bench/jobs/fresh/run.py"
ANALYZE = os.path.join(os.environ.get("DIESEL_BIN", "build/release/bin"), "diesel-analyze")


def run(*args, **kwargs):
    return subprocess.run([str(a) for a in args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=200,
                          check=False, **kwargs)


class Fresh(unittest.TestCase):
    def report(self, kind, *options, seconds=1.5, status=0):
        """Returns the report of a recorded run of the job."""
        with tempfile.TemporaryDirectory(prefix="diesel-fresh-") as folder:
            data = pathlib.Path(folder, "data")
            data.mkdir()
            from PIL import Image
            for i in range(8):
                Image.effect_noise((320, 240), 50 + i).convert("RGB").save(data / f"{i}.jpg")
            recording = pathlib.Path(folder, "s.db")
            done = run(ANALYZE, "record", "-o", recording, *options, "--", sys.executable, RUN, kind, "--data", data,
                              "--seconds", seconds, stdin=subprocess.DEVNULL, env=dict(os.environ, OMP_NUM_THREADS="1"))
            self.assertEqual(done.returncode, status, done.stderr)
            return json.loads(run(ANALYZE, "report", "--format", "json", recording).stdout)

    def test_a_thread_that_fills_a_queue(self):
        report = self.report("thread-sleep")
        self.assertEqual((report["verdict"], report["loader"]), ("prep-bound", "threads"))

    def test_the_same_without_privilege(self):
        self.assertEqual(self.report("thread-sleep", "--unprivileged", seconds=3)["verdict"], "prep-bound")

    def test_a_process_that_fills_a_queue(self):
        self.assertEqual(self.report("queue-process-sleep")["verdict"], "prep-bound")

    def test_sleeping_on_purpose(self):
        report = self.report("sleeping-device")
        self.assertEqual(report["verdict"], "unclear")
        self.assertGreater(report["asleep_s"], 0.3)
        self.assertIn("on purpose", report["note"])

    def test_validation_with_workers(self):
        report = self.report("validation", seconds=2)
        self.assertGreaterEqual(report["validation"]["passes"], 1)

    def test_a_job_that_dies_early(self):
        report = self.report("dies-early", "--unprivileged", status=1)
        self.assertEqual(report["verdict"], "insufficient data")


if __name__ == "__main__":
    exact.main(needs_torch=True)
