# SPDX-License-Identifier: Apache-2.0
"""Tests mixtures of loaders on a real dieseld."""
import collections
import itertools
import json
import unittest

# Imported first: adds the path of the other modules, and skips where modules are missing.
from loader_support import N, LoaderCase, diesel
from diesel_loader import mixture

BATCHES = {"equal": 19, "ragged": 13}  # batches of 16 and of 24 samples


def same(data):
    return data.copy()


class Pick(unittest.TestCase):
    """Tests only pick(), which is pure."""

    def test_shares_are_those_of_the_weights(self):
        seen = collections.Counter(mixture.pick(1, step, [7, 0, 3]) for step in range(10000))
        self.assertEqual(set(seen), {0, 2})
        self.assertAlmostEqual(seen[0] / 10000, 0.7, delta=0.03)

    def test_only_the_ratio_of_weights_matters(self):
        for step in range(100):
            self.assertEqual(mixture.pick(5, step, [0.5, 0.25, 0.25]), mixture.pick(5, step, [4, 2, 2]))


class MixtureTest(LoaderCase):
    def mixture(self, weights=(3, 1), make=diesel.Mixture, options=(), **more):
        loaders = [self.loader(name, batch_size=size, return_ids=True, **dict(options))
                   for name, size in (("equal", 16), ("ragged", 24))]
        return make(loaders, weights, **{"seed": 5, **more})

    def take(self, mixed, n=None):
        """Returns [(loader, sample numbers)] of the next n batches, or of an epoch."""
        return [(mixed.source, ids.tolist()) for *_, ids in itertools.islice(mixed, n)]

    def assert_epochs(self, mixed, taken):
        """Checks that each loader's batches are those of its own epochs, one after the other."""
        for i, loader in enumerate(mixed.loaders):
            got = [numbers for source, numbers in taken if source == i]
            want = itertools.chain.from_iterable(self.numbers(loader, epoch) for epoch in itertools.count())
            self.assertEqual(got, list(itertools.islice(want, len(got))))

    def test_draws_are_a_function_of_seed_and_step(self):
        mixed = self.mixture(stop="never")
        taken = self.take(mixed, 80)
        self.assertEqual([source for source, _ in taken], [mixture.pick(5, step, (3, 1)) for step in range(80)])
        self.assert_epochs(mixed, taken)
        with self.assertRaisesRegex(TypeError, "never"):
            len(mixed)

    def test_epochs_end_as_they_are_told_to(self):
        for stop in ("first", "once", "all"):
            mixed = self.mixture(stop=stop)
            everything = []
            for _ in range(4):
                length = len(mixed)
                taken = self.take(mixed)
                everything += taken
                count = collections.Counter(source for source, _ in taken)
                with self.subTest(stop=stop):
                    self.assertEqual(len(taken), length)
                    self.assert_epochs(mixed, everything)
                    if stop == "once":
                        self.assertEqual((count[0], count[1]), (BATCHES["equal"], BATCHES["ragged"]))
                        self.assertEqual(len({(source, n) for source, numbers in taken for n in numbers}), 2 * N)
            totals = collections.Counter(source for source, _ in everything)
            if stop == "all":
                self.assertGreaterEqual(totals[1], 4 * BATCHES["ragged"] - BATCHES["ragged"])
                self.assertGreater(totals[0], 4 * BATCHES["equal"])  # the first loader is drawn three times as often
            if stop == "first":
                self.assertTrue(any(totals[i] % n == 0 for i, n in enumerate(BATCHES.values())))

    def test_first_ends_with_the_last_batch_of_one(self):
        mixed = self.mixture([1, 0])
        self.assertEqual(len(self.take(mixed)), BATCHES["equal"])
        mixed = self.mixture([0, 1], stop="all")  # a loader with weight 0 need not end
        self.assertEqual((len(mixed), len(self.take(mixed))), (BATCHES["ragged"], BATCHES["ragged"]))

    def test_weights_change_with_the_next_batch(self):
        mixed = self.mixture(stop="never")
        batches = iter(mixed)
        taken = []
        for weights in ([1, 0], [0, 1], [2, 2]):
            mixed.set_weights(weights)
            for _ in range(10):
                next(batches)
                taken.append(mixed.source)
        self.assertEqual(taken[:20], [0] * 10 + [1] * 10)
        self.assertEqual(taken[20:], [mixture.pick(5, step, (2, 2)) for step in range(20, 30)])
        self.assertEqual(mixed.weights, [2, 2])

    def test_a_length_follows_the_weights(self):
        mixed = self.mixture()
        batches = iter(mixed)
        for _ in range(5):
            next(batches)
        before = len(mixed)
        mixed.set_weights([1, 9])
        after = len(mixed)
        self.assertNotEqual(before, after)
        self.assertEqual(5 + len(list(batches)), after)

    def test_resume_in_the_middle_gives_what_would_have_come(self):
        def run(mixed, n, changes):
            taken = []
            while len(taken) < n:
                for batch in mixed:
                    taken.append((mixed.source, batch[2].tolist()))
                    if len(taken) in changes:
                        mixed.set_weights(changes[len(taken)])
                    if len(taken) == n:
                        return taken
            return taken

        for stop, options in itertools.product(("first", "once", "all", "never"), ({}, {"transform": same, "num_workers": 1})):
            want = run(self.mixture(stop=stop, options=options), 70, {10: [1, 2], 40: [5, 1]})
            for at in (7, 19, 25, 33) if not options else (20,):
                with self.subTest(stop=stop, at=at):
                    first = self.mixture(stop=stop, options=options)
                    head = run(first, at, {10: [1, 2]})
                    state = json.loads(json.dumps(first.state_dict()))
                    first.close()
                    resumed = self.mixture([1, 1], stop=stop, options=options)
                    resumed.load_state_dict(state)
                    later = {k - at: weights for k, weights in {10: [1, 2], 40: [5, 1]}.items() if k > at}
                    self.assertEqual(head + run(resumed, 70 - at, later), want)

    def test_resume_at_the_end_of_an_epoch(self):
        mixed = self.mixture()
        batches = iter(mixed)
        for _ in range(len(mixed)):
            next(batches)
        state = mixed.state_dict()
        resumed = self.mixture()
        resumed.load_state_dict(state)
        self.assertEqual(self.take(resumed), [])  # that loader's epoch was handed out completely
        self.assertEqual(list(batches), [])
        self.assertEqual(self.take(resumed), self.take(mixed))

    def test_ranks_take_from_the_same_loader_at_the_same_step(self):
        taken = [self.take(self.mixture(options={"rank": rank, "world_size": 2})) for rank in range(2)]
        self.assertEqual([source for source, _ in taken[0]], [source for source, _ in taken[1]])
        self.assertFalse({(s, n) for s, numbers in taken[0] for n in numbers} & {(s, n) for s, numbers in taken[1] for n in numbers})

    def test_an_epoch_that_was_left_loses_nothing(self):
        mixed = self.mixture(stop="never")
        taken = self.take(mixed, 5)
        older = iter(mixed)
        taken += self.take(mixed, 30)
        self.assertEqual(list(older), [])  # a newer iterator has taken over
        self.assert_epochs(mixed, taken)

    def test_an_epoch_that_was_set_depends_on_nothing_before(self):
        for stop in ("first", "once", "all"):
            with self.subTest(stop=stop):
                want = []
                for epoch in range(3):
                    mixed = self.mixture(stop=stop)
                    mixed.set_epoch(epoch)
                    length = len(mixed)
                    want.append(self.take(mixed))
                    self.assertEqual(len(want[-1]), length)
                self.assertNotEqual([source for source, _ in want[0]], [source for source, _ in want[1]])
                self.assertEqual(self.take(self.mixture(stop=stop)), want[0])
                mixed = self.mixture(stop=stop)
                self.take(mixed, 7)  # breaks off in mid-epoch
                for epoch in (2, 0, 0, 1):
                    mixed.set_epoch(epoch)
                    self.assertEqual(self.take(mixed), want[epoch])

    def test_an_epoch_that_is_set_while_another_is_under_way(self):
        mixed = self.mixture()
        batches = iter(mixed)
        length = len(mixed)
        next(batches)
        mixed.set_epoch(4)
        self.assertEqual((len(mixed), len(list(batches))), (length, length - 1))
        other = self.mixture()
        other.set_epoch(4)
        self.assertEqual(len(mixed), len(other))
        self.assertEqual(self.take(mixed), self.take(other))

    def test_an_epoch_that_is_set_behind_iter(self):
        mixed, other = self.mixture(), self.mixture()
        batches = iter(mixed)
        mixed.set_epoch(4)
        other.set_epoch(4)
        self.assertEqual([batch[2].tolist() for batch in batches], [batch for _, batch in self.take(other)])

    def test_set_epoch_goes_on_where_a_state_was_taken(self):
        first, second = self.mixture(), self.mixture()
        first.set_epoch(2)
        head = self.take(first, 5)
        state = json.loads(json.dumps(first.state_dict()))
        for epoch in (2, 1):  # the state's epoch, and another one
            second.load_state_dict(state)
            second.set_epoch(epoch)
            first.set_epoch(epoch)
            self.assertEqual((head if epoch == 2 else []) + self.take(second), self.take(first))
        second.load_state_dict(json.loads(json.dumps(first.state_dict())))   # of the end of epoch 1
        self.assertEqual(second.epoch, 2)
        with self.assertWarnsRegex(RuntimeWarning, r"set_epoch\(1\) repeats epoch 1: .* for epoch in range\(loader.epoch") as warned:
            second.set_epoch(1)
        self.assertEqual(warned.filename, __file__)
        with self.assertRaisesRegex(ValueError, "epoch"):
            second.set_epoch(-1)

    def test_what_a_loader_raises_is_raised_and_the_next_batch_comes(self):
        calls = itertools.count()

        def fails_once(data):
            if next(calls) == 40:
                raise ZeroDivisionError
            return data.copy()

        mixed = self.mixture(stop="once", options={"transform": fails_once, "num_workers": 0})
        batches, taken, failed = iter(mixed), [], 0
        while True:
            try:
                taken.append((next(batches), mixed.source))
            except ZeroDivisionError:
                failed += 1
            except StopIteration:
                break
        self.assertEqual((failed, len(taken)), (1, sum(BATCHES.values()) - 1))

    def test_wrong_ones_say_so(self):
        loader = self.loader()
        for weights in ([1], [1, -1], [0, 0], [1, float("nan")], [1, float("inf")]):
            with self.assertRaisesRegex(ValueError, "weight"):
                self.mixture(weights)
        for loaders in ([], [[1, 2]]):
            with self.assertRaisesRegex(TypeError, "DataLoaders"):
                diesel.Mixture(loaders)
        with self.assertRaisesRegex(ValueError, "twice"):
            diesel.Mixture([loader, loader])
        with self.assertRaisesRegex(ValueError, "stop"):
            self.mixture(stop="last")
        state = self.mixture().state_dict()
        for other, says in ((self.mixture(seed=6), "seed"), (self.mixture(stop="all"), "stop"),
                            (self.mixture(options={"seed": 9}), "seed was 3")):
            with self.assertRaisesRegex(ValueError, says):
                other.load_state_dict(state)


if __name__ == "__main__":
    unittest.main()
