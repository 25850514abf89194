# SPDX-License-Identifier: Apache-2.0
"""Tests that chunks staged on a node's local disk also serve the other nodes, without another read from storage."""
import unittest

from nodes import Case, Node, read_all, wait_until


class Staged(Case):
    n_samples = 640  # 20 chunks of 4 MiB

    def node(self, name):
        node = Node(self.redis.url(""), name, "--user-share", "100", "--stage", str(self.folder / name), "--stage-when", "always", cache="32M")
        self.addCleanup(node.daemon.log.close)
        self.addCleanup(node.daemon.stop)
        return node

    def test_nodes_give_what_they_have_staged(self):
        """Two nodes have a local disk each, and no memory to cache their chunks. In a later epoch neither reads storage: each has its own
        chunks, from disk or memory, and gets the rest from the other, as one order for all needs it."""
        nodes = [self.node("one"), self.node("two")]
        for node in nodes:
            wait_until("the folder", lambda node=node: node.status()["stage"]["open"])
        loaders = self.loaders(nodes, lanes=1)
        self.check(read_all(loaders))
        seen = []
        for _ in range(6):  # a chunk that comes late from a node is read from storage
            before = self.figures(nodes)
            self.check(read_all(loaders))
            seen.append([b - a for a, b in zip(before, self.figures(nodes))])
            n_reads, n_staged, n_given = seen[-1]
            if n_reads == 0:
                self.assertGreater(n_staged, 0)
                self.assertGreater(n_given, 0)
                return
        self.fail(f"storage is read in each epoch: {seen}")

    @staticmethod
    def figures(nodes):
        """Returns the chunks read from storage, those from disk, and those from the other node."""
        status = [node.status() for node in nodes]
        return [sum(what(s) for s in status) for what in (lambda s: s["cache"]["reads"], lambda s: s["stage"]["hits"],
                                                          lambda s: s["cluster"]["chunks_in"])]


if __name__ == "__main__":
    unittest.main(verbosity=2)
