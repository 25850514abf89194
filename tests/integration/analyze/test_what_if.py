# SPDX-License-Identifier: Apache-2.0
"""what-if on a recording of a real DataLoader, and what it says to bad values and poor recordings."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import exact

BIN = os.environ.get("DIESEL_BIN", "build/release/bin")
ANALYZE = os.path.join(BIN, "diesel-analyze")

# A sample takes 4 ms of sleep, so that it is slow on any machine without using its cores; a step has four.
JOB = """
import time
import torch
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 160
    def __getitem__(self, index):
        with open("/proc/self/cmdline", "rb") as file:
            file.read()
        time.sleep(0.004)
        return torch.ones(8)

model = torch.nn.Linear(8, 1)
for batch in DataLoader(Slow(), batch_size=4, num_workers=2):
    model(batch).sum().backward()
"""


def run(*args):
    return subprocess.run([ANALYZE, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=240, check=False)


class WhatIf(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="diesel-what-if-")
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.recording = os.path.join(cls.folder, "s.db")
        for _ in range(4):  # a recording that others disturbed too much is refused, and rightly
            done = run("record", "-o", cls.recording, "--", sys.executable, "-c", JOB)
            assert done.returncode == 0, done.stderr
            if run("what-if", cls.recording).returncode == 0:
                break

    def ask(self, *options):
        done = run("what-if", self.recording, "--json", *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_curves_without_a_question(self):
        found = self.ask()
        self.assertEqual(found["schema"], "diesel.what-if/1")
        self.assertIsNone(found["question"])
        self.assertIsNone(found["answer"])
        for name, curve in found["predictions"]["what_if"].items():
            points = {point["x"]: point["speedup"]["value"] for point in curve["points"]}
            # What is cached can be any share, hence lie between two points.
            nearest = min(points, key=lambda x, here=curve["here"]: abs(x - here))
            self.assertAlmostEqual(nearest, curve["here"], delta=0.05, msg=name)
            self.assertAlmostEqual(points[nearest], 1, delta=0.01 if nearest == curve["here"] else 0.2, msg=name)
        text = run("what-if", self.recording)
        self.assertEqual(text.returncode, 0)
        self.assertIn("The least that removes the data stall", text.stdout)

    def test_an_answer(self):
        found = self.ask("--workers", 4, "--device-speed", "2x")
        self.assertEqual(found["question"]["workers"], 4)
        self.assertEqual(found["question"]["device_speed"], 2)
        self.assertIsNone(found["question"]["cache_ratio"])
        answer = found["answer"]
        self.assertIsNone(found["question"]["storage_speed"])
        self.assertGreater(answer["speedup"]["value"], 1)  # loading binds, and takes no core
        self.assertLessEqual(answer["speedup"]["low"], answer["speedup"]["value"])
        self.assertGreaterEqual(answer["speedup"]["high"], answer["speedup"]["value"])
        self.assertAlmostEqual(sum(answer["shares"].values()), 1, places=6)
        nodes = self.ask("--nodes", 4)["question"]
        self.assertEqual((nodes["nodes"], nodes["link_bytes_per_s"]), (4, None))
        self.assertEqual((nodes["links"]["bytes_per_s_is"], nodes["links"]["latency_s_is"]), ("assumed", "assumed"))
        self.assertIn("4 nodes that share one copy, over links of 100 MB/s (given) and 0.3 ms (assumed):",
                      run("what-if", self.recording, "--nodes", 4, "--link-mbps", 100).stdout)
        self.assertIn("over links of 1250 MB/s and 0.3 ms (both assumed):", run("what-if", self.recording, "--nodes", 4).stdout)
        fewer = self.ask("--workers", 1)["answer"]["speedup"]["value"]
        self.assertLess(fewer, 1)

    def test_links_that_were_measured(self):
        """As dieselctl status --json says of jobs that run on several nodes."""
        said = os.path.join(self.folder, "status.json")
        slow = {"nodes": 4, "peer_latency_s": 0.025, "peer_bytes_per_s": 1e8, "peer_chunk_bytes": 2e6}
        quick = {"nodes": 2, "peer_latency_s": 0.012, "peer_bytes_per_s": 2e8, "peer_chunk_bytes": 2e6}
        jobs = [{"id": 1, "now": None}, {"id": 2, "now": slow}, {"id": 3, "now": quick}, {"id": 4, "now": {"nodes": None}}]

        def write(value):
            with open(said, "w") as file:
                json.dump(value, file)
        write({"schema": "diesel.status/1", "jobs": jobs})
        found = self.ask("--nodes", 4, "--link-from", said)["question"]["links"]
        self.assertEqual((found["bytes_per_s"], found["bytes_per_s_is"], found["latency_s_is"]), (2e8, "measured", "measured"))
        self.assertAlmostEqual(found["latency_s"], 0.002, places=9)
        with open(said) as file:
            done = subprocess.run([ANALYZE, "what-if", self.recording, "--nodes", "4", "--link-from", "-"], stdin=file,
                                  capture_output=True, text=True, check=True)
        self.assertIn("over links of 200 MB/s and 2 ms (both measured):", done.stdout)
        for value, why in (({"schema": "diesel.status/1", "jobs": jobs[:1]}, "no job there has had chunks from other nodes"),
                           ({"schema": "other"}, "not what dieselctl status --json"), ([], "not what dieselctl status --json")):
            write(value)
            done = run("what-if", self.recording, "--nodes", 4, "--link-from", said)
            self.assertGreater(done.returncode, 0)
            self.assertEqual(len(done.stderr.splitlines()), 1)
            self.assertIn(why, done.stderr)
        done = run("what-if", self.recording, "--nodes", 4, "--link-from", said + ".none")
        self.assertGreater(done.returncode, 0)
        self.assertIn("cannot be opened", done.stderr)
        done = run("what-if", self.recording, "--nodes", 4, "--link-from", said, "--link-ms", 1)
        self.assertEqual(done.returncode, 2)
        self.assertEqual(run("what-if", self.recording, "--link-from", said).returncode, 2)

    def test_bad_values(self):
        for option, value in (("--cache", "150%"), ("--cache", "-1"), ("--cache", "half"), ("--workers", "300"),
                              ("--workers", "1.5"), ("--storage-mbps", "0"), ("--device-speed", "nan"), ("--storage-speed", "-2"),
                              ("--sample-size", "0"), ("--sample-size", "2y"), ("--device-speed", "inf"),
                              ("--forms", "101%"), ("--forms", "2G"), ("--nodes", "0"), ("--nodes", "2.5"),
                              ("--link-mbps", "0"), ("--link-ms", "-1")):
            done = run("what-if", self.recording, option, value)
            self.assertEqual(done.returncode, 2, (option, value))
            self.assertEqual(len(done.stderr.splitlines()), 1)
            self.assertIn(f"{option} {value}", done.stderr)
        done = run("what-if", self.recording, "--storage-mbps", 100, "--storage-speed", 2)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--storage-mbps and --storage-speed", done.stderr)
        done = run("what-if", self.recording, "--link-mbps", 100)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--nodes", done.stderr)
        self.assertEqual(run("what-if").returncode, 2)

    def test_recordings_that_do_not_say_enough(self):
        poor = os.path.join(self.folder, "poor.db")
        self.assertEqual(run("record", "-o", poor, "--", "/bin/true").returncode, 0)
        done = run("what-if", poor, "--workers", 4)
        self.assertEqual(done.returncode, 3)
        self.assertEqual(len(done.stderr.splitlines()), 1)
        self.assertEqual(run("what-if", os.path.join(self.folder, "none.db")).returncode, 1)


if __name__ == "__main__":
    exact.main(needs_torch=True)
