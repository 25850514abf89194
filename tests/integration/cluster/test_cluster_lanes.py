# SPDX-License-Identifier: Apache-2.0
"""Tests orders of several lanes: each node reads and caches the chunks of its own lanes, and no chunk moves needlessly."""
import collections
import itertools
import subprocess
import unittest

from nodes import Case, digest, read_all, support, wait_until


def moved(nodes):
    """Returns the bytes sent between nodes so far."""
    return sum(node.status()["cluster"]["bytes_in"] for node in nodes)


class Lanes(Case):
    def check_still(self, nodes, loaders, n_epochs=2):
        """Checks that after the first epoch no node reads or requests anything."""
        self.check(read_all(loaders))
        self.check_reads(nodes, self.n_chunks)
        before = moved(nodes)
        self.check(sum((read_all(loaders) for _ in range(n_epochs)), []), n_epochs)
        self.check_reads(nodes, self.n_chunks)
        self.assertEqual(moved(nodes), before)

    def test_each_node_has_a_lane(self):
        nodes = self.nodes(2)
        loaders = self.loaders(nodes, lanes=2)
        self.check_still(nodes, loaders)
        # Only a chunk that spans the border of the lanes has moved from one node to the other.
        self.assertLessEqual(moved(nodes), 5 << 20)
        # A node needs only its lane, and its tuner sizes the cache by that.
        def is_a_lane(node):
            now = node.status()["jobs"][0]["now"]
            return now["dataset_bytes"] <= now["cached_bytes"] < 1.25 * now["dataset_bytes"]

        for node in nodes:
            wait_until("a sample of all that it has", lambda node=node: is_a_lane(node))

    def test_why_says_what_lanes_would_help(self):
        nodes = self.nodes(2)
        for lanes, says in ((1, "lanes: the order has one lane, so each node needs all chunks; to give each node its own, set order=Order(lanes=2) on all ranks"),
                            (2, "lanes: ranks on this node read 1 of 2 lanes\n"),
                            (3, "read 2 of 3 lanes; other nodes read 1 of these, too; to separate the ranks, set order=Order(lanes=2) on all of them")):
            with self.subTest(lanes=lanes):
                loaders = self.loaders(nodes, lanes=lanes)
                iterators = [iter(loader) for loader in loaders]
                for iterator in iterators:
                    next(iterator)
                why = [support.CTL, "why", "--socket", nodes[0].socket]
                wait_until(says, lambda: says in subprocess.run(why, capture_output=True, text=True, check=True).stdout)  # sees the other
                session, = nodes[0].status()["sessions"]
                self.assertEqual((session["lanes"], session["drift"]), (lanes, 0))
                del iterators
                for loader in loaders:
                    loader.close()

    def test_four_nodes_hold_one_copy(self):
        """Each node has space for a third of the dataset."""
        nodes = self.nodes(4, cache="96M")
        self.check_still(nodes, self.loaders(nodes, lanes=4))

    def test_ranks_and_batches_that_lanes_do_not_fit_are_served(self):
        """Two ranks on one node and one on the other, five lanes, batches of 7: no rank is refused, and all samples come once. Nodes share
        lanes, and on a busy machine one may still lack a chunk of these after the first epoch."""
        nodes = self.nodes(2)
        loaders = [node.loader(self.path, rank, 3, lanes=5, batch_size=7) for rank, node in enumerate((nodes[0], nodes[0], nodes[1]))]
        for loader in loaders:
            self.addCleanup(loader.close)
        self.check(read_all(loaders))
        self.check_still(nodes, loaders)
        self.assertLessEqual(moved(nodes), self.n_chunks * (5 << 20))

    def test_drift_moves_chunks_whole(self):
        """Half of the chunks are reassigned in each epoch, and come from the node that had them."""
        nodes = self.nodes(2)
        loaders = self.loaders(nodes, lanes=2, drift=2)
        self.check(read_all(loaders))
        before = moved(nodes)
        for _ in range(3):
            self.check(read_all(loaders))
        self.check_reads(nodes, self.n_chunks)
        self.assertGreater(moved(nodes), before)
        self.assertLessEqual(moved(nodes) - before, 3 * self.n_chunks * (5 << 20) // 2)


class Views(Case):
    """Samples of unequal length: clients map the chunks."""
    less = 1000

    def test_drift_goes_on_in_little_memory(self):
        """With space only for a lane and its reassigned chunks: after many epochs nodes still find most of these in memory."""
        nodes = self.nodes(4, cache="72M")
        loaders = self.loaders(nodes, lanes=4, drift=4)
        for _ in range(10):
            self.check(read_all(loaders))
        before = sum(node.reads() for node in nodes)
        for _ in range(4):
            self.check(read_all(loaders))
        reads = sum(node.reads() for node in nodes) - before
        print(f"{reads} of {4 * self.n_chunks} chunks were read")
        self.assertLess(reads, self.n_chunks // 2)


class Resumed(Case):
    n_samples = 320

    def test_a_job_goes_on_with_fewer_and_with_more_nodes(self):
        """With the same lanes: reads exactly the chunks that no node had."""
        nodes = self.nodes(4)
        loaders = self.loaders(nodes, lanes=4, drift=2)
        iterators = [iter(loader) for loader in loaders]
        had = [collections.Counter(digest(item) for data, _ in itertools.islice(it, 2) for item in data) for it in iterators]
        state = loaders[0].state_dict()
        for loader in loaders:
            loader.close()
        for n, batch in ((3, 16), (3, 21), (2, 32)):
            with self.subTest(nodes=n, batch=batch):
                loaders = self.loaders(nodes[:n], batch_size=batch)
                for loader in loaders:
                    loader.load_state_dict(state)
                self.check(had + read_all(loaders))
                for loader in loaders:
                    loader.close()


if __name__ == "__main__":
    unittest.main()
