# SPDX-License-Identifier: Apache-2.0
"""Tests that a chunk of another node comes whole, once for all ranks of the node."""
import os
import time
import unittest

from nodes import Case, read_all


class Whole(Case):
    n_samples, less = 320, 1000  # of unequal length, so batches are views into the chunks

    def four(self, nodes, **options):
        os.environ["LOCAL_WORLD_SIZE"] = "2"
        self.addCleanup(os.environ.update, LOCAL_WORLD_SIZE="1")
        made = [nodes[rank // 2].loader(self.path, rank, 4, batch_size=4, lanes=1, **options) for rank in range(4)]
        for loader in made:
            self.addCleanup(loader.close)
        return made

    def test_ranks_of_a_node_share_what_came(self):
        """One order for all, so that each node needs every chunk: the other node's chunks come once, and stay."""
        nodes = self.nodes(2)
        for seed in range(2):
            self.check(read_all(self.four(nodes, seed=seed)))
        self.check_reads(nodes, self.n_chunks)
        came = sum(node.status()["cluster"]["chunks_in"] for node in nodes)
        self.assertLessEqual(came, self.n_chunks)
        if not any(node.is_disturbed() for node in nodes):
            self.assertEqual(came, self.n_chunks)


class Limited(Case):
    n_samples = 320

    def test_no_more_than_the_limit_is_sent(self):
        """The link is slow, and no answer is late: a busy machine makes it even slower."""
        nodes = self.nodes(2, "--cluster-limit", "4M")
        begin = time.monotonic()
        self.check(read_all(self.loaders(nodes, lanes=1)))
        took = time.monotonic() - begin
        for node in nodes:
            self.assertGreater(took, node.status()["cluster"]["bytes_in"] / (4 << 20) * 0.75)
        self.assertGreater(sum(node.status()["cluster"]["bytes_in"] for node in nodes), 0)


class Digests(Case):
    n_samples, options = 320, ("--digest", "sha256")

    def test_what_has_a_digest_comes_too(self):
        nodes = self.nodes(2)
        self.check(read_all(self.loaders(nodes, lanes=1)))
        self.check_reads(nodes, self.n_chunks)


if __name__ == "__main__":
    unittest.main(verbosity=2)
