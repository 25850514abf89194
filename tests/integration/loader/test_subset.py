# SPDX-License-Identifier: Apache-2.0
"""Tests some of a dataset's samples as datasets that the daemon serves."""
import collections
import pathlib
import pickle
import shutil
import subprocess
import sys
import tempfile
import unittest
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "bench"))
import support  # noqa: E402
from serving import Daemon, grouped, pack  # noqa: E402

try:
    import numpy
    import torch
    import torch.utils.data

    import diesel_loader
    import diesel_loader.torch as diesel
except ImportError as error:
    support.skip(f"needs {error.name}")

CLASSES = ("ape", "bee", "cat")
PER_CLASS, ALONE = 100, 10  # samples of each class, and without a class
N = len(CLASSES) * PER_CLASS + ALONE
BYTES = 1 << 16


def make_tree(folder):
    rng = numpy.random.default_rng(7)
    for name in CLASSES:
        (folder / name).mkdir(parents=True)
        for i in range(PER_CLASS):
            (folder / name / f"{i:03d}.{'even' if i % 2 == 0 else 'odd'}").write_bytes(rng.bytes(BYTES))
    for i in range(ALONE):
        (folder / f"{i}.even").write_bytes(rng.bytes(BYTES))


def content(dataset):
    """Returns the samples, by number."""
    return [bytes(dataset[i][0]) for i in range(len(dataset))]


def delivered(batches):
    return [item.numpy().tobytes() for data, _ in batches for item in data]


class SubsetTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        make_tree(cls.folder / "tree")
        cls.path = pack(cls.folder / "tree", cls.folder / "set", "--chunk-size", "4M")
        cls.daemon = cls.enterClassContext(Daemon(cls.folder))
        cls.all = diesel_loader.Dataset(cls.path)
        cls.bytes = content(cls.all)
        cls.paths = [path for path, _ in cls.all.samples]

    def loader(self, dataset, **options):
        loader = diesel.DataLoader(dataset, **grouped({"batch_size": 7, "shuffle": True, "seed": 3, **options}))
        self.addCleanup(loader.close)
        return loader

    def numbers(self, dataset):
        return [dataset.number(i) for i in range(len(dataset))]


class Indices(SubsetTest):
    def test_all_methods_count_the_samples_of_the_subset(self):
        train, _ = self.all.train_test_split(0.3, seed=7)
        parts = {"split": train, "filter": self.all.filter(classes="cat"), "select": self.all.select([5, 40, 17]), "of a subset": train[3::4],
                 "pickled": pickle.loads(pickle.dumps(train)), "classes": train.with_classes(["zebra", *self.all.classes]),
                 "torch": diesel.Dataset(self.path)[7::3], "torch Subset": diesel.Dataset.of_torch_subset(torch.utils.data.Subset(diesel.Dataset(self.path), [40, 5, 17]))}
        for name, part in parts.items():
            with self.subTest(name):
                paths, indices = [path for path, _ in part.samples], list(range(len(part)))
                self.assertNotEqual(paths, self.paths[:len(paths)])
                wanted = [self.all[path] for path in paths]
                self.assertEqual([bytes(part[i][0].tolist()) if name.startswith("torch") else part[i][0] for i in indices], wanted)
                self.assertEqual([part.read(i) for i in indices], wanted)
                self.assertEqual(part.read_many(indices), wanted)
                for chosen in (indices, numpy.array(indices), [i - len(part) for i in indices]):
                    self.assertEqual([row.tobytes() for row in part.read_packed(chosen)], wanted)
                self.assertEqual([part.sample_path(i) for i in indices], paths)
                self.assertEqual([part.sample_bytes(i) for i in indices], list(map(len, wanted)))
                self.assertEqual([part.label(i) for i in indices], part.targets)
                self.assertEqual([part.find(path) for path in paths], indices)
                self.assertEqual(part.find_many(paths), indices)
                for take in (part.read, part.label, part.sample_path, part.sample_bytes, lambda i, part=part: part.read_many([i])):
                    with self.assertRaisesRegex(IndexError, f"index {len(part)} is out of range"):
                        take(len(part))

        with self.assertRaisesRegex(TypeError, "seed must be an integer, not 'a'"):
            self.all.train_test_split(0.3, seed="a")

    def test_ids_of_batches_are_indices(self):
        part = diesel.Dataset(self.path)[7::3]
        for options in ({}, {"transform": torch.clone, "num_workers": 1}, {"sampler": list(range(len(part))), "shuffle": False}):
            ids = []
            for data, _, numbers in self.loader(part, return_ids=True, **options):
                self.assertEqual([bytes(item.tolist()) for item in data], [part.read(i) for i in numbers.tolist()])
                ids += numbers.tolist()
            self.assertEqual(sorted(ids), list(range(len(part))))


class Outside(SubsetTest):
    def test_labels_of_none_are_told(self):
        """Samples in no class folder among others, by name; and what the line says leaves them out."""
        with self.assertWarnsRegex(UserWarning, r"[0-9]\.even is in no class folder, and has label -1"):
            self.loader(self.all)
        with self.assertWarnsRegex(UserWarning, "is in no class folder"):
            self.loader(self.all[:-1])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            labels = [label for _, labels in self.loader(self.all.filter(classes=self.all.classes)) for label in labels.tolist()]
            self.assertEqual(sorted(labels), [i for i in range(len(CLASSES)) for _ in range(PER_CLASS)])
            self.loader(self.all, target_transform=abs)


class Classes(SubsetTest):
    def test_the_classes_of_another_dataset(self):
        """A split that lacks a class uses the labels of one that has it."""
        part = self.folder / "part"
        for name in ("ape", "cat"):
            shutil.copytree(self.folder / "tree" / name, part / name)
        own = diesel.Dataset(pack(part, self.folder / "part.diesel"))
        self.assertEqual(own.class_to_idx, {"ape": 0, "cat": 1})
        dataset = own.with_classes(self.all.classes)
        self.assertEqual(dataset.class_to_idx, self.all.class_to_idx)
        wanted = [self.all.class_to_idx[path.split("/")[0]] for path, _ in own.samples]
        self.assertEqual(dataset.targets, wanted)
        self.assertEqual([label for _, label in dataset.samples], wanted)
        self.assertEqual([dataset[i][1] for i in range(len(dataset))], wanted)
        self.assertEqual(dataset.stat("cat/000.even").label, 2)
        for options in ({}, {"num_workers": 0}, {"transform": lambda x: x, "num_workers": 2}):
            for _, labels, ids in self.loader(dataset, return_ids=True, **options):
                self.assertEqual(labels.tolist(), [wanted[i] for i in ids.tolist()])
        self.assertEqual(set(dataset.filter(classes="cat").targets), {2})
        self.assertEqual(set(dataset.filter(classes=[2, "ape"]).targets), {0, 2})
        self.assertEqual(len(dataset.filter(classes="bee")), 0)
        self.assertEqual(pickle.loads(pickle.dumps(dataset)).targets, wanted)
        self.assertEqual(set(own.targets), {0, 1})
        with self.assertRaisesRegex(ValueError, "has class 'bee', which the given classes lack"):
            self.all.with_classes(own.classes)


class Chosen(SubsetTest):
    def test_slices_are_those_of_a_list(self):
        whole = list(range(N))
        for chosen in (slice(None), slice(10), slice(-10, None), slice(3, 300, 7), slice(5, 5), slice(20, 10),
                       slice(-1, None), slice(0, 1000), slice(N, None), slice(None, None, N)):
            part = self.all[chosen]
            self.assertEqual(self.numbers(part), whole[chosen], chosen)
            for again in (slice(2, -2), slice(None, None, 3), slice(1)):
                self.assertEqual(self.numbers(part[again]), whole[chosen][again], (chosen, again))
        with self.assertRaisesRegex(ValueError, "slice must be positive"):
            self.all[::-1]

    def test_indices(self):
        part = self.all.select([300, 2, -1, numpy.int64(64)])
        self.assertEqual(self.numbers(part), [2, 64, 300, N - 1])
        self.assertEqual(self.numbers(part.select([1, 3])), [64, N - 1])
        self.assertEqual(part[-1], self.all[N - 1])
        self.assertEqual(len(self.all.select([])), 0)
        with self.assertRaisesRegex(ValueError, "occurs twice"):
            self.all.select([4, 5, 4])
        for wrong in ([N], [-N - 1]):
            with self.assertRaises(IndexError):
                self.all.select(wrong)
        with self.assertRaisesRegex(IndexError, "this subset of .* has 4 samples"):
            part.select([4])
        with self.assertRaises(IndexError):
            part[4]

    def test_classes_and_paths(self):
        labels = self.all.targets
        for classes, expected in (("bee", {1}), (["ape", 2], {0, 2}), (-1, {-1}), ([0, -1], {0, -1}), ([], set())):
            self.assertEqual(self.numbers(self.all.filter(classes)),
                             [i for i in range(N) if labels[i] in expected], classes)
        self.assertEqual([path for path, _ in self.all.filter(paths="bee/*").samples],
                         [path for path in self.paths if path.startswith("bee/")])
        odd = self.all.filter(["ape", "cat"], "*.odd")
        self.assertEqual([path for path, _ in odd.samples],
                         [path for path in self.paths if path.endswith("odd") and not path.startswith("bee")])
        self.assertEqual(self.numbers(odd.filter("cat")), self.numbers(self.all.filter("cat", "*.odd")))
        self.assertEqual(odd.targets, [labels[i] for i in self.numbers(odd)])
        self.assertEqual((odd.classes, odd.n_bytes), (self.all.classes, len(odd) * BYTES))
        with self.assertRaises(KeyError):
            self.all.filter("dog")
        with self.assertRaisesRegex(IndexError, "3 classes"):
            self.all.filter(3)

    def test_parts_at_random(self):
        parts = self.all.random_split([0.8, 0.1, 0.1], seed=1)
        self.assertEqual([len(part) for part in parts], [248, 31, 31])
        self.assertEqual(sorted(i for part in parts for i in self.numbers(part)), list(range(N)))
        again = self.all.random_split([248, 31, 31], seed=1)
        self.assertEqual([self.numbers(a) for a in parts], [self.numbers(a) for a in again])
        self.assertNotEqual(self.numbers(parts[1]), self.numbers(self.all.random_split([0.8, 0.1, 0.1], seed=2)[1]))
        self.assertEqual(self.numbers(self.all.random_split([1])[0]), list(range(N)))
        for wrong in ([0.5, 0.4], [300, 11], [], [-1, N + 1], [True]):
            with self.assertRaisesRegex(ValueError, "lengths must"):
                self.all.random_split(wrong)

    def test_a_part_of_each_class(self):
        train, test = self.all.train_test_split(0.3, seed=4, by_class=True)
        self.assertEqual((len(train), len(test)), (217, 93))
        self.assertEqual(collections.Counter(test.targets), {0: 30, 1: 30, 2: 30, -1: 3})
        self.assertEqual(sorted(self.numbers(train) + self.numbers(test)), list(range(N)))
        # Each sample can be in the test part.
        seen = {i for seed in range(60) for i in self.numbers(self.all.train_test_split(0.3, seed, True)[1])}
        self.assertEqual(len(seen), N)
        inner, held = train.train_test_split(17, by_class=True)
        self.assertEqual((len(inner), len(held)), (200, 17))
        self.assertLessEqual(set(self.numbers(held)), set(self.numbers(train)))
        for wrong in (N + 1, -1, 1.5):
            with self.assertRaisesRegex(ValueError, "test_size"):
                self.all.train_test_split(wrong)

    def test_the_split_is_what_the_documentation_says(self):
        """Compares with docs/reference/formats.md, by values of tests/unit/dataset/shuffle_reference.py."""
        self.assertEqual(self.numbers(self.all[:14].random_split([9, 5], seed=42)[1]), GOLDEN)

    def test_it_may_be_pickled(self):
        part = pickle.loads(pickle.dumps(self.all.filter("cat")[::3]))
        self.assertEqual(self.numbers(part), self.numbers(self.all.filter("cat"))[::3])
        self.assertEqual(content(part), [self.bytes[i] for i in self.numbers(part)])
        self.assertIn("34 of 310 samples", repr(part))


class Served(SubsetTest):
    def some(self):
        return {"class": self.all.filter("bee"), "slice": self.all[5:300:3], "one": self.all.select([77]),
                "random": self.all.random_split([0.6, 0.4])[1], "all": self.all[:]}

    def test_each_sample_once_an_epoch(self):
        for name, part in self.some().items():
            expected = [self.bytes[i] for i in self.numbers(part)]
            for options in ({}, {"transform": torch.clone, "num_workers": 1}):
                with self.subTest(name, **options):
                    loader = self.loader(part, **options)
                    self.assertEqual(len(loader), (len(part) + 6) // 7)
                    first, second = delivered(loader), delivered(loader)
                    self.assertEqual(sorted(first), sorted(expected))
                    self.assertEqual(sorted(second), sorted(expected))
                    self.assertTrue(len(part) < 50 or first != second)
            self.assertEqual(delivered(self.loader(part, shuffle=False)), expected)

    def test_all_samples_have_the_order_of_the_whole(self):
        self.assertEqual(delivered(self.loader(self.all[:])), delivered(self.loader(self.all)))

    def test_ranks_share_it(self):
        part = self.all[3:290:2]
        got = [delivered(self.loader(part, rank=rank, world_size=3)) for rank in range(3)]
        self.assertEqual(sorted(sum(got, [])), sorted(self.bytes[i] for i in self.numbers(part)))

    def test_it_resumes_and_no_other_one_does(self):
        part, other = self.all.random_split([0.5, 0.5])
        loader = self.loader(part)
        batches = iter(loader)
        begun = delivered([next(batches) for _ in range(5)])
        state = loader.state_dict()
        resumed = self.loader(part)
        resumed.load_state_dict(state)
        self.assertEqual(begun + delivered(resumed), delivered(self.loader(part)))
        for wrong in (other, self.all):
            with self.assertRaisesRegex(ValueError, "cannot resume: (subset|n_samples)"):
                self.loader(wrong).load_state_dict(state)

    def test_it_outlives_the_daemon(self):
        part = self.all.random_split([0.5, 0.5])[0]
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        socket = str(folder / "dieseld.sock")
        with Daemon(folder):
            loader = self.loader(diesel.Dataset(self.path, socket=socket).select(self.numbers(part)))
            batches = iter(loader)
            got = delivered([next(batches) for _ in range(2)])
        with Daemon(folder):
            got += delivered(batches)
        self.assertEqual(got, delivered(self.loader(part)))

    def test_only_its_chunks_are_read(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        with Daemon(folder) as daemon:
            dataset = diesel.Dataset(self.path)
            part = dataset[:40]  # of about 60 in the first chunk
            self.assertEqual(len(delivered(self.loader(part))), 40)
            status = diesel_loader.status()
        self.assertLessEqual(status["cache"]["reads"], 2)
        self.assertEqual(daemon.process.returncode, 0)

    def test_only_its_samples_are_read(self):
        """The subset has few samples of a chunk, and only these are read. Another session gets all samples from the same daemon."""
        few = range(20, N, 50)
        with Daemon(pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))):
            loader = self.loader(diesel.Dataset(self.path).select(few))
            for _ in range(2):
                self.assertEqual(sorted(delivered(loader)), sorted(self.bytes[i] for i in few))
            (job,) = diesel_loader.status()["jobs"]
            self.assertLess(job["read_bytes"], N * BYTES / 4)
            del loader
            self.assertEqual(sorted(delivered(self.loader(diesel.Dataset(self.path)))), sorted(self.bytes))
            self.assertGreater(sum(job["read_bytes"] for job in diesel_loader.status()["jobs"]), N * BYTES)

    def test_numbers_are_of_the_version_that_was_opened(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        path = pack(self.folder / "tree" / "ape", folder / "set")
        first = bytes(diesel_loader.Dataset(path)[0][0])
        part = pickle.dumps(diesel_loader.Dataset(path)[::2])
        self.assertEqual(len(pickle.loads(part)[:3].select([1])), 1)
        subprocess.run([support.program("dieselctl"), "rm", path, "000.even"], check=True, stdout=subprocess.DEVNULL)
        again = pickle.loads(part)
        self.assertEqual((again.version, bytes(again[0][0])), (1, first))
        subprocess.run([support.program("dieselctl"), "rm", "--keep-snapshots", "1", path, "001.odd"], check=True, stdout=subprocess.DEVNULL)
        with self.assertRaisesRegex(FileNotFoundError, "no snapshot of version 1 any more"):
            pickle.loads(part)[0]

    def test_too_few_samples(self):
        with self.assertRaisesRegex(ValueError, "1 samples, fewer than the 2 ranks"):
            self.loader(self.all[:1], rank=0, world_size=2)
        with self.assertRaisesRegex(ValueError, "0 samples, fewer than"):
            next(iter(self.loader(self.all[:0])))

    def test_samplers_count_its_indices(self):
        part = diesel.Dataset(self.path).filter("cat")[::2]
        sampler = diesel.ChunkShuffleSampler(part, seed=3)
        indices = list(sampler)
        self.assertEqual(sorted(indices), list(range(len(part))))
        stock = torch.utils.data.DataLoader(part, 7, sampler=sampler)
        self.assertEqual(delivered(stock), [self.bytes[part.number(i)] for i in indices])


class Torchs(SubsetTest):
    """Tests torch's own Subset, and random_split(), which makes Subsets."""

    def assert_served(self, loader, numbers):
        loader.state_dict()  # TypeError where the order is not the daemon's
        self.assertEqual(sorted(delivered(loader)), sorted(self.bytes[i] for i in numbers))

    def test_it_is_served_where_its_order_does_not_matter(self):
        whole, data = diesel.Dataset(self.path), torch.utils.data
        ascending, mixed = data.Subset(whole, range(3, 200, 2)), data.random_split(whole, [N - 50, 50])[1]
        self.assert_served(self.loader(ascending), range(3, 200, 2))
        self.assert_served(self.loader(ascending, shuffle=False), range(3, 200, 2))
        self.assert_served(self.loader(mixed), mixed.indices)
        self.assert_served(self.loader(mixed, shuffle=None, seed=None, sampler=data.RandomSampler(mixed)), mixed.indices)
        inner = data.Subset(data.Subset(whole[100:], range(50, 0, -1)), [4, 2])  # 100 + 46, 100 + 48
        self.assert_served(self.loader(inner), [146, 148])

    def test_its_order_is_kept_where_it_matters(self):
        whole, data = diesel.Dataset(self.path), torch.utils.data
        mixed = data.Subset(whole, [300, 2, 77, 5, 1])
        expected = [self.bytes[i] for i in mixed.indices]
        for options in ({}, {"sampler": data.SequentialSampler(mixed)}, {"batch_sampler": [[0, 1], [2, 3, 4]]}):
            options = {"batch_size": 1, **options} if "batch_sampler" in options else {"batch_size": 2, **options}
            loader = diesel.DataLoader(mixed, num_workers=0, **grouped(options))
            self.assertEqual(delivered(loader), expected, options)
        dataset = self.loader(mixed).dataset
        self.assertEqual([path for path, _ in dataset.samples], [self.paths[i] for i in mixed.indices])
        self.assertEqual(dataset.targets, [whole.targets[i] for i in mixed.indices])
        with self.assertRaisesRegex(ValueError, "before making the Subset"):
            dataset[:3]

    def test_a_sample_twice(self):
        with self.assertRaisesRegex(ValueError, "occurs twice"):
            diesel.DataLoader(torch.utils.data.Subset(diesel.Dataset(self.path), [1, 1]))

    def test_of_something_else(self):
        with self.assertRaisesRegex(TypeError, "dieselctl pack"):
            diesel.DataLoader(torch.utils.data.Subset(torch.zeros(9), [1, 2]))


GOLDEN = [2, 7, 9, 10, 11]

if __name__ == "__main__":
    unittest.main()
