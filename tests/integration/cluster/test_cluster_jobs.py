# SPDX-License-Identifier: Apache-2.0
"""Tests jobs whose ranks run on several nodes: together they read each chunk once, even if a node or Redis fails."""
import collections
import itertools
import unittest

from nodes import Case, digest, read_all


def some(iterator, n):
    """Returns the samples of the next n batches."""
    return collections.Counter(digest(item) for data, _ in itertools.islice(iterator, n) for item in data)


class Epochs(Case):
    def test_two_nodes_read_each_chunk_once(self):
        nodes = self.nodes(2)
        loaders = self.loaders(nodes)
        for epoch in range(2):
            self.check(read_all(loaders))
            self.check_reads(nodes, self.n_chunks, epoch)

    def test_four_nodes_read_each_chunk_once(self):
        nodes = self.nodes(4)
        loaders = self.loaders(nodes)
        for epoch in range(2):
            self.check(read_all(loaders))
            self.check_reads(nodes, self.n_chunks, epoch)

    def test_nodes_that_cannot_hold_it_together_read_the_rest(self):
        nodes = self.nodes(2, cache="80M")
        loaders = self.loaders(nodes)
        for epoch in range(1, 3):
            self.check(read_all(loaders))
            self.check_reads(nodes, epoch * self.n_chunks, at_most=True)

    def test_a_node_owns_by_its_memory(self):
        nodes = [*self.nodes(1, "--cluster-name", "large", cache="192M"), *self.nodes(1, "--cluster-name", "small", cache="64M")]
        self.check(read_all(self.loaders(nodes)))
        group, = nodes[0].status()["cluster"]["groups"]
        weights = {member["node"]: member["weight_bytes"] for member in group["members"]}
        self.assertEqual(weights["small"], 64 << 20)
        self.assertGreater(weights["large"], 2 * weights["small"])


class Changes(Case):
    n_samples = 320

    def test_another_number_of_ranks_goes_on_with_what_nobody_had(self):
        nodes = self.nodes(2)
        loaders = self.loaders(nodes)
        iterators = [iter(loader) for loader in loaders]
        had = [some(iterator, 4) for iterator in iterators]
        state = loaders[0].state_dict()
        for loader in loaders:
            loader.close()
        nodes += self.nodes(2)
        loaders = self.loaders(nodes, batch_size=8)
        for loader in loaders:
            loader.load_state_dict(state)
        self.check(had + read_all(loaders))
        for loader in loaders:
            loader.close()
        loaders = self.loaders(nodes[:3], batch_size=7)  # this batch size gives no whole steps there
        for loader in loaders:
            loader.load_state_dict(state)
        self.check(had + read_all(loaders))

    def test_the_others_go_on_when_a_node_is_killed(self):
        nodes = self.nodes(3)
        loaders = self.loaders(nodes)
        iterators = [iter(loader) for loader in loaders]
        had = [some(iterator, 2) for iterator in iterators]
        nodes[2].daemon.kill()
        alone = [had[k] + some(iterators[k], 10000) for k in (0, 1)]
        want = [collections.Counter(digest(item) for data, _ in loaders[k] for item in data) for k in (0, 1)]
        # Another epoch has other batches, so the batches of this one are compared with those of a single node.
        single = self.nodes(1)
        for k in (0, 1):
            loader = single[0].loader(self.path, k, 3, cluster="")
            self.assertEqual(alone[k], some(iter(loader), 10000))
            self.assertEqual(want[k], some(iter(loader), 10000))
            loader.close()

    def test_nodes_go_on_when_redis_is_killed(self):
        nodes = self.nodes(2)
        loaders = self.loaders(nodes)
        iterators = [iter(loader) for loader in loaders]
        had = [some(iterator, 2) for iterator in iterators]
        self.redis.process.kill()
        self.redis.process.wait()
        try:
            had += [some(iterator, 10000) for iterator in iterators]
            self.check(had)
            self.check(read_all(loaders))
            self.check_reads(nodes, self.n_chunks)
        finally:
            self.redis.start()
        self.check(read_all(loaders))

    def test_samples_come_once_when_a_node_comes_back(self):
        nodes = self.nodes(2)
        loaders = self.loaders(nodes)
        iterators = [iter(loader) for loader in loaders]
        had = [some(iterator, 2) for iterator in iterators]
        nodes[1].daemon.kill()
        nodes[1].daemon.start()
        had += [some(iterator, 10000) for iterator in iterators]
        self.check(had)
        reads = sum(node.reads() for node in nodes)
        self.assertLess(reads, 2 * self.n_chunks)


if __name__ == "__main__":
    unittest.main(verbosity=2)
