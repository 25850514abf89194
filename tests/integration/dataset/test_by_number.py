# SPDX-License-Identifier: Apache-2.0
"""Tests samples by number: dieseld serves them from its cache, storage serves them where it cannot."""
import concurrent.futures
import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import threading
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "bench"))
import support  # noqa: E402
from serving import Daemon, pack  # noqa: E402

try:
    import numpy

    import diesel_loader
    import diesel_loader.numpy
    from diesel_loader.options import Order
except ImportError as error:
    support.skip(f"needs {error.name}")

CLASSES, PER_CLASS = ("ape", "bee", "cat"), 60
N = len(CLASSES) * PER_CLASS


class ByNumber(unittest.TestCase):
    OPTIONS = ()

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        rng = numpy.random.default_rng(11)
        cls.contents = {}
        for name in CLASSES:
            (cls.folder / "tree" / name).mkdir(parents=True)
            for i in range(PER_CLASS):
                data = rng.bytes(0 if i == 7 else int(rng.integers(1, 1 << 18)))
                (cls.folder / "tree" / name / f"{i:03d}").write_bytes(data)
                cls.contents[f"{name}/{i:03d}"] = data
        cls.packed = pack(cls.folder / "tree", cls.folder / "packed.diesel", "--chunk-size", "4M")

    def setUp(self):
        self.path = self.folder / f"{self.id()}.diesel"  # one that no other test has in the cache
        shutil.copytree(self.packed, self.path)
        self.addCleanup(shutil.rmtree, self.path)
        self.daemon = self.enterContext(Daemon(self.folder, *self.OPTIONS))

    def wanted(self, dataset, numbers):
        return [self.contents[dataset.sample_path(number)] for number in numbers]

    def agrees(self, dataset, numbers):
        pairs = zip(dataset.read_many(numbers), self.wanted(dataset, numbers), strict=True)
        self.assertEqual([i for i, (data, wanted) in enumerate(pairs) if data != wanted], [])


class FromTheCache(ByNumber):
    def remove_chunks(self):
        """Leaves only the daemon's cache to read from."""
        shutil.rmtree(self.path / "chunks")

    def test_all_samples_then_again_without_files(self):
        dataset, rng = diesel_loader.Dataset(self.path), random.Random(3)
        for _ in range(3):  # the first request for a chunk may read only a part of it
            self.agrees(dataset, rng.sample(range(N), N))
        self.remove_chunks()
        self.agrees(dataset, rng.choices(range(N), k=5 * N))
        self.agrees(dataset, [])
        self.agrees(dataset, [5])

    def test_items_of_a_batch(self):
        dataset = diesel_loader.Dataset(self.path)
        indices = [3, -1, N // 2, 3]
        self.assertEqual(dataset.__getitems__(indices), [dataset[i] for i in indices])
        part = dataset.filter("bee")
        self.assertEqual(part.__getitems__([0, -1]), [part[0], part[-1]])
        self.assertEqual({label for _, label in part.__getitems__(range(len(part)))}, {1})
        renumbered = dataset.with_classes(["cat", "bee", "ape"])
        self.assertEqual([label for _, label in renumbered.__getitems__([0, N - 1])], [renumbered[0][1], renumbered[N - 1][1]])
        with self.assertRaises(IndexError):
            dataset.__getitems__([0, N])
        with self.assertRaisesRegex(IndexError, f"index {N} is out of range"):
            dataset.read_many([0, N])

    def test_packed_samples_lie_one_after_another(self):
        dataset, numbers = diesel_loader.Dataset(self.path), [3, N - 1, 7, 3, 0]
        wanted = self.wanted(dataset, numbers)
        self.assertTrue(any(not data for data in self.wanted(dataset, range(N))))
        space = numpy.zeros(sum(map(len, wanted)) + 5, dtype=numpy.uint8)
        for chosen, out in ((numbers, None), (numpy.array(numbers), space), (iter(numbers), space.reshape(1, -1))):
            data, offsets = dataset.read_packed(chosen, out)
            self.assertEqual([data[begin:end].tobytes() for begin, end in zip(offsets, offsets[1:])], wanted)
            self.assertIs(numpy.shares_memory(data, space), out is not None)
        self.assertEqual([list(part) for part in dataset.read_packed([])], [[], [0]])
        for wrong in (space[:-6], space[::2], space.view(numpy.int8), bytearray(1 << 20)):
            with self.assertRaisesRegex(ValueError, "out "):
                dataset.read_packed(numbers, wrong)
        for wrong in (N, -N - 1):
            for chosen in ([0, wrong], numpy.array([0, wrong])):
                with self.assertRaisesRegex(IndexError, f"index {wrong} is out of range"):
                    dataset.read_packed(chosen)
        self.assertEqual([part.tolist() for part in dataset.read_packed(numpy.array([-1, 3]))], [part.tolist() for part in dataset.read_packed([N - 1, 3])])
        for wrong, message in (([True, False], "not bool; numpy.flatnonzero"), (numpy.array([0.5, 1.2]), "not float64"), (["1"], "not str"), (numpy.array([True]), "not bool"),
                               ([numpy.True_], "not bool"), ([0.5], "not float")):
            for take in (dataset.read_packed, dataset[3:].read_packed, dataset.read_many, dataset.__getitems__, dataset.select):
                with self.assertRaisesRegex(TypeError, message):
                    take(wrong)

    def test_packed_samples_of_one_length_are_rows(self):
        tree, packed = self.folder / "rows", self.folder / "rows.diesel"
        tree.mkdir()
        for i in range(9):
            (tree / f"{i}.bin").write_bytes(bytes([i]) * 700)
        dataset = diesel_loader.Dataset(pack(tree, packed))
        values = [dataset[i][0][0] for i in range(9)]
        rows = dataset.read_packed(range(9))
        self.assertEqual((rows.shape, rows.dtype), ((9, 700), numpy.uint8))
        self.assertEqual([set(row.tolist()) for row in rows], [{value} for value in values])
        again = dataset.read_packed([8, 0], rows)
        self.assertEqual((again.shape, again[0][0], rows[1][0]), ((2, 700), values[8], values[0]))
        self.assertEqual(dataset.read_packed([]).shape, (0, 700))

    def test_nothing_opens_no_session(self):
        dataset = diesel_loader.Dataset(self.path)
        self.assertEqual((dataset.read_many([]), dataset.__getitems__([])), ([], []))
        dataset.read_packed([])
        empty = numpy.array([i for i in range(N) if dataset.sample_bytes(i) == 0], dtype=numpy.uint64)
        self.assertEqual(set(dataset._measure(empty.ctypes.data, len(empty))), {0})   # a forked child may use the parent's handle for it
        self.assertEqual(diesel_loader.status()["sessions"], [])

    def test_threads_and_forked_processes(self):
        dataset = diesel_loader.Dataset(self.path)
        self.agrees(dataset, range(N))

        def read(seed):
            rng = random.Random(seed)
            for _ in range(20):
                self.agrees(dataset, rng.choices(range(N), k=rng.randint(1, 100)))

        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            list(threads.map(read, range(8)))
        children = []
        for seed in range(3):
            child = os.fork()
            if child == 0:
                try:
                    read(seed)
                    os._exit(0)
                finally:
                    os._exit(1)
            children.append(child)
        read(9)  # the parent, meanwhile
        self.assertEqual([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children], [0, 0, 0])

    def test_signals_in_the_middle(self):
        n_signals = 0

        def on_alarm(*_):
            nonlocal n_signals
            n_signals += 1

        self.addCleanup(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, on_alarm))
        dataset, rng = diesel_loader.Dataset(self.path), random.Random(5)
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        try:
            while n_signals < 300:
                self.agrees(dataset, rng.choices(range(N), k=64))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def test_a_daemon_that_ends(self):
        dataset = diesel_loader.Dataset(self.path)
        self.agrees(dataset, range(N))
        self.daemon.process.kill()
        self.daemon.process.wait()
        self.agrees(dataset, range(N))
        child = os.fork()
        if child == 0:
            try:
                self.agrees(dataset, range(N))
                os._exit(0)
            finally:
                os._exit(1)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)

    def test_a_damaged_sample_is_named(self):
        dataset = diesel_loader.Dataset(self.path)
        largest = max(range(N), key=dataset.sample_bytes)
        for chunk in (self.path / "chunks").rglob("*.chunk"):
            data = bytearray(chunk.read_bytes())
            at = bytes(data).find(self.contents[dataset.sample_path(largest)][:64])
            if at >= 0:
                data[at + 10] ^= 1
                chunk.write_bytes(data)
        with self.assertRaisesRegex(OSError, dataset.sample_path(largest)):
            dataset.read_many([largest])


class FromStorage(ByNumber):
    OPTIONS = ("--cache", "16M")

    def test_chunks_that_come_and_go_under_a_reader(self):
        dataset, rng = diesel_loader.Dataset(self.path), random.Random(4)
        loader = diesel_loader.numpy.DataLoader(self.path, batch_size=2, shuffle=True, seed=1, order=Order(window_chunks=1))
        stop = threading.Event()

        def train():  # its chunks take turns in memory, and the reader copies from there
            n_epochs = 0
            while not stop.is_set():
                n_epochs += sum(1 for _ in loader) > 0
            return n_epochs

        with concurrent.futures.ThreadPoolExecutor(1) as trainer:
            epochs = trainer.submit(train)
            try:
                for _ in range(40):
                    self.agrees(dataset, rng.choices(range(N), k=200))
            finally:
                stop.set()
            self.assertGreater(epochs.result(), 0)

    def test_a_cache_that_cannot_hold_the_dataset(self):
        dataset, rng = diesel_loader.Dataset(self.path), random.Random(3)
        for _ in range(3):
            self.agrees(dataset, rng.choices(range(N), k=2 * N))
        shutil.rmtree(self.path / "chunks")
        with self.assertRaises(OSError):
            dataset.read_many(range(N))


if __name__ == "__main__":
    unittest.main(verbosity=2)
