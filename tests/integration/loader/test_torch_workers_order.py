# SPDX-License-Identifier: Apache-2.0
"""Tests worker processes of diesel_loader on a real dieseld: their number changes, and the delivered samples do not."""
import pickle
import random
import unittest

# Imported first: adds the path of the other modules, and skips where modules are missing.
from workers_support import WorkersCase, cycling, first_bytes, flat, noisy, same
import numpy
import torch


class OrderTest(WorkersCase):
    def test_a_changing_number_changes_neither_order_nor_content(self):
        for name, transform in (("equal", same), ("ragged", first_bytes)):
            for options in ({}, {"shuffle": False, "drop_last": True}, {"rank": 1, "world_size": 3}):
                with self.subTest(name=name, **options):
                    want = self.loader(name, transform=transform, num_workers=0, **options)
                    changing = self.loader(name, transform=transform, **options)
                    with cycling():
                        for _ in range(4):
                            self.assertEqual(flat(changing), flat(want))

    def test_random_augmentation_is_the_same_whoever_does_it(self):
        for mode in ("batch", "sample"):
            none = self.loader(transform=noisy, num_workers=0, random_state=mode)
            want = [[data for data, _ in none] for _ in range(2)]
            self.assertNotEqual(want[0][0].tolist(), want[1][0].tolist())
            for options in ({"num_workers": 1}, {"num_workers": 3}, {}):
                loader = self.loader(transform=noisy, random_state=mode, **options)
                with cycling(), self.subTest(mode=mode, **options):
                    for epoch in want:
                        got = [data for data, _ in loader]
                        self.assertTrue(all(map(torch.equal, got, epoch)))
                        self.assertEqual(len(got), len(epoch))

    def test_by_sample_batch_size_and_ranks_do_not_matter_either(self):
        def of(**options):
            return sorted(row for data, _ in self.loader(transform=noisy, random_state="sample", shuffle=False,
                                                         **options) for row in data.tolist())
        want = of(num_workers=0)
        self.assertEqual(of(num_workers=0, batch_size=7), want)
        self.assertEqual(sorted(of(num_workers=2, rank=0, world_size=2) + of(num_workers=0, rank=1, world_size=2)),
                         want)

    def test_the_trainers_own_generators_are_left_alone(self):
        def draw():
            return random.random(), numpy.random.rand(), torch.rand(()).item()
        for workers in (0, 2):
            random.seed(1), numpy.random.seed(1), torch.manual_seed(1)
            want = [draw(), draw()]
            random.seed(1), numpy.random.seed(1), torch.manual_seed(1)
            got = [draw()]
            list(self.loader(transform=noisy, num_workers=workers))
            self.assertEqual(got + [draw()], want)

    def test_resume_in_mid_epoch_while_the_number_changes(self):
        want = flat(self.loader(transform=same, num_workers=0))
        got, state = [], None
        with cycling(2):
            for stop in (4, 3, 5, 100):
                loader = self.loader(transform=same)
                if state:
                    loader.load_state_dict(pickle.loads(pickle.dumps(state)))
                for k, batch in enumerate(loader):
                    got.append(batch)
                    if k + 1 == stop:
                        break
                state = loader.state_dict()
        self.assertEqual(flat(got), want)

    def test_early_break_jump_and_next_epoch(self):
        want = self.loader(transform=same, num_workers=0)
        epochs = [flat(want) for _ in range(6)]
        loader = self.loader(transform=same)
        with cycling(1):
            next(iter(loader))
            self.assertEqual(flat(loader), epochs[1])
            loader.set_epoch(5)
            self.assertEqual(flat(loader), epochs[5])
            loader.set_epoch(3)
            batches = iter(loader)
            head = [next(batches), next(batches)]
            self.assertEqual(flat(head), epochs[3][:32])
            self.assertEqual(flat(loader), epochs[4])

    def test_batches_that_are_kept_stay_right(self):
        for name, transform in (("equal", same), ("ragged", first_bytes)):
            want = flat(self.loader(name, transform=transform, num_workers=0))
            kept = list(self.loader(name, transform=transform, num_workers=2))
            self.assertEqual(flat(kept), want)

    def test_writing_to_a_batch_changes_nobody_elses(self):
        want = flat(self.loader(transform=same, num_workers=0))
        loader = self.loader(transform=same, num_workers=2)
        for data, _ in loader:
            data.fill_(1)
        loader.set_epoch(0)
        self.assertEqual(flat(loader), want)

    def test_a_transform_may_keep_and_write_what_it_is_given(self):
        want = [data for data, _ in self.loader(transform=same, num_workers=0)]
        loader = self.loader(transform=Keeping(), num_workers=2)
        for _ in range(2):
            loader.set_epoch(0)
            got = [data for data, _ in loader]
            self.assertTrue(all(map(torch.equal, got, want)))


class Keeping:
    """Keeps its last 60 samples, and reveals them only when they have left."""

    def __init__(self):
        self.kept = []

    def __call__(self, data):
        self.kept.append((data, data.clone()))
        for view, copy in self.kept:
            if not torch.equal(view, copy):
                raise AssertionError("a sample that was kept has changed")
        del self.kept[:-60]
        out = data.clone()
        if len(self.kept) % 2:
            self.kept.pop()
            data.fill_(7)  # its own memory
        return out


if __name__ == "__main__":
    unittest.main()
