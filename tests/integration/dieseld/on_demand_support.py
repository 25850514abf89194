# SPDX-License-Identifier: Apache-2.0
"""Runs daemons that the loader starts for the user, in the test's own folders, and a hostile user who listens in their place."""
import contextlib
import os
import pathlib
import signal
import socket
import tempfile
import unittest
from unittest import mock

from dieseld_support import BIN, SCRATCH, make_source, pack
from common.processes import process_stat
from common.users import MALLORY, Other
from common.waiting import wait_until

import diesel_loader

DIESELD = os.path.abspath(os.path.join(BIN, "dieseld"))
N = 400
needs_root = unittest.skipUnless(os.geteuid() == 0, "plays several users, which takes root")


def pid_of_daemon(dataset):
    return diesel_loader.status(dataset.socket)["pid"]


def opened(path):
    """Returns (pid of the daemon, its socket) for a process that opens the dataset."""
    dataset = diesel_loader.Dataset(path)
    return pid_of_daemon(dataset), dataset.socket


def daemons_in(folder):
    """Returns main processes of the daemons with a socket in this folder."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            command = pathlib.Path("/proc", pid, "cmdline").read_bytes().split(b"\0")
            state = process_stat(int(pid))
            if (any(os.fsencode(folder) + b"/" in word for word in command) and b"--exit-when-idle" in command
                    and state[0] == "dieseld" and state[1] != "Z"):
                found.append(int(pid))
    return found


def private(folder, uid):
    """Makes a folder that only this user can enter."""
    os.mkdir(folder, 0o700)
    os.chown(folder, uid, uid)
    return folder


class OnDemand(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dataset = pack(make_source(cls.__name__, N, lambda rng: 1000), f"{cls.__name__}.diesel")

    def setUp(self):
        self.top = tempfile.mkdtemp(prefix="od", dir=SCRATCH)
        os.chmod(self.top, 0o755)
        self.runtime = private(os.path.join(self.top, "r"), os.geteuid())
        self.folder = os.path.join(self.runtime, "diesel")
        self.enterContext(mock.patch.dict(os.environ, XDG_RUNTIME_DIR=self.runtime, DIESEL_DAEMON=DIESELD))
        os.environ.pop("DIESEL_SOCKET", None)
        self.options("--cache 64M")
        self.addCleanup(self.end_daemons)

    def options(self, text):
        os.environ["DIESEL_DAEMON_OPTIONS"] = text

    def end_daemons(self):
        for pid in daemons_in(self.top):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        wait_until("the end of the daemons", lambda: not daemons_in(self.top))

    def wrapper(self, *lines):
        """Makes a program like dieseld that first runs these lines, except for --version."""
        path = os.path.join(self.top, "wrapped")
        with open(path, "w", encoding="ascii") as file:
            print("#!/bin/sh", f'[ "$1" = --version ] && exec {DIESELD} --version', *lines, f'exec {DIESELD} "$@"',
                  sep="\n", file=file)
        os.chmod(path, 0o755)
        os.environ["DIESEL_DAEMON"] = path

    def refused(self, **options):
        """Returns the one line of the error."""
        with self.assertRaises(ConnectionRefusedError) as caught:
            diesel_loader.Dataset(self.dataset, **options)
        text = caught.exception.strerror
        self.assertEqual(len(text.splitlines()), 1, text)
        return text

    def log(self):
        return pathlib.Path(self.folder, "dieseld.log").read_text()


def mallory(test, path):
    """Makes another user listen there. After any send(), finish() returns the first message of a client as hex, or None if none connected."""
    def listen(channel):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as end:
            end.bind(path)
            os.chmod(path, 0o777)
            end.listen()
            os.chmod(os.path.dirname(path), 0o755)
            channel.send("listening")
            channel.receive()
            end.setblocking(False)
            try:
                with end.accept()[0] as client:
                    client.settimeout(5)
                    return client.recv(1000).hex()
            except BlockingIOError:
                return None

    other = Other(listen, MALLORY)
    test.addCleanup(other.kill)
    test.assertEqual(other.receive(), "listening")
    return other
