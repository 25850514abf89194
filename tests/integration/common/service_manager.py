# SPDX-License-Identifier: Apache-2.0
"""A stand-in for systemd, as a test cannot start an instance of its own. It speaks the two protocols by which the manager
keeps descriptors over a restart, as sd_notify(3), sd_listen_fds(3) and systemd.service(5) describe them.

FDSTORE=1 with FDNAME= and descriptors (SCM_RIGHTS) over NOTIFY_SOCKET stores them, FileDescriptorStoreMax= of them at
most. FDSTOREREMOVE=1 with FDNAME= closes all of that name. At the next start they are descriptors 3, 4 ... with
LISTEN_PID, LISTEN_FDS and LISTEN_FDNAMES, and stay stored. Real systemd is in test_package_clean.py.
"""
import array
import fcntl
import os
import socket
import subprocess
import sys
import tempfile
import threading

from common.waiting import wait_until
from dieseld_support import SCRATCH, Daemon

# Moves the descriptors to their expected numbers and executes the program. LISTEN_PID is its own process id.
LAUNCH = """
import fcntl, os, sys
n = int(sys.argv[1])
given = [int(fd) for fd in sys.argv[2:2 + n]]
high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 600) for fd in given]
for fd in given:
    os.close(fd)
for i, fd in enumerate(high):
    os.dup2(fd, 3 + i)
os.environ.setdefault("LISTEN_PID", str(os.getpid()))
os.execv(sys.argv[2 + n], sys.argv[2 + n:])
"""


class Store:
    def __init__(self, maximum=512):
        self.maximum, self.stored, self.refused = maximum, [], 0
        self.path = tempfile.mktemp(prefix="n", dir=SCRATCH)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.lock = threading.Lock()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        space = socket.CMSG_SPACE(253 * array.array("i").itemsize)
        while True:
            message, ancillary, _, _ = self.socket.recvmsg(4096, space)
            if message == b"END":
                return
            fds = array.array("i")
            for level, kind, data in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    fds.frombytes(data[:len(data) - len(data) % fds.itemsize])
            with self.lock:
                self.take(dict(line.split("=", 1) for line in message.decode().split("\n") if line), list(fds))

    def take(self, message, fds):
        if message.get("FDSTORE") == "1":
            while fds and len(self.stored) < self.maximum:
                self.stored.append((message.get("FDNAME", "stored"), fds.pop(0)))
            self.refused += len(fds)
        elif message.get("FDSTOREREMOVE") == "1":
            fds += [fd for name, fd in self.stored if name == message["FDNAME"]]
            self.stored = [(name, fd) for name, fd in self.stored if name != message["FDNAME"]]
        for fd in fds:
            os.close(fd)

    def chunks(self):
        """Returns descriptors of chunks by name."""
        with self.lock:
            assert len({name for name, _ in self.stored}) == len(self.stored), self.stored
            return {name: fd for name, fd in self.stored if name[0] == "c"}

    def descriptor(self, name):
        with self.lock:
            return next(fd for stored, fd in self.stored if stored == name)

    def replace(self, name, new):
        with self.lock:
            for i, (old_name, old) in enumerate(self.stored):
                if old_name == name:
                    os.close(old)
                    self.stored[i] = name, new
                    return
        raise KeyError(name)

    def wait_for(self, what, predicate):
        wait_until(what, lambda: predicate(self.chunks()))

    def close(self):
        """Drops all stored descriptors, like systemctl stop."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.sendto(b"END", self.path)
        self.thread.join()
        self.socket.close()
        for _, fd in self.stored:
            os.close(fd)
        self.stored = []


class KeptDaemon(Daemon):
    """A dieseld whose manager has this store."""

    def __init__(self, store, *options, **more):
        self.store, self.environment = store, {}
        super().__init__(*options, **more)

    def launch(self, ready):
        high = fcntl.fcntl(ready, fcntl.F_DUPFD_CLOEXEC, 900)
        with self.store.lock:
            names, fds = [name for name, _ in self.store.stored], [fd for _, fd in self.store.stored]
            environment = dict(os.environ, NOTIFY_SOCKET=self.store.path, FDSTORE=str(self.store.maximum),
                               LISTEN_FDS=str(len(fds)), LISTEN_FDNAMES=":".join(names), **self.environment)
            process = subprocess.Popen(
                [sys.executable, "-c", LAUNCH, str(len(fds)), *map(str, fds), *self.command, "--ready-fd", str(high)],
                pass_fds=[*fds, high], stderr=self.log, env=environment)
        os.close(high)
        return process
