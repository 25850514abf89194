# SPDX-License-Identifier: Apache-2.0
"""Tests that samples arrive as they were packed, in the order of the plan, within the granted memory."""
import os
import re
import resource
import time

from dieseld_support import MIB, Case, chunk_files, dataset, finish_probe, main, make_source, pack, probe, start_probe


class Order(Case):
    def check(self, kind, *options, daemon=None, batch=64):
        path, source = dataset(kind)
        return probe(daemon or self.daemon(), path, "--source", source, "--batch", batch, *options)

    def test_every_sample_of_equal_size_comes_once(self):
        result = self.check("packed", "--epochs", 2)
        self.assertEqual(result["samples"], 2 * 12288)

    def test_every_sample_of_unequal_size_comes_once(self):
        result = self.check("views", "--epochs", 2)
        self.assertEqual(result["samples"], 2 * 2000)

    def test_without_shuffle_the_order_is_that_of_storage(self):
        self.assertEqual(self.check("packed", "--no-shuffle")["samples"], 12288)

    def test_batches_may_have_any_size(self):
        daemon = self.daemon()
        for kind, batch in (("packed", 1000), ("views", 1), ("views", 777), ("views", 5000), ("packed", 100000)):
            with self.subTest(kind=kind, batch=batch):
                n = 12288 if kind == "packed" else 2000
                self.assertEqual(self.check(kind, daemon=daemon, batch=batch)["samples"], n)

    def test_drop_last_leaves_out_a_short_batch(self):
        self.assertEqual(self.check("views", "--drop-last", batch=300)["samples"], 1800)

    def test_ranks_share_an_epoch(self):
        path, source = dataset("views")
        daemon = self.daemon()
        probes = [start_probe(daemon, path, "--source", source, "--batch", 50, "--rank", r, "--world", 3)
                  for r in range(3)]
        results = [finish_probe(p)[0] for p in probes]
        self.assertEqual(sum(r["samples"] for r in results), 2000)
        self.assertEqual(len({r["n_batches"] for r in results}), 1)

    def test_ranks_and_workers_read_in_lanes(self):
        """Reads any number of lanes, with other ranks and workers: the probe knows the order."""
        daemon = self.daemon()
        for kind, n in (("packed", 12288), ("views", 2000)):
            for world, lanes, drift in ((1, 7, 0), (4, 4, 2), (3, 5, 1), (2, 1000, 3)):
                with self.subTest(kind=kind, world=world, lanes=lanes, drift=drift):
                    path, source = dataset(kind)
                    probes = [start_probe(daemon, path, "--source", source, "--batch", 50, "--rank", r, "--world", world, "--lanes",
                                          lanes, "--drift", drift, "--window", 2, "--epoch", 3, "--epochs", 2, "--stride", 2,
                                          "--offset", o) for r in range(world) for o in range(2)]
                    self.assertEqual(sum(finish_probe(p)[0]["samples"] for p in probes), 2 * n)

    def test_a_rank_reads_its_own_lane(self):
        path, source = dataset("packed")
        daemon = self.daemon("--prefetch", "100")
        probe(daemon, path, "--source", source, "--batch", 50, "--rank", 2, "--world", 4, "--lanes", 4, "--window", 1, "--epochs", 3)
        self.assertLessEqual(daemon.status()["cache"]["reads"], len(chunk_files(path)) // 4 + 2)

    def test_more_lanes_than_samples_are_refused(self):
        self.assertIn("2000 samples, too few for 2001 lanes", self.refused(self.daemon(), dataset("views")[0], "--lanes", 2001))

    def test_workers_share_a_rank(self):
        path, source = dataset("packed")
        daemon = self.daemon()
        probes = [start_probe(daemon, path, "--source", source, "--batch", 100, "--stride", 3, "--offset", o)
                  for o in range(3)]
        self.assertEqual(sum(finish_probe(p)[0]["samples"] for p in probes), 12288)

    def test_workers_without_batches_get_none(self):
        result = self.check("views", "--stride", 100, "--offset", 99, "--epochs", 3, batch=100)
        self.assertEqual(result["samples"], 0)

    def test_an_epoch_is_resumed_and_sought_in(self):
        daemon = self.daemon()
        whole = self.check("packed", daemon=daemon, batch=128)["batches"]
        self.assertEqual(self.check("packed", "--first", 60, "--epoch", 5, daemon=daemon, batch=128)["batches"],
                         whole - 60)
        # Reads three batches, then seeks to the seventh before the end of another epoch.
        result = self.check("packed", "--seek", f"9:{whole - 7}", daemon=daemon, batch=128)
        self.assertEqual(result["batches"], 3 + 7)
        result = self.check("views", "--seek", "2:0", "--hold", 3, daemon=daemon)
        self.assertEqual(result["batches"], 3 + 32)

    def test_a_client_holds_as_many_batches_as_allowed(self):
        for kind in ("packed", "views"):
            self.check(kind, "--hold", 7, batch=50)

    def test_scribbling_harms_nobody(self):
        path, source = dataset("packed")
        daemon = self.daemon()
        probes = [start_probe(daemon, path, "--source", source, "--batch", 64, "--scribble", "--epochs", 2)
                  for _ in range(2)]
        for p in probes:
            self.assertEqual(finish_probe(p)[0]["samples"], 2 * 12288)


class Sharing(Case):
    def test_one_read_a_chunk_for_two_clients(self):
        path, source = dataset("packed")
        daemon = self.daemon()
        probes = [start_probe(daemon, path, "--source", source, "--batch", 64, "--seed", seed, "--epochs", 2)
                  for seed in range(2)]
        for p in probes:
            finish_probe(p)
        self.assertEqual(daemon.status()["cache"]["reads"], len(chunk_files(path)))

    def test_two_datasets_are_served_at_once(self):
        daemon = self.daemon()
        probes = [start_probe(daemon, dataset(kind)[0], "--source", dataset(kind)[1], "--epochs", 2)
                  for kind in ("packed", "views")]
        for p in probes:
            finish_probe(p)

    def test_without_io_uring_the_same(self):
        path, source = dataset("views")
        digests = set()
        for options, engine in (((), None), (("--no-io-uring",), "threads")):
            daemon = self.daemon(*options)
            digests.add(probe(daemon, path, "--source", source)["digest"])
            if engine:
                self.assertEqual(daemon.status()["io"], engine)
        self.assertEqual(len(digests), 1)


class Uneven(Case):
    """A few samples have nearly all of the bytes, so the size of a batch varies far from the mean."""

    @classmethod
    def setUpClass(cls):
        sizes = iter(4 << 20 if i % 7 == 0 and i < 280 else 16 for i in range(20040))
        cls.source = make_source("uneven", 20040, lambda rng: next(sizes))
        cls.path = pack(cls.source, "uneven", order="source")

    def test_a_batch_that_cannot_fit_is_refused(self):
        text = self.refused(self.daemon(cache="64M"), self.path, "--batch", 64)
        self.assertIn("--cache", text)
        self.assertIn("smaller window or batch", text)

    def test_what_fits_is_served(self):
        for cache, batch in (("64M", 1), ("256M", 64)):
            result = probe(self.daemon(cache=cache), self.path, "--source", self.source, "--batch", batch)
            self.assertEqual(result["samples"], 20040)

    def test_an_epoch_that_does_not_fit_is_an_error(self):
        """Every epoch has its own order, so one of them may bring together samples that no other does."""
        sizes = iter(4 << 20 if i % 40 == 0 else 100000 for i in range(1200))
        path = pack(make_source("sparse", 1200, lambda rng: next(sizes)), "sparse")
        daemon = self.daemon("--window", "1", "--batches", "3", "--prefetch", "0", cache="64M")
        ended = set()
        for seed in range(8):
            try:
                finish_probe(start_probe(daemon, path, "--batch", 24, "--epochs", 4, "--seed", seed))
                ended.add("served")
            except AssertionError as refusal:
                self.assertIn("--cache", str(refusal))
                ended.add("an epoch" if "of epoch" in str(refusal) else "at once")
        self.assertIn("served", ended)
        self.assertGreater(len(ended), 1)

    def test_no_memory_to_be_had_is_an_error(self):
        """The system gives no more memory, and no client holds any that it could return."""
        daemon = self.daemon("--batches", "3")
        probe(daemon, dataset("packed")[0])
        with open(f"/proc/{daemon.process.pid}/statm") as f:
            mapped = int(f.read().split()[0]) * 4096
        resource.prlimit(daemon.process.pid, resource.RLIMIT_AS, (mapped + 20 * MIB,) * 2)
        text = self.refused(daemon, self.path, "--batch", 20000, "--window", 7)
        self.assertIn("Cannot allocate memory", text)


class SmallCache(Case):
    def test_a_dataset_larger_than_the_cache_is_served(self):
        for kind in ("packed", "views"):
            with self.subTest(kind=kind):
                path, source = dataset(kind)
                chunks = len(chunk_files(path))
                daemon = self.daemon("--window", "2", "--batches", "3", "--prefetch", "1", cache="32M")
                probe(daemon, path, "--source", source, "--epochs", 3, "--batch", 32)
                cache = daemon.status()["cache"]
                self.assertGreater(cache["evictions"], 0)
                # Cached chunks are read once, and nothing is read twice in an epoch.
                self.assertLess(cache["reads"], 3 * chunks)
                self.assertGreater(cache["kept_bytes"], 0)

    def test_lanes_larger_than_the_cache_are_served(self):
        path, source = dataset("packed")
        chunks = len(chunk_files(path))
        for world, lanes, drift in ((1, 3, 0), (1, 3, 2), (3, 3, 1), (2, 2, 0)):
            with self.subTest(world=world, lanes=lanes, drift=drift):
                daemon = self.daemon("--batches", "3", "--prefetch", "1", cache="46M")
                probes = [start_probe(daemon, path, "--source", source, "--epochs", 3, "--batch", 32, "--window", 1, "--rank", r,
                                      "--world", world, "--lanes", lanes, "--drift", drift) for r in range(world)]
                for p in probes:
                    finish_probe(p)
                cache = daemon.status()["cache"]
                self.assertGreater(cache["evictions"], 0)
                self.assertLess(cache["reads"], 3 * (chunks + lanes))

    def test_resident_memory_is_bounded(self):
        if any(name in os.environ.get("DIESEL_BIN", "") for name in ("asan", "tsan")):
            self.skipTest("a sanitizer's own memory counts as resident")
        path, source = dataset("packed")
        daemon = self.daemon(cache="24M")
        p = start_probe(daemon, path, "--source", source, "--epochs", 4, "--batch", 256)
        peak = 0
        while p.poll() is None:
            peak = max(peak, daemon.resident_bytes())
            time.sleep(0.002)
        finish_probe(p)
        self.assertLess(peak, (24 + 64) * MIB)
        self.assertGreater(peak, 12 * MIB)

    def test_many_sessions_in_a_small_cache_end(self):
        daemon = self.daemon("--window", "1", "--prefetch", "4", "--batches", "3", cache="64M")
        probes = [start_probe(daemon, dataset(kind)[0], "--source", dataset(kind)[1], "--epochs", 2, "--batch", 32,
                              "--seed", seed) for seed in range(3) for kind in ("packed", "views")]
        n = 0
        for p in probes:
            try:
                finish_probe(p)
                n += 1
            except AssertionError as refusal:
                self.assertIn("--cache", str(refusal))
        self.assertGreaterEqual(n, 2)

    def test_the_window_is_reduced_with_a_notice(self):
        path, source = dataset("packed")
        p = start_probe(self.daemon("--window", "8", cache="32M"), path, "--source", source)
        result, said = finish_probe(p)
        self.assertLess(result["window"], 8)
        self.assertIn("--cache", said)

    def test_the_window_of_several_ranks_is_the_same_everywhere(self):
        path, source = dataset("packed")
        options = ("--source", source, "--world", 2, "--batch", 16)
        digests = [probe(self.daemon(*more, cache=cache), path, *options)["digest"]
                   for more, cache in (((), "256M"), (("--window", "2"), "256M"), ((), "96M"))]
        self.assertEqual(len(set(digests)), 1, digests)

    def test_what_cannot_fit_is_refused(self):
        path, source = dataset("packed")
        text = self.refused(self.daemon(cache="16M"), path, "--batch", 2048)
        self.assertIn("--cache", text)
        text = self.refused(self.daemon(cache="16M"), path, "--window", 12)
        self.assertIn("smaller window", text)
        fits = re.search(r"Order\(window_chunks=(\d+)\) fits", text)[1]
        probe(self.daemon(cache="16M"), path, "--source", source, "--window", fits)


if __name__ == "__main__":
    main()
