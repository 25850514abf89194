# SPDX-License-Identifier: Apache-2.0
"""Tests the number of worker processes, who sets it, and which of their work is counted."""
import itertools
import os
import pickle
import subprocess
import time
import unittest
from unittest import mock

# Imported first: adds the path of the other modules, and skips where modules are missing.
from workers_support import EQUAL, N, WorkersCase, children, fails, flat, pids, same, wait_until, wish, with_pid
import support
import torch
from diesel_loader.session import Session


class NumberTest(WorkersCase):
    def test_an_integer_means_exactly_that(self):
        for n in (1, 3):
            loader = self.loader(transform=with_pid, num_workers=n, batch_size=2)
            with wish(0):
                used = pids(batch for _ in range(2) for batch in loader)
            self.assertEqual(loader.workers, n)
            self.assertLessEqual(len(used), n)
            self.assertNotIn(os.getpid(), used)

    def test_zero_is_the_trainer_whatever_the_wish(self):
        with wish(2):
            loader = self.loader(transform=with_pid, num_workers=0)
            self.assertEqual(pids(loader), {os.getpid()})
        self.assertEqual(loader.workers, 0)

    def test_the_wish_is_followed_in_mid_epoch(self):
        numbers = [0]
        with mock.patch.object(Session, "wanted_workers", property(lambda _: numbers[0])):
            loader = self.loader(transform=with_pid, batch_size=1)
            batches = iter(loader)
            self.assertEqual(pids(next(batches) for _ in range(5)), {os.getpid()})
            for numbers[0] in (2, 1, 3):
                wait_until("the new number", lambda: next(batches) and loader.workers == numbers[0])
                left = {next(batches)[0][0, 0].item() for _ in range(12)} - {os.getpid()}
                self.assertTrue(left)
            numbers[0] = 0
            wait_until("work in the trainer", lambda: pids([next(batches)]) == {os.getpid()})
            self.assertEqual(loader.workers, 0)
            self.assertEqual(pids(next(batches) for _ in range(5)), {os.getpid()})

    def test_the_operators_word_through_the_daemon(self):
        def ask(n):
            subprocess.run([support.program("dieselctl"), "set", "--socket", str(self.daemon.socket),
                            f"client-workers={n}"], check=True, stdout=subprocess.DEVNULL)
        want = self.loader(transform=same, num_workers=0, batch_size=2)
        loader = self.loader(transform=same, batch_size=2)
        self.addCleanup(ask, "auto")
        got = []
        for n in (2, 0, 1):
            ask(n)
            batches = iter(loader)
            for _ in range(6000):  # runs over the epoch's end if it takes that long
                time.sleep(0.005)
                got.append(next(batches, None))
                if got[-1] is None:
                    batches = iter(loader)
                elif loader.workers == n:
                    break
            self.assertEqual(loader.workers, n)
            got += list(batches) + [None]
        epochs = [list(group) for more, group in itertools.groupby(got, lambda batch: batch is not None) if more]
        for epoch in epochs:
            self.assertEqual(flat(epoch), flat(want))

    def test_without_a_wish_there_are_as_many_as_cores(self):
        with wish(None):
            loader = self.loader(transform=with_pid)
            batches = iter(loader)
            wait_until("workers", lambda: next(batches) and loader.workers == len(os.sched_getaffinity(0)))

    def test_without_python_work_there_are_no_processes(self):
        with wish(3):
            loader = self.loader()
            list(loader)
        self.assertEqual((loader.num_workers, loader.workers, children()), (0, 0, set()))

    def test_workers_persist_or_not_as_asked(self):
        for persistent in (True, False):
            loader = self.loader(transform=with_pid, num_workers=1, persistent_workers=persistent)
            self.assertEqual(pids(loader) == pids(loader), persistent)

    def test_contexts(self):
        want = flat(self.loader(transform=same, num_workers=0))
        for context in ("fork", "spawn", "forkserver"):
            loader = self.loader(transform=same, num_workers=2, multiprocessing_context=context)
            self.assertEqual(flat(loader), want)

    def test_what_cannot_be_sent_to_a_process(self):
        local = lambda data: data.clone()  # noqa: E731
        with self.assertRaises((AttributeError, pickle.PicklingError)):
            next(iter(self.loader(transform=local, num_workers=1, multiprocessing_context="spawn")))
        with self.assertLogs("diesel_loader", "WARNING") as logs:
            loader = self.loader(transform=local, multiprocessing_context="spawn")
            self.assertEqual(len(list(loader)), len(loader))
        self.assertIn("in the trainer", logs.output[0])

    def test_what_it_cost_is_counted(self):
        for workers in (0, 2):
            loader = self.loader(transform=same, num_workers=workers)
            list(loader)
            work = loader._stream.work
            self.assertEqual((work.n_batches, work.n_samples, work.n_worked), (len(loader), N, N))
            self.assertEqual(work.n_handoffs, len(loader) if workers else 0)
            self.assertEqual(work.policy, 1)
            self.assertTrue(min(workers, 1) <= work.n_workers <= workers)  # one may do all the work before the other has started
            self.assertEqual(work.inline_ns > 0, not workers)
            self.assertEqual(work.handoff_ns > 0 and work.result_bytes > N * EQUAL, workers > 0)
            self.assertGreater(work.cpu_ns, 0)
            self.assertGreaterEqual(work.next_ns, work.wait_ns + work.inline_ns + work.handoff_ns)

    def test_reading_results_counts_as_hand_over(self):
        loader = self.loader(collate_fn=slow_to_read, num_workers=1)
        n_batches = len(list(loader))
        self.assertGreaterEqual(loader._stream.work.handoff_ns, n_batches * SLOW_S * 1e9)

    def test_worker_init_fn(self):
        loader = self.loader(transform=Initialised.read, worker_init_fn=Initialised.set, num_workers=2)
        self.assertLessEqual({n for data, _ in loader for n in data.flatten().tolist()}, {100, 101})
        loader = self.loader(transform=same, worker_init_fn=fails, num_workers=2)
        with self.assertRaisesRegex(ZeroDivisionError, "worker_init_fn"):
            next(iter(loader))


SLOW_S = 0.002


class SlowToRead:
    def __reduce__(self):
        return time.sleep, (SLOW_S,)


def slow_to_read(_):
    return SlowToRead()


class Initialised:
    value = None

    @classmethod
    def set(cls, worker):
        assert torch.utils.data.get_worker_info().id == worker
        cls.value = 100 + worker

    @classmethod
    def read(cls, _):
        return torch.tensor([cls.value])


if __name__ == "__main__":
    unittest.main()
