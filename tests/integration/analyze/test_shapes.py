# SPDX-License-Identifier: Apache-2.0
"""Tests diesel-analyze on every shape of loader of PyTorch jobs: real jobs, compared with their own clocks."""
import os

import exact
import shapes_support as shapes


class DataLoader(shapes.Shapes):
    @shapes.repeated
    def test_no_workers(self):
        report, clock = self.launch("train.py", "--workers", 0)
        self.check(report, clock, "inline")

    @shapes.repeated
    def test_one_worker(self):
        report, clock = self.measure("train.py", "--workers", 1, "--prep-ms", 5)
        self.check(report, clock, "workers")
        self.assertEqual(report["workers"]["processes"], 1)

    @shapes.repeated
    def test_eight_workers(self):
        report, clock = self.measure("train.py", "--workers", 8, "--prep-ms", 1, "--step-ms", 15)
        self.check(report, clock, "workers")
        self.assertEqual((report["workers"]["count"], report["workers"]["processes"]), (8, 8))

    @shapes.repeated
    def test_spawned_workers(self):
        """Workers start by exec, and so does their resource tracker, which is no worker."""
        report, clock = self.measure("train.py", "--workers", 2, "--context", "spawn", "--prep-ms", 4)
        self.check(report, clock, "workers")
        self.assertEqual(report["workers"]["processes"], 2)
        # The first next() waits for interpreters that import torch, while no process decodes or reads data.
        self.assertGreater(self.evidence(report, "starting up"), 0.2)
        self.assertLess(report["shares"]["fetch_stall"], 0.05)

    @shapes.repeated
    def test_workers_of_a_fork_server(self):
        report, clock = self.measure("train.py", "--workers", 2, "--context", "forkserver", "--prep-ms", 4,
                                     "--bystander")
        self.check(report, clock, "workers")
        self.assertEqual(report["workers"]["processes"], 2)

    @shapes.repeated
    def test_persistent_workers(self):
        report, clock = self.measure("train.py", "--workers", 2, "--persistent", "--epochs", 3, "--prep-ms", 4)
        self.check(report, clock, "workers")
        self.assertEqual(report["workers"]["processes"], 2)

    @shapes.repeated
    def test_new_workers_each_epoch(self):
        report, clock = self.measure("train.py", "--workers", 2, "--epochs", 3, "--steps", 60, "--step-ms", 20)
        self.check(report, clock, "workers")
        self.assertEqual((report["workers"]["count"], report["workers"]["processes"]), (2, 6))

    @shapes.repeated
    def test_pin_memory_thread(self):
        """torch's own thread; the job replaces the pinning itself, which needs a GPU."""
        report, clock = self.measure("train.py", "--workers", 2, "--pin", "--prep-ms", 8)
        self.check(report, clock, "workers")

    @shapes.repeated
    def test_iterable_dataset_with_timeout(self):
        report, clock = self.measure("train.py", "--workers", 2, "--iterable", "--timeout", 60, "--prep-ms", 4)
        self.check(report, clock, "workers")
        self.assertEqual(report["workers"]["processes"], 2)


class HeadOfLine(shapes.Shapes):
    """Every fourth batch takes long: with two workers it is always the same worker's, and the other one is ready."""

    def slow(self, *words):
        report, clock = self.measure("train.py", "--workers", 2, "--prep-ms", 1, "--step-ms", 4, "--slow-every", 4,
                                     "--slow-ms", 40, *words)
        self.check(report, clock, "workers")
        return report["head_of_line_s"] / (clock["wait"] * clock["wall_s"])

    @shapes.repeated
    def test_one_worker_is_slow(self):
        self.assertGreater(self.slow(), 0.5)

    @shapes.repeated
    def test_with_a_pin_memory_thread(self):
        self.assertGreater(self.slow("--pin"), 0.5)

    @shapes.repeated
    def test_one_worker_alone_holds_nobody_up(self):
        report, _ = self.measure("train.py", "--workers", 1, "--slow-every", 4, "--slow-ms", 40)
        self.assertEqual(report["head_of_line_s"], 0)


class Threads(shapes.Shapes):
    """Tests loaders in the trainer's own process."""

    def pool(self, kind, *words):
        first = [os.path.join(shapes.LIB, "libloader_pool.so") if kind == "native" else kind]
        report, clock = self.measure("threads.py", *words, first=first)
        self.check(report, clock, "threads")
        return report, clock

    @shapes.repeated
    def test_native_pool(self):
        report, clock = self.pool("native", "--workers", 2, "--prep-ms", 12)
        self.assertGreater(clock["wait"], 0.1)
        self.assertEqual(report["workers"]["processes"], 2)
        self.assertGreater(self.evidence(report, "decoding"), 0)

    @shapes.repeated
    def test_python_pool(self):
        report, clock = self.pool("python", "--workers", 2, "--prep-ms", 12)
        self.assertGreater(clock["wait"], 0.1)
        self.assertEqual(report["workers"]["processes"], 2)


class InterpreterLock(shapes.Shapes):
    @shapes.repeated
    def test_between_a_worker_and_its_own_threads(self):
        """Pure Python in a worker keeps its hand-off thread from sending finished batches; numpy does not."""
        held, clock = self.measure("train.py", "--workers", 2, "--prep-ms", 10, "--step-ms", 5, "--hold")
        self.check(held, clock, "workers")
        free, clock = self.measure("train.py", "--workers", 2, "--prep-ms", 10, "--step-ms", 5)
        self.check(free, clock, "workers")
        self.assertGreater(held["gil_s"], 1.5 * free["gil_s"])
        self.assertGreater(self.evidence(held, "interpreter lock"), 0)

    @shapes.repeated
    def test_between_trainer_and_loader_threads(self):
        def share(*words):
            report, clock = self.measure("threads.py", "--workers", 2, "--prep-ms", 5, *words, first=["python"])
            self.check(report, clock, "threads")
            return report["gil_starved_s"] / report["wall_s"]

        held, free = share("--hold"), share()
        self.assertGreater(held, 0.15)
        self.assertGreater(held, 2 * free)


if __name__ == "__main__":
    exact.main(needs_torch=True)
