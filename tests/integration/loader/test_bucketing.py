# SPDX-License-Identifier: Apache-2.0
"""Tests bucket_by_length: batches of samples of similar length, on a real dieseld."""
import functools
import itertools
import json
import os
import tempfile
import unittest
from unittest import mock

# Imported first: adds the path of the other modules, and skips where modules are missing.
from loader_support import N, Daemon, LoaderCase, diesel, flat, grouped, numpy, pack
from diesel_loader import DamagedData, bucketing
from diesel_loader.session import Session


def same(data):
    return data.copy()


def with_pid(data):
    return numpy.array([os.getpid(), len(data)])


def spread(batches):
    """Returns the bytes that padding to the longest sample of each batch would add."""
    return sum(max(map(len, data)) * len(data) - sum(map(len, data)) for data, *_ in batches)


class Regroup(unittest.TestCase):
    """Tests only regroup(), which is pure."""

    def test_the_same_samples_in_as_many_batches_of_the_same_sizes(self):
        batches = [[5, 1, 9], [2, 8], [7, 3, 6, 4]]
        made = bucketing.regroup(batches, lambda n: n, (1, 2))
        self.assertEqual(list(map(len, made)), [3, 2, 4])
        self.assertEqual(sorted(sum(made, [])), sorted(sum(batches, [])))
        ranges = sorted((min(batch), max(batch)) for batch in made)
        self.assertTrue(all(a[1] <= b[0] for a, b in zip(ranges, ranges[1:])))

    def test_places_are_drawn(self):
        batches = [[1], [2], [3], [4]]
        places = {tuple(sum(bucketing.regroup(batches, lambda n: n, (turn,)), [])) for turn in range(50)}
        self.assertGreater(len(places), 12)
        self.assertEqual(bucketing.regroup(batches, lambda n: n, (3,)), bucketing.regroup(batches, lambda n: n, (3,)))

    def test_samples_of_equal_length_keep_their_order(self):
        self.assertEqual(bucketing.regroup([[3, 1], [2]], lambda n: 0, ()).count([2]) +
                         bucketing.regroup([[3, 1, 2]], lambda n: 0, ()).count([3, 1, 2]), 2)


class Bucketing(LoaderCase):
    def want(self, loader, epoch=0):
        """Returns the sample numbers of an epoch, batch by batch, by number and without a session."""
        return list(bucketing.regroup_all(self.numbers(loader, epoch), loader.bucket_by_length, loader.dataset.sample_bytes,
                                          loader.seed, epoch))

    def ragged(self, n=5, **options):
        return self.loader("ragged", bucket_by_length=n, **options)

    def test_batches_are_of_similar_length_and_have_every_sample_once(self):
        plain, loader = self.loader("ragged"), self.ragged(True)
        self.assertEqual(loader.bucket_by_length, 8)
        for _ in range(2):
            want, got = list(plain), list(loader)
            self.assertEqual([len(data) for data, _ in got], [len(data) for data, _ in want])
            self.assertEqual(sorted(flat(got)), sorted(flat(want)))
            self.assertLess(spread(got), spread(want) / 3)

    def test_the_order_is_that_of_the_numbers(self):
        for options in ({}, {"drop_last": True}, {"rank": 1, "world_size": 3}, {"shuffle": False}, {"batch_size": 7},
                        {"transform": same, "num_workers": 2}, {"transform": same, "num_workers": 0}, {"n": 24},
                        {"transform": same}):
            with self.subTest(**options):
                loader = self.ragged(return_ids=True, **options)
                for epoch in range(2):
                    batches = list(loader)
                    self.assertEqual([ids.tolist() for *_, ids in batches], self.want(loader, epoch))
                    self.assertEqual(flat(batches), self.contents(loader, itertools.chain(*self.want(loader, epoch))))

    def test_workers_do_the_work(self):
        loader = self.ragged(transform=with_pid, num_workers=2, return_ids=True)
        for data, _, ids in loader:
            self.assertNotIn(os.getpid(), data[:, 0].tolist())
            self.assertEqual(data[:, 1].tolist(), [loader.dataset.sample_bytes(i) for i in ids])

    def test_ranks_have_their_long_batches_at_the_same_steps(self):
        ranks = [list(self.ragged(rank=rank, world_size=2, batch_size=8)) for rank in range(2)]
        self.assertEqual(len(ranks[0]), len(ranks[1]))
        self.assertEqual(sum(len(data) for data, _ in ranks[0] + ranks[1]), N)
        apart = [abs(max(map(len, a)) - max(map(len, b))) for (a, _), (b, _) in zip(*ranks)]
        self.assertLess(numpy.mean(apart), 1000)  # of 4000; two random ones are 1333 apart

    def test_resume_at_any_batch(self):
        want = self.want(self.ragged())
        for options in ({}, {"transform": same, "num_workers": 2}):
            for stop in (1, 4, 5, 7, len(want)):
                loader = self.ragged(return_ids=True, **options)
                batches = iter(loader)
                head = [next(batches)[2].tolist() for _ in range(stop)]
                state = json.loads(json.dumps(loader.state_dict()))
                resumed = self.ragged(return_ids=True, **options)
                resumed.load_state_dict(state)
                self.assertEqual(head + [ids.tolist() for *_, ids in resumed], want)
                self.assertEqual([ids.tolist() for *_, ids in resumed], self.want(resumed, 1))

    def test_a_state_of_another_grouping_is_refused(self):
        state = self.ragged(5).state_dict()
        for other in (self.ragged(6), self.loader("ragged")):
            with self.assertRaisesRegex(ValueError, "bucket_by_length was 5"):
                other.load_state_dict(state)
        old = self.loader("ragged").state_dict()
        del old["bucket_by_length"]  # like states of versions without bucketing
        self.loader("ragged").load_state_dict(old)

    def test_another_number_of_ranks_goes_on_between_groups_only(self):
        ranks = [self.ragged(4, rank=rank, world_size=2, batch_size=8, return_ids=True) for rank in range(2)]
        for stop, fails in ((4, False), (6, True), (8, False)):
            seen = []
            for loader in ranks:
                loader.set_epoch(0)
                batches = iter(loader)
                seen += [i for _ in range(stop) for i in next(batches)[2].tolist()]
                state = loader.state_dict()
            alone = self.ragged(4, return_ids=True)
            if fails:
                with self.assertRaisesRegex(ValueError, "within a group of 4"):
                    alone.load_state_dict(state)
                continue
            alone.load_state_dict(state)
            seen += [i for *_, ids in alone for i in ids.tolist()]
            self.assertEqual(sorted(seen), list(range(N)))

    def test_batches_that_are_kept_stay_right(self):
        loader = self.ragged(24, batch_size=2, return_ids=True)
        kept = list(loader)
        self.assertEqual(flat(kept), self.contents(loader, itertools.chain(*self.want(loader))))

    def test_a_session_with_space_for_few(self):
        """The daemon may grant fewer slots than requested: then batches are copied, and nothing hangs."""
        for options in ({}, {"transform": same, "num_workers": 2}):
            real = Session.__init__
            with mock.patch.object(Session, "__init__", lambda self, dataset, **o: real(self, dataset, **{**o, "slots": 0})):
                loader = self.ragged(24, batch_size=4, return_ids=True, **options)
                kept = list(loader)
                self.assertLess(loader._stream.session.max_held, 24)
            self.assertEqual(flat(kept), self.contents(loader, itertools.chain(*self.want(loader))))

    def test_damage_is_one_error_a_batch_and_the_others_come(self):
        folder = self.folder / "chunks" / "class"
        folder.mkdir(parents=True)
        for i in range(60):
            (folder / f"{i:02d}.bin").write_bytes(os.urandom(100_000 + 7000 * (i * 17 % 30)))
        path = pack(folder.parent, self.folder / "chunks.diesel", "--chunk-size", "4M")
        chunk = sorted((path / "chunks").iterdir())[1]
        data = bytearray(chunk.read_bytes())
        data[len(data) // 2] ^= 1
        chunk.write_bytes(data)
        options = {"batch_size": 2, "return_ids": True}
        plain, plain_failed = self.ask_for_all(diesel.DataLoader(path, **grouped(options)))
        got, failed = self.ask_for_all(diesel.DataLoader(path, **grouped({"bucket_by_length": 5, **options})))
        self.assertGreater(len(got), 10)
        self.assertEqual((len(failed), sorted(sum(got, []))), (len(plain_failed), sorted(sum(plain, []))))
        self.assertNotEqual(got, plain)

    def ask_for_all(self, loader):
        """Returns (sample numbers of the batches that came, errors)."""
        self.addCleanup(loader.close)
        batches, got, failed = iter(loader), [], []
        for _ in range(len(loader)):
            try:
                got.append(next(batches)[2].tolist())
            except DamagedData as error:
                failed.append(error)
        self.assertEqual((list(batches), len(failed) > 0), ([], True))
        return got, failed

    def test_a_daemon_that_is_lost_in_the_middle(self):
        for options in ({}, {"transform": same, "num_workers": 2}):
            folder = self.enterContext(tempfile.TemporaryDirectory())
            with Daemon(folder) as first:
                loader = self.ragged(batch_size=4, return_ids=True, **options)
                batches = iter(loader)
                got = [next(batches) for _ in range(8)]
                first.process.kill()
                first.process.wait()
                with self.assertLogs("diesel_loader", "WARNING"), Daemon(folder):
                    got += batches
            self.assertEqual([ids.tolist() for *_, ids in got], self.want(loader))
            self.assertEqual(flat(got), self.contents(loader, itertools.chain(*self.want(loader))))

    def test_equal_lengths_are_left_alone(self):
        loader = self.loader(bucket_by_length=True)
        self.assertEqual(loader.bucket_by_length, 0)
        self.assertEqual(flat(loader), flat(self.loader()))

    def test_wrong_ones_say_so(self):
        for value in (-1, 25, "x"):
            with self.assertRaisesRegex(ValueError, "bucket_by_length"):
                self.ragged(value)

    def test_padding(self):
        collate = functools.partial(diesel.pad_collate, value=7, multiple=8)
        for workers in (0, 1):
            loader = self.ragged(collate_fn=collate, return_ids=True, num_workers=workers)
            for data, labels, ids, lengths in loader:
                self.assertEqual((data.ndim, data.shape[1] % 8, labels.dtype), (2, 0, numpy.int64))
                self.assertLess(data.shape[1] - lengths.max(), 8)
                for row, number, length in zip(data, ids, lengths):
                    self.assertEqual(row[:length].tobytes(), bytes(loader.dataset.read(number)))
                    self.assertTrue((row[length:] == 7).all())


if __name__ == "__main__":
    unittest.main()
