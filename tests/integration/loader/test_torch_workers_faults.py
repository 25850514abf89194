# SPDX-License-Identifier: Apache-2.0
"""Tests transforms that fail, workers and fork servers that die, and damaged data: the rest continues."""
import os
import pickle
import signal
import sys
import unittest

# Imported first: adds the path of the other modules, and skips where modules are missing.
from common.processes import is_alive
from workers_support import WorkersCase, fails, first_bytes, flat, grouped, pids, same, wait_until, with_pid
import diesel_loader.torch as diesel
from diesel_loader import DamagedData
from serving import pack


class Picky(Exception):
    """An exception that cannot be built from only a text."""

    def __init__(self, a, b):
        super().__init__(a, b)


class At:
    """Runs a function for the samples whose first bytes are `mark`."""

    def __init__(self, mark, what):
        self.mark, self.what = mark, what

    def __call__(self, data):
        if data[:8].tolist() == self.mark:
            self.what()
        return data.clone()


def raise_picky():
    raise Picky(1, 2)


def raise_stop():
    raise StopIteration


def raise_key():
    return {}["the key"]


class DieOnce:
    """Kills its process, but only the first time."""

    def __init__(self, path):
        self.path = path

    def __call__(self):
        if not os.path.exists(self.path):
            open(self.path, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)


def die():
    os.kill(os.getpid(), signal.SIGSEGV)


class FaultTest(WorkersCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.want = flat(cls.fresh())
        cls.at = 9 * 16 + 5  # in batch 9
        cls.mark = list(cls.want[cls.at][0][:8])

    @classmethod
    def fresh(cls, **options):
        return diesel.DataLoader(cls.sets["equal"], batch_size=16, shuffle=True, seed=3, transform=same,
                                 **grouped({"num_workers": 0, **options}))

    def run_with(self, what, **options):
        """Reads batches, one of which fails. Returns (the delivered ones, the exception)."""
        got, caught = [], None
        batches = iter(self.loader(transform=At(self.mark, what), **options))
        while True:
            try:
                got.append(next(batches))
            except StopIteration:
                return got, caught
            except Exception as error:
                self.assertIsNone(caught)
                caught = error

    def test_exceptions_arrive_with_their_traceback_and_the_rest_goes_on(self):
        without = self.want[:9 * 16] + self.want[10 * 16:]
        for what, cls, text in ((lambda: fails(0), ZeroDivisionError, "in fails"),
                                (raise_key, KeyError, "in raise_key"), (raise_picky, RuntimeError, "Picky"),
                                (sys.exit, RuntimeError, "SystemExit"), (raise_stop, RuntimeError, "StopIteration")):
            for workers in (2, 1):
                got, error = self.run_with(what, num_workers=workers)
                self.assertIs(type(error), cls)
                self.assertIn(text, str(error))
                self.assertIn("batch 9 of epoch 0", str(error))
                self.assertIn("Traceback", str(error))
                self.assertEqual(flat(got), without)
        got, error = self.run_with(raise_stop, num_workers=0)
        self.assertEqual((type(error), flat(got)), (RuntimeError, without))

    def test_what_cannot_be_sent_back(self):
        loader = self.loader(transform=same, collate_fn=lambda samples: lambda: samples, num_workers=1)
        with self.assertRaisesRegex((AttributeError, pickle.PicklingError, RuntimeError), "while sending the batch"):
            next(iter(loader))

    def test_a_worker_that_dies_is_replaced_and_its_batch_done_again(self):
        for workers in (1, 3):
            path = self.folder / f"died-{workers}"
            with self.assertLogs("diesel_loader", "WARNING") as logs:
                got, error = self.run_with(DieOnce(str(path)), num_workers=workers)
            self.assertIsNone(error)
            self.assertIn("SIGKILL", logs.output[0])
            self.assertIn("batch 9 of epoch 0", logs.output[0])
            self.assertEqual(flat(got), self.want)

    def test_a_batch_that_kills_twice_is_one_error(self):
        with self.assertLogs("diesel_loader", "WARNING"):
            got, error = self.run_with(die, num_workers=2)
        self.assertIsInstance(error, RuntimeError)
        self.assertRegex(str(error), "SIGSEGV while it transformed batch 9 of epoch 0")
        self.assertEqual(flat(got), self.want[:9 * 16] + self.want[10 * 16:])

    def test_idle_workers_that_die_are_replaced(self):
        loader = self.loader(transform=with_pid, num_workers=2)
        used = pids(loader)
        with self.assertLogs("diesel_loader", "WARNING"):
            for pid in used:
                os.kill(pid, signal.SIGKILL)
            wait_until("death", lambda: not any(map(is_alive, used)))
            self.assertTrue(pids(loader).isdisjoint(used))

    def test_workers_that_cannot_start_are_an_error(self):
        loader = self.loader(transform=same, worker_init_fn=lambda _: die(), num_workers=1)
        with self.assertRaisesRegex(RuntimeError, "do not start.*SIGSEGV"):
            next(iter(loader))

    def test_the_fork_server_dies(self):
        loader = self.loader(transform=with_pid, num_workers=2)
        batches = iter(loader)
        used = pids([next(batches)])
        os.kill(loader._stream._pool._process.pid, signal.SIGKILL)
        wait_until("the end of the workers", lambda: not any(map(is_alive, used)))
        with self.assertRaisesRegex(RuntimeError, "starts worker processes.*SIGKILL"):
            list(batches)

    def test_damaged_data(self):
        dataset = pack(self.folder / "ragged", self.folder / "damaged.diesel", "--chunk-size", "4M")
        chunk = next((dataset / "chunks").iterdir())
        data = bytearray(chunk.read_bytes())
        data[len(data) // 2] ^= 0x10
        chunk.chmod(0o644)  # as the snapshot: nobody may read less
        chunk.write_bytes(data)
        loader = diesel.DataLoader(dataset, batch_size=8, transform=first_bytes, num_workers=2)
        with self.assertRaisesRegex(DamagedData, chunk.stem):
            list(loader)
        loader.close()


if __name__ == "__main__":
    unittest.main()
