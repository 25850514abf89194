# SPDX-License-Identifier: Apache-2.0
"""Tests that no user takes the daemon from the others: connections, cache, descriptors and the log have limits."""
import contextlib
import glob
import json
import os
import re
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request

from dieseld_support import (BIN, CTL, SCRATCH, Case, chunk_files, dataset, finish_probe, free_port, main, make_source, pack, probe,
                             probe_command, start_probe)
from common.processes import cpu_seconds, family, is_alive, read_of
from common.users import Other, as_user, run_as, user_probe
from common.waiting import wait_until
from common.wire_client import REVISION, VERSION, Client, Refused

HOSTILE, OTHER = 12345, 23456

# Connects as often as it is accepted, at most argv[3] times. Prints how often, and the last error.
IDLE = """
import os, resource, socket, struct, sys
path, uid, n = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, n + 64), hard))
os.setresuid(uid, uid, uid)
held, told = [], ""
for i in range(n):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.settimeout(20)
    s.connect(path)
    try:
        s.send(struct.pack("<IIIIII", 1, 24, 0x4c534944, int(sys.argv[4]), 0, int(sys.argv[5])))
    except OSError:
        pass
    try:
        reply = s.recv(1024)
    except OSError:
        reply = b""
    if len(reply) == 24:
        held.append(s)
        continue
    told = reply[16:].split(b"\\0")[0].decode()
    s.close()
print(len(held), told, flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def idle_connections(daemon, uid, n):
    """Yields (number of accepted connections, the error of the last refused one)."""
    process = subprocess.Popen([sys.executable, "-c", IDLE, daemon.socket, str(uid), str(n), str(VERSION), str(REVISION)],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        count, _, told = process.stdout.readline().strip().partition(" ")
        yield int(count), told
    finally:
        process.communicate()


class Connections(Case):
    def test_idle_connections_leave_space_for_others(self):
        path, source = dataset("views")
        daemon = self.daemon()
        with idle_connections(daemon, HOSTILE, 1100) as (count, told):
            self.assertGreater(count, 100, told)
            self.assertIn("--user-share", told)
            self.assertLess(count, 1024)
            daemon.status()
            self.assertEqual(probe(daemon, path, "--source", source)["samples"], 2000)
            with idle_connections(daemon, OTHER, 10) as (others, _):
                self.assertEqual(others, 10)
            # Two of them together leave the connections reserved for root.
            with idle_connections(daemon, OTHER, 1100):
                daemon.status()
        with idle_connections(daemon, HOSTILE, 10) as (count, _):
            self.assertEqual(count, 10)

    def test_a_silent_client_is_cut_off(self):
        """A silent client is disconnected, with a reason; a client that has introduced itself may be idle."""
        daemon = self.daemon()

        def silent():
            idle = Client(daemon.socket)
            silent_ones = [Client(daemon.socket, hello=False) for _ in range(50)]
            told = set()
            for client in silent_ones:
                try:
                    client.receive()
                except Refused as error:
                    told.add(error.text)
                client.socket.settimeout(60)
                if client.socket.recv(100) != b"":
                    told.add("it is not closed")
                client.close()
            idle.status()
            idle.close()
            return sorted(told)
        self.assertEqual(run_as(silent, uid=HOSTILE), ["no HELLO message arrived within 10 s"])
        with idle_connections(daemon, HOSTILE, 10) as (count, _):
            self.assertEqual(count, 10)

    FLOOD = """
import os, socket, sys
os.setresuid(*3 * [int(sys.argv[2])])
print("floods", flush=True)
while True:
    clients = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(200)]
    for client in clients:
        client.setblocking(False)
        try:
            client.connect(sys.argv[1])
        except OSError:
            pass
    for client in clients:
        client.close()
"""

    def test_who_connects_all_the_time_keeps_nobody_out(self):
        path, source = dataset("views")
        daemon = self.daemon()
        for _ in range(3):
            flood = self.start([sys.executable, "-c", self.FLOOD, daemon.socket, str(HOSTILE)], stdout=subprocess.PIPE)
            flood.stdout.readline()
        for _ in range(5):  # a client that waits to be accepted, as libdiesel does, is accepted
            subprocess.run([CTL, "status", "--socket", daemon.socket], stdout=subprocess.DEVNULL, timeout=60, check=True, **as_user(OTHER))
        self.assertEqual(probe(daemon, path, "--source", source)["samples"], 2000)

    def test_a_daemon_without_descriptors_does_not_spin(self):
        daemon = self.daemon(prefix=lambda command: ["prlimit", "--nofile=300", *command])
        with idle_connections(daemon, HOSTILE, 400):
            before = cpu_seconds(daemon.process.pid)
            # The attacker connects as soon as it is accepted: other attempts are refused, not queued.
            for _ in range(20):
                daemon.status()
            self.assertLess(cpu_seconds(daemon.process.pid) - before, 2)
        self.assertLess(len(daemon.output()), 20000)

    def test_what_a_user_causes_is_not_all_of_the_log(self):
        daemon = self.daemon()
        nonsense = ("import os, socket, sys\nos.setresuid(*3 * [int(sys.argv[2])])\nfor i in range(2000):\n"
                    " s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n s.connect(sys.argv[1])\n"
                    " try:\n  s.send(b'nonsense'); s.recv(10)\n except OSError: pass\n s.close()\n")
        subprocess.run([sys.executable, "-c", nonsense, daemon.socket, str(HOSTILE)], check=True)
        lines = [line for line in daemon.output().splitlines() if "closed the connection of" in line]
        self.assertLess(len(lines), 100)
        self.assertGreater(len(lines), 0)
        # Another user's lines are still written.
        subprocess.run([sys.executable, "-c", nonsense.replace("2000", "1"), daemon.socket, str(OTHER)], check=True)
        daemon.status()
        self.assertEqual(len([line for line in daemon.output().splitlines() if "closed the connection of" in line]), len(lines) + 1)


class Cache(Case):
    def test_sessions_of_one_user_leave_space_for_others(self):
        """Each session requests a window; together these need more than there is."""
        path, source = dataset("packed")
        other = pack(make_source("others", 300, lambda rng: 4096, seed=5), "others")
        os.chmod(SCRATCH, 0o755)
        daemon = self.daemon(cache="40M")
        sessions = []
        for rank in range(12):
            process = subprocess.Popen(
                probe_command(daemon, path, "--batch", 512, "--window", 1, "--wait", "--hold", 1, "--max-batches", 1,
                              "--rank", rank, "--world", 12, program=user_probe()),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **as_user(HOSTILE))
            self.addCleanup(process.communicate)
            sessions.append((process, process.stdout.readline().strip()))
        held = sum(word == "holding" for _, word in sessions)
        self.assertGreater(held, 0)
        self.assertLess(held, 12)
        refused = next(p for p, word in sessions if word != "holding")
        self.assertIn("--user-share", refused.communicate()[1])
        result = subprocess.run(probe_command(daemon, other, program=user_probe()), text=True, capture_output=True,
                                **as_user(OTHER))
        self.assertEqual(result.returncode, 0, result.stderr)


class Chunks(Case):
    def test_more_chunks_than_descriptors_are_served(self):
        source = make_source("many", 2, lambda rng: 500)
        path = os.path.join(SCRATCH, "many")
        pack(source, "many")
        for i in range(130):
            with open(os.path.join(source, "class0", f"more{i}.bin"), "wb") as f:
                f.write(os.urandom(500 + i))
            subprocess.run([os.path.join(BIN, "dieselctl"), "pack", "--append", source, path], check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.assertGreater(len(chunk_files(path)), 120)
        daemon = self.daemon(prefix=lambda command: ["prlimit", "--nofile=140", *command])
        process = start_probe(daemon, path, "--source", source, "--batch", 2, "--epochs", 3, "--window", 4, "--wait",
                              "--hold", 1)
        self.assertEqual(process.stdout.readline().strip(), "holding")
        self.assertLess(len(os.listdir(f"/proc/{daemon.process.pid}/fd")), 110)
        daemon.status()
        self.assertEqual(finish_probe(process)[0]["samples"], 3 * 132)


class Memory(Case):
    def test_answers_that_are_kept_take_bounded_memory(self):
        daemon, path = self.daemon(), dataset("views")[0]

        def ask():
            client, fds = Client(daemon.socket), []
            for _ in range(200):
                fds += client.call("STATUS")[2]
            return sum(os.fstat(fd).st_blocks * 512 for fd in fds)

        self.assertLess(run_as(ask, HOSTILE), 100000)

        def ask_often():
            clients, kept, told = [Client(daemon.socket) for _ in range(300)], [], ""
            for client in clients[:100]:  # reads the pending messages
                client.open_dataset(path)
                for fd in client.open_session(batch=1, window=1):
                    os.close(fd)
            try:
                for client in clients[100:]:
                    kept += client.call("STATUS")[2]
            except Refused as e:
                told = e.text
            return [sum(os.fstat(fd).st_blocks * 512 for fd in kept), told]

        used, told = run_as(ask_often, HOSTILE)
        self.assertLess(used, 9 << 20)
        self.assertIn("of replies from dieseld", told)
        daemon.status()


    def test_snapshots_of_one_user_are_bounded(self):
        daemon = self.daemon(cache="16M")
        first = pack(make_source("names", 6000, lambda rng: 8), "names0")
        size = os.path.getsize(os.path.join(first, "snapshot"))
        paths = [first] + [shutil.copytree(first, first[:-1] + str(i)) for i in range(1, (12 << 20) // size + 3)]

        def open_all():
            clients = []
            for path in paths:
                clients.append(Client(daemon.socket))
                try:
                    clients[-1].open_dataset(path)
                except Refused as e:
                    return [len(clients) - 1, e.text]
            return [len(clients), ""]

        opened, told = run_as(open_all, HOSTILE)
        self.assertIn("--user-share", told)
        self.assertLessEqual(opened * size, 12 << 20)
        self.assertGreater((opened + 2) * size, 8 << 20)
        Client(daemon.socket).open_dataset(paths[-1])

    def test_snapshots_that_are_kept_are_bounded(self):
        """The descriptor of a snapshot's copy outlives the connection that it came over."""
        daemon = self.daemon(cache="16M")
        first = pack(make_source("kept", 6000, lambda rng: 8), "kept0")
        size = os.path.getsize(os.path.join(first, "snapshot"))
        paths = [first] + [shutil.copytree(first, first[:-1] + str(i)) for i in range(1, (16 << 20) // size + 3)]

        def keep_all(channel):
            kept, told = [], ""
            for path in paths:
                client = Client(daemon.socket)
                try:
                    client.send_open_dataset(path)
                    kept += client.receive()[2]
                except Refused as e:
                    told = e.text
                client.close()
            channel.send([len(kept), told])
            channel.receive()
            for fd in kept:
                os.close(fd)
            client = Client(daemon.socket)
            client.open_dataset(paths[-1])

        hostile = Other(keep_all, HOSTILE)
        kept, told = hostile.receive()
        self.assertIn("--user-share", told)
        self.assertLessEqual(kept * size, 12 << 20)
        self.assertLessEqual(copied_bytes(daemon.process.pid), 13 << 20)
        Client(daemon.socket).open_dataset(paths[-1])
        hostile.send("give them back")
        hostile.finish()

    def test_snapshots_that_are_being_copied_are_bounded(self):
        """Sparse snapshots, which cost their maker nothing."""
        daemon = self.daemon(cache="256M")
        paths = [os.path.join(SCRATCH, f"sparse{i}") for i in range(16)]
        for path in paths:
            os.makedirs(os.path.join(path, "chunks"))
            with open(os.path.join(path, "snapshot"), "wb") as f:
                f.truncate(100 << 20)

        def open_all(channel):
            clients = [Client(daemon.socket) for _ in paths]
            for client, path in zip(clients, paths):
                client.send_open_dataset(path)
            for client in clients:
                with contextlib.suppress(Refused):
                    client.receive()

        hostile, most = Other(open_all, HOSTILE), 0
        while not select.select([hostile.channel.end], [], [], 0.002)[0]:
            most = max(most, copied_bytes(daemon.process.pid))
        hostile.finish()
        self.assertGreater(most, 0)
        self.assertLessEqual(most, 192 << 20)


def copied_bytes(daemon):
    """Returns the memory that the daemon and its helpers use for snapshots."""
    files = {}
    for pid in family(daemon):
        with contextlib.suppress(OSError):
            for fd in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    if "memfd:diesel-snapshot" in os.readlink(f"/proc/{pid}/fd/{fd}"):
                        st = os.stat(f"/proc/{pid}/fd/{fd}")
                        files[st.st_ino] = st.st_blocks * 512
    return sum(files.values())


class Names(Case):
    def make(self, folder):
        """Makes a dataset at a path of arbitrary bytes."""
        path = os.path.join(os.fsencode(SCRATCH), folder)
        shutil.copytree(os.fsencode(dataset("views")[0]), path)
        self.addCleanup(shutil.rmtree, path)
        return path

    def session(self, daemon, path, uid=0):
        process = start_probe(daemon, path, "--wait", "--hold", 1, "--max-batches", 1, program=user_probe(),
                              **as_user(uid))
        self.assertEqual(process.stdout.readline().strip(), "holding")
        self.addCleanup(process.communicate)

    def test_no_name_breaks_a_line_of_the_log(self):
        path = self.make(b"a\ndieseld: error: forged\x1b[31m")
        daemon = self.daemon()
        os.unlink(chunk_files(os.fsdecode(path))[0])
        subprocess.run(probe_command(daemon, os.fsdecode(path)), capture_output=True)
        self.assertIn("\\x0adieseld: error: forged\\x1b[31m", daemon.output())
        self.assertNotIn("\x1b", daemon.output())
        self.assertFalse([line for line in daemon.output().splitlines() if line.startswith("dieseld: error: forged")])

    def test_no_name_breaks_a_line_of_a_client(self):
        path = os.fsdecode(self.make(b"a\nforged\x1b[31m"))
        daemon = self.daemon()
        refused = self.refused(daemon, path, "--world", 100000)
        os.unlink(chunk_files(path)[0])
        failed = subprocess.run(probe_command(daemon, path), capture_output=True, text=True, timeout=60).stdout
        for said in refused, failed:
            with self.subTest(said=said):
                self.assertIn("a\\x0aforged\\x1b[31m", said)
                self.assertNotIn("\x1b", said)

    def test_no_name_hides_a_session(self):
        path = self.make(b"Gr\xfc\xdfe")
        daemon = self.daemon()
        self.session(daemon, os.fsdecode(path))
        status = daemon.status()
        self.assertEqual([s["dataset"][-11:] for s in status["sessions"]], ["Gr\\xfc\\xdfe"])
        self.assertEqual(status["datasets"][0]["path"], status["sessions"][0]["dataset"])

    def test_users_see_their_own_sessions_only(self):
        daemon = self.daemon()
        self.session(daemon, dataset("views")[0], HOSTILE)
        command = [user_probe(), "--status", "--socket", daemon.socket]
        for uid, n in ((OTHER, 0), (HOSTILE, 1), (0, 1)):
            text = subprocess.run(command, check=True, capture_output=True, text=True, **as_user(uid)).stdout
            status = json.loads(text)
            self.assertEqual(len(status["datasets"]), n)
            self.assertEqual(len(status["sessions"]), uid in (0, HOSTILE))
            self.assertEqual("views" in text, uid in (0, HOSTILE))


class Administrators(Case):
    """With --admin-user, uid 0 is an ordinary user, as it may be any pod's."""

    def set(self, daemon, uid):
        """Returns (status, one line) of a change of the settings by this user."""
        tool = os.path.join(SCRATCH, "dieselctl")
        if not os.path.exists(tool):
            shutil.copy(CTL, tool)
        done = subprocess.run([tool, "set", "--socket", daemon.socket, "workers=1"], capture_output=True, text=True, timeout=60,
                              cwd=SCRATCH, **as_user(uid))
        return done.returncode, done.stderr.strip()

    def seen(self, daemon, uid):
        """Returns how many datasets, sessions and jobs the user sees."""
        done = subprocess.run([user_probe(), "--status", "--socket", daemon.socket], check=True, capture_output=True, text=True,
                              **as_user(uid))
        status = json.loads(done.stdout)
        return [len(status[what]) for what in ("datasets", "sessions", "jobs")]

    def session(self, daemon, uid):
        process = start_probe(daemon, dataset("views")[0], "--wait", "--hold", 1, "--max-batches", 1, program=user_probe(),
                              **as_user(uid))
        self.addCleanup(process.communicate)
        self.assertEqual(process.stdout.readline().strip(), "holding")

    def test_root_administers_unless_somebody_else_is_named(self):
        for options in ((), ("--admin-user", "root"), ("--admin-user", "0")):
            daemon = self.daemon(*options)
            self.session(daemon, OTHER)
            self.assertEqual(self.set(daemon, 0)[0], 0)
            self.assertEqual(self.set(daemon, HOSTILE)[0], 1)
            self.assertEqual((self.seen(daemon, 0), self.seen(daemon, HOSTILE)), ([1, 1, 1], [0, 0, 0]))

    def test_administrators_can_have_a_socket_of_their_own(self):
        """Where no uid can administer, since containers share uid 0, access to this socket gives the right."""
        path = os.path.join(tempfile.mkdtemp(dir=SCRATCH), "admin.sock")
        daemon = self.daemon("--admin-user", "none", "--admin-socket", path)
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        self.session(daemon, OTHER)
        self.assertEqual(self.set(daemon, 0)[0], 1)
        self.assertEqual(self.seen(daemon, 0), [0, 0, 0])
        done = subprocess.run([CTL, "set", "--socket", path, "workers=1"], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        done = subprocess.run([user_probe(), "--status", "--socket", path], check=True, capture_output=True, text=True)
        self.assertEqual([len(json.loads(done.stdout)[what]) for what in ("datasets", "sessions", "jobs")], [1, 1, 1])
        # A user cannot open it, and an idle administrator blocks no one.
        os.chmod(os.path.dirname(path), 0o755)
        with self.assertRaises(PermissionError), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            os.seteuid(HOSTILE)
            try:
                client.connect(path)
            finally:
                os.seteuid(0)
        with contextlib.ExitStack() as held:
            for i in range(17):
                client = held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
                client.settimeout(60)
                client.connect(path)
            self.assertIn(b"16 connections of administrators", client.recv(1000))
        daemon.stop()
        self.assertFalse(os.path.exists(path))

    def test_what_administrators_hold_is_taken_from_no_user(self):
        counts = []
        path = os.path.join(tempfile.mkdtemp(dir=SCRATCH), "admin.sock")
        for n in (0, 16):
            daemon = self.daemon("--admin-user", "none", "--admin-socket", path, prefix=lambda command: ["prlimit", "--nofile=300", *command])
            with contextlib.ExitStack() as held:
                for _ in range(n):
                    held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)).connect(path)
                with idle_connections(daemon, 0, 400) as (count, _):
                    counts.append(count)
            daemon.stop()
        self.assertEqual(counts[0], counts[1])

    def test_a_daemon_without_descriptors_turns_an_administrator_away(self):
        """The client is refused, and the daemon does not retry in a loop."""
        path = os.path.join(tempfile.mkdtemp(dir=SCRATCH), "admin.sock")
        daemon = self.daemon("--admin-user", "none", "--admin-socket", path)
        folder = f"/proc/{daemon.process.pid}/fd"
        spare = max(int(fd) for fd in os.listdir(folder) if os.path.realpath(os.path.join(folder, fd)) == "/dev/null")
        soft, hard = resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (spare + 1, hard))
        with contextlib.ExitStack() as held:
            clients = [held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) for _ in range(16)]
            for client in clients:
                client.connect(path)
            told, _, _ = select.select(clients, [], [], 60)
            self.assertIn(b"cannot accept another client", told[0].recv(1000))
        resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (soft, hard))
        done = subprocess.run([CTL, "set", "--socket", path, "workers=1"], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_an_admin_socket_that_cannot_be_made_costs_that_alone(self):
        daemon = self.daemon("--admin-socket", os.path.join(SCRATCH, "no folder", "admin.sock"))
        self.assertIn("--admin-socket: nobody can connect to it: cannot listen on", daemon.output())
        self.assertEqual(self.set(daemon, 0)[0], 0)
        done = subprocess.run([os.path.join(BIN, "dieseld"), "--check-config", "--admin-socket", os.path.join(SCRATCH, "no folder", "admin.sock")],
                              capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1))
        done = subprocess.run([os.path.join(BIN, "dieseld"), "--check-config", "--socket", "a.sock", "--admin-socket", "a.sock"],
                              capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("is already the socket of clients", done.stderr)

    def test_a_user_who_is_named_administers(self):
        daemon = self.daemon("--admin-user", str(HOSTILE))
        self.session(daemon, OTHER)
        self.assertEqual(self.set(daemon, HOSTILE)[0], 0)
        for uid in (0, OTHER):
            status, said = self.set(daemon, uid)
            self.assertEqual(status, 1)
            self.assertIn(f"only user {HOSTILE} may change settings", said)
        self.assertEqual([self.seen(daemon, uid) for uid in (HOSTILE, OTHER, 0)], [[1, 1, 1], [1, 1, 1], [0, 0, 0]])
        with idle_connections(daemon, 0, 1100) as (count, told):
            self.assertGreater(count, 100, told)
            self.assertLess(count, 1024)
            self.assertIn("user 0 would use", told)
            self.assertIn("--user-share", told)
            with idle_connections(daemon, OTHER, 1100):
                self.seen(daemon, HOSTILE)  # the rest is reserved for that user

    def test_nobody_can_be_named(self):
        daemon = self.daemon("--admin-user", "none")
        self.session(daemon, OTHER)
        for uid in (0, os.geteuid(), HOSTILE, OTHER):
            status, said = self.set(daemon, uid)
            self.assertEqual(status, 1)
            self.assertIn("nobody may change settings", said)
        self.assertEqual(self.seen(daemon, 0), [0, 0, 0])
        # Root still uses it like any user, and sees its own jobs.
        self.session(daemon, 0)
        self.assertEqual(self.seen(daemon, 0), [1, 1, 1])

    def test_bad_administrators_are_refused(self):
        for arguments, word in ((["--admin-user", "no-such-user"], "no-such-user"), (["--admin-user", "65534"], "name another"),
                                (["--admin-user", "none", "--cluster", "redis://127.0.0.1:1", "--cluster-listen", "127.0.0.1:1"],
                                 "cluster-key")):
            done = subprocess.run([os.path.join(BIN, "dieseld"), "--check-config", *arguments], capture_output=True, text=True,
                                  check=False, timeout=60)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(word, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)


class ReadOnlyFolder(Case):
    """The socket's folder as a training pod sees it, as root."""

    INSIDE = """
import errno, os, socket, subprocess, sys
folder, name, probe, path = sys.argv[1:]
mine = os.path.join(folder, "mine")
at = os.path.join(folder, name)
def refused(what):
    try:
        what()
    except OSError as error:
        return error.errno == errno.EROFS
    return False
def bind(where):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as end:
        end.bind(where)
print(*(refused(what) for what in (lambda: os.unlink(at), lambda: os.rename(at, mine), lambda: bind(mine), lambda: os.chmod(at, 0),
                                   lambda: os.mkdir(mine), lambda: os.link(at, mine))), flush=True)
sys.exit(subprocess.run([probe, "--dataset", path, "--socket", at], stdout=subprocess.DEVNULL).returncode)
"""

    def test_it_serves_and_cannot_be_replaced(self):
        folder = tempfile.mkdtemp(prefix="f", dir=SCRATCH)
        daemon = self.daemon("--admin-user", "none", socket=os.path.join(folder, "s"))
        script = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && exec "$2" -c "$3" "$1" s "$4" "$5"'
        done = subprocess.run(["unshare", "--mount", "sh", "-c", script, "inside", folder, sys.executable, self.INSIDE, user_probe(),
                               dataset("views")[0]], capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual((done.returncode, done.stdout.split()), (0, 6 * ["True"]), done.stderr)
        self.assertEqual(set(os.listdir(folder)), {"s", "s.lock"})
        daemon.status()


class Cores(Case):
    """A core dump of the daemon goes to administrators: it must not have users' samples."""

    def setUp(self):
        self.marker = os.urandom(24).hex().encode()
        folder = tempfile.mkdtemp(dir=SCRATCH)
        for i in range(64):
            with open(os.path.join(folder, f"{i}.bin"), "wb") as file:
                file.write(self.marker * 500)
        self.path = os.path.join(tempfile.mkdtemp(dir=SCRATCH), "data")
        subprocess.run([CTL, "pack", folder, self.path], check=True, capture_output=True, timeout=60)

    def serving(self, **more):
        server = self.daemon(**more)
        self.start_probe(server, self.path, "--batch", 4, "--pause-us", 2000, "--epochs", 100000)
        server.wait_for("a batch", lambda status: status["sessions"] and status["sessions"][0]["delivered"] > 8)
        return server

    def test_memory_of_samples_is_left_out(self):
        server, seen = self.serving(), 0
        for pid in family(server.process.pid):
            for area in re.split(rb"(?m)^(?=[0-9a-f]+-[0-9a-f]+ )", read_of(pid, "smaps")):
                line, flags = area.split(b"\n", 1)[0], re.search(rb"(?m)^VmFlags:(.*)$", area)
                if b"/memfd:" in line:
                    self.assertIn(b" dd", flags[1], (pid, line))
                    seen += 1
        self.assertGreater(seen, 3)

    def test_a_core_has_no_samples(self):
        if any(name in BIN for name in ("asan", "tsan")):
            self.skipTest("a sanitizer's program leaves no core")
        with open("/proc/sys/kernel/core_pattern") as file:
            if file.read().strip() != "core":
                self.skipTest("cores of this machine go elsewhere")
        folder = tempfile.mkdtemp(dir=SCRATCH)
        server = self.serving(prefix=lambda command: ["sh", "-c", 'cd "$0" && ulimit -c unlimited && exec "$@"', folder, *command])
        n_cores = 0
        for pid in reversed(family(server.process.pid)):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                with open(f"/proc/{pid}/comm") as file:
                    name = file.read().strip()
                if name not in ("dieseld", "dieseld-reader"):  # without the other processes the daemon ends by itself
                    continue
                os.kill(pid, signal.SIGABRT)
                if pid == server.process.pid:
                    self.assertEqual(server.process.wait(60), -signal.SIGABRT)
                wait_until("its end", lambda pid=pid: not is_alive(pid))
            for core in glob.glob(os.path.join(folder, "core*")):
                with open(core, "rb") as file:
                    self.assertFalse(self.marker in file.read(), name)
                os.unlink(core)
                n_cores += 1
        self.assertGreater(n_cores, 0)


class Metrics(Case):
    DRIP = """
import os, socket, sys, time
os.setresuid(*3 * [int(sys.argv[2])])
clients = []
for i in range(40):
    try:
        clients.append(socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=60))
    except OSError:
        pass
print("dripping", flush=True)
while True:
    for c in clients:
        try:
            c.send(b"G")
        except OSError:
            pass
    time.sleep(0.2)
"""

    def test_a_silent_client_is_cut_off(self):
        port = free_port()
        self.daemon("--metrics", f"127.0.0.1:{port}")
        for begins in (b"", b"GET /metr"):
            with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
                client.sendall(begins)
                self.assertEqual(client.recv(1000), b"")

    def test_who_asks_by_the_byte_does_not_keep_prometheus_out(self):
        port = free_port()
        self.daemon("--metrics", f"127.0.0.1:{port}")
        drip = self.start([sys.executable, "-c", self.DRIP, str(port), str(HOSTILE)], stdout=subprocess.PIPE)
        drip.stdout.readline()
        for _ in range(5):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as reply:
                self.assertIn(b"diesel_build_info", reply.read())


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("skipped: needs root to become other users")
        sys.exit(77)
    main()
