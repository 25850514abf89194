# SPDX-License-Identifier: Apache-2.0
"""What a node has on its local disk serves the other nodes, too: storage is not read again for it."""
import unittest

from nodes import Case, Node, read_all, wait_until


class Staged(Case):
    n_samples = 640  # 20 chunks of 4 MiB

    def node(self, name, *options, cache):
        node = Node(self.redis.url(""), name, "--user-share", "100", *options, cache=cache)
        self.addCleanup(node.daemon.log.close)
        self.addCleanup(node.daemon.stop)
        return node

    def test_a_node_gives_what_it_has_staged(self):
        """Of two nodes one has a local disk, and no memory to keep its chunks in. In a later epoch neither reads storage: each has its
        own, from disk or memory, and the rest from the other."""
        staged = self.node("staged", "--stage", str(self.folder / "stage"), "--stage-when", "always", cache="32M")
        plain = self.node("plain", cache="100M")
        wait_until("the folder", lambda: staged.status()["stage"]["open"])
        loaders = self.loaders([staged, plain])
        self.check(read_all(loaders))
        seen = []
        for _ in range(6):  # what a node is late with is read from storage
            before = self.figures(staged, plain)
            self.check(read_all(loaders))
            seen.append([b - a for a, b in zip(before, self.figures(staged, plain))])
            n_reads, n_staged, n_given = seen[-1]
            if n_reads == 0:
                self.assertGreater(n_staged, 0)
                self.assertGreater(n_given, 0)
                return
        self.fail(f"storage is read in each epoch: {seen}")

    @staticmethod
    def figures(staged, plain):
        """Chunks read from storage, chunks that came from disk, and those that the other node had from there."""
        return staged.reads() + plain.reads(), staged.status()["stage"]["hits"], plain.status()["cluster"]["chunks_in"]


if __name__ == "__main__":
    unittest.main(verbosity=2)
