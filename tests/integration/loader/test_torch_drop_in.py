# SPDX-License-Identifier: Apache-2.0
"""Tests diesel_loader.torch as a replacement for PyTorch's DataLoader and torchvision's ImageFolder."""
import copy
import gc
import inspect
import json
import pathlib
import pickle
import tempfile
import time
import unittest

# Imported first: skips where modules are missing.
from torch_support import Daemon, grouped, pack
import numpy
import torch
import torch.utils.data
from torch.utils.data.distributed import DistributedSampler

import diesel_loader
import diesel_loader.numpy
import diesel_loader.torch as diesel

N_CLASSES, PER_CLASS, EQUAL = 4, 52, 1024
N = N_CLASSES * PER_CLASS


def make_tree(folder, sizes):
    rng = numpy.random.default_rng(5)
    for c in range(N_CLASSES):
        (folder / f"class{c}").mkdir(parents=True)
        for i in range(PER_CLASS):
            (folder / f"class{c}" / f"{i:03d}.bin").write_bytes(rng.bytes(int(rng.integers(*sizes))))


def contents(folder):
    """Returns {bytes of a file: index of its class folder}."""
    names = sorted(path.name for path in folder.iterdir())
    return {path.read_bytes(): names.index(path.parent.name) for path in folder.rglob("*.bin")}


def flat(batches):
    """Returns [(bytes, label)] of all samples, in order."""
    return [(item.numpy().tobytes(), int(label)) for data, labels in batches for item, label in zip(data, labels)]


def fails(_):
    return 1 // 0


def sleeps(data):
    time.sleep(600)
    return data


def seed_alike(_):
    torch.manual_seed(12345)


def seed_now(_):
    return torch.tensor(torch.initial_seed())


def note_dataset(worker):
    torch.utils.data.get_worker_info().dataset.noted = worker + 7


def what_is_told(_):
    info = torch.utils.data.get_worker_info()
    return torch.tensor([info.id, info.num_workers, info.seed == torch.initial_seed(), isinstance(info.dataset, diesel.Dataset),
                         len(info.dataset), info.dataset.noted])


def same(data):
    return data.clone()


def negated(label):
    return -label


class Backwards(torch.utils.data.Sampler):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return iter(range(self.n - 1, -1, -1))

    def __len__(self):
        return self.n


class DropInTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        make_tree(cls.folder / "equal", (EQUAL, EQUAL + 1))
        make_tree(cls.folder / "ragged", (0, 3000))
        cls.sets = {name: pack(cls.folder / name, cls.folder / f"{name}.diesel") for name in ("equal", "ragged")}
        cls.daemon = cls.enterClassContext(Daemon(cls.folder))

    def loader(self, name="equal", **options):
        loader = diesel.DataLoader(self.sets[name], **grouped({"batch_size": 16, **options}))
        self.addCleanup(loader.close)
        return loader

    def assert_all(self, batches, name="equal"):
        got = flat(batches)
        self.assertEqual(len(got), N)
        self.assertEqual(dict(got), contents(self.folder / name))


class Arguments(DropInTest):
    def test_it_is_a_data_loader_and_takes_what_one_takes(self):
        loader = self.loader()
        self.assertIsInstance(loader, torch.utils.data.DataLoader)
        theirs = inspect.signature(torch.utils.data.DataLoader.__init__).parameters
        ours = inspect.signature(diesel.DataLoader.__init__).parameters
        self.assertEqual([name for name in theirs if name not in ours], [])
        positional = [name for name, p in theirs.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
        self.assertEqual([name for name, p in ours.items() if p.kind is p.POSITIONAL_OR_KEYWORD], positional)

    def test_it_has_the_attributes_of_one(self):
        plain = torch.utils.data.DataLoader(torch.zeros(N, 1), 16, num_workers=2)
        loader = self.loader(num_workers=2, transform=same)
        for name in vars(plain):
            self.assertTrue(hasattr(loader, name), name)
        for name in ("batch_size", "num_workers", "drop_last", "pin_memory", "timeout", "prefetch_factor"):
            self.assertEqual(getattr(loader, name), getattr(plain, name), name)
        self.assertEqual(len(loader.dataset), N)
        self.assertEqual((len(loader.sampler), len(loader.batch_sampler)), (N, len(loader)))
        self.assertIsInstance(self.loader(transform=same).num_workers, int)

    def test_positional_arguments_and_numbers_of_numpy(self):
        loader = diesel.DataLoader(self.sets["equal"], numpy.int64(16), True, None, None, numpy.int32(0), None, False, True,
                                   0, None, None, None, prefetch_factor=None, in_order=True)
        self.assertEqual((loader.batch_size, type(loader.batch_size)), (16, int))
        self.assertEqual(len(list(loader)), N // 16)

    def test_batches_are_lists(self):
        for options in ({}, {"transform": same}, {"transform": same, "num_workers": 1}, {"sampler": Backwards(N)}):
            batch = next(iter(self.loader(num_workers=options.pop("num_workers", 0), **options)))
            self.assertIs(type(batch), list)

    def test_wrong_ones_say_so(self):
        for options, says in (({"batch_size": 0}, "batch_size"), ({"batch_size": True}, "batch_size"),
                              ({"prefetch_factor": 0}, "prefetch_factor"), ({"timeout": -1}, "timeout"),
                              ({"shuffle": True, "sampler": Backwards(N)}, "exclusive"),
                              ({"seed": 1, "generator": torch.Generator()}, "seed or generator"),
                              ({"batch_sampler": [[0]]}, "exclusive"), ({"seed": "x"}, "seed")):
            with self.assertRaisesRegex(ValueError, says):
                self.loader(**options)

    def test_other_datasets_are_answered_with_the_line_to_write(self):
        class Folder(torch.utils.data.Dataset):
            root, transform = "/data/photos/", same

        with self.assertRaisesRegex(TypeError, "`dieselctl pack /data/photos /data/photos.diesel`, then "
                                               r'DataLoader\("/data/photos.diesel", transform=..., ...\)'):
            diesel.DataLoader(Folder())
        with self.assertRaisesRegex(TypeError, "TensorDataset"):
            diesel.DataLoader(torch.utils.data.TensorDataset(torch.zeros(3)))

    def test_a_generator_gives_the_seed(self):
        def order(number):
            return flat(self.loader(shuffle=True, generator=torch.Generator().manual_seed(number)))

        self.assertEqual(order(1), order(1))
        self.assertNotEqual(order(1), order(2))

    def test_a_pickled_loader_works(self):
        loader = pickle.loads(pickle.dumps(self.loader(shuffle=True, seed=2)))
        self.assertEqual(flat(loader), flat(self.loader(shuffle=True, seed=2)))


    def test_annotations_may_say_what_is_in_it(self):
        self.assertIs(diesel.DataLoader[list].__origin__, diesel.DataLoader)
        self.assertIs(diesel.Dataset[tuple].__origin__, diesel.Dataset)

    def test_a_sampler_with_shuffle_is_refused_in_pytorchs_words(self):
        for options in ({"sampler": Backwards(N)}, {"batch_sampler": [[0]]}, {"sampler": Backwards(N), "batch_sampler": [[0]]}):
            with self.assertRaises(ValueError) as theirs:
                torch.utils.data.DataLoader(torch.zeros(N), shuffle=True, **options)
            with self.assertRaises(ValueError) as ours:
                self.loader(batch_size=1, shuffle=True, **options)
            self.assertEqual(str(ours.exception).split(" with")[0], str(theirs.exception).split(" with")[0])


class Workers(DropInTest):
    def test_one_that_hangs_is_a_timeout(self):
        loader = self.loader(transform=sleeps, num_workers=1, timeout=0.5, batch_size=8)
        batches = iter(loader)
        with self.assertRaisesRegex(RuntimeError, "DataLoader timed out after 0.5 seconds"):
            next(batches)

    def test_they_are_told_what_pytorchs_are_told(self):
        loader = self.loader(transform=what_is_told, num_workers=2, random_state=None, worker_init_fn=note_dataset)
        for told in {tuple(row) for rows, _ in loader for row in rows.tolist()}:
            worker, n_workers, is_seed, is_dataset, n_samples, noted = told
            self.assertIn(worker, (0, 1))
            self.assertEqual(n_workers, 2)
            self.assertEqual((is_seed, is_dataset, n_samples, noted), (1, 1, N, worker + 7))
        self.assertIsNone(torch.utils.data.get_worker_info())

    def test_their_init_function_seeds_them_where_random_state_is_none(self):
        loader = self.loader(transform=seed_now, num_workers=2, random_state=None, worker_init_fn=seed_alike)
        self.assertEqual({int(seed) for seeds, _ in loader for seed in seeds}, {12345})


class Iterators(DropInTest):
    def test_several_at_once(self):
        for options in ({}, {"transform": same, "num_workers": 1}):
            loader = self.loader(shuffle=True, **options)
            pairs = list(zip(loader, loader))
            self.assertEqual(len(pairs), len(loader))
            self.assert_all(first for first, _ in pairs)
            self.assert_all(second for _, second in pairs)

    def test_an_older_one_goes_on_where_it_was(self):
        loader = self.loader(shuffle=True, transform=same, num_workers=1)
        want = flat(loader)
        loader.set_epoch(0)
        older = iter(loader)
        head = [next(older), next(older)]
        self.assert_all(loader)
        self.assertEqual(flat(head + list(older)), want)

    def test_those_that_nobody_has_leave_nothing(self):
        loader = self.loader(shuffle=True, transform=same, num_workers=1)
        for _ in range(5):
            batches = iter(loader)  # ends the iterator that was under way
            next(batches)
        self.assertLessEqual(len(loader._streams), 2)
        del batches
        self.assert_all(loader)
        self.assertEqual(len(loader._streams), 1)

    def test_resuming_goes_on_although_the_epoch_is_set(self):
        loader = self.loader(shuffle=True)
        want = flat(loader)
        loader.set_epoch(0)
        batches = iter(loader)
        head, state = [next(batches) for _ in range(3)], loader.state_dict()
        resumed = self.loader(shuffle=True)
        resumed.load_state_dict(state)
        resumed.sampler.set_epoch(0)  # as Lightning does before each epoch
        self.assertEqual(flat(head + list(resumed)), want)
        resumed.set_epoch(0)
        self.assertEqual(flat(resumed), want)


class Ids(DropInTest):
    def test_of_samples_the_daemon_serves_and_of_an_order_of_ones_own(self):
        for name, options in (("equal", {"shuffle": True}), ("ragged", {}), ("equal", {"transform": same, "num_workers": 1}),
                              ("equal", {"sampler": Backwards(N)}), ("ragged", {"sampler": Backwards(N)}),
                              ("equal", {"sampler": Backwards(N), "num_workers": 1, "transform": same})):
            with self.subTest(name=name, **options):
                loader = self.loader(name, return_ids=True, **options)
                seen = []
                for data, labels, ids in loader:
                    self.assertEqual((ids.dtype, ids.shape), (torch.int64, labels.shape))
                    self.assertEqual(flat([[data, labels]]), [(bytes(loader.dataset.read(i)), loader.dataset.label(i))
                                                              for i in ids.tolist()])
                    seen += ids.tolist()
                self.assertEqual(sorted(seen), list(range(N)))

    def test_a_batch_log_is_of_batches_that_are_served(self):
        path = self.folder / "batches.jsonl"
        loader = self.loader(record=path, transform=same, num_workers=1)
        self.assert_all(loader)
        self.assertEqual(len(path.read_text().splitlines()), len(loader))
        with self.assertRaisesRegex(ValueError, "record"):
            self.loader(record=path, sampler=Backwards(N))


class WithoutTorch(DropInTest):
    def test_the_order_and_the_states_are_the_same(self):
        loader = self.loader(shuffle=True, seed=4)
        others = diesel_loader.numpy.DataLoader(self.sets["equal"], 16, shuffle=True, seed=4)
        want, batches = flat(loader), iter(others)
        head, state = [next(batches) for _ in range(3)], others.state_dict()
        loader.load_state_dict(state)
        self.assertEqual([(bytes(data), int(label)) for batch in head for data, label in zip(*batch)] + flat(loader), want)


class Mixtures(DropInTest):
    def test_of_loaders_of_torch(self):
        mixed = diesel.Mixture([self.loader("equal", shuffle=True), self.loader("ragged", transform=same, collate_fn=list,
                                                                                num_workers=1)], [2, 1], stop="once")
        taken = [(mixed.source, batch) for batch in mixed]
        self.assertEqual(len(taken), len(mixed))
        self.assert_all(batch for source, batch in taken if source == 0)
        self.assertEqual({(data.numpy().tobytes(), label) for source, batch in taken if source for data, label in batch},
                         set(contents(self.folder / "ragged").items()))
        with self.assertRaisesRegex(TypeError, "sampler"):
            diesel.Mixture([self.loader(sampler=Backwards(N))])


class Errors(DropInTest):
    def setUp(self):
        gc.disable()  # the daemon would wait forever for memory that only the collector frees
        self.addCleanup(gc.enable)

    def test_those_that_are_dropped_hold_no_batch(self):
        batches, n = iter(self.loader(batch_size=4, num_workers=0, transform=fails)), 0
        while n < N // 4:
            try:
                next(batches)
            except ZeroDivisionError:
                n += 1
            self.assertEqual(batches._stream.session.n_held, 0)
        self.assertEqual(list(batches), [])

    def test_those_that_are_kept_leave_space(self):
        loader, kept = self.loader(batch_size=4, num_workers=0, transform=fails), []
        batches = iter(loader)
        while len(kept) < len(loader):
            try:
                next(batches)
            except ZeroDivisionError as error:
                kept.append(error)
            self.assertLess(batches._stream.session.n_held, batches._stream.session.max_held)


class Samplers(DropInTest):
    def test_an_order_of_ones_own(self):
        for workers in (0, 2):
            got = flat(self.loader(sampler=Backwards(N), num_workers=workers))
            self.assertEqual(got, flat(self.loader())[::-1])

    def test_batches_of_ones_own(self):
        loader = self.loader(batch_size=1, batch_sampler=[[3, 1], [7], [5, 5, 5]], num_workers=0)
        everything = flat(self.loader())
        self.assertEqual(len(loader), 3)
        self.assertEqual(flat(loader), [everything[i] for i in (3, 1, 7, 5, 5, 5)])

    def test_single_samples(self):
        for name in ("equal", "ragged"):
            loader = self.loader(name, batch_size=None, shuffle=True, num_workers=0)
            first, second = (dict((data.numpy().tobytes(), int(label)) for data, label in loader) for _ in range(2))
            self.assertEqual(first, contents(self.folder / name))
            self.assertNotEqual(list(first), list(second))
            self.assertEqual(len(loader), N)

    def test_samples_of_unequal_length(self):
        got = flat(self.loader("ragged", sampler=Backwards(N), num_workers=2))
        self.assertEqual(got, flat(self.loader("ragged"))[::-1])

    def test_transforms_apply_to_them_too(self):
        loader = self.loader(sampler=Backwards(N), num_workers=0, transform=same, target_transform=negated)
        self.assertEqual({int(label) for _, labels in loader for label in labels}, {-c for c in range(N_CLASSES)})

    def test_pytorchs_own_are_served_by_the_daemon(self):
        dataset = diesel.Dataset(self.sets["equal"])
        samplers = torch.utils.data
        for sampler in (samplers.SequentialSampler(dataset), samplers.RandomSampler(dataset)):
            loader = self.loader(sampler=sampler)
            self.assertTrue(loader._served)
            self.assert_all(loader)
        for sampler in (samplers.RandomSampler(dataset, replacement=True), samplers.RandomSampler(dataset, num_samples=5),
                        samplers.SequentialSampler(range(5)), samplers.SubsetRandomSampler(range(N))):
            loader = self.loader(sampler=sampler, num_workers=0)
            self.assertFalse(loader._served)
            self.assertEqual(len(flat(loader)), len(sampler))

    def test_distributed_samplers_share_without_a_sample_twice(self):
        dataset = diesel.Dataset(self.sets["equal"])
        samplers = [DistributedSampler(dataset, 3, rank, seed=4) for rank in range(3)]
        loaders = [self.loader(sampler=sampler) for sampler in samplers]
        first = [flat(loader) for loader in loaders]
        self.assert_all([[[torch.tensor(list(data), dtype=torch.uint8)], [label]] for share in first
                         for data, label in share])
        self.assertEqual(flat(loaders[0]), first[0])  # PyTorch's loader also repeats the epoch, until set_epoch()
        samplers[0].set_epoch(1)
        second = flat(loaders[0])
        self.assertNotEqual(second, first[0])
        loaders[0].set_epoch(0)
        self.assertEqual((flat(loaders[0]), samplers[0].epoch), (first[0], 0))
        loaders[0].set_epoch(1)
        self.assertEqual(flat(loaders[0]), second)

    def test_distributed_samplers_whose_order_is_a_promise_keep_it(self):
        """A program that gathers the ranks' results orders them by the sampler's rule; if it drops the rest, it has that many batches."""
        dataset = diesel.Dataset(self.sets["equal"])
        for world, options in ((2, {"shuffle": False}), (3, {"shuffle": False, "drop_last": True}), (3, {"drop_last": True}), (1, {"shuffle": False})):
            sampler = DistributedSampler(dataset, world, 0, **options)
            loader, want = self.loader(sampler=sampler, num_workers=0), list(sampler)
            self.assertEqual(len(loader), -(-len(want) // 16))
            self.assertEqual(flat(loader), [(dataset.read(i), dataset.label(i)) for i in want])

    def test_whoever_has_the_sampler_may_tell_it_the_epoch(self):
        dataset = diesel.Dataset(self.sets["equal"])
        for tell in (lambda loader: loader, lambda loader: loader.sampler, lambda loader: loader.batch_sampler,
                     lambda loader: loader.batch_sampler.sampler):
            for options in ({"sampler": DistributedSampler(dataset, 2, 0)}, {"shuffle": True, "seed": 3}):
                loader = self.loader(**options)
                loader.set_epoch(0)
                first = flat(loader)
                tell(loader).set_epoch(1)
                second = flat(loader)
                self.assertNotEqual(second, first)
                tell(loader).set_epoch(0)
                self.assertEqual(flat(loader), first)

    def test_samplers_have_what_the_last_batch_goes_without(self):
        class Own(diesel.Dataset):
            def __getitem__(self, i):
                return super().__getitem__(i)

        for dataset in (diesel.Dataset(self.sets["equal"]), Own(self.sets["equal"])):
            loader = diesel.DataLoader(dataset, 100, drop_last=True, num_workers=0)
            self.assertEqual((len(loader.sampler), len(list(loader.sampler)), len(loader)), (N, N, 2))
            self.assertEqual([len(labels) for _, labels in loader], [100, 100])

    def test_they_tell_the_order_that_is_served(self):
        for options in ({}, {"world_size": 3, "rank": 1}, {"drop_last": True}):
            loader = self.loader(shuffle=True, seed=9, **options)
            dataset = diesel.Dataset(self.sets["equal"])
            for _ in range(2):
                numbers = list(loader.batch_sampler)
                self.assertEqual(list(loader.sampler), [i for batch in numbers for i in batch])
                self.assertEqual(len(loader.sampler), sum(map(len, numbers)))
                want = [(dataset.read(i), dataset.label(i)) for batch in numbers for i in batch]
                self.assertEqual(flat(loader), want)

    def test_methods_of_ones_own_give_the_samples(self):
        """The user's own methods give the samples as in PyTorch's loader, in a subclass of Dataset or of torch's Subset, and where a Subset
        is of one."""
        class Own(diesel.Dataset):
            def __getitem__(self, i):
                data, label = super().__getitem__(i)
                return data.float() + i, label

        class Part(torch.utils.data.Subset):
            def __getitem__(self, i):
                data, label = self.dataset[self.indices[i]]
                return data.float() + 1000, label

            def __getitems__(self, indices):
                return [self[i] for i in indices]

        own, part = Own(self.sets["equal"]), Part(diesel.Dataset(self.sets["equal"]), list(range(40, 10, -1)))
        for dataset in (own, part, torch.utils.data.Subset(part, [3, 1]), torch.utils.data.Subset(own, range(7, 20))):
            want = list(torch.utils.data.DataLoader(dataset, 4))
            for workers in (0, 1):
                for (data, labels), (got, marks) in zip(want, diesel.DataLoader(dataset, 4, num_workers=workers), strict=True):
                    self.assertTrue(torch.equal(data, got) and torch.equal(labels, marks))
            samples = [tuple(row.tolist()) for data, _ in want for row in data]
            mixed = [tuple(row.tolist()) for data, _ in diesel.DataLoader(dataset, 4, shuffle=True, num_workers=0) for row in data]
            self.assertEqual(sorted(mixed), sorted(samples))
            loader, mixed = diesel.DataLoader(dataset, 4, shuffle=True, num_workers=0), []
            for seed in (5, 6, 5):
                torch.manual_seed(seed)
                mixed.append([tuple(row.tolist()) for data, _ in loader for row in data])
            self.assertEqual(mixed[0], mixed[2])
            self.assertTrue(len(dataset) < 3 or mixed[0] != mixed[1])
        for options in ({"transform": torch.clone}, {"return_ids": True}):
            with self.assertRaisesRegex(ValueError, "by its own methods"):
                diesel.DataLoader(part, 4, **grouped(options))

        class Longer(diesel.Dataset):
            def __len__(self):
                return 1000

        class Bytes(diesel_loader.Dataset):
            def __getitem__(self, i):
                return b"", 0

        for dataset in (Longer(self.sets["equal"]), Bytes(self.sets["equal"])):
            with self.assertRaisesRegex(TypeError, "has its own|overrides"):
                diesel.DataLoader(dataset, 4)

    def test_the_order_follows_torchs_generator(self):
        """The order follows it without a given seed, as in PyTorch, also if the generator's seed is set between epochs."""
        def epochs(loader, n=2):
            return [[ids.tolist() for *_, ids in loader] for _ in range(n)]

        def seeded(number, **options):
            torch.manual_seed(number)
            return epochs(self.loader(shuffle=True, return_ids=True, **options))

        self.assertEqual(seeded(1), seeded(1))
        self.assertNotEqual(seeded(1), seeded(2))
        self.assertEqual(seeded(1, seed=5), seeded(2, seed=5))
        given = torch.Generator()
        for generator, options in ((torch.default_generator, {}), (given, {"generator": given})):
            generator.manual_seed(1)
            loader = self.loader(shuffle=True, return_ids=True, **options)
            whole = epochs(loader, 3)
            generator.manual_seed(1)
            self.assertEqual(epochs(loader, 2), whole[:2])
            again = self.loader(shuffle=True, return_ids=True)
            epochs(again, 1)
            again.load_state_dict(loader.state_dict())
            self.assertEqual(epochs(again, 1), whole[2:])
            generator.manual_seed(2)
            self.assertNotEqual(epochs(loader, 1), whole[:1])

    def test_lengths_draw_nothing(self):
        first = []
        for look in (len, lambda loader: len(loader.sampler), lambda loader: len(loader.batch_sampler)):
            loader = self.loader(shuffle=True, generator=torch.Generator().manual_seed(4))
            look(loader)
            first.append(flat(loader))
        self.assertTrue(first[0] == first[1] == first[2])

    def test_a_state_of_the_generator_that_is_put_back_has_its_epoch_again(self):
        loader = self.loader(shuffle=True, return_ids=True)
        epochs, states = [], []
        for _ in range(3):
            states.append(torch.get_rng_state())
            epochs.append([ids.tolist() for *_, ids in loader])
        for k in (1, 0, 2):
            torch.set_rng_state(states[k])
            self.assertEqual([ids.tolist() for *_, ids in loader], epochs[k])
        torch.set_rng_state(states[0])
        pairs = [(a.tolist(), b.tolist()) for (*_, a), (*_, b) in zip(loader, loader)]
        self.assertEqual([[a for a, _ in pairs], [b for _, b in pairs]], epochs[:2])
        torch.set_rng_state(states[0])
        loader.set_epoch(2)  # set_epoch() takes precedence
        self.assertEqual([ids.tolist() for *_, ids in loader], epochs[2])

    def test_what_is_set_on_a_dataset_counts_for_all_who_have_it(self):
        whole = diesel.Dataset(self.sets["equal"])
        part = torch.utils.data.Subset(whole, range(9, 50))
        loaders = [diesel.DataLoader(data, 4, num_workers=0) for data in (whole, part, torch.utils.data.Subset(part, range(20)))]
        self.assertIs(loaders[0].dataset, whole)
        loaders[0].dataset.target_transform = negated
        for loader in (*loaders, diesel.DataLoader(whole, 4, num_workers=0)):
            self.assertLessEqual({int(label) for _, labels in loader for label in labels}, {0, -1, -2, -3})
        part.indices = list(part.indices)[::-1]
        for loader in loaders[1:]:
            with self.assertRaisesRegex(RuntimeError, "indices of the Subset have changed"):
                iter(loader)
        part.indices = torch.arange(9, 50)  # its items are views, which change with it
        loader = diesel.DataLoader(part, 4, num_workers=0)
        self.assertEqual({type(i) for i in loader._parts[0]}, {int})
        part.indices[0] = 8
        with self.assertRaisesRegex(RuntimeError, "indices of the Subset have changed"):
            iter(loader)

    def test_an_error_names_the_sample(self):
        class Odd(Exception):
            def __str__(self):
                return "odd"

        dataset, text = diesel.Dataset(self.sets["equal"]), "of its own"
        bad = dataset.number(21)
        path = dataset.sample_path(bad)
        for error in (ValueError(text), KeyError(text), OSError(5, text), OSError(text), RuntimeError(), UnicodeDecodeError("ascii", b"x", 0, 1, text), Odd()):
            def fail(data, error=error, bytes_of=dataset.read(bad)):
                if bytes(data.numpy()) == bytes(bytes_of):
                    raise copy.copy(error)
                return data

            for options in ({"transform": fail, "num_workers": 0}, {"loader": fail, "num_workers": 0}, {"transform": fail, "num_workers": 1},
                            {"transform": fail, "num_workers": 0, "batch_size": 4, "sampler": list(range(30))}):
                with self.assertRaises((type(error), RuntimeError)) as caught:  # from a worker, what one text does not make
                    list(self.loader(**options))
                self.assertIn(path, str(caught.exception) + "".join(getattr(caught.exception, "__notes__", ())), (error, options))

        def collate(samples):
            raise ValueError(text)

        with self.assertRaisesRegex(ValueError, f"{text} .batch 0 of epoch 0, which begins with sample 0, "):
            next(iter(self.loader(collate_fn=collate, num_workers=0)))

    def test_what_is_set_between_epochs_counts(self):
        class Add:
            n = 1

            def __call__(self, data):
                return data.float() + self.n

        n = {"value": 1}

        def add(data):
            return data.float() + n["value"]

        def first(loader):
            return [data[0, 0].item() for data, _ in loader][0]

        def set_transform(dataset, loader):
            loader.dataset.transform = lambda data: data.float() + 2

        def set_given(dataset, loader):
            dataset.transform = lambda data: data.float() + 2

        def set_attribute(dataset, loader):
            dataset.transform.n = 2

        def set_in_closure(dataset, loader):
            n["value"] = 2

        def set_collate(dataset, loader):
            loader.collate_fn = lambda samples: torch.utils.data.default_collate([(data + 1, label) for data, label in samples])

        for workers in (0, 1):
            for change, transform in ((set_transform, Add()), (set_given, Add()), (set_attribute, Add()), (set_in_closure, add), (set_collate, add)):
                n["value"] = 1
                dataset = diesel.Dataset(self.sets["equal"], transform)
                loader = diesel.DataLoader(dataset, 4, num_workers=workers)
                before = [first(loader), first(loader)]
                change(dataset, loader)
                self.assertEqual(before + [first(loader)], [before[0]] * 2 + [before[0] + 1], (change, workers))
        loader = diesel.DataLoader(self.sets["equal"], 4, transform=torch.clone, num_workers=1)
        list(loader)
        loader.num_workers = 2
        batches = iter(loader)
        next(batches)
        self.assertEqual(loader._stream._n_workers, 2)

    def test_a_batch_sampler_is_made_again_by_its_class(self):
        """Frameworks make it again so, with their sampler or ours."""
        loader = self.loader(batch_size=7, drop_last=True, shuffle=True, seed=2)
        kind, numbers = type(loader.batch_sampler), list(loader.batch_sampler)
        again = kind(loader.sampler, batch_size=7, drop_last=False)
        self.assertEqual((list(again)[:len(numbers)], len(again)), (numbers, -(-N // 7)))
        theirs = kind(torch.utils.data.SequentialSampler(range(10)), batch_size=4, drop_last=False)
        self.assertEqual(list(theirs), [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]])
        batches = iter(again)
        again.set_epoch(3)
        loader.set_epoch(3)
        self.assertEqual(list(batches), list(kind(loader.sampler, 7, False)))
        self.assertNotEqual(list(again)[:len(numbers)], numbers)

    def test_they_tell_the_order_of_buckets(self):
        loader = self.loader("ragged", shuffle=True, seed=9, bucket_by_length=3, return_ids=True, lanes=3)
        for _ in range(2):
            numbers = list(loader.batch_sampler)
            self.assertEqual(list(loader.sampler), [i for batch in numbers for i in batch])
            self.assertEqual([ids.tolist() for *_, ids in loader], numbers)
        padded = self.loader("ragged", bucket_by_length=True, collate_fn=diesel.pad_collate, num_workers=1)
        for data, labels, lengths in padded:
            self.assertEqual((data.shape, lengths.dtype), ((len(labels), int(lengths.max())), torch.int64))
            self.assertEqual([int(row[n:].sum()) for row, n in zip(data, lengths)], [0] * len(labels))
        with self.assertRaisesRegex(ValueError, "bucket_by_length"):
            self.loader("ragged", bucket_by_length=True, sampler=Backwards(N))

    def test_chunk_shuffle_for_a_loader_of_pytorch(self):
        dataset = diesel.Dataset(self.sets["equal"])
        shares = []
        for rank in range(2):
            sampler = diesel.ChunkShuffleSampler(dataset, seed=3, rank=rank, world_size=2, batch_size=16)
            sampler.set_epoch(1)
            shares += torch.utils.data.DataLoader(dataset, 16, sampler=sampler, num_workers=2)
        self.assert_all(shares)


class SamplerState(DropInTest):
    def setUp(self):
        self.dataset = diesel.Dataset(self.sets["equal"])

    def sampler(self, rank=0, world_size=1, batch_size=1, **options):
        return diesel.ChunkShuffleSampler(self.dataset, rank=rank, world_size=world_size, batch_size=batch_size,
                                          **{"seed": 3, **options})

    def after(self, n, *ranks, **options):
        """Returns (the remaining numbers of the epoch after n of them, the state there)."""
        sampler = self.sampler(*ranks, **options)
        sampler.set_epoch(2)
        numbers = iter(sampler)
        for _ in range(n):
            next(numbers)
        state = json.loads(json.dumps(sampler.state_dict()))
        return list(numbers), state

    def test_it_goes_on_at_any_sample(self):
        for ranks in ((0, 1, 1), (0, 1, 16), (1, 2, 16), (2, 3, 1), (0, 3, 5), (4, 5, 40)):
            for n in range(0, len(self.sampler(*ranks)) + 1, 3):
                left, state = self.after(n, *ranks)
                sampler = self.sampler(*ranks)
                sampler.load_state_dict(state)
                self.assertEqual(sampler.state_dict(), state)
                sampler.set_epoch(2)  # like loops that resume
                self.assertEqual(list(sampler), left)
                self.assertEqual(len(list(sampler)), len(sampler))  # and then complete again

    def test_other_ranks_go_on_together(self):
        for was, n in (((0, 1, 1), 96), ((0, 1, 40), 96), ((1, 2, 16), 48), ((0, 3, 8), 32)):
            want, _ = self.after(96, 0, 1, 96, lanes=was[1], window_chunks=8 if was[1] == 1 else 2)
            _, state = self.after(n, *was)
            for world_size, batch_size in ((1, 1), (1, 7), (2, 16), (4, 8), (3, 4), (2, 1), (5, 11), (4, 9)):
                got = []
                for rank in range(world_size):
                    sampler = self.sampler(rank, world_size, batch_size)
                    sampler.load_state_dict(state)
                    got += list(sampler)
                self.assertEqual(sorted(got), sorted(want))

    def test_what_other_ranks_cannot_do_is_refused(self):
        for was, n, now, says in (((0, 2, 16), 5, (0, 1, 1), "2 ranks with batches of 16 stopped 5 samples into a batch"),
                                  ((0, 1, 1), N - 2, (0, 3, 5), "2 samples are left in epoch 2, too few for 3 ranks")):
            _, state = self.after(n, *was)
            with self.assertRaisesRegex(ValueError, says):
                self.sampler(*now).load_state_dict(state)
        _, state = self.after(N, 0, 1, 1)
        sampler = self.sampler(0, 5, 10)
        sampler.load_state_dict(state)
        self.assertEqual(list(sampler), [])

    def test_another_order_is_refused(self):
        _, state = self.after(10, 0, 1, 1)
        for options, says in (({"seed": 4}, "seed was 3, now it is 4"), ({"window_chunks": 2}, "window_chunks"),
                              ({"shuffle": False}, "shuffle"), ({"drop_last": True}, "drop_last")):
            with self.assertRaisesRegex(ValueError, says):
                self.sampler(**options).load_state_dict(state)
        with self.assertRaisesRegex(ValueError, "state of version 9"):
            self.sampler().load_state_dict({**state, "version": 9})

    def test_another_epoch_begins_at_its_begin(self):
        _, state = self.after(10, 0, 1, 1)
        sampler = self.sampler()
        sampler.load_state_dict(state)
        sampler.set_epoch(3)
        self.assertEqual(sampler.state_dict()["samples"], 0)
        self.assertEqual(len(list(sampler)), N)

    def test_the_newest_iteration_is_what_counts(self):
        sampler = self.sampler()
        older = iter(sampler)
        next(older)
        newer = iter(sampler)
        self.assertEqual([next(newer), next(newer)], [next(iter(self.sampler())), next(older)])
        next(older)
        self.assertEqual(sampler.state_dict()["samples"], 2)

    def test_that_of_a_served_loader_is_the_loaders(self):
        loader = self.loader(shuffle=True)
        next(iter(loader))
        self.assertEqual(loader.sampler.state_dict(), loader.state_dict())


class MapStyle(DropInTest):
    def test_samples_by_number(self):
        for name in ("equal", "ragged"):
            dataset, everything = diesel.Dataset(self.sets[name]), flat(self.loader(name))
            self.assertEqual([(data.numpy().tobytes(), label) for data, label in dataset], everything)
            self.assertEqual(dataset[-1][0].numpy().tobytes(), everything[-1][0])
            self.assertEqual(dataset[numpy.int64(3)][0].numpy().tobytes(), everything[3][0])
            self.assertEqual(dataset.targets, [label for _, label in everything])
            for i in (N, -N - 1):
                with self.assertRaisesRegex(IndexError, f"{N} samples"):
                    dataset[i]
            with self.assertRaises(TypeError):
                dataset[1.5]
            with self.assertRaises(KeyError):
                dataset["a"]

    def test_paths_and_classes(self):
        dataset = diesel.Dataset(self.sets["ragged"])
        self.assertEqual(len(dataset.samples), N)
        for i, (path, label) in enumerate(dataset.samples):
            self.assertEqual((self.folder / "ragged" / path).read_bytes(), dataset.read(i))
            self.assertEqual(label, dataset.class_to_idx[path.split("/")[0]])
        self.assertEqual(dataset.samples[2:4], [dataset.samples[2], dataset.samples[3]])
        self.assertEqual(dataset.imgs[3], dataset.samples[3])
        for name in ("samples", "imgs", "targets", "classes", "class_to_idx"):
            with self.assertRaisesRegex(AttributeError, rf"{name} of .*ragged.*select\(\)"):
                setattr(dataset, name, [])

    def test_functions_of_a_dataset_are_the_loaders(self):
        dataset = diesel.Dataset(self.sets["equal"], transform=same, target_transform=negated)
        self.assertLessEqual(dataset[N - 1][1], 0)
        loader = diesel.DataLoader(dataset, 16, num_workers=0)
        self.assertEqual({int(label) for _, labels in loader for label in labels}, {-c for c in range(N_CLASSES)})

    def test_a_loader_of_pytorch_and_what_it_offers(self):
        dataset = diesel.Dataset(self.sets["equal"])
        for context in ("fork", "spawn"):
            loader = torch.utils.data.DataLoader(dataset, 16, shuffle=True, num_workers=2, multiprocessing_context=context)
            self.assert_all(loader)
        halves = torch.utils.data.random_split(dataset, [N // 2, N - N // 2])
        self.assertEqual(sorted(flat(torch.utils.data.DataLoader(halves[0], 16)) + flat(torch.utils.data.DataLoader(
            halves[1], 16))), sorted(flat(self.loader())))

    def test_copies_share_the_connection(self):
        dataset = diesel_loader.Dataset(self.sets["equal"])
        copied = copy.copy(dataset)
        self.assertEqual(copied.handle.value, dataset.handle.value)
        del dataset
        self.assertEqual(len(copied.read(0)), EQUAL)

    def test_without_torch_they_are_bytes(self):
        dataset = diesel_loader.Dataset(self.sets["ragged"])
        self.assertEqual({bytes(data): label for data, label in dataset}, contents(self.folder / "ragged"))

    def test_damage_is_named(self):
        path = pack(self.folder / "ragged", self.folder / "damaged.diesel")
        chunk = next((path / "chunks").iterdir())
        data = bytearray(chunk.read_bytes())
        data[len(data) // 2] ^= 1
        chunk.chmod(0o600)
        chunk.write_bytes(data)
        dataset = diesel.Dataset(path)
        with self.assertRaisesRegex(diesel_loader.DamagedData, chunk.stem):
            list(dataset)


if __name__ == "__main__":
    unittest.main()
