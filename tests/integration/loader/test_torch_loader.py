# SPDX-License-Identifier: Apache-2.0
"""Tests diesel_loader.torch.DataLoader on a real dieseld, against PyTorch and torchvision on the raw files."""
import contextlib
import gc
import itertools
import json
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import tempfile
import time
import unittest

# Imported first: skips where modules are missing.
from torch_support import Daemon, grouped, pack
import numpy
import torch
from PIL import Image

import diesel_loader.numpy
import diesel_loader.torch as diesel
from diesel_loader import DamagedData, status

try:
    from torchvision import datasets, transforms
except ImportError:
    datasets = None
needs_torchvision = unittest.skipUnless(datasets, "needs torchvision")

N_CLASSES, PER_CLASS, EQUAL = 5, 61, 4096


def make_tree(folder, equal):
    rng = numpy.random.default_rng(7)
    for c in range(N_CLASSES):
        group = folder / f"class-{chr(ord('e') - c)}"
        group.mkdir(parents=True)
        for i in range(PER_CLASS):
            size = EQUAL if equal else int(rng.integers(0, 9000))
            (group / f"{i:03d}.bin").write_bytes(rng.bytes(size))


def make_chunks(folder):
    """Makes enough samples for several chunks of 4 MiB."""
    (folder / "class").mkdir(parents=True)
    for i in range(60):
        (folder / "class" / f"{i:02d}.bin").write_bytes(os.urandom(250_000))


def make_images(folder):
    rng = numpy.random.default_rng(8)
    for c in range(3):
        group = folder / f"kind{c}"
        group.mkdir(parents=True)
        for i in range(10):
            Image.fromarray(rng.integers(0, 255, (20, 30, 3), dtype=numpy.uint8)).save(group / f"{i}.png")


def contents(folder):
    """Returns {bytes of a file: index of its class folder}."""
    names = sorted(path.name for path in folder.iterdir())
    return {path.read_bytes(): names.index(path.parent.name) for path in folder.rglob("*.*")}


def flat(batches):
    """Returns [(bytes, label)] of all samples, in order."""
    return [(item.numpy().tobytes(), label) for data, labels in batches for item, label in zip(data, labels.tolist())]


class LoaderTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        make_tree(cls.folder / "equal", True)
        make_tree(cls.folder / "ragged", False)
        make_images(cls.folder / "images")
        make_chunks(cls.folder / "chunks")
        cls.sets = {name: pack(cls.folder / name, cls.folder / f"{name}.diesel", "--chunk-size", "4M")
                    for name in ("equal", "ragged", "images", "chunks")}
        cls.daemon = cls.enterClassContext(Daemon(cls.folder))

    def loader(self, name="equal", **options):
        return diesel.DataLoader(self.sets[name], **grouped({"batch_size": 32, "shuffle": True, "seed": 3, **options}))

    def numbers_at(self, socket, **options):
        dataset = diesel.Dataset(self.sets["chunks"], socket=str(socket))
        with contextlib.closing(diesel.DataLoader(dataset, 2, shuffle=True, seed=3, **grouped({"return_ids": True, **options}))) as loader:
            return [number for _, _, numbers in loader for number in numbers.tolist()]

    def test_equal_lengths_give_one_tensor_of_the_shapes_pytorch_gives(self):
        batches = list(self.loader())
        want = list(torch.utils.data.DataLoader(torch.zeros(N_CLASSES * PER_CLASS, EQUAL, dtype=torch.uint8), 32))
        self.assertEqual([data.shape for data, _ in batches], [data.shape for data in want])
        self.assertTrue(all(data.dtype == torch.uint8 and labels.dtype == torch.int64 for data, labels in batches))

    def test_every_sample_once_with_its_bytes_and_its_label(self):
        for name in ("equal", "ragged"):
            want = contents(self.folder / name)
            got = flat(self.loader(name))
            self.assertEqual(len(got), N_CLASSES * PER_CLASS)
            self.assertEqual(dict(got), want)

    def test_ragged_lengths_give_views(self):
        data, labels = next(iter(self.loader("ragged")))
        self.assertIsInstance(data, list)
        self.assertEqual(len(data), len(labels))
        self.assertTrue(all(view.dim() == 1 and view.dtype == torch.uint8 for view in data))

    def test_what_has_been_handed_out_may_be_written_to(self):
        """As in PyTorch, the trainer, functions and others may write to batches."""
        def add(data):
            data += 1
            return data

        def add_and_list(samples):
            return diesel.list_collate([(add(data), label) for data, label in samples])

        for name in ("equal", "ragged"):
            want = sorted((bytes((byte + 1) % 256 for byte in data), label) for data, label in contents(self.folder / name).items())
            for options in ({}, {"collate_fn": diesel.list_collate}, {"transform": add}, {"loader": add}, {"collate_fn": add_and_list},
                            {"bucket_by_length": 2}, {"bucket_by_length": 2, "transform": add}):
                for workers in (0, 1) if {"transform", "loader"} & set(options) else (0,):
                    if name == "ragged" and {"transform", "loader"} & set(options):
                        options = {**options, "collate_fn": diesel.list_collate}
                    loader, got = self.loader(name, num_workers=workers, **options), []
                    for _ in range(2):
                        for data, labels in loader:
                            for sample in data:
                                if "transform" not in options and "loader" not in options and options.get("collate_fn") is not add_and_list:
                                    add(sample)
                            got += flat([(data, labels)])
                    self.assertTrue(sorted(got) == sorted(want * 2), (name, options, workers))

    def test_lists_have_every_sample(self):
        want = contents(self.folder / "equal")
        loader = self.loader("equal", collate_fn=diesel.list_collate, return_ids=True)
        self.assertEqual(loader.num_workers, 0)
        seen = {}
        for data, labels, ids in loader:
            self.assertIsInstance(data, list)
            for view, label, number in zip(data, labels.tolist(), ids.tolist()):
                seen[view.numpy().tobytes()] = label
                self.assertTrue(torch.equal(loader.dataset[number][0], view))
        self.assertEqual(seen, want)

    def test_lists_of_what_functions_made(self):
        def doubled(data):
            return data.clone() * 2
        for options in ({}, {"transform": doubled}, {"loader": doubled}):
            with self.subTest(**options):
                plain = self.loader("equal", num_workers=1, **options)
                lists = self.loader("equal", num_workers=1, collate_fn=diesel.list_collate, **options)
                for (want, labels), (data, same) in zip(plain, lists, strict=True):
                    self.assertTrue(torch.equal(torch.stack(data), want))
                    self.assertTrue(torch.equal(labels, same))

    @needs_torchvision
    def test_classes_are_image_folders(self):
        want = datasets.ImageFolder(self.folder / "images")
        got = diesel.Dataset(self.sets["images"])
        self.assertEqual(got.classes, want.classes)
        self.assertEqual(got.class_to_idx, want.class_to_idx)

    @needs_torchvision
    def test_transform_gives_what_image_folder_gives(self):
        want = {image.numpy().tobytes(): label
                for image, label in datasets.ImageFolder(self.folder / "images", transforms.ToTensor())}
        for workers in (0, 2):
            batches = list(self.loader("images", transform=transforms.ToTensor(), num_workers=workers, batch_size=8))
            self.assertEqual([tuple(data.shape) for data, _ in batches], [(8, 3, 20, 30)] * 3 + [(6, 3, 20, 30)])
            self.assertEqual(dict(flat(batches)), want)

    def test_workers_keep_the_order_of_no_workers(self):
        for options in ({}, {"persistent_workers": True, "multiprocessing_context": "spawn"}):
            none = self.loader(transform=same)
            several = self.loader(transform=same, num_workers=3, **options)
            for _ in range(2):
                self.assertEqual(flat(none), flat(several))

    def test_epochs_differ_and_repeat(self):
        loader = self.loader()
        first, second = flat(loader), flat(loader)
        self.assertNotEqual(first, second)
        self.assertEqual(sorted(first), sorted(second))
        loader.set_epoch(0)
        self.assertEqual(flat(loader), first)
        self.assertEqual(flat(self.loader()), first)
        self.assertNotEqual(flat(self.loader(seed=4)), first)

    def test_without_shuffle_the_order_never_changes(self):
        loader = self.loader(shuffle=False)
        self.assertEqual(flat(loader), flat(loader))

    def test_resume_in_mid_epoch_twice(self):
        for workers in (0, 2):
            options = {"transform": same, "num_workers": workers}
            want = flat(self.loader(**options))
            got, state = [], None
            for stop in (3, 2, 100):
                loader = self.loader(**options)
                if state:
                    loader.load_state_dict(pickle.loads(pickle.dumps(state)))
                for k, batch in enumerate(loader):
                    got.append(batch)
                    if k + 1 == stop:
                        break
                state = loader.state_dict()
            self.assertEqual(flat(got), want)

    def test_resume_at_the_end_of_an_epoch(self):
        """A finished loop is followed by the next epoch; a loop that stopped at the last batch has no batches of its own left."""
        whole = self.loader()
        want = [flat(whole) for _ in range(3)]
        for options in ({}, {"transform": same, "num_workers": 1}):
            for ended in (True, False):
                first, second = self.loader(**options), self.loader(**options)
                batches = iter(first)
                for _ in range(len(first) + ended):
                    next(batches, None)
                second.load_state_dict(pickle.loads(pickle.dumps(first.state_dict())))
                self.assertTrue([flat(second) for _ in range(3 - ended)] == ([] if ended else [[]]) + want[1:])
                second.load_state_dict(first.state_dict())
                second.set_epoch(1)  # like loops that count epochs
                self.assertTrue(flat(second) == want[1])

    def take(self, state, world, batch, n=None, epochs=1, **options):
        """Returns (numbers that all ranks were given after this state, in their first n batches each, the state then)."""
        seen, states = [], []
        for rank in range(world):
            loader = self.loader(rank=rank, world_size=world, batch_size=batch, return_ids=True, **options)
            if state:
                loader.load_state_dict(json.loads(json.dumps(state)))
            for _ in range(epochs):
                for k, (*_, numbers) in enumerate(loader):
                    seen += numbers.tolist()
                    if k + 1 == n:
                        break
            states.append(loader.state_dict())
            loader.close()
        self.assertEqual([states[0]] * world, states)
        return seen, states[0]

    def test_other_ranks_go_on_with_the_samples_that_nobody_had(self):
        """The other ranks have the same batch per rank, the same batch of all ranks, or neither. They continue repeatedly in one epoch."""
        every = list(range(N_CLASSES * PER_CLASS))
        for jobs in (((4, 6), (3, 6)), ((4, 6), (3, 8)), ((8, 3), (12, 3)), ((8, 3), (12, 2)), ((3, 7), (2, 5), (5, 2), (1, 11))):
            for workers in (0, 1) if len(jobs) > 2 else (0,):
                with self.subTest(jobs=jobs, workers=workers):
                    options = {"transform": same, "num_workers": workers}
                    seen, state = [], None
                    for job in jobs[:-1]:
                        got, state = self.take(state, *job, 2, **options)
                        seen += got
                        self.assertEqual(state["samples"], len(seen))
                    rest, _ = self.take(state, *jobs[-1], **options)
                    self.assertEqual(sorted(seen + rest), every)
                    both, _ = self.take(state, *jobs[-1], epochs=2, **options)
                    self.assertEqual(sorted(seen + both), sorted(every + every))

    def test_an_epoch_that_was_gone_on_with_is_whole_when_it_is_asked_for(self):
        _, state = self.take(None, 2, 7, 2)
        want = [numbers.tolist() for *_, numbers in self.loader(batch_size=5, return_ids=True)]
        for way in ("before", "after", "at once"):
            loader = self.loader(batch_size=5, return_ids=True)
            loader.load_state_dict(state)
            if way == "at once":
                loader.set_epoch(1)
            elif way == "after":
                list(loader)
            else:
                next(iter(loader))
            loader.set_epoch(0)
            if way == "at once":
                self.assertEqual(loader.state_dict()["samples"], 0)
            self.assertEqual([numbers.tolist() for *_, numbers in loader], want)

    def test_a_daemon_that_is_lost_after_others_went_on(self):
        """Tests the continued epoch, and the next one, which is complete."""
        head, state = self.take(None, 2, 7, 2, lanes=4)
        want = sorted([*range(N_CLASSES * PER_CLASS)] * 2)
        for lost_after in (3, 60):
            folder = self.enterContext(tempfile.TemporaryDirectory())
            with Daemon(folder) as first:
                dataset = diesel.Dataset(self.sets["equal"], socket=str(first.socket))
                loader = diesel.DataLoader(dataset, 5, True, seed=3, batches=diesel.Batches(return_ids=True))
                loader.load_state_dict(state)
                batches = itertools.chain(loader, loader)
                got = [i for *_, numbers in itertools.islice(batches, lost_after) for i in numbers.tolist()]
                first.process.kill()
                first.process.wait()
                with self.assertLogs("diesel_loader", "WARNING"), Daemon(folder):
                    got += [i for *_, numbers in batches for i in numbers.tolist()]
                    loader.close()
            self.assertEqual(sorted(head + got), want)

    def test_too_few_samples_left_for_the_ranks_are_refused(self):
        _, state = self.take(None, 1, N_CLASSES * PER_CLASS - 2, 1)
        with self.assertRaisesRegex(ValueError, r"2 samples are left in epoch 0 of .* 3 ranks: .* set_epoch\(1\)"):
            self.loader(rank=0, world_size=3).load_state_dict(state)
        rest, _ = self.take(state, 2, 5)
        self.assertEqual(len(set(rest)), 2)
        for samples in (-1, N_CLASSES * PER_CLASS + 1):
            with self.assertRaisesRegex(ValueError, "cannot resume"):
                self.loader().load_state_dict({**state, "samples": samples})

    def test_full_batches_alone_after_others(self):
        n = N_CLASSES * PER_CLASS
        head, state = self.take(None, 2, 7, 2, drop_last=True)
        rest, end = self.take(state, 3, 4, drop_last=True)
        self.assertEqual(len(set(head + rest)), 28 + (n - 28) // 12 * 12)
        self.assertEqual(end["samples"], 0)

    # Lanes

    def sampled(self, state, world, batch, n=None, epoch=2, **options):
        """Like take() of "chunks", but only by the order. Returns (numbers that all ranks were given after this state, the state then)."""
        seen, states = [], []
        for rank in range(world):
            sampler = diesel.ChunkShuffleSampler(diesel.Dataset(self.sets["chunks"]), seed=3, rank=rank, world_size=world, batch_size=batch,
                                                 window_chunks=1, **options)
            if state:
                sampler.load_state_dict(json.loads(json.dumps(state)))
            sampler.set_epoch(epoch)
            seen += itertools.islice(sampler, n and n * batch)
            states.append(sampler.state_dict())
        self.assertEqual([states[0]] * world, states)
        return seen, states[0]

    def test_lanes_are_the_same_in_all_epochs_unless_they_drift(self):
        lanes = {drift: [[set(numbers[lane::4]) for lane in range(4)] for numbers, _ in
                         (self.sampled(None, 1, 1, epoch=epoch, lanes=4, drift=drift) for epoch in range(1, 9))] for drift in (0, 1)}
        self.assertEqual([lane for lane in lanes[0] if lane != lanes[0][0]], [])
        self.assertEqual([len(lane) for lane in lanes[0][0]], [15] * 4)
        self.assertTrue([lane for lane in lanes[1] if lane != lanes[1][0]])
        self.assertNotEqual(self.sampled(None, 1, 1, lanes=4)[0], self.sampled(None, 1, 1, lanes=3)[0])

    def test_other_ranks_go_on_in_the_lanes_of_the_epoch(self):
        """The other ranks have the same batch per rank, the same batch of all ranks, or neither, with and without `lanes` set again."""
        for lanes, drift in itertools.product((1, 3, 4), (0, 2)):
            given = {"lanes": lanes, "drift": drift}
            for jobs in (((4, 3), (3, 3)), ((4, 3), (3, 4)), ((8, 2), (12, 2)), ((8, 3), (12, 2)), ((3, 5), (2, 4), (4, 2), (1, 7))):
                for again in (given, {}):
                    with self.subTest(jobs=jobs, **given, again=again):
                        seen, state = self.sampled(None, *jobs[0], 2, **given)
                        for job in jobs[1:-1]:
                            got, state = self.sampled(state, *job, 2, **again)
                            seen += got
                        self.assertEqual((state["samples"], state["lanes"], state["drift"]), (len(seen), lanes, drift))
                        rest, end = self.sampled(state, *jobs[-1], **again)
                        self.assertEqual(sorted(seen + rest), list(range(60)))
                        self.assertEqual((end["lanes"], end["drift"]), (lanes, drift))
                        self.assertEqual(sorted(self.sampled(state, *jobs[-1], epoch=3, **again)[0]), list(range(60)))

    def test_the_daemon_serves_the_order_of_lanes(self):
        for lanes, drift, world, batch in ((1, 2, 2, 4), (3, 0, 1, 7), (3, 2, 2, 4), (4, 0, 3, 5), (4, 2, 4, 4), (60, 1, 2, 8)):
            for name, dataset in (("all", diesel.Dataset(self.sets["chunks"])), ("few", diesel.Dataset(self.sets["chunks"])[::1 if lanes == 60 else 3])):
                options = {"batch_size": batch, "seed": 3, "world_size": world, "window_chunks": 1, "lanes": lanes, "drift": drift}
                got = []
                for rank in range(world):
                    sampler = diesel.ChunkShuffleSampler(dataset, rank=rank, **options)
                    with contextlib.closing(diesel.DataLoader(dataset, shuffle=True, **grouped({"rank": rank, "return_ids": True, **options}))) as loader:
                        for epoch in range(3):
                            sampler.set_epoch(epoch)
                            want = list(sampler.batches())
                            got.append([numbers.tolist() for *_, numbers in loader])
                            self.assertEqual(got[-1], want, (name, rank, epoch, options))
                every = sorted(i for batches in got for numbers in batches for i in numbers)
                self.assertEqual(every, sorted([*range(len(dataset))] * 3))

    def test_the_daemon_goes_on_in_the_lanes_of_the_epoch(self):
        every = list(range(60))
        for jobs in (((4, 3), (3, 3)), ((4, 3), (3, 4)), ((8, 3), (12, 2)), ((3, 5), (2, 4), (4, 2), (1, 7))):
            options = {"name": "chunks", "window_chunks": 1}
            seen, state = self.take(None, *jobs[0], 2, lanes=4, drift=2, **options)
            for job in jobs[1:-1]:
                got, state = self.take(state, *job, 2, **options)
                seen += got
            want, _ = self.sampled({**state, "of_batch": 0, "world_size": 1, "batch_size": 1}, *jobs[-1], epoch=0)
            rest, _ = self.take(state, *jobs[-1], **options)
            self.assertEqual((rest, sorted(seen + rest)), (want, every))
            both, _ = self.take(state, *jobs[-1], epochs=2, **options)
            self.assertEqual(sorted(seen + both), sorted(every + every))

    def test_fewer_samples_may_be_left_than_lanes(self):
        seen, state = self.sampled(None, 2, 9, 3, lanes=50)
        rest, _ = self.sampled(state, 3, 4)
        self.assertEqual(sorted(seen + rest), list(range(60)))
        with self.assertRaisesRegex(ValueError, "6 samples are left in epoch 2, too few for 7 ranks"):
            self.sampled(state, 7, 1)

    def test_others_do_not_go_on_in_the_middle_of_a_batch_of_lanes(self):
        """Its samples are ordered by lane, so the delivered ones are not the first ones of the epoch."""
        first, same = (diesel.ChunkShuffleSampler(diesel.Dataset(self.sets["chunks"]), batch_size=8, seed=3, window_chunks=1, lanes=lanes)
                       for lanes in (4, None))
        numbers = iter(first)
        seen, state = [next(numbers) for _ in range(3)], first.state_dict()
        same.load_state_dict(state)
        rest = list(same)
        self.assertEqual(rest, list(numbers))
        self.assertEqual(sorted(seen + rest), list(range(60)))
        with self.assertRaisesRegex(ValueError, "1 rank with batches of 8 stopped 3 samples into a batch.*: take the state between batches"):
            self.sampled(state, 1, 7)

    def test_a_resumed_epoch_ends_with_its_lanes(self):
        first = self.loader(lanes=4, drift=2)
        next(iter(first))
        state = first.state_dict()
        self.assertEqual((state["lanes"], state["drift"]), (4, 2))
        for options, after in (({}, (1, 0)), ({"drift": 2}, (1, 2)), ({"lanes": 4}, (4, 0)), ({"lanes": 4, "drift": 2}, (4, 2))):
            loader = self.loader(**options)
            loader.load_state_dict(state)
            self.assertEqual(loader.state_dict(), state)
            loader.set_epoch(0)
            batches = iter(loader)
            for _ in range(2):
                next(batches)
                self.assertEqual([loader.state_dict()[name] for name in ("lanes", "drift")], [4, 2])
            self.assertEqual(loader._stream.dealt, (4, 2))
            list(batches)
            self.assertEqual([loader.state_dict()[name] for name in ("epoch", "lanes", "drift")], [1, *after])
            next(iter(loader))
            self.assertEqual((loader._stream.dealt, len(loader._streams)), (after, 1))
            loader.load_state_dict(state)
            loader.set_epoch(0)
            list(loader)
            loader.set_epoch(0)  # from its beginning
            self.assertEqual([loader.state_dict()[name] for name in ("samples", "lanes", "drift")], [0, *after])

    def test_an_iterator_has_the_lanes_of_what_is_told_before_its_first_batch(self):
        first = self.loader(lanes=4)
        next(iter(first))
        loader = self.loader()
        batches = iter(loader)
        loader.load_state_dict(first.state_dict())
        next(batches)
        self.assertEqual((loader._stream.dealt, loader.state_dict()["lanes"]), ((4, 0), 4))
        loader = self.loader()
        loader.load_state_dict(first.state_dict())
        batches = iter(loader)
        loader.set_epoch(1)
        next(batches)
        self.assertEqual((loader._stream.dealt, loader.state_dict()["lanes"]), ((1, 0), 1))

    def test_a_state_between_epochs_has_the_default_next(self):
        state = self.loader(lanes=4).state_dict()
        loader = self.loader()
        loader.load_state_dict(state)
        self.assertEqual((loader.state_dict()["lanes"], state["lanes"]), (1, 4))

    def test_a_state_without_lanes_is_of_one(self):
        loader = self.loader()
        next(iter(loader))
        state = {name: value for name, value in loader.state_dict().items() if name not in ("lanes", "drift")}
        resumed = self.loader()
        resumed.load_state_dict(state)
        self.assertEqual(resumed.state_dict(), loader.state_dict())

    def test_other_lanes_than_those_of_the_state_are_refused(self):
        state = self.loader(lanes=4, drift=2).state_dict()
        _, sampled = self.sampled(None, 1, 4, 2, lanes=4, drift=2)
        for options, says in (({"lanes": 2}, "lanes was 4, now it is 2: give lanes=4, or leave lanes= out"),
                              ({"drift": 3}, "drift was 2, now it is 3: give drift=2, or"), ({"lanes": 4, "drift": 0}, "drift was 2, now it is 0")):
            with self.assertRaisesRegex(ValueError, f"^cannot resume: {says}[^\n]*$"):
                self.loader(**options).load_state_dict(state)
            with self.assertRaisesRegex(ValueError, f"^cannot resume: {says}[^\n]*$"):
                self.sampled(sampled, 1, 4, **options)
        for wrong in (0, "4", None, 400):
            with self.assertRaisesRegex(ValueError, "lanes"):
                self.loader().load_state_dict({**state, "lanes": wrong})

    def test_lanes_that_there_cannot_be(self):
        dataset = diesel.Dataset(self.sets["chunks"])
        for options, says in (({"lanes": 0}, "lanes must be an integer of at least 1, not 0"), ({"lanes": 2.5}, "lanes must"), ({"lanes": True}, "lanes must"),
                              ({"lanes": 61}, "60 samples, too few for 61 lanes: give lanes=60 or fewer"), ({"lanes": 1 << 17}, "at most 65536"),
                              ({"drift": -1}, "drift must be an integer of at least 0, not -1"), ({"drift": 1 << 17}, "at most 65536")):
            for make in (diesel.DataLoader, diesel_loader.numpy.DataLoader, diesel.ChunkShuffleSampler):
                with self.assertRaisesRegex(ValueError, says) as caught:
                    make(dataset, **(options if make is diesel.ChunkShuffleSampler else grouped(options)))
                self.assertNotIn("\n", str(caught.exception))
        with self.assertRaisesRegex(ValueError, "9 samples, too few for 10 lanes"):
            diesel.DataLoader(dataset[:9], order=diesel.Order(lanes=10))
        loader = diesel.DataLoader(dataset)
        loader.lanes = 61
        with self.assertRaisesRegex(ValueError, "too few for 61 lanes"):
            iter(loader)

    def test_the_order_is_the_same_whatever_the_daemon_has(self):
        """Ranks of one job whose daemons have other caches and options have parts of one order."""
        with tempfile.TemporaryDirectory() as folder, Daemon(folder, "--cache", "24M", "--window", "2") as other:
            sockets = (self.daemon.socket, other.socket)
            for world in (1, 2):
                orders = [[self.numbers_at(socket, rank=rank, world_size=world) for rank in range(world)] for socket in sockets]
                self.assertEqual(*orders)
                self.assertEqual(sorted(sum(orders[0], [])), list(range(60)))

    def test_resume_of_another_window_keeps_the_order(self):
        for workers in (0, 2):
            options = {"transform": same, "num_workers": workers, "name": "chunks", "batch_size": 8}
            explicit = self.loader(window_chunks=1, **options)
            want = flat(explicit)
            state = explicit.state_dict()
            self.assertEqual(state["window_chunks"], 1)
            self.assertEqual(self.loader(**options).state_dict()["window_chunks"], 8)
            fresh = self.loader(**options)
            fresh.load_state_dict({**state, "epoch": 0, "samples": 0})
            self.assertEqual(flat(fresh), want)

    def test_resume_into_another_order_is_refused(self):
        state = self.loader().state_dict()
        with self.assertRaisesRegex(ValueError, "seed was 3, now it is 4"):
            self.loader(seed=4).load_state_dict(state)

    def test_ranks_share_an_epoch_and_have_equally_many_batches(self):
        for world, batch in ((2, 32), (3, 32), (7, 32), (7, 1), (11, 1)):
            options = {"world_size": world, "batch_size": batch}
            shares = [list(self.loader(rank=rank, **options)) for rank in range(world)]
            self.assertEqual({len(share) for share in shares}, {len(self.loader(rank=0, **options))})
            got = [sample for share in shares for sample in flat(share)]
            self.assertEqual(sorted(got), sorted(flat(self.loader())))

    def test_rank_and_world_size_come_from_the_environment(self):
        os.environ.update(RANK="1", WORLD_SIZE="2")
        try:
            got = flat(self.loader())
        finally:
            del os.environ["RANK"], os.environ["WORLD_SIZE"]
        self.assertEqual(got, flat(self.loader(rank=1, world_size=2)))

    def test_batches_that_are_kept_stay_right(self):
        for name in ("equal", "ragged"):
            want = [flat(loader) for loader in [self.loader(name)] for _ in range(3)]
            keeping = self.loader(name)
            kept = [list(keeping) for _ in range(3)]
            self.assertEqual([flat(batches) for batches in kept], want)

    def test_writing_to_a_batch_changes_nobody_elses(self):
        want = flat(self.loader())
        for data, _ in self.loader():
            data.fill_(1)
        self.assertEqual(flat(self.loader()), want)

    def test_early_break_then_next_epoch(self):
        loader = self.loader()
        next(iter(loader))
        loader.set_epoch(1)
        second = flat(loader)
        fresh = self.loader()
        fresh.set_epoch(1)
        self.assertEqual(second, flat(fresh))

    def test_missing_dataset(self):
        with self.assertRaisesRegex(FileNotFoundError, "nothing-here"):
            diesel.DataLoader(self.folder / "nothing-here")

    def test_no_daemon(self):
        with self.assertRaises(ConnectionError):
            diesel.Dataset(self.sets["equal"], socket=str(self.folder / "no.sock"))

    def test_bad_arguments(self):
        for options in ({"batch_size": 0}, {"num_workers": -1}, {"rank": 2, "world_size": 2}, {"rank": 0}):
            with self.assertRaises(ValueError):
                self.loader(**options)


class DaemonDeathTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        make_tree(self.folder / "raw", True)
        self.dataset = pack(self.folder / "raw", self.folder / "packed", "--chunk-size", "4M")

    def test_killed_in_mid_epoch_nothing_is_lost_or_doubled(self):
        with Daemon(self.folder) as first:
            loader = diesel.DataLoader(self.dataset, batch_size=8, shuffle=True, seed=5)
            want = flat(loader)
            loader.set_epoch(0)
            batches = iter(loader)
            got = [next(batches) for _ in range(5)]
            first.process.send_signal(signal.SIGKILL)
            first.process.wait()
            with self.assertLogs("diesel_loader", "WARNING"), Daemon(self.folder):
                got += list(batches)
            self.assertEqual(flat(got), want)

    def test_a_daemon_that_stays_away_is_a_timeout(self):
        with Daemon(self.folder) as daemon:
            loader = diesel.DataLoader(self.dataset, batch_size=8, timeout=0.5)
            batches = iter(loader)
            next(batches)
            daemon.process.send_signal(signal.SIGKILL)
            daemon.process.wait()
            with self.assertRaises(OSError):
                for _ in batches:
                    pass

    def test_a_killed_client_gives_everything_back(self):
        code = ("import sys, time, diesel_loader.torch as d; l = d.DataLoader(sys.argv[1], batch_size=4);"
                "held = [next(iter(l))]; print('holds', flush=True); time.sleep(60)")
        with Daemon(self.folder):
            client = subprocess.Popen([sys.executable, "-c", code, str(self.dataset)], stdout=subprocess.PIPE)
            client.stdout.readline()
            self.assertGreater(status()["sessions"][0]["held"], 0)
            client.kill()
            client.wait()
            client.stdout.close()
            end = time.monotonic() + 60
            while (now := status())["sessions"] and time.monotonic() < end:
                time.sleep(0.05)
            self.assertEqual(now["sessions"], [])
            self.assertEqual(now["cache"]["pinned_chunks"], 0)

    def damage(self, dataset):
        """Flips a bit of a chunk. Returns its path and what it was."""
        chunk = next((dataset / "chunks").iterdir())
        whole = chunk.read_bytes()
        data = bytearray(whole)
        data[len(data) // 2] ^= 0x10
        chunk.chmod(0o644)  # as the snapshot: nobody may read less
        chunk.write_bytes(data)
        return chunk, whole

    def test_after_damage_no_error_keeps_the_dataset_open(self):
        """The daemon reads a damaged chunk again once nobody has the dataset open. That must not wait for garbage collection."""
        gc.disable()
        self.addCleanup(gc.enable)
        make_tree(self.folder / "ragged", False)
        ragged = pack(self.folder / "ragged", self.folder / "ragged.diesel", "--chunk-size", "4M")
        for dataset, options in ((self.dataset, {}), (self.dataset, {"num_workers": 2, "transform": same}), (ragged, {"bucket_by_length": 5})):
            with self.subTest(**options), Daemon(self.folder):
                chunk, whole = self.damage(dataset)
                loader = diesel.DataLoader(dataset, **grouped({"batch_size": 8, **options}))
                self.assertTrue(meets_damage(loader))
                loader.close()
                del loader
                chunk.write_bytes(whole)
                again = diesel.DataLoader(dataset, **grouped({"batch_size": 8, **options}))
                self.assertEqual(sum(len(labels) for _, labels in again), N_CLASSES * PER_CLASS)
                again.close()

    def test_a_damaged_chunk_is_named_and_never_served(self):
        chunk, _ = self.damage(self.dataset)
        with Daemon(self.folder):
            loader = diesel.DataLoader(self.dataset, batch_size=8)
            with self.assertRaisesRegex(DamagedData, chunk.stem):
                for _ in loader:
                    pass


def meets_damage(loader):
    try:
        for _ in loader:
            pass
    except DamagedData:
        return True
    return False


def same(data):
    """A transform at module level, so that it can be pickled for spawned workers."""
    return data.clone()


if __name__ == "__main__":
    unittest.main()
