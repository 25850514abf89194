# SPDX-License-Identifier: Apache-2.0
"""Other users of the node: processes with another uid, and with user and mount namespaces of their own."""
import contextlib
import ctypes
import json
import os
import pathlib
import select
import shutil
import signal
import socket
import struct
import sys
import traceback

from dieseld_support import BIN, SCRATCH

MALLORY, ALICE = 65534, 12345
CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
ACL = "system.posix_acl_access"
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result, what):
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def become(uid):
    """Becomes that user permanently, with no group but its own: the rights of a login of that user."""
    if uid and set(os.getresuid()) == {uid}:
        return
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def enter_namespaces():
    """Enters namespaces like `unshare -Urm`: root of a user namespace of its own, with mounts that no other process sees."""
    uid, gid = os.getuid(), os.getgid()
    # A process that changed its uid owns its /proc/self again only if it is dumpable.
    _check(_libc.prctl(4, 1, 0, 0, 0), "prctl")
    _check(_libc.unshare(CLONE_NEWUSER | CLONE_NEWNS), "unshare")
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        pathlib.Path("/proc/self", name).write_text(text)
    _check(_libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "mount")


def bind(source, target):
    _check(_libc.mount(os.fsencode(source), os.fsencode(target), None, MS_BIND, None), f"bind {source}")


def set_acl(path, users, group=4, mask=4, others=4):
    """Sets an access control list, in the layout of acl(5): the owner may read and write, and a user has the rights in `users`."""
    anybody = 0xffffffff
    entries = [(0x01, 7 if os.path.isdir(path) else 6, anybody), *((0x02, bits, uid) for uid, bits in users.items()),
               (0x04, group, anybody), (0x10, mask, anybody), (0x20, others, anybody)]
    os.setxattr(path, ACL, struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries))


class Other:
    """Runs function(channel) in a process of another uid. finish() returns its result, or raises its exception."""

    def __init__(self, function, uid=MALLORY, namespaces=False):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            ours.close()
            self._run(function, Channel(theirs), uid, namespaces)
        theirs.close()
        self.channel = Channel(ours)

    @staticmethod
    def _run(function, channel, uid, namespaces):
        status = 1
        try:
            become(uid)
            if namespaces:
                enter_namespaces()
            channel.send({"result": function(channel)})
            status = 0
        except BaseException:  # also SystemExit and KeyboardInterrupt: the parent's must not run here
            with contextlib.suppress(OSError):
                channel.send({"raised": traceback.format_exc()[-4000:]})
        finally:
            os._exit(status)

    def receive(self, timeout=60):
        message = self.channel.receive(timeout)
        if isinstance(message, dict) and "raised" in message:
            raise AssertionError(message["raised"])
        return message

    def send(self, message):
        self.channel.send(message)

    def is_over(self):
        return bool(select.select([self.channel.end], [], [], 0)[0])

    def finish(self, timeout=60):
        try:
            while True:
                message = self.receive(timeout)
                if isinstance(message, dict) and "result" in message:
                    return message["result"]
        finally:
            self.kill()

    def kill(self):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0
            self.channel.close()


class Channel:
    """Messages (any JSON) between a test and the process that it plays."""

    def __init__(self, end):
        self.end = end

    def send(self, message):
        self.end.sendall(json.dumps(message).encode())

    def receive(self, timeout=60):
        self.end.settimeout(timeout)
        data = self.end.recv(1 << 16)
        if not data:
            raise EOFError("the other process is gone")
        return json.loads(data)

    def close(self):
        self.end.close()


def run_as(function, uid=MALLORY, namespaces=False, timeout=60):
    """Runs function() as that user, and returns its result (any JSON)."""
    return Other(lambda channel: function(), uid, namespaces).finish(timeout)


def as_user(uid):
    """Returns the arguments by which subprocess runs a program as that user."""
    return {"user": uid, "group": uid, "extra_groups": []}


def user_probe():
    """Returns a copy of the probe that other users can run."""
    program = os.path.join(SCRATCH, "probe")
    if not os.path.exists(program):
        shutil.copy(os.path.join(BIN, "daemon_probe"), program)
        os.chmod(program, 0o755)
    return program
