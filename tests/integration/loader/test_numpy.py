# SPDX-License-Identifier: Apache-2.0
"""Tests diesel_loader.numpy.DataLoader on a real dieseld. It must not import torch, which a test checks."""
import collections
import itertools
import json
import os
import pickle
import random
import subprocess
import sys
import time
import unittest

# Imported first: adds the path of the other modules, and skips where modules are missing.
from loader_support import EQUAL, LoaderCase, diesel, flat, grouped, numpy, pack
from PIL import Image

from diesel_loader.dataset import status

JOB = """
import sys, numpy, diesel_loader.numpy as diesel
def transform(data):
    return numpy.array(["torch" in sys.modules, data.mean()])
for options in {}, {"transform": transform, "num_workers": 0}, {"transform": transform, "num_workers": 2}:
    loader = diesel.DataLoader(sys.argv[1], 16, shuffle=True, **options)
    batches = list(loader)
    assert len(batches) == len(loader), len(batches)
    assert not options or not any(data[:, 0].any() for data, _ in batches), "torch is imported in a worker"
    loader.close()
assert "torch" not in sys.modules, "torch is imported"
"""


def same(data):
    return data.copy()


def noisy(data):
    return numpy.array([random.random(), numpy.random.rand(), float(data[0])])


def fails(_):
    return 1 // 0


def with_pid(data):
    return numpy.array([os.getpid(), int(data[0])])


def fields(samples):
    """Returns fields of all kinds, including an empty one."""
    return {"data": numpy.stack([data for data, _ in samples]), "fortran": numpy.asfortranarray([[1.5, 2], [3, 4]]),
            "zero": numpy.array(7), "none": numpy.empty((0, 3)), "objects": numpy.array([None, "x"], dtype=object),
            "time": numpy.array(["2020-01-01"], "datetime64[D]"), "text": "text", "labels": [label for _, label in samples]}


class Batches(LoaderCase):
    def test_without_torch(self):
        done = subprocess.run([sys.executable, "-c", JOB, self.sets["equal"]], capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_equal_lengths_give_one_array_that_views_shared_memory(self):
        batches = list(itertools.islice(self.loader(), 2))
        for data, labels in batches:
            self.assertEqual((data.shape, data.dtype), ((16, EQUAL), numpy.uint8))
            self.assertEqual((labels.shape, labels.dtype), ((16,), numpy.int64))
            self.assertFalse(data.flags.owndata)
            data[:] = 1  # private to this process
        self.assertNotEqual(flat(self.loader())[0][0], bytes([1]) * EQUAL)

    def test_lists_may_be_written_to(self):
        """Any holder may write to them without effect on others: samples of unequal lengths, or of equal ones by list_collate."""
        for name, options in (("ragged", {}), ("equal", {"collate_fn": diesel.list_collate}), ("ragged", {"bucket_by_length": 2})):
            loader = self.loader(name, **options)
            want = collections.Counter(flat(loader))
            for _ in range(2):
                got = collections.Counter()
                for data, labels in loader:
                    self.assertEqual((type(data), len(data)), (list, len(labels)))
                    got.update(flat([(data, labels)]))
                    for sample in data:
                        self.assertEqual((sample.ndim, sample.dtype), (1, numpy.uint8))
                        sample += 1
                self.assertTrue(got == want, (name, options))

    def test_every_sample_once_in_the_order_of_the_session(self):
        for name, options in itertools.product(("equal", "ragged"), ({}, {"shuffle": False}, {"drop_last": True},
                                                                     {"rank": 1, "world_size": 3})):
            with self.subTest(name=name, **options):
                loader = self.loader(name, **options)
                for epoch in range(2):
                    want = self.contents(loader, itertools.chain(*self.numbers(loader, epoch)))
                    self.assertEqual(flat(loader), want)

    def test_batches_that_are_kept_stay_right(self):
        for name in ("equal", "ragged"):
            loader = self.loader(name)
            kept = list(loader)
            self.assertEqual(flat(kept), self.contents(loader, itertools.chain(*self.numbers(loader))))

    def test_ranks_share(self):
        loaders = [self.loader(rank=rank, world_size=2) for rank in range(2)]
        shares = [flat(loader) for loader in loaders]
        self.assertEqual(len(loaders[0]), len(loaders[1]))
        self.assertEqual(sorted(shares[0] + shares[1]), sorted(flat(self.loader())))

    def test_resume_in_mid_epoch(self):
        want = flat(self.loader())
        loader = self.loader()
        batches = iter(loader)
        head, state = [next(batches) for _ in range(5)], json.loads(json.dumps(loader.state_dict()))
        resumed = self.loader()
        resumed.load_state_dict(state)
        self.assertEqual(flat(head + list(resumed)), want)
        with self.assertRaisesRegex(ValueError, "seed"):
            self.loader(seed=4).load_state_dict(state)

    def test_epochs(self):
        loader = self.loader()
        epochs = [flat(loader) for _ in range(3)]
        self.assertNotEqual(epochs[0], epochs[1])
        loader.set_epoch(1)
        self.assertEqual(flat(loader), epochs[1])

    def test_close_gives_memory_back_whoever_has_the_iterator(self):
        loader = self.loader()
        want = flat(loader)
        loader.set_epoch(0)
        batches = iter(loader)
        head = flat(itertools.islice(batches, 3))
        self.assertTrue(status()["sessions"])
        loader.close()
        end = time.monotonic() + 60
        while status()["sessions"] and time.monotonic() < end:
            time.sleep(0.01)
        self.assertEqual(status()["sessions"], [])
        self.assertEqual(head + flat(batches), want)

    def test_wrong_arguments_say_so(self):
        for options, says in (({"batch_size": 0}, "batch_size"), ({"batch_size": None}, "batch_size"), ({"seed": "x"}, "seed"),
                              ({"timeout": -1}, "timeout"), ({"num_workers": -1}, "num_workers"), ({"rank": 0}, "together"),
                              ({"rank": 2, "world_size": 2}, "rank 2"), ({"random_state": "x"}, "random_state")):
            with self.assertRaisesRegex(ValueError, says):
                self.loader(**options)
        with self.assertRaisesRegex(TypeError, "dieselctl pack"):
            diesel.DataLoader([1, 2, 3])
        with self.assertRaises(FileNotFoundError):
            diesel.DataLoader("/nowhere.diesel")


class Functions(LoaderCase):
    def test_images_are_decoded(self):
        rng, folder = numpy.random.default_rng(8), self.folder / "images"
        want = {}
        for i in range(12):
            (folder / f"kind{i % 3}").mkdir(parents=True, exist_ok=True)
            pixels = rng.integers(0, 255, (20, 30, 3), dtype=numpy.uint8)
            Image.fromarray(pixels).save(folder / f"kind{i % 3}" / f"{i}.png")
            want[pixels.tobytes()] = i % 3
        path = pack(folder, self.folder / "images.diesel")
        for workers in (0, 2):
            with diesel_loader_of(self, path, 5, transform=numpy.asarray, num_workers=workers) as loader:
                batches = list(loader)
                self.assertEqual([data.shape for data, _ in batches], [(5, 20, 30, 3), (5, 20, 30, 3), (2, 20, 30, 3)])
                self.assertEqual(dict(flat(batches)), want)

    def test_workers_give_what_the_trainer_gives(self):
        for name in ("equal", "ragged"):
            want = self.loader(name, transform=same, num_workers=0)
            for options in ({"num_workers": 2}, {}, {"num_workers": 1, "multiprocessing_context": "spawn"}):
                with self.subTest(name=name, **options):
                    loader = self.loader(name, transform=same, **options)
                    for epoch in range(2):
                        want.set_epoch(epoch)
                        got = list(loader)
                        self.assertEqual(flat(got), flat(want))
                        for data, _ in got:
                            for item in data:
                                item[:1] = 7  # the item belongs to the user

    def test_workers_do_the_work(self):
        seen = {int(pid) for data, _ in self.loader(transform=with_pid, num_workers=2) for pid in data[:, 0]}
        self.assertNotIn(os.getpid(), seen)

    def test_augmentation_is_the_same_whoever_does_it(self):
        for mode in ("batch", "sample"):
            want = [data.tolist() for data, _ in self.loader(transform=noisy, num_workers=0, random_state=mode)]
            got = [data.tolist() for data, _ in self.loader(transform=noisy, num_workers=2, random_state=mode)]
            self.assertEqual(got, want)

    def test_the_trainers_own_generators_are_left_alone(self):
        random.seed(1), numpy.random.seed(1)
        want = [random.random(), numpy.random.rand()]
        random.seed(1), numpy.random.seed(1)
        list(self.loader(transform=noisy, num_workers=0))
        self.assertEqual([random.random(), numpy.random.rand()], want)

    def test_results_of_any_kind(self):
        plain = self.loader(collate_fn=fields, num_workers=0)
        for got, want in zip(self.loader(collate_fn=fields, num_workers=1), plain):
            self.assertEqual(list(got), list(want))
            for name, value in want.items():
                if isinstance(value, numpy.ndarray):
                    self.assertEqual((got[name].dtype, got[name].shape), (value.dtype, value.shape), name)
                    self.assertTrue(numpy.array_equal(got[name], value), name)
                    self.assertTrue(got[name].flags.writeable)
                else:
                    self.assertEqual(got[name], value)

    def test_target_transform_and_the_default_collate(self):
        loader = self.loader("ragged", target_transform=lambda label: {"class": label, "name": str(label)}, num_workers=1)
        data, labels = next(iter(loader))
        self.assertIsInstance(data, list)
        self.assertEqual(labels["class"].dtype, numpy.int64)
        self.assertEqual(labels["name"], [str(label) for label in labels["class"]])

    def test_what_a_function_raises(self):
        with self.assertRaisesRegex(ZeroDivisionError, "worker process"):
            next(iter(self.loader(transform=fails, num_workers=1)))
        with self.assertRaises(ZeroDivisionError):
            next(iter(self.loader(transform=fails, num_workers=0)))

    def test_a_pickled_loader_works(self):
        loader = self.loader(transform=same, num_workers=1)
        copied = pickle.loads(pickle.dumps(loader))
        self.addCleanup(copied.close)
        self.assertEqual(flat(copied), flat(loader))


class Collate(unittest.TestCase):
    def test_field_by_field(self):
        one = {"x": numpy.zeros((2, 3), numpy.float32), "n": 1, "t": ("a", 2.5)}
        got = diesel.collate([one, one])
        self.assertEqual((got["x"].shape, got["x"].dtype), ((2, 2, 3), numpy.float32))
        self.assertEqual((got["n"].tolist(), got["t"][0], got["t"][1].tolist()), ([1, 1], ["a", "a"], [2.5, 2.5]))

    def test_what_does_not_stack(self):
        arrays = [numpy.zeros(2), numpy.zeros(3)]
        self.assertIs(diesel.collate(arrays), arrays)
        with self.assertRaisesRegex(ValueError, "collate_fn"):
            diesel.collate([(1, 2), (1,)])


class diesel_loader_of:
    """A loader that ends with its block."""

    def __init__(self, case, path, batch_size, **options):
        self.loader = diesel.DataLoader(path, batch_size, **grouped(options))

    def __enter__(self):
        return self.loader

    def __exit__(self, *_):
        self.loader.close()


if __name__ == "__main__":
    unittest.main()
