# SPDX-License-Identifier: Apache-2.0
"""Tests that opening a dataset that hangs, crashes its process or has no waiting client affects only the client that brought it
(docs/explanation/security.md)."""
import array
import contextlib
import os
import shutil
import signal
import socket
import struct
import threading
import time

from dieseld_support import SCRATCH, Case, dataset, main, probe
from common.mirror import Mirror
from common.processes import files_of, is_killed
from common.users import ALICE, Other, run_as
from common.waiting import wait_until
from common.wire_client import TYPES, Client, Refused, openers

A_USER = 4  # OPENER_MAX_A_USER


class Hostile(Case):
    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("needs root to become other users")

    def works(self, daemon, uid=ALICE):
        path, source = dataset("packed")
        result = run_as(lambda: probe(daemon, path, "--source", source, "--max-batches", 20), uid=uid)
        self.assertEqual((result["batches"], result["bad"]), (20, 0))

    def nothing_opens(self, daemon):
        wait_until("the end of all that opens", lambda: not openers(daemon.process.pid))


class Hanging(Hostile):
    def setUp(self):
        super().setUp()
        self.mirror = Mirror(dataset("views")[0])
        self.addCleanup(self.mirror.close)

    def hang(self, daemon, n):
        """Starts n clients of one user that open a dataset that hangs."""
        def attack(channel):
            fds = os.open(self.mirror.mount, os.O_PATH), os.open(os.path.join(self.mirror.mount, "snapshot"),
                                                                 os.O_RDONLY)
            clients = [Client(daemon.socket) for _ in range(n)]
            channel.send("ready")
            channel.receive()
            for client in clients:
                client.send("OPEN_DATASET", struct.pack("<QII", 0, 0, 0), fds)
            channel.send("sent")
            if channel.receive() == "leave":
                for client in clients:
                    client.close()
                channel.send("left")
            else:
                try:
                    clients[0].receive()
                except Refused as e:
                    channel.send(e.text)
                clients[0].open_dataset(dataset("views")[0])  # the same connection continues
                channel.send("opened")
            # The descriptors are not closed, as that would hang.
            channel.receive()

        other = Other(attack)
        self.addCleanup(other.kill)
        self.assertEqual(other.receive(), "ready")
        # The kernel must not have the answers cached.
        time.sleep(1.1)
        self.mirror.stop()
        self.addCleanup(self.mirror.go_on)
        other.send("go")
        self.assertEqual(other.receive(), "sent")
        wait_until("openings that hang", lambda: len(self.hanging(daemon)) == min(n, A_USER))
        return other

    def hanging(self, daemon):
        """Returns the processes that have taken the request, and so the descriptors, from the client's connection."""
        return [pid for pid in openers(daemon.process.pid)
                if any(self.mirror.mount in link for link in files_of(pid))]

    def test_others_do_not_notice_an_opening_that_hangs(self):
        daemon = self.daemon()
        self.hang(daemon, 3)
        self.works(daemon)
        self.assertEqual(daemon.stop(), 0)

    def test_the_daemon_never_has_the_descriptors(self):
        daemon = self.daemon()
        self.hang(daemon, 2)
        links = files_of(daemon.process.pid)
        self.assertTrue(links)
        self.assertFalse([link for link in links if self.mirror.mount in link])

    def test_a_user_has_four_openings_at_a_time(self):
        daemon = self.daemon()
        self.hang(daemon, 3 * A_USER)
        self.works(daemon)
        self.assertEqual(len(openers(daemon.process.pid)), A_USER)
        self.mirror.go_on()
        self.nothing_opens(daemon)

    def test_who_leaves_takes_its_process_along(self):
        daemon = self.daemon()
        other = self.hang(daemon, 3)
        other.send("leave")
        self.assertEqual(other.receive(), "left")
        # A killed process ends when the hanging call returns.
        wait_until("their end", lambda: sum(is_killed(pid) for pid in openers(daemon.process.pid)) == 3)
        self.works(daemon)
        self.mirror.go_on()
        self.nothing_opens(daemon)

    def test_a_crash_while_opening_hurts_only_its_client(self):
        daemon = self.daemon()
        dataset("views")
        other = self.hang(daemon, 1)
        os.kill(openers(daemon.process.pid)[0], signal.SIGABRT)  # a sanitizer reports SIGSEGV
        self.works(daemon)
        self.mirror.go_on()
        other.send("result")
        self.assertIn("died", other.receive())
        self.assertEqual(other.receive(), "opened")


def send_files(client, data):
    """Sends a message with a descriptor whose close() blocks for an hour, unless the process ends."""
    listener = socket.create_server(("127.0.0.1", 0))
    files = socket.create_connection(listener.getsockname())
    files.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3600))
    files.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            files.send(bytes(1 << 16))
    client.socket.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [files.fileno()] * 2))])
    files.close()  # another reference remains
    return listener


def open_dataset(number):
    return struct.pack("<IHHQII", TYPES["OPEN_DATASET"], 24, number, 0, 0, 0)


def ask(daemon):
    client = Client(daemon.socket)
    client.status()
    client.close()


class Dropped(Hostile):
    """Tests descriptors that no process takes."""

    def attack(self, send, *options, idle=0, greeted=8, new=0):
        """Sends on connections that have been greeted, or are new, while the daemon is stopped. Then checks that it answers others, and
        ends when told to."""
        daemon = self.daemon(*options)

        def run(channel):
            waiting = [Client(daemon.socket, hello=False) for _ in range(idle)]
            clients = [Client(daemon.socket) for _ in range(greeted)]
            channel.send("ready")
            channel.receive()
            clients += [Client(daemon.socket, hello=False) for _ in range(new)]
            kept = [send(client) for client in clients] + waiting
            for client in clients:
                client.close()
            channel.send("sent")
            channel.receive(timeout=600)
            return len(kept)

        other = Other(run)
        self.addCleanup(other.kill)
        self.assertEqual(other.receive(), "ready")
        daemon.process.send_signal(signal.SIGSTOP)
        other.send("go")
        self.assertEqual(other.receive(), "sent")
        daemon.process.send_signal(signal.SIGCONT)
        for _ in range(3):
            run_as(lambda: ask(daemon), uid=ALICE)
        self.assertEqual(daemon.stop(), 0)
        return daemon.output()

    def test_descriptors_with_requests_that_are_not_awaited_are_closed(self):
        self.attack(lambda client: [send_files(client, open_dataset(n)) for n in (1, 2, 3)])

    def test_descriptors_before_the_greeting_are_closed(self):
        self.attack(lambda client: send_files(client, open_dataset(1)), greeted=0, new=8)

    def test_descriptors_with_a_request_that_has_none_are_closed(self):
        self.attack(lambda client: send_files(client, struct.pack("<IHH", TYPES["STATUS"], 8, 1)))

    def test_descriptors_behind_an_empty_message_are_closed(self):
        def send(client):
            client.socket.send(b"")
            return send_files(client, open_dataset(1))

        self.attack(send)

    def test_descriptors_of_clients_that_are_not_let_in_are_closed(self):
        said = self.attack(lambda client: send_files(client, open_dataset(1)), "--user-share", "1",
                           idle=12, greeted=0, new=8)
        self.assertIn("refused a connection from pid", said)


class Loads(Hostile):
    def test_many_ranks_load_once(self):
        path, source = dataset("views")
        daemon, results = self.daemon(), []
        threads = [threading.Thread(target=lambda: results.append(probe(daemon, path, "--source", source)["samples"]))
                   for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(results, [2000] * 12)
        self.assertEqual(daemon.output().count("serving "), 1)
        self.nothing_opens(daemon)

    def test_damage_is_told_to_all(self):
        path = os.path.join(SCRATCH, "spoiled")
        shutil.copytree(dataset("views")[0], path)
        with open(os.path.join(path, "snapshot"), "r+b") as f:
            f.seek(os.path.getsize(os.path.join(path, "snapshot")) // 2)
            f.write(b"\xff" * 64)
        daemon = self.daemon()
        clients = [Client(daemon.socket) for _ in range(6)]
        for client in clients:
            client.send_open_dataset(path)
        for client in clients:
            with self.assertRaisesRegex(Refused, "spoiled/snapshot"):
                client.receive()
            client.close()
        self.nothing_opens(daemon)
        self.works(daemon)


if __name__ == "__main__":
    main()
