# SPDX-License-Identifier: Apache-2.0
"""Tests the messages of the pool, its fork server and a worker, where the order matters: one of the three is real, and the test plays the
others."""
import contextlib
import resource
import signal
import types
import unittest
from unittest import mock

# Imported first: adds the path of the other modules, and skips where modules are missing.
import workers_support  # noqa: F401
import torch
import torch.utils.data

from diesel_loader import messages, native, pool, worker
from diesel_loader.messages import Flag, Kind
from diesel_loader.tensors import Tensors


class ForkServer:
    """Replaces torch's multiprocessing context: the process that it makes is the test."""

    def get_start_method(self):
        return "fork"

    def Process(self, args, **_):
        self.end = args[0].dup()
        return mock.Mock(exitcode=0)


class PoolTest(unittest.TestCase):
    def setUp(self):
        self.fork_server = ForkServer()
        self.pool = pool.Pool(None, self.fork_server, 1, native.Work())
        self.addCleanup(self.fork_server.end.close)
        self.addCleanup(self.pool.close)

    def dies(self, pid):
        """A requested worker dies before the trainer learns that it exists."""
        number = self.spawn()
        messages.send(self.fork_server.end, Kind.SPAWNED, number, pid)
        messages.send(self.fork_server.end, Kind.EXITED, number, pid, signal.SIGSEGV)
        self.pool._hear(self.pool._workers[number])  # collect() may read its socket first

    def test_how_a_worker_died_that_was_not_heard_of(self):
        with self.assertLogs("diesel_loader", "WARNING") as logs:
            for pid in range(101, 100 + pool.MAX_BAD_STARTS):
                self.dies(pid)
        self.assertIn("worker process 101 was killed by SIGSEGV", logs.output[0])
        with self.assertRaisesRegex(RuntimeError, "do not start; the last one was killed by SIGSEGV"):
            self.dies(200)

    def spawn(self):
        """Answers a request for a worker, and returns its number."""
        self.pool.resize(1)
        kind, _, numbers, _, fds = messages.receive(self.fork_server.end)
        self.assertEqual(kind, Kind.SPAWN)
        messages.close_all(fds)
        return numbers[0]

    def test_how_a_worker_died_whose_number_another_had(self):
        number = self.spawn()
        self.pool.resize(0)
        self.assertEqual(self.spawn(), number)
        for message in ((Kind.SPAWNED, number, 101), (Kind.EXITED, number, 101, 0)):
            messages.send(self.fork_server.end, *message)
        self.pool._hear_fork_server()
        for message in ((Kind.SPAWNED, number, 102), (Kind.EXITED, number, 102, signal.SIGSEGV)):
            messages.send(self.fork_server.end, *message)
        with self.assertLogs("diesel_loader", "WARNING") as logs:
            self.pool._hear(self.pool._workers[number])
        self.assertIn("worker process 102 was killed by SIGSEGV", logs.output[0])

    def test_how_a_worker_died_whose_process_number_another_had(self):
        for status in (0, signal.SIGSEGV):
            number = self.spawn()
            messages.send(self.fork_server.end, Kind.SPAWNED, number, 101)
            self.pool._hear_fork_server()
            if status == 0:
                self.pool.resize(0)
            messages.send(self.fork_server.end, Kind.EXITED, number, 101, status)
            if status == 0:
                self.pool._hear_fork_server()
        with self.assertLogs("diesel_loader", "WARNING") as logs:
            self.pool._hear(self.pool._workers[number])
        self.assertIn("worker process 101 was killed by SIGSEGV", logs.output[0])

    def test_how_a_worker_died_in_a_program_with_many_files(self):
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(limits[1], 2000), limits[1]))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        with contextlib.ExitStack() as files:
            for _ in range(1024):
                files.enter_context(open("/dev/null"))
            self.setUp()  # a pool with higher numbers
            with self.assertLogs("diesel_loader", "WARNING") as logs:
                self.dies(101)
        self.assertIn("worker process 101 was killed by SIGSEGV", logs.output[0])

    def test_a_worker_that_cannot_be_forked(self):
        number = self.spawn()
        messages.send(self.fork_server.end, Kind.SPAWNED, number, 0)
        with self.assertLogs("diesel_loader", "WARNING") as logs:
            self.pool._hear(self.pool._workers[number])
        self.assertIn("could not be forked", logs.output[0])


class WorkerTest(unittest.TestCase):
    def setUp(self):
        # The worker sets torch's worker information in this process, which the patch restores.
        self.enterContext(mock.patch.object(torch.utils.data._utils.worker, "_worker_info", None))
        self.trainer, end = messages.pair()
        self.addCleanup(self.trainer.close)
        self.addCleanup(end.close)
        self.kept = []  # stands for objects that the user's code references
        self.worker = worker.Worker(0, end, worker.Setup(types.SimpleNamespace(batch=self.batch, arrays=Tensors(), dataset=None),
                                                          None, 0, 1))
        self.worker._mirror = mock.Mock()

    def batch(self, lease, *_, **__):
        self.kept.append(lease)
        return 7

    def heard(self):
        """Returns the kinds of the messages that the trainer has now, and for results whether the batch is kept."""
        found = []
        while (message := messages.receive(self.trainer, block=False)) is not None:
            kind, small, _, _, fds = message
            messages.close_all(fds)
            found.append((kind, small & Flag.KEPT) if kind == Kind.RESULT else kind)
        return found

    def do(self, sequence):
        self.worker._do(worker.Task(sequence, 0, 0, 1, 0, 0))

    def test_a_batch_that_is_kept_is_let_go_of_later(self):
        self.do(1)
        self.assertEqual(self.heard(), [(Kind.RESULT, Flag.KEPT)])
        self.kept.clear()
        self.assertEqual(self.heard(), [Kind.RELEASED])

    def test_a_batch_that_is_let_go_of_while_its_result_is_sent(self):
        def bytes_of_a_process():
            self.kept.clear()  # another thread or the garbage collector may do this at any time
            return 0

        with mock.patch.object(self.worker, "_private_bytes", bytes_of_a_process):
            self.do(1)
        self.assertEqual(self.heard(), [(Kind.RESULT, Flag.KEPT), Kind.RELEASED])
        self.do(2)
        self.assertEqual(self.worker._n_kept, 1)


if __name__ == "__main__":
    unittest.main()
