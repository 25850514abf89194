# SPDX-License-Identifier: Apache-2.0
"""Runs real Redis servers, single and as a cluster, on this machine's loopback, and makes datasets to keep there."""
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from common import commands  # noqa: E402
from free_ports import free_port  # noqa: E402

BIN = pathlib.Path(os.environ["DIESEL_BIN"])
# Programs that have to answer within a second get a core at once, where this user may ask for that: other tests keep all cores busy.
URGENT = ["chrt", "--rr", "1"]
if subprocess.run([*URGENT, "true"], capture_output=True, check=False).returncode:
    URGENT = []
NODE_TIMEOUT_MS = 1000


def dieselctl(*args, check=0, **environment):
    env = {k: v for k, v in os.environ.items() if not k.startswith("DIESEL_REDIS")} | environment
    return commands.dieselctl(*args, check=check, env=env)


class Server:
    def __init__(self, folder, *options, tls=()):
        self.folder, self.options, self.tls, self.password = folder, options, tls, None
        self.port = free_port()
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [*URGENT, "redis-server", *(("--port", "0", "--tls-port") if self.tls else ("--port",)), str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", "", *self.options],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        deadline = time.monotonic() + 60
        while b"PONG" not in self.cli("ping", check=False) and b"NOAUTH" not in self.cli("ping", check=False):
            assert self.process.poll() is None and time.monotonic() < deadline, "redis-server does not start"
            time.sleep(0.05)

    def cli(self, *args, check=True):
        secret = ["--no-auth-warning", "-a", self.password] if self.password else []
        secret += self.tls
        return subprocess.run(["redis-cli", "-p", str(self.port), *secret, *args], check=check, capture_output=True).stdout.strip()

    def ask(self, *commands):
        """Returns the replies of many commands, none of which is an array. Bytes pass unchanged. None: the value does not exist."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as s, s.makefile("rb") as replies:
            for words in commands:
                parts = [word if isinstance(word, bytes) else word.encode() for word in words]
                s.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts))
            told = []
            for _ in commands:
                line = replies.readline()[:-2]
                if line == b"$-1":
                    told.append(None)
                else:
                    told.append(replies.read(int(line[1:]) + 2)[:-2] if line[:1] == b"$" else line[1:])
            return told

    def url(self, prefix):
        return f"redis://127.0.0.1:{self.port}/{prefix}"

    def send(self, number):
        os.killpg(self.process.pid, number)

    def stop(self, number=signal.SIGKILL):
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass
        self.process.wait()


class Cluster:
    """n masters, which come first, and the given number of replicas of each."""

    def __init__(self, folder, n, n_replicas, *options, tls=()):
        self.nodes = []
        for i in range(n * (1 + n_replicas)):
            place = folder / f"node{i}"
            place.mkdir()
            self.nodes.append(Server(place, "--cluster-enabled", "yes", "--cluster-node-timeout", str(NODE_TIMEOUT_MS), "--repl-diskless-sync-delay", "0", "--appendonly", "yes",
                                     "--appendfsync", "everysec", *options, tls=tls))
        self.manage("create", *(f"127.0.0.1:{s.port}" for s in self.nodes), "--cluster-replicas", str(n_replicas), "--cluster-yes")
        self.wait()

    def manage(self, *args):
        done = subprocess.run(["redis-cli", *self.nodes[0].tls, "--cluster", *args], capture_output=True, text=True)
        if done.returncode:
            raise AssertionError(done.stdout + done.stderr)
        return done.stdout

    def slots(self, server):
        """Returns the slots that each master has, as this node knows them."""
        lines = server.cli("cluster", "nodes", check=False).decode().splitlines()
        return {node: sorted(slots) for node, _, flags, _, _, _, _, _, *slots in map(str.split, lines) if "master" in flags and slots}

    def is_whole(self):
        running = [s for s in self.nodes if s.process.poll() is None]
        slots = [self.slots(s) for s in running]
        return all(one == slots[0] for one in slots) and all(
            b"cluster_state:ok" in s.cli("cluster", "info", check=False) and
            (b"role:master" in (told := s.cli("info", "replication")) or b"master_link_status:up" in told) for s in running)

    def wait(self):
        """Waits until all running nodes agree, and no replica lags."""
        deadline = time.monotonic() + 60
        while not self.is_whole():
            assert time.monotonic() < deadline, "the cluster is not whole" + "".join(
                f"\n{s.port} says, {s.cli('info', 'replication', check=False).decode()}:\n{s.cli('cluster', 'nodes', check=False).decode()}" for s in self.nodes)
            time.sleep(0.05)

    def set_timeout(self, ms):
        """Sets how long a master may be silent before its replica replaces it."""
        for s in self.nodes:
            s.cli("config", "set", "cluster-node-timeout", str(ms))

    @contextlib.contextmanager
    def moving(self):
        """Lets no replica replace a busy master while slots move: a replica that does not know of the latest slot leaves it to nobody."""
        self.set_timeout(60 * NODE_TIMEOUT_MS)
        try:
            yield
            self.wait()
        finally:
            self.set_timeout(NODE_TIMEOUT_MS)

    def masters(self):
        return [s for s in self.nodes if s.process.poll() is None and b"role:master" in s.cli("info", "replication")]

    def id(self, server):
        return server.cli("cluster", "myid").decode()

    def slot(self, key):
        return int(self.nodes[0].cli("cluster", "keyslot", key))

    def owner(self, slot):
        """Returns the master that has a slot."""
        for first, last, master, *_ in json.loads(self.masters()[0].cli("--json", "cluster", "slots")):
            if first <= slot <= last:
                return next(s for s in self.nodes if s.port == master[1])
        raise AssertionError(f"nobody has slot {slot}")

    def stop(self):
        for s in self.nodes:
            s.stop()


@contextlib.contextmanager
def temporary():
    """Yields a folder and removes it."""
    with tempfile.TemporaryDirectory(prefix="diesel.", ignore_cleanup_errors=True) as path:
        yield pathlib.Path(path)


class Case(unittest.TestCase):
    """root: a folder of the test's own."""

    def setUp(self):
        self.root = self.enterContext(temporary())

    def serve(self, *options, **more):
        server = Server(self.root, *options, **more)
        self.addCleanup(server.stop)
        return server


def main(*programs):
    for program in ("redis-server", "redis-cli", *programs):
        if not shutil.which(program):
            print(f"skipped: there is no {program} (./dev deps installs it)")
            sys.exit(77)
    unittest.main(verbosity=2)


def make_source(folder, n, seed=1):
    generator = random.Random(seed)
    for i in range(n):
        path = folder / f"class{i % 3}" / f"{i}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(generator.randbytes(100 + i))


def content(dataset):
    listing = json.loads(dieselctl("ls", "-R", "--json", dataset).stdout)
    names = [entry["path"] for entry in listing]
    return names, subprocess.run([BIN / "dieselctl", "cat", dataset, *names], check=True, capture_output=True).stdout if names else b""
