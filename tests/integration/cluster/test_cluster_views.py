# SPDX-License-Identifier: Apache-2.0
"""Samples of unequal length are views into the chunks that clients map: also into parts of chunks, of which the samples that another
rank of the node needs are still to come."""
import os
import signal
import threading
import unittest

from diesel_loader import status
from faults import send, talker
from nodes import Case, digest, read_all, wait_until


class Views(Case):
    n_samples, less = 320, 1000

    def four(self, nodes, seed):
        os.environ["LOCAL_WORLD_SIZE"] = "2"
        made = [nodes[rank // 2].loader(self.path, rank, 4, batch_size=4, seed=seed) for rank in range(4)]
        for loader in made:
            self.addCleanup(loader.close)
        return made

    def test_ranks_of_a_node_add_to_each_others_parts(self):
        nodes = self.nodes(2)
        for seed in range(2):
            self.check(read_all(self.four(nodes, seed)))
        self.assertGreater(sum(node.status()["cluster"]["chunks_in"] for node in nodes), 0)

    def test_a_part_is_mapped_while_it_waits_for_more(self):
        """Batches are ready for a rank, which has looked at none of them. Another rank needs more of their chunks, from a node that
        does not answer: the first has its batches all the same."""
        nodes = self.nodes(2)
        n_waited = sum(self.mapped_while_waiting(nodes, seed) for seed in range(4))
        print(f"waited while they were mapped: {n_waited} times")

    def mapped_while_waiting(self, nodes, seed):
        loaders = self.four(nodes, seed)
        for rank in (0, 1):
            next(iter(loaders[rank]))
        first, second = iter(loaders[2]), threading.Thread(target=lambda: next(iter(loaders[3])))
        wait_until("batches of rank 2", lambda: self.is_ready(nodes[1]))
        pid = talker(nodes[0].daemon.process.pid)
        send(pid, signal.SIGSTOP)
        try:
            second.start()
            wait_until("rank 3 to wait", lambda: self.waits(nodes[1]) or not second.is_alive())
            batches = [next(first)[0] for _ in range(4)]
            waited = self.waits(nodes[1])
        finally:
            send(pid, signal.SIGCONT)
            second.join()
        for data in batches:
            self.assertTrue(all(digest(item) in self.want for item in data))
        for loader in loaders:
            loader.close()
        return waited

    @staticmethod
    def is_ready(node):
        said = status(node.socket)
        return any(s["rank"] == 2 and s["ready"] == s["slots"] for s in said["sessions"]) and not said["cache"]["loading"]

    @staticmethod
    def waits(node):
        said = status(node.socket)
        return any(s["rank"] == 3 for s in said["sessions"]) and said["cache"]["loading"] > 0


if __name__ == "__main__":
    unittest.main(verbosity=2)
