# SPDX-License-Identifier: Apache-2.0
"""Helpers for tests that act as a hostile user of the node: another uid, user and mount namespaces, a client that speaks the wire protocol
without libdiesel and sends anything."""
import array
import contextlib
import ctypes
import json
import mmap
import os
import pathlib
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import time
import traceback

MALLORY, ALICE = 65534, 12345
CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
_libc = ctypes.CDLL(None, use_errno=True)
_HEADER = pathlib.Path(__file__).resolve().parents[3] / "client/include/client/protocol.h"
_TEXT = _HEADER.read_text()
VERSION = int(re.search(r"#define WIRE_VERSION\s+(\d+)u", _TEXT).group(1))
REVISION = int(re.search(r"#define WIRE_REVISION\s+(\d+)u", _TEXT).group(1))
REST_BYTES = sum(map(int, re.search(r"struct wire_open_session\) == (\d+) \+ (\d+)", _TEXT).groups())) - 72  # zeros: from the recipe on
MAGIC = int(re.search(r"#define WIRE_MAGIC\s+(0x[0-9a-f]+)u", _TEXT).group(1), 16)
TYPES = {name: int(value) for name, value in re.findall(r"^\tWIRE_([A-Z_]+) = (\d+),", _TEXT, re.M)}


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


ACL = "system.posix_acl_access"


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


class Refused(Exception):
    def __init__(self, code, text):
        super().__init__(f"{text} ({code})")
        self.code, self.text = code, text


class Client:
    """A connection to dieseld that sends anything."""

    def __init__(self, path, hello=True, timeout=60):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(timeout)
        self.socket.connect(path)
        if hello:
            self.call("HELLO", struct.pack("<IIII", MAGIC, VERSION, 0, REVISION))

    def send(self, kind, body=b"", fds=()):
        control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        header = struct.pack("<IHH", TYPES[kind], 8 + len(body), 0 if kind in ("HELLO", "KICK", "FETCHED") else 1)
        self.socket.sendmsg([header + body], control)

    def receive(self):
        """Returns (name of the message, its body, descriptors). Raises Refused for ERROR."""
        data, control, _, _ = self.socket.recvmsg(65536, 4096)
        fds = array.array("i")
        for level, kind, content in control:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds.frombytes(content[:len(content) - len(content) % fds.itemsize])
        if not data:
            raise ConnectionResetError("cut off")
        number = struct.unpack_from("<I", data)[0]
        if number == TYPES["ERROR"]:
            raise Refused(struct.unpack_from("<i", data, 8)[0], data[16:].split(b"\0")[0].decode())
        return next(name for name, value in TYPES.items() if value == number), data[8:], list(fds)

    def call(self, kind, body=b"", fds=()):
        self.send(kind, body, fds)
        return self.receive()

    def send_open_dataset(self, path, flags=0):
        directory, snapshot = os.open(path, os.O_PATH), os.open(os.path.join(path, "snapshot"), os.O_RDONLY)
        try:
            self.send("OPEN_DATASET", struct.pack("<QII", 0, flags, 0), [directory, snapshot])
        finally:
            os.close(directory)
            os.close(snapshot)

    def open_dataset(self, path, flags=0):
        self.send_open_dataset(path, flags)
        for fd in self.receive()[2]:
            os.close(fd)

    def open_session(self, batch=1, window=1, slots=0, epoch=0, seed=1, world=1, rank=0, subset=0):
        """Returns the session's descriptors: control and slots."""
        return self.call("OPEN_SESSION", struct.pack("<QQQQIIIIIIII", seed, epoch, 0, subset, 1, rank, world, batch, 1, 0,
                                                     window, slots) + bytes(REST_BYTES))[2]

    def segment(self, number):
        """Returns a descriptor of the segment, or raises Refused."""
        return self.call("SEGMENT", struct.pack("<QII", 0, number, 0))[2][0]

    def status(self):
        fd = self.call("STATUS")[2][0]
        with os.fdopen(fd, "rb") as f:
            f.seek(0)
            return json.loads(f.read().rstrip(b"\0"))

    def close(self):
        self.socket.close()


class Mirror:
    """A FUSE mount of a folder that can be made to hang. reason: why it is impossible here."""

    def __init__(self, program, source, mount):
        self.source, self.mount = source, mount
        os.makedirs(mount, exist_ok=True)
        self.process = subprocess.Popen([program, source, mount], stderr=subprocess.DEVNULL)
        wait_until("the mount", lambda: os.path.ismount(mount))

    @staticmethod
    def reason(program):
        if not os.path.exists(program) or not os.path.exists("/dev/fuse"):
            return "no libfuse3 when this was built, or no /dev/fuse"
        return None

    def hang(self):
        self.process.send_signal(signal.SIGSTOP)
        wait_until("the stop", lambda: process_stat(self.process.pid)[1] == "T")

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def close(self):
        self.process.kill()
        self.process.wait()
        subprocess.run(["umount", "-l", self.mount], check=False)


def process_stat(pid):
    """Returns (name, state, parent) of a process, or None if it is gone."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")
    return (name, rest.split()[0], int(rest.split()[1]))


def is_killed(pid):
    """Returns whether SIGKILL is pending for a process that has not ended yet."""
    try:
        text = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    pending = re.findall(r"^(?:SigPnd|ShdPnd):\s*([0-9a-f]+)$", text, re.M)
    return any(int(mask, 16) & 1 << signal.SIGKILL - 1 for mask in pending)


def openers(daemon_pid):
    """Returns processes that open datasets for this daemon."""
    found = {int(pid): process_stat(pid) for pid in os.listdir("/proc") if pid.isdigit()}
    fork_server = [pid for pid, s in found.items() if s and s[0] == "dieseld-forks" and s[2] == daemon_pid]
    return [pid for pid, s in found.items()
            if s and s[0] == "dieseld-opener" and s[2] in fork_server and s[1] != "Z"]


def files_of(pid):
    """Returns the open files of a process, without waiting for their file system."""
    links = []
    with contextlib.suppress(OSError):  # the process has ended
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                links.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
    return links


def look_for(fd, needle):
    """Returns whether the memory behind the descriptor has these bytes, and closes it."""
    with mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ) as memory:
        os.close(fd)
        return memory.find(needle) >= 0


def wait_until(what, predicate, seconds=60):
    end = time.monotonic() + seconds
    while not predicate():
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not happen")
        time.sleep(0.01)
