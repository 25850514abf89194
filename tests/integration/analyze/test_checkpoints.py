# SPDX-License-Identifier: Apache-2.0
"""Tests checkpoints of a real PyTorch job against the job's own clock around them."""
import json
import os
import shutil
import subprocess
import tempfile
import unittest

import exact
import shapes_support

BIN = os.environ.get("DIESEL_BIN", "build/release/bin")
ANALYZE = os.path.join(BIN, "diesel-analyze")
JOB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "checkpoint_job.py")
STEPS, EVERY, MEGABYTES = 48, 8, 24


def run(*args, **kwargs):
    return subprocess.run([str(a) for a in args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=240, **kwargs)


def own_costs(clock):
    """Returns what each save cost by the job's own clock: how much longer its steps took than those around it that belong to no save."""
    ends, saves = clock["ends"], clock["saves"]
    times = [b - a for a, b in zip(ends, ends[1:])]
    over = [next((k for k in range(save + 1, len(times)) if ends[k] >= written), len(times))
            for save, written in zip(saves, clock["written"])]
    costs = []
    for i, (save, behind) in enumerate(zip(saves, over)):
        before = times[over[i - 1] if i else 1:save]
        after = times[behind:saves[i + 1] if i + 1 < len(saves) else len(times)]
        step_s = sum(before + after) / len(before + after)
        costs.append(sum(times[save:behind]) - step_s * (behind - save))
    return costs


class Checkpoints(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="diesel-checkpoints-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.recording = os.path.join(self.folder, "s.db")

    def record(self, kind, steps=STEPS, every=EVERY):
        return json.loads(shapes_support.recorded(self, self.recording, JOB, kind, self.folder, steps, every, MEGABYTES)), self.report()

    def report(self, *options):
        done = run(ANALYZE, "report", self.recording, "--format", "json", *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def check(self, clock, report, background=False):
        """Checks that every checkpoint in the window is found, with its bytes; the last one may lie behind the window's end."""
        items = report["checkpoints"]["items"]
        self.assertIn(len(items), (len(clock["stall"]), len(clock["stall"]) - 1))
        for item in items:
            self.assertGreaterEqual(item["bytes"], clock["bytes"])
            self.assertLess(item["bytes"], 1.1 * clock["bytes"] + 65536)
            self.assertEqual(item["background"], background)
            self.assertLessEqual(item["writeback_s"], item["write_s"] + item["fsync_s"] + 1e-6)
            self.assertLessEqual(item["write_s"] + item["fsync_s"], item["wall_s"] + 1e-6)
        self.assertAlmostEqual(report["checkpoints"]["interval_steps"], EVERY, places=6)
        return items

    def check_stall(self, clock, report, items, visible=0.7):
        """Time before the open and after the last call is sampled, with an error of half an interval of 10 ms before the first and after
        the last sample. On a busy machine this time may also lack a core."""
        for item, clock_s in zip(items, clock["stall"]):
            self.assertLessEqual(item["stall_s"], clock_s + 0.012)
        stall_s = sum(item["stall_s"] for item in items)
        lacking_s = report["shares"]["cpu_starved"] * report["wall_s"] + report["steal_s"]
        self.assertGreaterEqual(stall_s + lacking_s, visible * sum(clock["stall"][: len(items)]) - 0.01)

    def test_one_file(self):
        clock, report = self.record("direct")
        self.check_restored(clock, report)
        self.check_stall(clock, report, self.check(clock, report))
        self.assertGreater(report["shares"]["checkpoint_stall"], 0.15)
        self.assertEqual(report["verdict"], "checkpoint-bound")

    def check_restored(self, clock, report):
        self.assertLessEqual(clock["loaded"], report["restored"]["bytes"])
        self.assertLess(report["restored"]["bytes"], 1.1 * clock["loaded"])
        self.assertLessEqual(report["restored"]["seconds"], clock["load"] + 0.02)
        self.assertGreaterEqual(report["restored"]["seconds"], 0.7 * clock["load"] - 0.02)

    def test_fsync_and_rename(self):
        clock, report = self.record("renamed")
        items = self.check(clock, report)
        self.check_stall(clock, report, items)
        self.assertTrue(all(item["fsync_s"] > 0 for item in items))

    def test_several_files_are_one_checkpoint(self):
        clock, report = self.record("sharded")
        self.check_stall(clock, report, self.check(clock, report))

    def test_mapped_file(self):
        clock, report = self.record("mapped")
        items = self.check(clock, report)
        self.check_stall(clock, report, items)
        self.assertTrue(all(item["write_s"] < item["fsync_s"] for item in items))

    def test_thread_writes_while_training_goes_on(self):
        clock, report = self.record("threaded")
        items = report["checkpoints"]["items"]
        self.assertTrue(all(item["background"] for item in items))
        total_s = sum(item["stall_s"] for item in items)
        wall_s = sum(item["wall_s"] for item in items)
        self.assertGreater(wall_s, 0)
        self.assertLess(total_s, wall_s)
        self.assertLess(sum(item["bytes"] for item in items), 1.1 * len(clock["stall"]) * clock["bytes"])

    def test_cost_is_the_copy_and_the_slower_steps_by_the_own_clock(self):
        clock, report = self.record("threaded", steps=1200, every=150)
        found = report["checkpoints"]
        costs = own_costs(clock)[1:]  # the first one is left out
        self.assertIn(len(found["items"]), (len(costs), len(costs) + 1))
        own_s = sum(costs) / len(costs)
        spread_s = (sum((cost - own_s) ** 2 for cost in costs) / (len(costs) - 1)) ** 0.5
        # The last save is not in the window. The two means differ by that one and what is sampled.
        allowed_s = found["cost_error_s"] + 2 * spread_s / len(costs) ** 0.5 + 0.005
        self.assertLessEqual(abs(found["cost_s"] - own_s), allowed_s, (found, costs))
        causes = found["causes"]
        self.assertAlmostEqual(sum(causes.values()), found["cost_s"] + causes["wait_s"], delta=0.001 + found["cost_error_s"])
        copies_s = sum(clock["stall"][1:]) / len(clock["stall"][1:])
        self.assertLessEqual(abs(causes["copy_s"] - copies_s), allowed_s, (found, clock["stall"]))
        # The share has all of it that is certain, and waits for the saver before its first write and after its last.
        share_s = report["shares"]["checkpoint_stall"] * report["wall_s"]
        self.assertGreaterEqual(share_s, sum(i["stall_s"] for i in found["items"]) + found["copied_s"] + found["slowed_s"] - 0.02)
        self.assertLessEqual(share_s, (found["cost_s"] + causes["wait_s"] + found["cost_error_s"]) * (len(found["items"]) + 1) + 0.02)
        if found["advised_steps"]:
            step_s = report["wall_s"] / (1 + found["overhead"]) / report["steps"]
            self.assertGreaterEqual(found["advised_steps"], found["cost_s"] / (0.05 * step_s) - 1)

    def test_child_writes(self):
        clock, report = self.record("forked")
        items = self.check(clock, report, background=True)
        self.check_stall(clock, report, items, visible=0.3)  # fork() itself is computing
        self.assertLess(report["shares"]["other"], 0.2)

    def check_async(self, kind):
        """A save runs in parallel to the steps. The trainer copies the state, and waits for the previous save."""
        clock, report = self.record(kind)
        found = report["checkpoints"]
        # The trainer may hand a save over right at the end of the one before: too soon for it to sleep long in between.
        self.assertIn(len(found["items"]), range(len(clock["stall"]) - 2, len(clock["stall"]) + 1), found["items"])
        self.assertTrue(all(item["background"] for item in found["items"]))
        self.assertTrue(EVERY - 0.5 <= found["interval_steps"] <= 1.5 * EVERY, found["interval_steps"])
        self.assertLessEqual(sum(item["bytes"] for item in found["items"]),
                             1.1 * len(clock["stall"]) * (clock["bytes"] + (1 << 20)))
        stall_s = report["shares"]["checkpoint_stall"] * report["wall_s"] - found["slowed_s"]
        lacking_s = report["shares"]["cpu_starved"] * report["wall_s"] + report["steal_s"]
        # The copy is seen in samples of 10 ms. The clock does not cover time after the last step.
        self.assertLessEqual(stall_s, sum(clock["stall"]) + clock["last"] + 0.02 * len(clock["stall"]))
        self.assertGreaterEqual(stall_s + lacking_s, 0.6 * sum(clock["stall"]) - 0.02)
        self.assertLess(report["shares"]["other"], 0.1)
        self.assertFalse([a["text"] for a in report["actions"] if "Write checkpoints in the background" in a["text"]])
        return clock, report

    def test_saved_by_a_thread_while_training_goes_on(self):
        self.check_async("async_thread")

    def test_saved_by_a_process_while_training_goes_on(self):
        self.check_async("async_process")

    def test_checkpointer_of_this_project_stalls_and_is_no_loader(self):
        clock, report = self.record("checkpointer")
        stall_s = report["shares"]["checkpoint_stall"] * report["wall_s"]
        lacking_s = report["shares"]["cpu_starved"] * report["wall_s"] + report["steal_s"]
        self.assertGreater(stall_s, 0)
        self.assertGreaterEqual(stall_s + lacking_s, 0.5 * sum(clock["stall"]) - 0.02)
        self.assertNotEqual(report["loader"], "threads")
        self.assertEqual(report["workers"]["count"], 0, report["workers"])

    def test_logs_are_none(self):
        for kind in ("none", "synced_log"):
            _, report = self.record(kind)
            self.assertIsNone(report["checkpoints"])
            self.assertIsNone(report["restored"])
            os.unlink(self.recording)

    def test_advice_on_the_interval(self):
        _, report = self.record("direct")
        for percent, bound in ((5, 0.05), (20, 0.2)):
            found = self.report("--checkpoint-overhead", "%d%%" % percent)["checkpoints"]
            self.assertAlmostEqual(found["overhead_max"], bound)
            # CheckFreq's formula on the report's own figures: o / (p T_step), as the background part is 0. On a busy machine saves may
            # differ too much for one figure, and the report then has a range.
            steps = report["wall_s"] / (1 + found["overhead"]) / report["steps"] * bound
            self.assertAlmostEqual(found["advised_least"], max(1, (found["cost_s"] - found["cost_error_s"]) / steps), delta=1.1)
            self.assertAlmostEqual(found["advised_most"], (found["cost_s"] + found["cost_error_s"]) / steps, delta=1.1)
            if found["unclear"]:
                self.assertIsNone(found["advised_steps"])
                continue
            self.assertLessEqual(found["advised_overhead"], bound)
            self.assertAlmostEqual(found["advised_steps"], found["cost_s"] / steps, delta=1.1)
        least = report["checkpoints"]["advised_steps"] or report["checkpoints"]["advised_least"]
        self.assertEqual(any("checkpoint every" in a["text"] for a in report["actions"]), least > EVERY, report)

    def test_bad_bound(self):
        for text in ("0", "-1%", "200%", "5%%", "much", ""):
            done = run(ANALYZE, "report", self.recording, "--checkpoint-overhead", text)
            self.assertEqual(done.returncode, 2, text)
            self.assertEqual(len(done.stderr.splitlines()), 1)


if __name__ == "__main__":
    exact.main(needs_torch=True)
