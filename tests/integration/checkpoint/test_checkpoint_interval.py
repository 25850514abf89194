# SPDX-License-Identifier: Apache-2.0
"""Tests how often checkpoints are taken, on simulated runs, without files or clocks."""
import random
import unittest
from unittest import mock

from diesel_loader.checkpoint import persist
from diesel_loader.checkpoint.interval import Costs, Measured, steps_between

BOUND = 0.035


class Run:
    """A simulated training run with one checkpointer. slower: factor of the steps while a checkpoint is written."""

    def __init__(self, step_s, snapshot_s, write_s, slower=1.0, noise=0.0, seed=1):
        self.step_s, self.snapshot_s, self.write_s, self.slower, self.noise = step_s, snapshot_s, write_s, slower, noise
        self.measured, self.random = Measured(BOUND), random.Random(seed)
        self.now = self.lost = self.useful = 0.0
        self.writing_until, self.last, self.n, self.taken, self.clock = None, 0, 0, [], [(0.0, 0.0)]

    def steps(self, n):
        for _ in range(n):
            plain = self.step_s * (1 + self.noise * abs(self.random.gauss(0, 1)))
            seconds = plain * (self.slower if self.writing_until else 1)
            self.now += seconds
            self.useful += plain
            self.lost += seconds - plain
            self.n += 1
            self.measured.step(seconds, self.writing_until is not None)
            if self.writing_until and self.now >= self.writing_until:
                self.measured.written(self.write_s)
                self.writing_until = None
            interval = self.measured.interval()
            if interval is None and self.measured.is_profiled():
                interval = 1
            if interval and not self.writing_until and self.n - self.last >= interval:
                self.measured.snapshot(self.snapshot_s)
                self.now += self.snapshot_s
                self.lost += self.snapshot_s
                self.last, self.writing_until = self.n, self.now + self.write_s
                self.taken.append(self.n)
            self.clock.append((self.now, self.lost))
        return self

    def worst_minute(self):
        """Returns the largest part of any 60 s that was lost."""
        begin, worst = 0, 0.0
        for now, lost in self.clock:
            while now - self.clock[begin][0] > 60:
                begin += 1
            worst = max(worst, (lost - self.clock[begin][1]) / 60)
        return worst

    def gaps(self, last=5):
        taken = self.taken[-last - 1:]
        return [b - a for a, b in zip(taken, taken[1:])]

    def overhead(self):
        return self.lost / self.useful


class Writing:
    """A process that writes 100 blocks, each in a second, while the job waits at the blocks in `waits`."""

    def __init__(self, spread_s, waits=()):
        self.now, self.waits, self.rests = 0.0, waits, []
        with mock.patch.object(persist.time, "monotonic", lambda: self.now):
            pace = persist._Pace(self, 100, spread_s)
            for block in range(1, 101):
                self.now += 1.0
                begin, self.block = self.now, block
                pace.rest(block)
                self.rests.append(round(self.now - begin, 6))

    def is_hurried(self, seconds):
        self.now += seconds
        return False

    def job_waits(self):
        return self.block in self.waits

    def beat(self):
        pass


class Rests(unittest.TestCase):
    def test_a_block_s_rest_is_as_long_as_the_block_and_longer_while_the_job_waits(self):
        rests = Writing(1000, waits=(2, 3)).rests
        self.assertEqual(rests[:5], [1, persist.WAITED, persist.WAITED, 1, 1])

    def test_a_job_that_always_waits_cannot_hold_a_checkpoint_up(self):
        writing = Writing(150, waits=range(101))
        self.assertAlmostEqual(writing.now, 150, delta=1)
        self.assertEqual((writing.rests[0], writing.rests[-1]), (persist.WAITED, 0))

    def test_nothing_rests_without_time_for_it(self):
        self.assertEqual(sum(Writing(0, waits=range(101)).rests), 0)


class Rule(unittest.TestCase):
    def test_the_cost_is_the_bound_s_share_of_the_interval(self):
        self.assertEqual(steps_between(Costs(0.1, 0.035, 0.0), BOUND), 10)
        self.assertEqual(steps_between(Costs(0.1, 0.0351, 0.0), BOUND), 11)

    def test_a_checkpoint_is_written_before_the_next_one(self):
        self.assertEqual(steps_between(Costs(0.1, 0.0, 4.0), BOUND), 50)

    def test_a_free_checkpoint_comes_at_every_step(self):
        self.assertEqual(steps_between(Costs(0.1, 0.0, 0.0), BOUND), 1)
        self.assertEqual(steps_between(Costs(0.0, 0.0, 0.0), BOUND), 1)

    def test_what_was_overspent_is_paid_back(self):
        self.assertEqual(steps_between(Costs(0.1, 0.035, 0.0, overspent_s=0.035), BOUND), 20)


class Runs(unittest.TestCase):
    def test_the_overhead_stays_within_the_bound(self):
        for step_s, snapshot_s, write_s, slower, noise in ((0.05, 0.005, 0.2, 1, 0), (0.2, 0.1, 3, 1.05, 0), (0.01, 0.02, 0.5, 1.2, 0.05),
                                                           (0.3, 0.001, 0.01, 1, 0.1), (1, 2, 60, 1.02, 0.02)):
            with self.subTest(step_s=step_s, snapshot_s=snapshot_s, slower=slower):
                run = Run(step_s, snapshot_s, write_s, slower, noise).steps(6000)
                self.assertLess(run.overhead(), BOUND * 1.05)
                self.assertGreater(len(run.taken), 10)

    def test_no_minute_costs_much_more_than_the_bound(self):
        for snapshot_s in (0.1, 0.3, 0.5, 0.7, 0.9, 1.1, 1.3, 2.3):   # 2.4 s are 4 % of a minute
            with self.subTest(snapshot_s=snapshot_s):
                run = Run(0.1, snapshot_s, 1).steps(6000)
                self.assertLess(run.worst_minute(), 0.0402)
                self.assertGreater(run.overhead(), BOUND * 0.6)

    def test_it_is_not_much_rarer_than_the_bound_allows(self):
        run = Run(0.1, 0.1, 1).steps(3000)
        self.assertEqual(set(run.gaps()), {29})   # 0.1 / (0.035 x 0.1), rounded up
        self.assertGreater(run.overhead(), BOUND * 0.9)

    def test_steps_that_become_slower_shorten_the_interval_and_faster_ones_lengthen_it_again(self):
        run = Run(0.1, 0.1, 0.5).steps(1000)
        run.step_s = 1.0
        self.assertLessEqual(max(run.steps(400).gaps()), 3)
        run.step_s = 0.1
        self.assertGreaterEqual(min(run.steps(1000).gaps()), 28)

    def test_a_disk_that_becomes_slow_and_recovers(self):
        run = Run(0.1, 0.01, 0.2).steps(500)
        before = max(run.gaps())
        run.write_s = 20
        self.assertGreaterEqual(min(run.steps(3000).gaps()), 200)
        run.write_s = 0.2
        self.assertLessEqual(max(run.steps(6000).gaps()), before + 1)

    def test_the_overhead_is_a_part_of_all_the_time(self):
        run = Run(0.0, 1.0, 0.0).steps(50)   # snapshots that take nearly all of it
        self.assertTrue(0.9 < run.measured.figures()["overhead"] <= 1)

    def test_one_dear_checkpoint_does_not_lengthen_the_interval_for_ever(self):
        run = Run(0.1, 0.01, 0.2).steps(500)
        before = max(run.gaps())
        run.snapshot_s = 3.0
        while len(run.taken) < 500 and run.measured.figures()["snapshot_s"] != 3.0:
            run.steps(1)
        run.snapshot_s = 0.01
        run.steps(6000)
        self.assertLessEqual(max(run.gaps()), before + 1)
        self.assertLess(run.overhead(), BOUND * 1.05)

    def test_waiting_for_data_now_and_then_is_not_taken_for_slowdown(self):
        run = Run(0.1, 0.01, 0.5)
        for _ in range(200):
            run.steps(29)
            run.step_s = 2.0
            run.steps(1)
            run.step_s = 0.1
        self.assertLessEqual(max(run.gaps(20)), 30)


if __name__ == "__main__":
    unittest.main(verbosity=2)
