# SPDX-License-Identifier: Apache-2.0
"""Injects faults into the nodes of a job, drawn from a seed, each with a beginning, a length and an end."""
import contextlib
import os
import pathlib
import random
import signal
import socket
import threading
import time

from common.processes import family, named, send
from nodes import Node, PATIENCE_S, support

KINDS = ("daemon", "peer", "stopped_peer", "stopped_daemon", "redis", "stopped_redis", "flushed", "forged", "port", "chunk")


def draw(seed, n):
    """Returns (kind, length in seconds, seed of its other choices). All kinds come in every round, each round in another order."""
    rng, plan = random.Random(seed), []
    while len(plan) < n:
        plan += [(kind, 0.2 + 2.8 * rng.random() ** 3, rng.getrandbits(32)) for kind in rng.sample(KINDS, len(KINDS))]
    return plan[:n]


def talker(pid):
    """Returns the process dieseld-peer of a daemon, or None while there is none."""
    return next(iter(named("dieseld-peer", family(pid))), None)


class FixedNode(Node):
    """A node that listens at the same port after each start, and is down for a while in between."""

    def __init__(self, redis, name, **more):
        self.port, self.lock = support.free_port(), threading.Lock()
        super().__init__(redis, name, "--cluster-listen", f"127.0.0.1:{self.port}", **more)

    def n_alone(self):
        """Returns how often the log reported that the port had been taken for long."""
        return self.daemon.output().count("This node shares no chunks")


class Squatter:
    """A stranger at a node's port, which answers anything or nothing."""

    def __init__(self, port, rng):
        self.rng, self.taken = rng, []
        self.listening = socket.create_server(("127.0.0.1", port))
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                connection = self.listening.accept()[0]
                self.taken.append(connection)
                if self.rng.random() < 0.5:
                    with contextlib.suppress(OSError):
                        connection.sendall(self.rng.randbytes(self.rng.randrange(1, 4096)))

    def close(self):
        with contextlib.suppress(OSError):
            self.listening.shutdown(socket.SHUT_RDWR)
        self.thread.join(PATIENCE_S)
        self.listening.close()
        for connection in self.taken:
            connection.close()


class Faults:
    """Faults, two at a time, but only one at a time of one object, be it a node, Redis or a chunk."""

    def __init__(self, redis, nodes, path, plan):
        self.redis, self.nodes, self.plan = redis, nodes, list(enumerate(plan))
        self.chunks, self.path = support.chunk_files(path), path
        self.redis_lock, self.chunk_lock, self.next_lock = threading.Lock(), threading.Lock(), threading.Lock()
        self.whole = threading.Event()  # set while no chunk is damaged
        self.whole.set()
        self.n_damaged, self.wrong, self.done, self.over = 0, [], [], threading.Event()
        self.lanes = [threading.Thread(target=self.lane, daemon=True) for _ in range(2)]

    def start(self):
        for lane in self.lanes:
            lane.start()

    def end(self):
        self.over.set()
        for lane in self.lanes:
            if lane.ident:
                lane.join(PATIENCE_S)

    def lane(self):
        try:
            while not self.over.is_set():
                with self.next_lock:
                    if not self.plan:
                        return
                    i, (kind, length_s, seed) = self.plan.pop(0)
                rng = random.Random(seed)
                print(f"fault {i}: {kind} for {length_s:.2f} s", flush=True)
                getattr(self, "do_" + kind)(rng, length_s)
                self.done.append(kind)
                time.sleep(0.5 * rng.random())
        except BaseException as error:  # noqa: BLE001: it is the test's
            self.wrong.append(error)
            self.over.set()

    def do_daemon(self, rng, length_s):
        node = rng.choice(self.nodes)
        with node.lock:
            node.daemon.kill()
            time.sleep(length_s / 3)
            node.daemon.start()

    def do_port(self, rng, length_s):
        """Other nodes find a stranger in the node's place. The node is alone until it can listen there again."""
        node = rng.choice(self.nodes)
        with node.lock:
            node.daemon.kill()
            squatter = self.squat(node.port, rng)
            try:
                time.sleep(length_s / 3)
                node.daemon.start()
                time.sleep(length_s / 3)
            finally:
                squatter.close()

    @staticmethod
    def squat(port, rng):
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                return Squatter(port, rng)
            except OSError:  # the process that listened before ends when it sees that its daemon has ended
                if time.monotonic() > end:
                    raise
                time.sleep(0.02)

    def do_peer(self, rng, length_s):
        pid = talker(rng.choice(self.nodes).daemon.process.pid)
        if pid:
            send(pid, signal.SIGKILL)

    def do_stopped_peer(self, rng, length_s):
        pid = talker(rng.choice(self.nodes).daemon.process.pid)
        if pid:
            send(pid, signal.SIGSTOP)
            time.sleep(length_s)  # the squatter keeps the port also if the node's daemon is killed meanwhile
            send(pid, signal.SIGCONT)

    def do_stopped_daemon(self, rng, length_s):
        node = rng.choice(self.nodes)
        with node.lock:
            node.daemon.process.send_signal(signal.SIGSTOP)
            time.sleep(length_s / 2)
            node.daemon.process.send_signal(signal.SIGCONT)

    def do_redis(self, rng, length_s):
        with self.redis_lock:
            self.redis.stop()
            time.sleep(length_s)
            self.redis.start()

    def do_stopped_redis(self, rng, length_s):
        with self.redis_lock:
            self.redis.send(signal.SIGSTOP)
            try:
                time.sleep(length_s)
            finally:
                self.redis.send(signal.SIGCONT)

    def do_flushed(self, rng, length_s):
        with self.redis_lock:
            self.redis.cli("flushall")

    def do_forged(self, rng, length_s):
        """Writes wrong values at the registry's keys, also of unknown members, until the nodes write theirs again."""
        with self.redis_lock:
            for key in self.redis.cli("--raw", "keys", "*cluster*").split():
                value = self.redis.ask((b"get", key))[0]
                if not value:  # the key has expired meanwhile
                    continue
                forge = rng.choice(("bytes", "cut", "flipped", "other type", "other address", "another node", "far weight"))
                if not value.startswith(b"diesel-node"):  # a set, or a report
                    forge = rng.choice(("bytes", "other type", ""))
                self.forge(rng, key, value, forge)

    def forge(self, rng, key, value, forge):
        lines = value.split(b"\n")
        elsewhere = f"address=127.0.0.1:{rng.choice(self.nodes).port}".encode()
        if forge == "bytes":
            self.redis.ask((b"set", key, rng.randbytes(rng.randrange(0, 4000)), b"px", b"2000"))
        elif forge == "cut":
            self.redis.ask((b"set", key, value[:rng.randrange(len(value))], b"px", b"2000"))
        elif forge == "flipped":
            at = rng.randrange(len(value))
            self.redis.ask((b"set", key, value[:at] + bytes([value[at] ^ 1 << rng.randrange(8)]) + value[at + 1:], b"px", b"2000"))
        elif forge == "other type":
            self.redis.ask((b"del", key), (b"lpush", key, b"x"))
        elif forge == "other address":
            lines = [elsewhere if line.startswith(b"address=") else line for line in lines]
            self.redis.ask((b"set", key, b"\n".join(lines), b"px", b"2000"))
        elif forge == "far weight":
            lines = [b"weight=18446744073709551615" if line.startswith(b"weight=") else line for line in lines]
            self.redis.ask((b"set", key, b"\n".join(lines), b"px", b"2000"))
        elif forge == "another node":
            name = b"nobody%d" % rng.randrange(4)
            lines = [b"node=" + name if line.startswith(b"node=") else line for line in lines]
            group = key[:key.index(b"}") + 1]
            self.redis.ask((b"set", group + b":node:" + name, b"\n".join(lines), b"px", b"3000"),
                           (b"zadd", group + b":nodes", b"9999999999999", name))

    def do_chunk(self, rng, length_s):
        """Puts damaged bytes in the place of some, then restores them. A job that reads a damaged chunk gets DamagedData."""
        with self.chunk_lock, contextlib.ExitStack() as restored:
            self.n_damaged += 1
            self.whole.clear()
            restored.callback(self.whole.set)
            for path in map(pathlib.Path, rng.sample(self.chunks, len(self.chunks) // 4)):
                kept, damaged = self.path.parent / f"kept-{path.name}", self.path.parent / f"damaged-{path.name}"
                data = bytearray(path.read_bytes())
                for _ in range(rng.randrange(1, 64)):
                    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
                damaged.write_bytes(data)
                damaged.chmod(path.stat().st_mode & 0o7777)
                os.link(path, kept)
                restored.callback(os.replace, kept, path)
                os.replace(damaged, path)
            self.do_daemon(rng, 0)  # the daemon has to read its chunks again
            time.sleep(length_s / 2)
