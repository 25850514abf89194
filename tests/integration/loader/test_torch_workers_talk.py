# SPDX-License-Identifier: Apache-2.0
"""What the pool, its nursery and a worker say to each other, where the order matters: one of them at a time, and the test
is the others."""
import signal
import unittest
from unittest import mock

# First: it says where the others are, and skips where they are not.
import workers_support  # noqa: F401

from diesel_loader import messages, native, pool
from diesel_loader.messages import Kind


class Nursery:
    """Stands where torch's multiprocessing context does: the process that it makes is the test."""

    def Process(self, args, **_):
        self.end = args[0].dup()
        return mock.Mock(exitcode=0)


class PoolTest(unittest.TestCase):
    def setUp(self):
        self.nursery = Nursery()
        self.pool = pool.Pool(None, self.nursery, 1, native.Work())
        self.addCleanup(self.nursery.end.close)
        self.addCleanup(self.pool.close)

    def dies(self, pid):
        """A worker is asked for, and is gone before the trainer hears of it."""
        self.pool.resize(1)
        kind, _, numbers, _, fds = messages.receive(self.nursery.end)
        self.assertEqual(kind, Kind.SPAWN)
        messages.close_all(fds)
        messages.send(self.nursery.end, Kind.SPAWNED, numbers[0], pid)
        messages.send(self.nursery.end, Kind.EXITED, numbers[0], pid, signal.SIGSEGV)
        self.pool._hear(self.pool._workers[numbers[0]])  # collect() may look at its socket first

    def test_how_a_worker_died_that_was_not_heard_of(self):
        with self.assertLogs("diesel_loader", "WARNING") as logs:
            for pid in range(101, 100 + pool.MAX_BAD_STARTS):
                self.dies(pid)
        self.assertIn("worker process 101 was killed by SIGSEGV", logs.output[0])
        with self.assertRaisesRegex(RuntimeError, "do not start: the last one was killed by SIGSEGV"):
            self.dies(200)


if __name__ == "__main__":
    unittest.main()
