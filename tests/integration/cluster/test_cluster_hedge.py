# SPDX-License-Identifier: Apache-2.0
"""A node that is slow for once: what a batch waits for is read from storage, long before the node is given up."""
import contextlib
import os
import signal
import time
import unittest

import faults
from nodes import Case, PATIENCE_S, read_all, wait_until


class Hedge(Case):
    n_samples = 640

    def stop_talker(self, node):
        pid = wait_until("its process", lambda: faults.talker(node.daemon.process.pid))
        os.kill(pid, signal.SIGSTOP)
        return pid

    @contextlib.contextmanager
    def stopped(self, node):
        """Its other end of each connection says nothing any more, and all that is sent to it is taken."""
        pid = self.stop_talker(node)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def reached(self, node):
        return [peer["connected"] and not peer["away"] for peer in node.status()["cluster"]["nodes"]]

    def test_a_batch_does_not_wait_for_a_node_that_is_slow(self):
        nodes = self.nodes(2, cache="112M")  # what was read instead does not stay for long
        loaders = self.loaders(nodes)
        self.check(read_all(loaders))
        # So much is known of its answers.
        self.assertGreaterEqual(nodes[0].status()["cluster"]["chunks_in"], 8)
        end = time.monotonic() + PATIENCE_S
        while True:
            # Whether a batch waits, and whether the daemon is fast enough to see it, is the machine's affair.
            with self.stopped(nodes[1]):
                mine = read_all(loaders[:1])
            self.check(mine + read_all(loaders[1:]))
            figures = nodes[0].status()["cluster"]
            if figures["hedged"] or time.monotonic() > end:
                break
            wait_until("all are reached again", lambda: all(self.reached(nodes[0]) + self.reached(nodes[1])))
        self.assertGreaterEqual(figures["hedged"], 1, figures)
        job, = nodes[0].status()["jobs"]
        self.assertEqual(job["nodes"]["hedged"], figures["hedged"])
        # It is asked again, and nothing was spoilt.
        wait_until("all are reached again", lambda: all(self.reached(nodes[0]) + self.reached(nodes[1])))
        had = figures["chunks_in"]
        for _ in range(6):
            self.check(read_all(loaders))
            figures = nodes[0].status()["cluster"]
            if figures["chunks_in"] > had:
                break
        self.assertGreater(figures["chunks_in"], had)
        self.assertEqual(figures["spoilt"], 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
