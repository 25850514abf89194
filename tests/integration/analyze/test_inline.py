# SPDX-License-Identifier: Apache-2.0
"""Tests jobs whose loading shows in no file call, and jobs without backward passes: the report against the job's clock."""
import json
import os

import dieseld_support
import exact
import shapes_support as shapes


class Own(shapes.Shapes):
    def check_own(self, report):
        """A generator is seen in samples of the stack, if there are any, and the report does not claim certainty from these."""
        self.assertNotIn("high", {action["confidence"] for action in report["actions"]}, report["actions"])
        if report["verdict"] == "unclear":
            self.assertIn("does not show how the job loads its data", report["note"])
        elif report["shares"]["cpu_starved"] > report["shares"]["prep_stall"]:  # the machine had other work
            self.assertEqual(report["verdict"], "cpu-starved")
        else:
            self.assertEqual(report["verdict"], "prep-bound")


class Inline(Own):
    def agrees(self, shape, *words, loader="inline"):
        report, clock = self.measure("inline.py", shape, *words)
        self.check(report, clock, loader)
        return report

    @shapes.repeated
    def test_samples_that_are_computed(self):
        report = self.agrees("memory")
        self.assertEqual(report["verdict"], "prep-bound")
        self.assertTrue(any("num_workers" in action["text"] for action in report["actions"]), report["actions"])

    @shapes.repeated
    def test_samples_that_are_waited_for(self):
        self.agrees("memory", "--prep-ms", 0, "--sleep-ms", 2)

    @shapes.repeated
    def test_samples_of_a_mapped_file(self):
        self.agrees("mapped")

    @shapes.repeated
    def test_batches_that_are_asked_for_one_step_ahead(self):
        self.agrees("shard")

    @shapes.repeated
    def test_inference(self):
        self.agrees("infer")

    @shapes.repeated
    def test_inference_with_a_worker(self):
        self.agrees("infer", "--workers", 1, loader="workers")

    def test_validation_and_compiling_are_told_apart(self):
        report, _ = self.measure("inline.py", "interrupted", "--epochs", 3)
        self.assertAlmostEqual(report["compiling_s"], 0.6, delta=0.1)
        self.assertAlmostEqual(report["shares"]["compiling"] * report["observed_s"], 0.6, delta=0.1)
        self.assertAlmostEqual(sum(v or 0 for k, v in report["shares"].items() if k != "gpu_wait"), 1, places=6)
        self.assertEqual(report["steady"]["shares"]["compiling"], 0)
        # The compiler writes files that are no checkpoints.
        self.assertIsNone(report["checkpoints"])
        validation = report["validation"]
        self.assertEqual(validation["passes"], 1)
        # Ten batches of four samples of 2 ms.
        self.assertGreater(validation["wait_s"], 0.08)
        self.assertGreater(validation["seconds"], validation["wait_s"])
        # A step waits for one batch of four samples, the pass for ten.
        self.assertLess(report["wait_p95_s"], validation["wait_s"] / 2)
        self.assertEqual(report["excluded_steps"], 2)
        self.assertEqual(report["steady"]["steps"], report["steps"] - report["warmup_steps"] - 2)
        self.assertEqual(report["verdict"], "prep-bound")

    def test_compiling_that_nobody_saw_is_not_zero(self):
        report, _ = self.measure("inline.py", "interrupted", "--epochs", 3, options=["--no-profile"])
        self.assertIsNone(report["shares"]["compiling"])
        self.assertIsNone(report["compiling_s"])

    @shapes.repeated
    def test_numpy_alone(self):
        """Without backward passes and a DataLoader, the rhythm of its reads shows its steps."""
        report, clock = self.launch("arrays.py", "--steps", 250)
        shares = report["shares"]
        self.assertIsNone(report["insufficient"])
        self.assertEqual((report["loader"], report["verdict"]), ("inline", "prep-bound"))
        # On a busy machine the rhythm may break once.
        self.assertTrue(0.2 * clock["steps"] <= report["steps"] <= 1.1 * clock["steps"], report["steps"])
        self.assertAlmostEqual(shares["fetch_stall"] + shares["prep_stall"], clock["wait"], delta=shapes.WAIT_POINTS)
        self.assertNotIn("high", {action["confidence"] for action in report["actions"]})

    @shapes.repeated
    def test_numpy_fed_by_a_thread(self):
        """Without such a rhythm: a thread that reads and wakes the trainer repeatedly hands over batches."""
        report, clock = self.launch("arrays.py", "--thread", "--steps", 200, "--prep-ms", 6)
        shares = report["shares"]
        self.assertIsNone(report["insufficient"])
        self.assertEqual((report["loader"], report["verdict"]), ("threads", "prep-bound"))
        self.assertTrue(0.5 * clock["steps"] <= report["steps"] <= 1.1 * clock["steps"], report["steps"])
        self.assertAlmostEqual(shares["fetch_stall"] + shares["prep_stall"], clock["wait"], delta=shapes.WAIT_POINTS)
        self.assertNotIn("high", {action["confidence"] for action in report["actions"]})

    def test_a_loop_of_its_own_is_not_judged_with_confidence(self):
        report, _ = self.measure("inline.py", "own", "--steps", 30)
        self.assertIsNone(report["insufficient"])
        self.check_own(report)


class Unprivileged(Own):
    """Checks the same jobs by samples of /proc and of the trainer's Python stack."""

    # At most two hundred samples per second, of jobs of some seconds.
    POINTS = 0.15

    def agrees(self, shape, *words):
        report, clock = self.measure("inline.py", shape, "--steps", 150, *words, options=["--unprivileged"])
        shares = report["shares"]
        self.assertIsNone(report["insufficient"])
        self.assertEqual(report["loader"], "inline")
        self.assertAlmostEqual(shares["fetch_stall"] + shares["prep_stall"], clock["wait"], delta=self.POINTS)
        self.assertLess(shares["other"], 0.1, shares)
        return report

    @shapes.repeated
    def test_samples_that_are_computed(self):
        self.assertEqual(self.agrees("memory")["verdict"], "prep-bound")

    @shapes.repeated
    def test_samples_that_are_waited_for(self):
        self.agrees("memory", "--prep-ms", 0, "--sleep-ms", 2)

    @shapes.repeated
    def test_inference(self):
        self.agrees("infer")

    def test_a_loop_of_its_own_is_not_judged_with_confidence(self):
        report, _ = self.measure("inline.py", "own", "--steps", 240, options=["--unprivileged"])
        self.check_own(report)

    @shapes.repeated
    def test_compiling(self):
        report = self.agrees("interrupted", "--epochs", 3)
        self.assertAlmostEqual(report["compiling_s"], 0.6, delta=0.2)
        self.assertAlmostEqual(report["shares"]["compiling"] * report["observed_s"], 0.6, delta=0.2)
        self.assertIsNone(report["checkpoints"])
        self.assertLess(report["shares"]["checkpoint_stall"], 0.02)

    @shapes.repeated
    def test_diesel_loader(self):
        daemon = dieseld_support.Daemon()
        try:
            dataset, _ = dieseld_support.dataset("packed")
            done = self.record([shapes.PYTHON, os.path.join(shapes.JOBS, "served.py"), dataset], options=["--unprivileged"],
                               env=dict(os.environ, DIESEL_SOCKET=daemon.socket))
            clock, report = json.loads(done.stdout.splitlines()[-1]), self.report()
        finally:
            daemon.stop()
            daemon.log.close()
        shares = report["shares"]
        self.assertEqual(report["loader"], "diesel")
        self.assertAlmostEqual(shares["fetch_stall"] + shares["prep_stall"], clock["wait"], delta=self.POINTS)
        self.assertEqual(report["verdict"], "prep-bound")


if __name__ == "__main__":
    exact.main(needs_torch=True)
