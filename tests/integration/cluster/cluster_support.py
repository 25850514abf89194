# SPDX-License-Identifier: Apache-2.0
"""Runs nodes of a cluster without daemons (cluster_node), and a peer in Python that sends anything."""
import errno
import os
import queue
import select
import socket
import struct
import subprocess
import tempfile
import threading
import time

from common.processes import children
from common.waiting import PATIENCE_S, wait_until
from free_ports import free_port

HELLO = struct.Struct("<8sIIQ64s64sQ")
FRAME = struct.Struct("<HHiQQQ16s16s")
MAGIC, VERSION = b"DSLPEER\0", 1
QUESTION, REFUSAL, PIECE, END, CANCEL, PING, PONG = range(1, 8)


class Cluster:
    """A folder with the list of nodes."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        os.chmod(self.folder.name, 0o755)
        self.path = os.path.join(self.folder.name, "nodes")
        self.nodes = {}
        self.running = []
        self.write()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for node in self.running:
            node.kill()
        self.folder.cleanup()

    def write(self):
        with open(self.path + ".new", "w") as f:
            f.writelines(f"{name} {address} {weight}\n" for name, (address, weight) in sorted(self.nodes.items()))
        os.rename(self.path + ".new", self.path)

    def add(self, name, address, weight=100):
        self.nodes[name] = (address, weight)
        self.write()

    def remove(self, name):
        del self.nodes[name]
        self.write()

    def key(self, text="0123456789abcdef0123456789abcdef", name="key"):
        path = os.path.join(self.folder.name, name)
        with open(path, "w") as f:
            f.write(text + "\n")
        os.chmod(path, 0o600)
        return path

    def node(self, name, address=None, key=None, join="job", wrap=(), **popen):
        address = address or f"127.0.0.1:{free_port()}"
        node = Node(self, name, address, key, wrap, popen)
        self.running.append(node)
        node.wait("ready")
        self.add(name, address)
        if join:
            node.say(f"join {join}")
            node.group = bytes.fromhex(node.wait("group")[1])
        return node


class Node:
    def __init__(self, cluster, name, address, key, wrap, popen):
        self.name, self.address = name, address
        self.errors = os.path.join(cluster.folder.name, f"{name}.errors")
        command = [*wrap, os.path.join(os.environ["DIESEL_BIN"], "cluster_node"), "file:" + cluster.path, name, address]
        with open(self.errors, "a") as errors:
            self.process = subprocess.Popen(command + ([key] if key else []), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=errors, text=True, bufsize=1, **popen)
        self.lines = queue.Queue()
        self.seen = []
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line.split())
        self.lines.put(None)

    @property
    def port(self):
        return int(self.address.rsplit(":", 1)[1])

    def say(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def wait(self, *words):
        """Returns the next line that begins with these words; other lines are kept for later."""
        words = [str(word) for word in words]
        for line in self.seen:
            if line[:len(words)] == words:
                self.seen.remove(line)
                return line
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                line = self.lines.get(timeout=max(0.01, end - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"node {self.name} did not say {words}; but {self.seen[-10:]}; {self.said()}") from None
            if line is None:
                raise AssertionError(f"node {self.name} has ended: {self.said()}")
            if line[:len(words)] == words:
                return line
            self.seen.append(line)

    def members(self, n):
        """Waits until n members can be reached, in lines after those that were waited for before."""
        while self.wait("members")[1] != str(n):
            pass

    def ask(self, number, size, ms=20000):
        self.say(f"fetch {number} {size} {ms}")

    def fetch(self, number, size, ms=None):
        """Returns 0 or the error of the fetch."""
        return self.result(f"fetch {number} {size} {ms or 20000}", number, ms is None)

    def result(self, order, number, may_be_late):
        """A node waits about 250 ms for a peer that has been fast. On a busy machine the peer may be late, and unreachable for a second.
        Tests of other things set may_be_late and try again."""
        end = time.monotonic() + PATIENCE_S
        late = False
        while True:
            self.say(order)
            self.done = self.wait("done", number)
            code = int(self.done[2])
            late = late or (may_be_late and code == -errno.ETIMEDOUT)
            if not late or code not in (-errno.ETIMEDOUT, -errno.EAGAIN) or time.monotonic() > end:
                break
            time.sleep(0.05)
        if late:
            self.seen = [line for line in self.seen if line[0] != "members"]
        return code

    def not_ours(self, size, n=1, start=0):
        """Returns numbers of chunks that others own."""
        found = []
        for number in range(start, start + 100000):
            self.say(f"ours {number} {size}")
            if self.wait("ours", number)[2] == "0":
                found.append(number)
                if len(found) == n:
                    return found
        raise AssertionError("all are ours")

    def answers(self, how):
        self.say(f"answers {how}")
        self.wait("ok")

    def held(self):
        self.say("held")
        return int(self.wait("held")[1])

    def peers(self):
        self.say("peers")
        self.wait("ok")
        found = {line[1]: [int(word) for word in line[2:]] for line in self.seen if line[0] == "peer"}
        self.seen = [line for line in self.seen if line[0] != "peer"]
        return found

    def said(self):
        with open(self.errors) as f:
            return f.read()

    def wait_said(self, text):
        wait_until(f"{text!r} in what {self.name} says: {self.said()}", lambda: text in self.said())

    def talker(self):
        """Returns the process id of dieseld-peer, or None while there is none."""
        for keeper in children(self.process.pid):
            for pid in children(keeper):
                return pid
        return None

    def end(self):
        self.say("end")
        return self.process.wait(PATIENCE_S)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stdin.close()


class Peer:
    """A connection that follows the protocol, or violates it."""

    def __init__(self, name, port=None, to="a", version=VERSION, host="127.0.0.1", hello=True, connection=None):
        self.s = connection or socket.create_connection((host, port), timeout=PATIENCE_S)
        self.s.settimeout(PATIENCE_S)
        self.name, self.rest = name, b""
        self.pending = []
        if hello:
            self.greet(to, version)

    def greet(self, to, version=VERSION):
        self.send(HELLO.pack(MAGIC, version, 0, 7, self.name.encode(), to.encode(), 0))

    def send(self, data):
        self.s.sendall(data)

    def frame(self, kind, id=1, code=0, size=0, value=0, group=bytes(16), chunk=bytes(16)):
        self.send(FRAME.pack(kind, 0, code, id, size, value, group, chunk))

    def take(self, n):
        data = b""
        while len(data) < n:
            more = self.s.recv(n - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def hello(self):
        return HELLO.unpack(self.take(HELLO.size))

    def next(self, *kinds):
        """Returns the next frame of these kinds, and a piece's bytes. Answers pings, and skips other frames."""
        while True:
            kind, _, code, id, size, value, group, chunk = FRAME.unpack(self.take(FRAME.size))
            data = self.take(size) if kind == PIECE else b""
            if kind == PING and kind not in kinds:
                self.frame(PONG, id)
            if kind in kinds:
                return kind, id, code, size, value, chunk, data

    def pong(self):
        """Shows that the peer is alive, without which a node sends it no question."""
        id = self.next(PING)[1]
        self.frame(PONG, id)

    def is_closed(self):
        """Waits for the other end to close, and ignores data until then."""
        try:
            while self.s.recv(1 << 16):
                pass
        except ConnectionError:
            pass
        return True

    def close(self):
        self.s.close()


class Listener:
    """A peer that accepts connections: its name comes after the node's."""

    def __init__(self, cluster, name="z", host="127.0.0.1"):
        self.s = socket.create_server((host, 0))
        self.s.settimeout(PATIENCE_S)
        self.name = name
        cluster.add(name, f"{host}:{self.s.getsockname()[1]}")

    def accept(self, hello=True):
        connection, _ = self.s.accept()
        peer = Peer(self.name, connection=connection, hello=False)
        if hello:
            to = peer.hello()[4].rstrip(b"\0").decode()
            peer.greet(to)
            peer.pong()
        return peer

    def close(self):
        self.s.close()


def chunk_bytes(number, size):
    mask = (1 << 64) - 1
    return struct.pack(f"<{size // 8 + 1}Q", *(((number + 1) * 0x9e3779b97f4a7c15 + i * i) & mask for i in range(size // 8 + 1)))[:size]


def chunk_id(number, size):
    return struct.pack("<QQ", number, size)


def can_read(s, seconds):
    return bool(select.select([s], [], [], seconds)[0])
