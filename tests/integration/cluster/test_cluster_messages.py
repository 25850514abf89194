# SPDX-License-Identifier: Apache-2.0
"""Tests nodes that send each other chunks, and reads under way when a node ends."""
import signal
import socket
import unittest

from common.processes import is_alive, send
from cluster_support import Cluster, children, free_port, wait_until

MIB = 1 << 20


class Talk(unittest.TestCase):
    def two(self, cluster, **options):
        nodes = [cluster.node(name, **options) for name in "ab"]
        for node in nodes:
            node.members(2)
        return nodes

    def test_chunks_of_all_sizes_arrive(self):
        for key in (False, True):
            with self.subTest(key=key), Cluster() as cluster:
                a, b = self.two(cluster, key=cluster.key() if key else None)
                for size in (1, 63, 64, 4096, 262144, 262145, 2 * MIB, 2 * MIB + 1, 8 * MIB, 64 * MIB - 3):
                    for node in (a, b):
                        number, = node.not_ours(size)
                        self.assertEqual(node.fetch(number, size), 0, size)
                # The counts of sent chunks appear some time after the last chunk came.
                wait_until("ten each way", lambda a=a: a.peers()["b"][2] == 10 and a.peers()["b"][3] >= 10)
                self.assertEqual([a.held(), b.held()], [0, 0])
                self.assertEqual([a.end(), b.end()], [0, 0])

    def test_many_chunks_pass_both_ways_at_once(self):
        with Cluster() as cluster:
            a, b = self.two(cluster, key=cluster.key())
            wanted = [(node, number) for node in (a, b) for number in node.not_ours(MIB, 100)]
            for node, number in wanted:
                node.ask(number, MIB)
            codes = [(node, number, node.wait("done", number)[2]) for node, number in wanted]
            self.assertIn("0", [code for _, _, code in codes])
            for node, number, code in codes:
                self.assertTrue(code == "0" or code in ("-110", "-11") and node.fetch(number, MIB) == 0, (number, code))

    def test_four_nodes_agree_on_owners(self):
        with Cluster() as cluster:
            nodes = [cluster.node(name, key=cluster.key()) for name in "abcd"]
            for node in nodes:
                node.members(4)
            for number in range(40):
                owners = []
                for node in nodes:
                    node.say(f"ours {number} {MIB}")
                    owners += [node] if node.wait("ours", number)[2] == "1" else []
                self.assertEqual(len(owners), 1, number)
                for node in nodes:
                    if node is not owners[0]:
                        self.assertEqual(node.fetch(number, MIB), 0)
                        owners[0].wait("asked", number)
            cluster.remove("d")
            for node in nodes[:3]:
                node.members(3)

    def test_a_refusal_and_a_late_answer_are_told_apart(self):
        with Cluster() as cluster:
            a, b = self.two(cluster)
            numbers = a.not_ours(MIB, 4)
            b.answers("no")
            self.assertEqual(a.fetch(numbers[0], MIB), -2)
            b.answers("late")
            self.assertEqual(a.fetch(numbers[1], MIB, 300), -110)
            a.members(1)  # b is unreachable, and its chunks are a's
            a.members(2)  # it answers pings
            b.answers("right")
            self.assertEqual(a.fetch(numbers[2], MIB), 0)
            self.assertEqual(b.end(), 0)  # while a question is not answered yet

    def test_wrong_bytes_are_asked_for_once(self):
        with Cluster() as cluster:
            a, b = self.two(cluster)
            number, = a.not_ours(MIB)
            b.answers("wrong")
            self.assertEqual(a.fetch(number, MIB), 1)
            a.members(1)
            a.wait_said("node b sent wrong bytes for a chunk")

    def test_a_killed_process_is_started_again(self):
        with Cluster() as cluster:
            a, b = self.two(cluster, key=cluster.key())
            numbers = a.not_ours(MIB, 5)
            for killed, other in ((a, b), (b, a)):
                b.answers("late")
                a.ask(numbers[0], MIB)
                b.wait("asked", numbers[0])
                before = killed.talker()
                send(before)
                self.assertEqual(a.wait("done", numbers[0])[2], "-104")
                for node in (a, b):
                    node.members(1)
                for node in (a, b):
                    node.members(2)
                self.assertNotEqual(killed.talker(), before)
                b.answers("right")
                self.assertEqual(a.fetch(numbers[1], MIB), 0)
                killed.wait_said("signal 9")
                self.assertEqual(b.held(), 0)

    def test_a_process_that_hangs_is_replaced(self):
        with Cluster() as cluster:
            a, b = self.two(cluster, key=cluster.key())
            number, = a.not_ours(MIB)
            send(a.talker(), signal.SIGSTOP)
            self.assertEqual(a.fetch(number, MIB, 200), -104)
            a.wait_said("does not respond: dieseld kills it")
            a.members(2)
            self.assertEqual(a.fetch(number, MIB), 0)

    def test_a_node_that_hangs_is_unreachable(self):
        with Cluster() as cluster:
            a, b = self.two(cluster)
            number, = a.not_ours(MIB)
            send(b.talker(), signal.SIGSTOP)
            self.assertIn(a.fetch(number, MIB, 500), (-110, -104))
            a.members(1)
            self.assertEqual(a.fetch(number, MIB), -11)  # the chunk is a's own now
            send(b.talker())
            a.members(2)
            self.assertEqual(a.fetch(number, MIB), 0)

    def test_no_process_outlives_its_daemon(self):
        with Cluster() as cluster:
            a, b = self.two(cluster)
            talker = b.talker()
            b.process.kill()
            b.process.wait()
            a.members(1)
            wait_until("the end of its process", lambda: not is_alive(talker))
            cluster.node("b", address=b.address)
            a.members(2)

    def test_a_node_waits_for_its_port(self):
        """A node whose port is taken is alone, and takes part when its port is free. It reports both, once."""
        with Cluster() as cluster:
            address = ("127.0.0.1", free_port())
            with socket.create_server(address):
                a, b = cluster.node("a", "{}:{}".format(*address)), cluster.node("b")
                a.wait_said("Address already in use. This node shares no chunks, and dieseld tries again every 2 s")
                self.assertIsNone(a.talker())
                self.assertEqual(a.fetch(1, MIB), -11)
            for node in (a, b):
                node.members(2)
            number, = a.not_ours(MIB)
            self.assertEqual(a.fetch(number, MIB), 0)
            self.assertEqual([a.said().count(text) for text in ("Address already in use", ": now listening, ")], [1, 1])

    def test_a_node_ends_that_has_no_port(self):
        with Cluster() as cluster:
            with socket.create_server(("127.0.0.1", 0)) as taken:
                a = cluster.node("a", "{}:{}".format(*taken.getsockname()))
                keeper, = children(a.process.pid)
                self.assertEqual(a.end(), 0)
                wait_until("the end of its process", lambda: not is_alive(keeper))


if __name__ == "__main__":
    unittest.main()
