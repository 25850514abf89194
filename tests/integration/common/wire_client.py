# SPDX-License-Identifier: Apache-2.0
"""A client of dieseld that speaks the wire protocol without libdiesel, and sends anything."""
import array
import json
import mmap
import os
import pathlib
import re
import socket
import struct

from common.processes import every_process, is_alive, named, parent

_HEADER = pathlib.Path(__file__).resolve().parents[3] / "client/include/client/protocol.h"
_TEXT = _HEADER.read_text()
VERSION = int(re.search(r"#define WIRE_VERSION\s+(\d+)u", _TEXT).group(1))
REVISION = int(re.search(r"#define WIRE_REVISION\s+(\d+)u", _TEXT).group(1))
REST_BYTES = sum(map(int, re.search(r"struct wire_open_session\) == (\d+) \+ (\d+)", _TEXT).groups())) - 72  # zeros: from the recipe on
MAGIC = int(re.search(r"#define WIRE_MAGIC\s+(0x[0-9a-f]+)u", _TEXT).group(1), 16)
TYPES = {name: int(value) for name, value in re.findall(r"^\tWIRE_([A-Z_]+) = (\d+),", _TEXT, re.M)}


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
        """Returns the descriptors of the session: control and slots."""
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


def look_for(fd, needle):
    """Returns whether the memory behind the descriptor has these bytes, and closes it."""
    with mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ) as memory:
        os.close(fd)
        return memory.find(needle) >= 0


def openers(daemon_pid):
    """Returns the processes that open datasets for this daemon."""
    servers = [pid for pid in named("dieseld-forks", every_process()) if parent(pid) == daemon_pid]
    return [pid for pid in named("dieseld-opener", every_process()) if is_alive(pid) and parent(pid) in servers]
