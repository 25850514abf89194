# SPDX-License-Identifier: Apache-2.0
"""Tests what-if on a recording of a real DataLoader, and its messages about bad values and poor recordings."""
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

# A sample takes 4 ms of sleep, so that it is slow on any machine without using its cores. A step has four samples.
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
        for _ in range(4):  # the tool rightly refuses a recording with too many disturbances
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
            # The cached share can be any, so it may lie between two points.
            nearest = min(points, key=lambda x, here=curve["here"]: abs(x - here))
            self.assertAlmostEqual(nearest, curve["here"], delta=0.05, msg=name)
            self.assertAlmostEqual(points[nearest], 1, delta=0.01 if nearest == curve["here"] else 0.2, msg=name)
        text = run("what-if", self.recording)
        self.assertEqual(text.returncode, 0)
        self.assertIn("Smallest single change that ends the data wait", text.stdout)

    def test_an_answer(self):
        found = self.ask("--workers", 4, "--device-speed", "2x")
        self.assertEqual(found["question"]["workers"], 4)
        self.assertEqual(found["question"]["device_speed"], 2)
        self.assertIsNone(found["question"]["cache_ratio"])
        answer = found["answer"]
        self.assertIsNone(found["question"]["storage_speed"])
        self.assertGreater(answer["speedup"]["value"], 1)  # loading is the bottleneck, and takes no core
        self.assertLessEqual(answer["speedup"]["low"], answer["speedup"]["value"])
        self.assertGreaterEqual(answer["speedup"]["high"], answer["speedup"]["value"])
        self.assertAlmostEqual(sum(answer["shares"].values()), 1, places=6)
        fewer = self.ask("--workers", 1)["answer"]["speedup"]["value"]
        self.assertLess(fewer, 1)

    def test_fewer_cores(self):
        found = self.ask("--cores", 1.5)
        self.assertEqual(found["question"]["cores"], 1.5)
        self.assertLessEqual(self.ask("--cores", 0.05)["answer"]["speedup"]["value"], 0.9)
        self.assertTrue(run("what-if", self.recording, "--cores", 2).stdout.startswith("With 2 cores:"))

    def test_nodes_with_lanes(self):
        """Each node needs a part of the dataset, and can cache that many times more of its part."""
        found = self.ask("--nodes", 4, "--cache", "25%")
        self.assertEqual(found["question"]["nodes"], 4)
        self.assertEqual(found["answer"]["cached_ratio"], 1)
        self.assertEqual(found["answer"]["speedup"], self.ask("--cache", "100%")["answer"]["speedup"])
        self.assertEqual(self.ask("--nodes", 3, "--cache", "20%")["answer"]["cached_ratio"], 3 * 0.2)
        self.assertEqual(self.ask("--cache", "20%")["answer"]["cached_ratio"], 0.2)
        text = run("what-if", self.recording, "--nodes", 4, "--cache", "20%").stdout.splitlines()
        self.assertEqual(text[0], "With 20 % of the dataset in memory, 4 nodes, each with its own lanes:")
        self.assertIn("each node needs 1/4 of the dataset, and its memory holds 80 % of that", text[1])

    def test_bad_values(self):
        for option, value in (("--cache", "150%"), ("--cache", "-1"), ("--cache", "half"), ("--workers", "300"),
                              ("--workers", "1.5"), ("--cores", "0"), ("--cores", "many"), ("--storage-mbps", "0"), ("--device-speed", "nan"), ("--storage-speed", "-2"),
                              ("--sample-size", "0"), ("--sample-size", "2y"), ("--device-speed", "inf"),
                              ("--decoded-cache", "101%"), ("--decoded-cache", "2G"), ("--nodes", "0"), ("--nodes", "2.5")):
            done = run("what-if", self.recording, option, value)
            self.assertEqual(done.returncode, 2, (option, value))
            self.assertEqual(len(done.stderr.splitlines()), 1)
            self.assertIn(f"{option} {value}", done.stderr)
        done = run("what-if", self.recording, "--storage-mbps", 100, "--storage-speed", 2)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--storage-mbps and --storage-speed", done.stderr)
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
