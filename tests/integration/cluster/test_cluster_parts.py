# SPDX-License-Identifier: Apache-2.0
"""Of a chunk that another node has, a node asks for the samples alone that its ranks need."""
import os
import time
import unittest

from nodes import Case, read_all


class Parts(Case):
    def check_epochs(self, nodes, loaders, n_epochs=2):
        """Every sample once, every chunk read once, and few bytes sent that nobody needs."""
        for epoch in range(n_epochs):
            self.check(read_all(loaders))
            self.check_reads(nodes, self.n_chunks, epoch)
        size = sum(os.path.getsize(file) for file in (self.path / "chunks").iterdir())
        needed = n_epochs * size * (len(nodes) - 1) / len(nodes)  # of each chunk, what others than its owner need
        sent = sum(node.status()["cluster"]["bytes_in"] for node in nodes)
        self.assertLess(sent / needed, 1.2)
        if not any(node.is_disturbed() for node in nodes):
            self.assertGreater(sent / needed, 0.6)  # it does come from there; what came in one epoch may be there in the next

    def test_two_nodes(self):
        nodes = self.nodes(2)
        self.check_epochs(nodes, self.loaders(nodes))

    def test_four_nodes(self):
        nodes = self.nodes(4, cache="128M")
        self.check_epochs(nodes, self.loaders(nodes))

    def test_ranks_of_a_node_share_a_part(self):
        nodes = self.nodes(2)
        loaders = [nodes[rank // 2].loader(self.path, rank, 4, batch_size=8) for rank in range(4)]
        for loader in loaders:
            self.addCleanup(loader.close)
        self.check_epochs(nodes, loaders)


class Limited(Case):
    n_samples = 320

    def test_no_more_than_the_limit_is_sent(self):
        """It is slow, not late: a busy machine makes it slower still."""
        nodes = self.nodes(2, "--cluster-limit", "4M")
        begin = time.monotonic()
        self.check(read_all(self.loaders(nodes)))
        took = time.monotonic() - begin
        for node in nodes:
            self.assertGreater(took, node.status()["cluster"]["bytes_in"] / (4 << 20) * 0.75)
        self.assertGreater(sum(node.status()["cluster"]["bytes_in"] for node in nodes), 0)


class Digests(Case):
    n_samples, options = 320, ("--digest", "sha256")

    def test_whole_chunks_where_a_digest_is_of_all(self):
        nodes = self.nodes(2)
        loaders = self.loaders(nodes)
        self.check(read_all(loaders))
        self.check_reads(nodes, self.n_chunks)


if __name__ == "__main__":
    unittest.main(verbosity=2)
