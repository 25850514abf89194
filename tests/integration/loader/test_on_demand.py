#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests a dieseld that the loader starts: one for all processes, safe from other users, and ended when no process needs it."""
import ctypes
import errno
import itertools
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/integration/dieseld"))
from dieseld_support import make_source, pack, require  # noqa: E402
from common.processes import files_of, is_alive, process_stat  # noqa: E402
from common.users import ALICE, CLONE_NEWNS, MALLORY, Other, run_as  # noqa: E402
from common.waiting import wait_until  # noqa: E402
from on_demand_support import (DIESELD, N, OnDemand, daemons_in, mallory, needs_root, opened,  # noqa: E402
                               pid_of_daemon, private)

import diesel_loader  # noqa: E402
from diesel_loader import on_demand  # noqa: E402
from diesel_loader.session import Session  # noqa: E402

BATCH = 4


class Starting(OnDemand):
    def test_one_for_all_that_start_at_once(self):
        read, write = os.pipe()

        def start(channel):
            os.close(write)
            os.read(read, 1)  # waits until all are there
            return opened(self.dataset)

        others = [Other(start, uid=os.geteuid()) for _ in range(8)]
        self.addCleanup(lambda: [other.kill() for other in others])
        os.close(read)
        os.close(write)
        answers = [tuple(other.finish()) for other in others]
        self.assertEqual(len(set(answers)), 1, answers)
        self.assertEqual(self.log().count("started by"), 1, self.log())
        # The processes that started the daemon have ended, and it still runs and is no zombie.
        self.assertTrue(is_alive(answers[0][0]))
        self.assertEqual(opened(self.dataset), answers[0])

    def test_it_is_not_its_starters(self):
        """The daemon has no descriptor, terminal, session, child or blocked signal of the process that started it."""
        read, write = os.pipe()
        self.addCleanup(os.close, read)
        self.addCleanup(os.close, write)
        os.set_inheritable(write, True)
        with open(os.path.join(self.top, "mine"), "w", encoding="ascii") as mine:
            os.set_inheritable(mine.fileno(), True)
            with mock.patch.dict(os.environ, NOTIFY_SOCKET=os.path.join(self.top, "nobody"), JOURNAL_STREAM="1:2"):
                blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
                try:
                    pid = opened(self.dataset)[0]
                finally:
                    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            files = files_of(pid)
            self.assertNotIn(mine.name, files)
        self.assertNotIn(os.readlink(f"/proc/self/fd/{write}"), files)
        self.assertNotEqual(os.getsid(pid), os.getsid(0))
        self.assertNotEqual(process_stat(pid)[2], os.getpid())
        self.assertEqual(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[4], "0")  # tty_nr
        self.assertEqual(os.readlink(f"/proc/{pid}/cwd"), "/")
        self.assertNotIn("NOTIFY_SOCKET", pathlib.Path(f"/proc/{pid}/environ").read_text())
        self.assertIn("dieseld: ready on", self.log())
        os.kill(pid, signal.SIGTERM)
        wait_until("the end", lambda: not is_alive(pid))

    def test_its_starter_is_killed_in_the_middle(self):
        mark, go = os.path.join(self.top, "mark"), os.path.join(self.top, "go")
        self.wrapper(f"echo x >>{mark}", f"while ! [ -e {go} ]; do sleep 0.02; done")
        starter = Other(lambda channel: opened(self.dataset), uid=os.geteuid())
        self.addCleanup(starter.kill)
        wait_until("the start", lambda: os.path.exists(mark))
        starter.kill()
        second = Other(lambda channel: opened(self.dataset), uid=os.geteuid())
        self.addCleanup(second.kill)
        wait_until("the second start", lambda: os.path.getsize(mark) == 4)
        pathlib.Path(go).touch()
        pid = second.finish()[0]
        wait_until("one daemon", lambda: daemons_in(self.folder) == [pid])
        self.assertEqual(opened(self.dataset)[0], pid)

    def test_a_socket_that_is_given_is_the_only_one(self):
        nowhere = os.path.join(self.top, "nowhere")
        self.assertIn(nowhere, self.refused(socket=nowhere))
        self.refused(daemon="never")
        with mock.patch.dict(os.environ, DIESEL_SOCKET=nowhere):
            self.assertIn(nowhere, self.refused())
        self.assertFalse(os.path.exists(self.folder))
        with self.assertRaisesRegex(ValueError, '"auto" or "never"'):
            diesel_loader.Dataset(self.dataset, daemon="always")

    def test_a_dataset_that_cannot_be_read_starts_nothing(self):
        with self.assertRaises(FileNotFoundError):
            diesel_loader.Dataset(self.top)
        self.assertFalse(os.path.exists(self.folder))


@needs_root
class Node(OnDemand):
    """A daemon of the node comes first. The processes of these tests see another /run."""

    def with_node(self, function, closed=False, options=()):
        def run():
            if ctypes.CDLL(None).unshare(CLONE_NEWNS):
                raise OSError("no mounts of one's own")
            subprocess.run(["mount", "--make-rprivate", "/"], check=True)
            subprocess.run(["mount", "-t", "tmpfs", "none", "/run"], check=True)
            os.mkdir("/run/diesel", 0o755)
            read, write = os.pipe()
            with subprocess.Popen([DIESELD, "--metrics", "off", "--cache", "64M", "--ready-fd", str(write), *options], pass_fds=[write],
                                  stderr=subprocess.DEVNULL) as node:
                os.read(read, 6)
                if closed:
                    os.chmod("/run/diesel", 0o700)
                child = Other(lambda channel: function(), ALICE)
                try:
                    return node.pid, child.finish()
                finally:
                    child.kill()
                    node.kill()
        return run_as(run, uid=0)

    def test_it_is_used(self):
        node, (pid, path) = self.with_node(lambda: opened(self.dataset))
        self.assertEqual((pid, path), (node, None))

    def test_one_that_is_closed_to_the_user_is_not(self):
        os.environ["XDG_RUNTIME_DIR"] = private(os.path.join(self.top, "alice"), ALICE)
        node, (pid, path) = self.with_node(lambda: opened(self.dataset), closed=True)
        self.assertNotEqual(pid, node)
        self.assertTrue(path.startswith(os.environ["XDG_RUNTIME_DIR"]))

    def test_one_that_only_observes_serves_nobody(self):
        os.environ["XDG_RUNTIME_DIR"] = private(os.path.join(self.top, "alice"), ALICE)
        node, (pid, path) = self.with_node(lambda: opened(self.dataset), options=["--observe"])
        self.assertNotEqual(pid, node)
        self.assertTrue(path.startswith(os.environ["XDG_RUNTIME_DIR"]))

    def test_its_refusal_counts(self):
        """A dataset that the node's daemon refuses is not served by another daemon."""
        secret = pack(make_source("secret", 4, lambda rng: 10), "secret.diesel")
        os.chmod(os.path.join(secret, "snapshot"), 0o600)

        def try_it():
            try:
                diesel_loader.Dataset(secret)
            except PermissionError as error:
                return str(error)

        self.assertIn("snapshot", self.with_node(try_it)[1])
        self.assertEqual(daemons_in(self.top), [])


class Ending(OnDemand):
    def test_it_ends_when_idle_and_comes_back(self):
        self.options("--cache 64M --exit-when-idle 1")
        dataset = diesel_loader.Dataset(self.dataset)
        first = pid_of_daemon(dataset)
        time.sleep(1.5)
        self.assertTrue(is_alive(first), "a client is connected")
        del dataset
        wait_until("the end", lambda: not is_alive(first))
        self.assertIn("no client for 1 s", self.log())
        self.assertFalse([name for name in os.listdir(self.folder) if name.endswith(".sock")])
        self.assertNotEqual(opened(self.dataset)[0], first)

    def test_who_comes_at_that_moment_is_let_in(self):
        """The daemon is stopped until its idle time is over and a client waits to be accepted: then it is not idle."""
        self.options("--cache 64M --exit-when-idle 1")
        pid, path = opened(self.dataset)
        os.kill(pid, signal.SIGSTOP)
        answers = []
        client = threading.Thread(target=lambda: answers.append(opened(self.dataset)))
        try:
            wait_until("the stop", lambda: process_stat(pid)[1] == "T")
            client.start()
            wait_until("a client that waits", lambda: waiting_at(path))
            time.sleep(1.2)  # longer than its idle time
        finally:
            os.kill(pid, signal.SIGCONT)
            client.join()
        self.assertEqual(answers, [(pid, path)])

    def test_who_is_cut_off_by_its_end_gets_another_one(self):
        pid, path = opened(self.dataset)
        os.kill(pid, signal.SIGSTOP)
        answers = []
        client = threading.Thread(target=lambda: answers.append(opened(self.dataset)))
        try:
            wait_until("the stop", lambda: process_stat(pid)[1] == "T")
            client.start()
            wait_until("a client that waits", lambda: waiting_at(path))
        finally:
            os.kill(pid, signal.SIGKILL)
            client.join()
        self.assertEqual(answers[0][1], path)
        self.assertNotEqual(answers[0][0], pid)

    def test_in_mid_epoch(self):
        for how, signals in (("killed", [signal.SIGKILL]), ("ended", [signal.SIGTERM]), ("twice", [signal.SIGKILL] * 2)):
            with self.subTest(how=how), self.assertLogs("diesel_loader", "WARNING"):
                dataset = diesel_loader.Dataset(self.dataset)
                session = Session(dataset, seed=1, world=1, batch=BATCH, flags=1, reconnect_ms=30000)
                seen, at = [], [5, 40]
                for i in itertools.count():
                    if i in at[:len(signals)]:
                        os.kill(pid_of_daemon(dataset), signals[0])
                    lease = session.next_batch()
                    if lease is None:
                        break
                    seen += [lease.batch.items[k].sample for k in range(lease.batch.n_items)]
                self.assertEqual(sorted(seen), list(range(N)))

    def test_between_epochs(self):
        dataset = diesel_loader.Dataset(self.dataset)
        session = Session(dataset, seed=1, world=1, batch=BATCH, flags=1, reconnect_ms=30000)
        while session.next_batch():
            pass
        os.kill(pid_of_daemon(dataset), signal.SIGKILL)
        wait_until("its end", lambda: not daemons_in(self.folder))
        with self.assertLogs("diesel_loader", "WARNING"):
            session.seek(7, 0)
            self.assertEqual(session.next_batch().batch.epoch, 7)
        self.assertIsNotNone(Session(dataset, seed=1, world=1, batch=BATCH).next_batch())

    def test_its_folder_is_gone(self):
        """Simulates /run/user/UID after a logout: no new session finds the daemon, though it lives."""
        second = private(os.path.join(self.top, "second"), os.geteuid())
        with mock.patch.object(on_demand, "_folders", lambda: iter([self.folder, second])):
            dataset = diesel_loader.Dataset(self.dataset)
            session = Session(dataset, seed=1, world=1, batch=BATCH, reconnect_ms=1000)
            session.next_batch()
            self.assertTrue(dataset.socket.startswith(self.folder))
            os.rename(self.runtime, self.runtime + ".old")
            self.assertIsNotNone(Session(dataset, seed=1, world=1, batch=BATCH).next_batch())
            self.assertTrue(dataset.socket.startswith(second))
            self.assertIsNotNone(session.next_batch(), "the first one is not touched")

    def test_one_that_always_ends_is_given_up(self):
        for how, line in ((ENDS, "it exited right after it became ready"), (SERVES_NOTHING, "ended 5 times before")):
            with self.subTest(how):
                fake = os.path.join(self.top, "fake.py")
                pathlib.Path(fake).write_text(FAKE + how)
                self.wrapper(f"[ -e {self.top}/bad ] && exec {sys.executable} {fake} \"$@\"")
                dataset = diesel_loader.Dataset(self.dataset)
                session = Session(dataset, seed=1, world=1, batch=BATCH, reconnect_ms=60000)
                session.next_batch()
                first = pid_of_daemon(dataset)
                pathlib.Path(self.top, "bad").touch()
                os.kill(first, signal.SIGKILL)
                with self.assertLogs("diesel_loader", "WARNING"), self.assertRaisesRegex(ConnectionRefusedError, line):
                    for _ in range(N):
                        session.next_batch()
                pathlib.Path(self.top, "bad").unlink()
                with self.assertLogs("diesel_loader", "WARNING"):
                    self.assertIsNotNone(session.next_batch(), "the next call tries again")


FAKE = """import os, socket, sys
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
path, ready = options["--socket"], int(options["--ready-fd"])
if os.path.exists(path): os.unlink(path)
end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
end.bind(path)
end.listen()
"""
ENDS = """
end.close()
os.write(ready, b"ready")
"""
SERVES_NOTHING = """
os.write(ready, b"ready")
for _ in range(2):
    end.accept()[0].close()
"""


def waiting_at(path):
    """Returns whether a connection waits to be accepted."""
    with open("/proc/net/unix", encoding="utf-8", errors="replace") as table:
        return any(line.split()[5:6] == ["02"] and line.rstrip().endswith(path) for line in table)


class Places(OnDemand):
    """Tests where the folder may be, and where not."""

    def use(self, *folders):
        self.enterContext(mock.patch.object(on_demand, "_folders", lambda: iter(folders)))

    def test_the_folders(self):
        with mock.patch.dict(os.environ, XDG_RUNTIME_DIR="/a", TMPDIR="/b"):
            me = f"diesel-{os.geteuid()}"
            self.assertEqual(list(on_demand._folders()), ["/a/diesel", f"/b/{me}", f"/tmp/{me}"])
            os.environ.update(XDG_RUNTIME_DIR="relative", TMPDIR="/tmp/")
            self.assertEqual(list(on_demand._folders()), [f"/tmp/{me}"])

    def test_the_next_one_where_one_will_not_do(self):
        long = os.path.join(self.top, "x" * 100)
        os.mkdir(long)
        file = os.path.join(self.top, "file")
        pathlib.Path(file).touch()
        for bad in (os.path.join(self.top, "missing/diesel"), os.path.join(long, "diesel"), file,
                    os.path.join(file, "diesel")):
            with self.subTest(bad=bad):
                self.use(bad)
                self.assertIn(os.path.dirname(bad), self.refused())
                self.use(bad, self.folder)
                self.assertTrue(opened(self.dataset)[1].startswith(self.folder))

    def test_a_link_on_the_way_is_resolved(self):
        link = os.path.join(self.top, "link")
        os.symlink(self.runtime, link)
        self.use(os.path.join(link, "diesel"))
        self.assertTrue(opened(self.dataset)[1].startswith(self.folder))

    def test_a_folder_that_is_open_to_others(self):
        os.mkdir(self.folder)
        os.chmod(self.folder, 0o755)
        self.use(self.folder)
        self.assertIn(f"chmod 700 {self.folder}", self.refused())
        os.rmdir(self.folder)
        os.chmod(self.runtime, 0o777)
        self.assertIn(f"others can change {self.runtime}", self.refused())
        os.chmod(self.runtime, 0o1777)
        opened(self.dataset)

    @needs_root
    def test_a_full_disk(self):
        small = os.path.join(self.top, "small")
        os.mkdir(small, 0o700)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k,mode=700", "none", small], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", small], check=True)
        pathlib.Path(small, "all").write_bytes(bytes(4096))
        self.use(os.path.join(small, "diesel"))
        self.assertIn("No space left", self.refused())
        self.use(os.path.join(small, "diesel"), self.folder)
        opened(self.dataset)

    @needs_root
    def test_a_read_only_folder(self):
        subprocess.run(["mount", "-t", "tmpfs", "-o", "ro,mode=700", "none", self.runtime], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", self.runtime], check=True)
        self.use(self.folder)
        self.assertIn("Read-only file system", self.refused())


@needs_root
class Neighbours(OnDemand):
    """Mallory tries to make Alice read her samples from him."""

    def setUp(self):
        super().setUp()
        self.shared = os.path.join(self.top, "shared")  # with the mode of /tmp
        os.mkdir(self.shared)
        os.chmod(self.shared, 0o1777)
        self.squatted = os.path.join(self.shared, f"diesel-{ALICE}")
        self.enterContext(mock.patch.object(on_demand, "_folders", lambda: iter([self.squatted])))

    def alice(self):
        """Returns the error that she gets."""
        def try_it():
            try:
                return str(opened(self.dataset))
            except ConnectionRefusedError as error:
                return error.strerror
        text = run_as(try_it, ALICE)
        self.assertEqual(len(text.splitlines()), 1)
        return text

    def test_a_squatted_folder(self):
        neighbour = mallory(self, on_demand._socket_in(self.squatted))
        self.assertIn(f"belongs to another user (uid {MALLORY})", self.alice())
        neighbour.send("done")
        self.assertIsNone(neighbour.finish(), "nobody came")

    def test_a_link_to_a_folder_of_hers(self):
        hers = private(os.path.join(self.top, "hers"), ALICE)
        run_as(lambda: os.symlink(hers, self.squatted), MALLORY)
        self.assertIn("is no folder", self.alice())
        self.assertEqual(os.listdir(hers), [])

    def test_his_socket_in_her_folder(self):
        path = on_demand._socket_in(os.path.join(self.top, "m"))
        os.mkdir(os.path.dirname(path))
        os.chown(os.path.dirname(path), MALLORY, MALLORY)
        neighbour = mallory(self, path)
        private(self.squatted, ALICE)
        os.rename(path, on_demand._socket_in(self.squatted))
        self.assertIn(f"served by another user (uid {MALLORY})", self.alice())
        neighbour.send("done")
        self.assertEqual(neighbour.finish(), "", "she came, and said nothing")

    def test_her_own_is_closed_to_him(self):
        pid, path = run_as(lambda: opened(self.dataset), ALICE)
        self.assertEqual(os.stat(f"/proc/{pid}").st_uid, ALICE)

        def connect():
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as end:
                return end.connect_ex(path)

        self.assertEqual(run_as(connect, MALLORY), errno.EACCES)
        self.assertEqual(run_as(connect, ALICE), 0)

    def test_a_daemon_of_roots_serves_her(self):
        """Root may have started a daemon in her folder, as root could do anything anyway."""
        private(self.squatted, ALICE)
        read, write = os.pipe()
        with subprocess.Popen([DIESELD, "--socket", on_demand._socket_in(self.squatted), "--metrics", "off", "--cache", "64M",
                               "--ready-fd", str(write)], pass_fds=[write], stderr=subprocess.DEVNULL) as daemon:
            os.close(write)
            os.read(read, 6)
            os.close(read)
            self.assertEqual(run_as(lambda: opened(self.dataset), ALICE)[0], daemon.pid)
            daemon.terminate()


class Failing(OnDemand):
    """Each failure gives one clear line."""

    def test_no_program(self):
        del os.environ["DIESEL_DAEMON"]
        with mock.patch.object(on_demand, "beside_python", lambda: iter(["/nowhere/dieseld"])):
            build, _, export = self.refused().split("`")[1].rpartition(" && ")
        shown = subprocess.run(["bash", "-c", f'{export}; printf %s "$DIESEL_DAEMON"'], capture_output=True, text=True, check=True).stdout
        self.assertTrue(build.endswith("/dev build") or os.access(shown, os.X_OK), shown)
        self.assertFalse(os.path.exists(self.folder))
        os.environ["DIESEL_DAEMON"] = "/nowhere/dieseld"
        self.assertIn("DIESEL_DAEMON is /nowhere/dieseld, which is not a program", self.refused())

    def test_the_program_is_found(self):
        del os.environ["DIESEL_DAEMON"]
        with mock.patch.dict(os.environ, PATH=f"/usr/bin:{os.path.dirname(DIESELD)}"):
            self.assertIn(DIESELD, on_demand.beside_python())
        folder = os.path.join(self.top, "env")
        os.makedirs(os.path.join(folder, "bin"))
        with mock.patch.object(on_demand.sys, "prefix", folder):
            self.assertEqual(next(on_demand.beside_python()), os.path.join(folder, "bin/dieseld"))

    def test_a_program_that_will_not_do(self):
        for text, expected in (("echo dieseld 0.0.1", f"is 0.0.1): diesel_loader is {diesel_loader.__version__}"),
                               ("echo hello", "is no dieseld"),
                               ("echo no library >&2; exit 127", "cannot be run (no library)")):
            path = os.path.join(self.top, "other")
            pathlib.Path(path).write_text(f"#!/bin/sh\n{text}\n")
            os.chmod(path, 0o755)
            os.environ["DIESEL_DAEMON"] = path
            self.assertIn(expected, self.refused())
        os.chmod(path, 0o644)
        self.assertIn("Permission denied", self.refused())

    def test_the_version_next_to_this_python_goes_first(self):
        path = os.path.join(self.top, "old")
        pathlib.Path(path).write_text("#!/bin/sh\necho dieseld 0.0.1\n")
        os.chmod(path, 0o755)
        del os.environ["DIESEL_DAEMON"]
        with mock.patch.object(on_demand, "beside_python", lambda: iter([path, DIESELD])):
            opened(self.dataset)

    def test_the_daemon_says_no(self):
        self.options("--cache 1K")
        text = self.refused()
        self.assertIn('"1K": must be an amount of memory', text)
        self.assertIn(os.path.join(self.folder, "dieseld.log"), text)
        self.options("--cache 'x")
        self.assertIn("DIESEL_DAEMON_OPTIONS", self.refused())

    def test_no_memory(self):
        self.wrapper("ulimit -v 12000")
        self.assertIn("dieseld does not start (", self.refused())

    def test_killed_at_the_start(self):
        self.wrapper("kill -9 $$")
        self.assertIn("it exited without a message", self.refused())

    def test_a_log_that_has_grown(self):
        os.mkdir(self.folder, 0o700)
        log = pathlib.Path(self.folder, "dieseld.log")
        log.write_bytes(b"x\n" * (1 << 20))
        opened(self.dataset)
        self.assertLess(log.stat().st_size, 4096)
        self.assertTrue(os.path.exists(f"{log}.old"))


class Header(unittest.TestCase):
    def test_the_nodes_socket(self):
        text = (ROOT / "client/include/client/diesel.h").read_text()
        self.assertIn(f'#define DIESEL_DEFAULT_SOCKET "{on_demand.NODE_SOCKET}"', text)


if __name__ == "__main__":
    require(DIESELD)
    unittest.main(verbosity=2)
