# SPDX-License-Identifier: Apache-2.0
"""Tests peers that lie, flood, stall or do not speak the protocol. Reads end with an error in bounded time, other peers continue, and the
node frees the memory that it holds for bad peers."""
import contextlib
import errno
import itertools
import os
import resource
import signal
import socket
import time
import unittest

from common.processes import cpu_seconds
from cluster_support import (CANCEL, END, FRAME, HELLO, MAGIC, PIECE, QUESTION, REFUSAL, VERSION, Cluster, Listener, Peer,
                             chunk_bytes, chunk_id, wait_until)

KIB, MIB = 1 << 10, 1 << 20
SIZE = MIB


def rss_bytes(pid):
    with open(f"/proc/{pid}/statm") as f:
        return int(f.read().split()[1]) * 4096


class Owner(unittest.TestCase):
    """Tests a node that sends questions to a peer with arbitrary answers."""

    def setUp(self):
        self.cluster = self.enterContext(Cluster())
        self.a = self.cluster.node("a")
        self.listener = Listener(self.cluster)
        self.addCleanup(self.listener.close)
        self.peer = self.listener.accept()
        self.addCleanup(self.peer.close)
        self.a.members(2)

    def asked(self, ms=20000, size=SIZE):
        number, = self.a.not_ours(size)
        self.a.ask(number, size, ms)
        _, id, _, told, _, chunk, _ = self.peer.next(QUESTION)
        self.assertEqual((told, chunk), (size, chunk_id(number, size)))
        return number, id

    def piece(self, id, data):
        self.peer.frame(PIECE, id, size=len(data))
        with contextlib.suppress(ConnectionError):  # the peer may have closed after the frames before
            self.peer.send(data)

    def ends(self, number, code):
        self.assertEqual(int(self.a.wait("done", number)[2]), -code)

    def test_bytes_with_a_false_checksum_are_refused(self):
        number, id = self.asked()
        for at in range(0, SIZE, 256 * KIB):
            self.piece(id, chunk_bytes(number, SIZE)[at:at + 256 * KIB])
        self.peer.frame(END, id, size=SIZE, value=1)
        self.ends(number, errno.EBADMSG)
        self.a.members(1)
        self.a.wait_said("the checksum of a received chunk does not match")

    def test_too_few_bytes_are_refused(self):
        number, id = self.asked()
        self.piece(id, bytes(1000))
        self.peer.frame(END, id, size=1000)
        self.ends(number, errno.ECONNRESET)
        self.assertTrue(self.peer.is_closed())
        self.a.wait_said("the peer sent an answer without a request")

    def test_an_early_end_is_refused(self):
        number, id = self.asked()
        self.piece(id, bytes(1000))
        self.peer.frame(END, id, size=SIZE)
        self.ends(number, errno.ECONNRESET)

    def test_too_many_bytes_are_refused(self):
        number, id = self.asked(size=1000)
        self.piece(id, bytes(1001))
        self.ends(number, errno.ECONNRESET)
        self.a.wait_said("the peer sent an answer without a request")

    def test_an_answer_that_stops_is_late(self):
        number, id = self.asked(ms=500)
        self.peer.frame(PIECE, id, size=256 * KIB)
        self.peer.send(bytes(100))
        self.ends(number, errno.ETIMEDOUT)
        self.a.members(1)
        self.a.wait_said("node z is unreachable")
        self.assertTrue(self.peer.is_closed())
        self.listener.accept()
        self.a.members(2)

    def test_a_silent_peer_is_unreachable(self):
        number, id = self.asked(ms=30000)
        self.ends(number, errno.ECONNRESET)
        self.a.wait_said("node z is unreachable")

    def test_a_late_answer_is_cancelled(self):
        number, id = self.asked(ms=200)
        self.ends(number, errno.ETIMEDOUT)
        self.assertEqual(self.peer.next(CANCEL)[1], id)
        self.piece(id, bytes(1000))  # the answer is too late, and is ignored
        self.peer.frame(END, id, -errno.ECANCELED, size=1000)
        self.a.members(1)
        self.peer.pong()
        self.peer.pong()
        self.a.members(2)
        number, id = self.asked()
        self.peer.frame(REFUSAL, id, -errno.EBUSY)
        self.ends(number, errno.EBUSY)

    def test_answers_without_questions_are_cut_off(self):
        for wrong in (lambda p: p.frame(PIECE, 77, size=10), lambda p: p.frame(END, 77), lambda p: p.frame(REFUSAL, 77, -5),
                      lambda p: p.frame(99), lambda p: p.send(os.urandom(4096)), lambda p: p.frame(PIECE, 1, size=1 << 40)):
            wrong(self.peer)
            self.assertTrue(self.peer.is_closed())
            self.a.members(1)
            self.peer.close()
            self.peer = self.listener.accept()
            self.a.members(2)

    def test_a_peer_of_another_name_is_cut_off(self):
        self.peer.close()
        self.a.members(1)
        peer = self.listener.accept(hello=False)
        peer.hello()
        peer.name = "y"
        peer.greet("a")
        self.assertTrue(peer.is_closed())

    def test_a_peer_that_dies_while_it_answers_is_an_error(self):
        number, id = self.asked()
        self.piece(id, bytes(1000))
        self.peer.close()
        self.ends(number, errno.ECONNRESET)


class Asker(unittest.TestCase):
    """A peer sends questions to the node, which has another, well-behaved peer."""

    def setUp(self):
        self.cluster = self.enterContext(Cluster())
        self.a = self.cluster.node("a")
        self.b = self.cluster.node("b")
        self.a.members(2)
        self.b.members(2)

    def connect(self, name="0", **options):
        peer = Peer(name, self.a.port, **options)
        self.addCleanup(peer.close)
        return peer

    def goes_on(self):
        number, = self.b.not_ours(SIZE)
        self.assertEqual(self.b.fetch(number, SIZE), 0)
        number, = self.a.not_ours(SIZE)
        self.assertEqual(self.a.fetch(number, SIZE), 0)

    def ask(self, peer, id, size=SIZE, number=5, told=None):
        peer.frame(QUESTION, id, size=told or size, group=self.a.group, chunk=chunk_id(number, size))

    def test_an_answer_is_whole(self):
        peer = self.connect()
        peer.hello()
        self.ask(peer, 9)
        data = b""
        while len(data) < SIZE:
            data += peer.next(PIECE)[6]
        self.assertEqual(data, chunk_bytes(5, SIZE))
        _, id, code, size, _, _, _ = peer.next(END)
        self.assertEqual((id, code, size), (9, 0, SIZE))

    def test_questions_for_parts_of_chunks_are_refused(self):
        """Parts of chunks do not exist: a question has nothing after it."""
        for value in (1, 16384, 1 << 40):
            peer = self.connect()
            peer.hello()
            peer.frame(QUESTION, 9, size=SIZE, value=value, group=self.a.group, chunk=chunk_id(5, SIZE))
            self.assertTrue(peer.is_closed())
        self.goes_on()

    def test_a_refusal_is_answered(self):
        peer = self.connect()
        peer.frame(QUESTION, 1, size=SIZE, group=b"another group...", chunk=chunk_id(5, SIZE))
        peer.hello()
        self.assertEqual(peer.next(REFUSAL)[2], -errno.ENOENT)
        self.ask(peer, 2, told=SIZE - 1)
        self.assertEqual(peer.next(REFUSAL)[2], -errno.EBADMSG)
        self.a.answers("no")
        self.ask(peer, 3)
        self.assertEqual(peer.next(REFUSAL)[2], -errno.ENOENT)

    def test_a_flood_of_questions_is_bounded(self):
        self.a.answers("late")
        peer = self.connect()
        peer.hello()
        flood = b"".join(FRAME.pack(QUESTION, 0, 0, i + 1, SIZE, 0, self.a.group, chunk_id(i, SIZE)) for i in range(10000))
        peer.s.setblocking(False)
        sent = 0
        busy = 0
        end = time.monotonic() + 150
        while time.monotonic() < end and busy < 5000:
            try:
                sent += peer.s.send(flood[sent:sent + 65536])
                busy += len(peer.s.recv(1 << 20)) // FRAME.size
            except BlockingIOError:
                time.sleep(0.01)
        self.a.answers("right")
        self.goes_on()
        self.assertGreaterEqual(busy, 5000)
        self.assertLess(rss_bytes(self.a.talker()), 150 * MIB)

    def test_a_peer_that_takes_nothing_is_given_up(self):
        peer = self.connect()
        peer.hello()
        for i in range(8):
            self.ask(peer, i + 1, size=16 * MIB, number=i)
        wait_until("an answer", lambda: self.a.held() > 0)
        self.goes_on()
        wait_until("given back", lambda: self.a.held() == 0)
        self.assertTrue(peer.is_closed())

    def test_a_cancelled_answer_is_given_back(self):
        peer = self.connect()
        peer.hello()
        for i in range(8):
            self.ask(peer, i + 1, size=16 * MIB, number=i)
        for i in range(8):
            peer.frame(CANCEL, i + 1)
        for _ in range(8):
            self.assertEqual(peer.next(END, REFUSAL)[2], -errno.ECANCELED)
        wait_until("given back", lambda: self.a.held() == 0)

    def test_an_answer_to_a_peer_that_left_is_given_back(self):
        for i in range(20):
            peer = self.connect()
            peer.hello()
            self.ask(peer, 1, size=16 * MIB, number=i)
            peer.next(PIECE)
            peer.close()
        wait_until("given back", lambda: self.a.held() == 0)
        self.goes_on()

    def test_a_peer_may_connect_again_and_again(self):
        for _ in range(50):
            self.connect().hello()
        self.goes_on()

    def test_clients_that_are_no_peers_are_cut_off(self):
        hello = HELLO.pack(MAGIC, VERSION, 0, 7, b"0", b"a", 0)
        for data in (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 10, os.urandom(10000), bytes(10000), hello.replace(b"DSL", b"dsl"),
                     HELLO.pack(MAGIC, VERSION, 0, 7, b"", b"a", 0), HELLO.pack(MAGIC, VERSION, 0, 7, b"0", b"q", 0),
                     HELLO.pack(MAGIC, VERSION, 0, 7, b"a", b"a", 0), b"\x16\x03\x01\x02\x00" + bytes(600)):
            peer = self.connect(hello=False)
            peer.send(data)
            self.assertTrue(peer.is_closed())
        self.goes_on()

    def test_another_version_is_refused(self):
        peer = self.connect(version=2)
        self.assertEqual(peer.hello()[:2], (MAGIC, VERSION))
        self.assertTrue(peer.is_closed())
        self.a.wait_said("the peer uses version 2 of the protocol, this node version 1")

    def test_half_open_connections_end(self):
        talker = self.a.talker()
        open_ones = [socket.create_connection(("127.0.0.1", self.a.port), timeout=60) for _ in range(1000)]
        for s in open_ones:
            self.addCleanup(s.close)
        self.goes_on()
        self.assertLess(len(os.listdir(f"/proc/{talker}/fd")), 100)
        c = self.cluster.node("c")
        c.members(3)
        for s in open_ones:
            self.assertTrue(Peer("x", connection=s, hello=False).is_closed())
        self.assertEqual(self.a.talker(), talker)

    def test_another_user_who_connects_all_the_time_keeps_nobody_out(self):
        """The other user is refused, and a node that comes meanwhile is not."""
        if os.geteuid() != 0:
            self.skipTest("takes root: there have to be processes of two users")
        floods = []
        for _ in range(3):
            pid = os.fork()
            if pid == 0:
                os.setgid(65534)
                os.setuid(65534)
                for i in itertools.count():
                    with socket.socket() as s, contextlib.suppress(OSError):
                        s.settimeout(1)
                        s.bind((f"127.0.0.{2 + i % 200}", 0))
                        s.connect(("127.0.0.1", self.a.port))
            floods.append(pid)
        try:
            self.a.wait_said("this machine or user connects too often")
            c = self.cluster.node("c")
            c.members(3)
            self.goes_on()
        finally:
            for pid in floods:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)

    def test_a_slow_hello_is_cut_off(self):
        peer = self.connect(hello=False)
        peer.send(MAGIC)
        self.assertTrue(peer.is_closed())
        self.a.wait_said("the peer sent no hello within 2 s")

    def test_another_user_is_no_peer(self):
        if os.geteuid() != 0:
            self.skipTest("takes root: there have to be processes of two users")
        pid = os.fork()
        if pid == 0:
            os.setgid(65534)
            os.setuid(65534)
            try:
                peer = Peer("0", self.a.port)
                os._exit(0 if peer.s.recv(1) == b"" else 1)
            except ConnectionError:
                os._exit(0)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
        self.a.wait_said("the peer runs as user 65534")
        self.goes_on()


class Few(unittest.TestCase):
    def test_a_node_without_descriptors_does_not_spin(self):
        with Cluster() as cluster:
            a = cluster.node("a")
            b = cluster.node("b")
            for node in (a, b):  # by then the node has opened all its own descriptors
                node.members(2)
            b.end()
            a.members(1)
            talker = a.talker()
            before_it = resource.prlimit(talker, resource.RLIMIT_NOFILE)
            limit = max(int(fd) for fd in os.listdir(f"/proc/{talker}/fd")) + 2
            resource.prlimit(talker, resource.RLIMIT_NOFILE, (limit, before_it[1]))
            waiting = [socket.create_connection(("127.0.0.1", a.port), timeout=60) for _ in range(40)]
            a.wait_said("cannot accept connections from other nodes: Too many open files")
            before = cpu_seconds(talker)
            time.sleep(1.5)  # the first of them is kept waiting for 2 s, and the others behind it
            self.assertLess(cpu_seconds(talker) - before, 0.15)
            for s in waiting:
                s.close()
            resource.prlimit(talker, resource.RLIMIT_NOFILE, before_it)
            cluster.node("c").members(2)
            a.members(2)


if __name__ == "__main__":
    unittest.main()
