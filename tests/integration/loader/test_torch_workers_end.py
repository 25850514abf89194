# SPDX-License-Identifier: Apache-2.0
"""Tests that no process stays behind, however a trainer or its daemon ends."""
import gc
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

# Imported first: adds the path of the other modules, and skips where modules are missing.
from common.processes import is_alive
from workers_support import WorkersCase, children, first_bytes, flat, pids, same, wait_until, with_pid
import diesel_loader.torch as diesel
import support
from serving import Daemon


class EndTest(WorkersCase):
    def test_close_and_garbage_leave_no_process(self):
        for end in ("close", "garbage"):
            loader = diesel.DataLoader(self.sets["equal"], batch_size=16, transform=with_pid, num_workers=2)
            fork_server_and_workers = pids(loader) | {loader._stream._pool._process.pid}
            if end == "close":
                loader.close()
                self.assertEqual(len(list(loader)), len(loader))  # starts again
                loader.close()
            del loader
            gc.collect()
            wait_until("the end", lambda: not any(map(is_alive, fork_server_and_workers)))
            self.assertEqual(children(), set())

    def test_batches_outlive_their_workers(self):
        loader = self.loader(transform=same, num_workers=2)
        batches = list(loader)
        want = flat(self.loader(transform=same, num_workers=0))
        loader.close()
        del loader
        gc.collect()
        self.assertEqual(flat(batches), want)

    def job(self, *arguments):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        process = subprocess.Popen([support.PYTHON, __file__, "job", str(self.sets["equal"]), *arguments],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
                                   start_new_session=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        started = [int(pid) for pid in process.stdout.readline().split()]
        self.assertGreater(len(started), 1)
        return process, started

    def test_the_trainers_end_is_everybodys(self):
        for how in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
            process, started = self.job("loop")
            os.killpg(process.pid, how) if how == signal.SIGINT else process.send_signal(how)
            self.assertNotEqual(process.wait(60), 0)
            wait_until("the end", lambda: not any(map(is_alive, started)))
            said = process.stderr.read()
            if how == signal.SIGINT:
                self.assertEqual(said.count("KeyboardInterrupt"), 1, said)
        for how in ("exit", "raise"):
            process, started = self.job(how)
            process.wait(60)
            wait_until("the end", lambda: not any(map(is_alive, started)))

    def test_a_restarted_daemon(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        options = {"transform": first_bytes, "batch_size": 4}
        want = {name: flat(self.loader(name, num_workers=0, **options)) for name in self.sets}
        for name in self.sets:
            with Daemon(folder) as first:
                loader = self.loader(name, num_workers=2, **options)
                batches = iter(loader)
                got = [next(batches) for _ in range(5)]
                first.process.send_signal(signal.SIGKILL)
                first.process.wait()
                with self.assertLogs("diesel_loader", "WARNING"), Daemon(folder):
                    got += list(batches)
                    loader.close()
            self.assertEqual(flat(got), want[name])


def job(dataset, how):
    """A job for the tests above, which end it in different ways."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # processes in the background ignore SIGINT
    loader = diesel.DataLoader(dataset, batch_size=4, transform=with_pid, num_workers=2, timeout=1)
    print(loader_processes(loader), flush=True)
    while how == "loop":
        for _ in loader:
            time.sleep(0.01)
    if how == "raise":
        next(iter(loader))
        raise SystemError("on purpose")


def loader_processes(loader):
    used = pids(loader)
    return " ".join(map(str, [loader._stream._pool._process.pid, *used]))


if __name__ == "__main__":
    if sys.argv[1:2] == ["job"]:
        job(*sys.argv[2:])
    else:
        unittest.main()
