# SPDX-License-Identifier: Apache-2.0
"""Nodes on one machine: a network namespace each, links limited to a rate, a real dieseld on each, ranks of jobs (rank.c)."""
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve()
sys.path[:0] = [str(HERE.parent.parent), str(HERE.parent.parent / "at_rest")]
import support

BATCH = 64


def ip(*words):
    subprocess.run(["ip", *words], check=True)


class Net:
    """A network namespace per node, and one with a bridge between them. Each link is shaped at both ends."""

    def __init__(self, n, mbit):
        tag = f"dsln{os.getpid() % 100000}"
        self.hub, self.names, self.mbit = f"{tag}h", [f"{tag}{i}" for i in range(n)], mbit
        self.hosts = [f"10.198.7.{i + 1}" for i in range(n)]
        self.hub_host = "10.198.7.254"

    def __enter__(self):
        for name in (self.hub, *self.names):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("-n", self.hub, "link", "add", "br0", "type", "bridge")
        ip("-n", self.hub, "addr", "add", f"{self.hub_host}/24", "dev", "br0")
        ip("-n", self.hub, "link", "set", "br0", "up")
        for i, (name, host) in enumerate(zip(self.names, self.hosts)):
            ip("link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", f"n{i}", "netns", self.hub)
            ip("-n", self.hub, "link", "set", f"n{i}", "master", "br0", "up")
            ip("-n", name, "addr", "add", f"{host}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            for where, device in ((name, "eth0"), (self.hub, f"n{i}")):
                subprocess.run(["ip", "netns", "exec", where, "tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate", f"{self.mbit}mbit",
                                "burst", "256k", "latency", "20ms"], check=True)
        return self

    def __exit__(self, *_):
        for name in (*self.names, self.hub):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def wrap(self, i):
        """Returns argv as a command in node i's network namespace only: mounts stay visible to all."""
        return ["nsenter", f"--net=/run/netns/{self.names[i] if i >= 0 else self.hub}"]

    def received(self, i):
        """Returns the bytes that came to this node."""
        out = subprocess.run(["ip", "-n", self.names[i], "-s", "-j", "link", "show", "eth0"], capture_output=True, text=True, check=True).stdout
        return json.loads(out)[0]["stats64"]["rx"]["bytes"]


class Node:
    def __init__(self, net, i, folder, cache, *cluster):
        self.net, self.i, self.socket = net, i, folder / f"node{i}.sock"
        self.command = [*net.wrap(i), support.program("dieseld"), "--socket", self.socket, "--metrics", "off", "--tune", "off", "--cache", str(cache),
                        *cluster]
        self.log = open(folder / f"node{i}.log", "w", encoding="utf-8")
        self.start()

    def start(self):
        self.process = subprocess.Popen(list(map(str, self.command)), stderr=self.log)
        support.wait_for(lambda: self.answers() is not None, "dieseld starts")

    def answers(self):
        done = subprocess.run([support.program("dieselctl"), "status", "--json", "--socket", self.socket], capture_output=True, text=True, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def reads(self):
        return self.answers()["cache"]["reads"]

    def bytes_in(self):
        """Returns the bytes from other nodes."""
        return self.answers()["cluster"]["bytes_in"]

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        self.process.wait()
        self.log.close()


class Job:
    """A job: its ranks, one per node."""

    stdin = subprocess.PIPE  # DEVNULL: epochs begin by themselves

    def __init__(self, program, nodes, dataset, epochs, name, folder, lanes=0, drift=0, is_shared=True):
        command = [str(BATCH), str(epochs), name if is_shared else "", folder / f"{name}.steps", str(lanes or len(nodes)), str(drift)]
        self.processes = [subprocess.Popen([*node.net.wrap(node.i), program, dataset, str(i), str(len(nodes)), *command],
                                           env=os.environ | {"DIESEL_SOCKET": str(node.socket)}, stdin=self.stdin, stdout=subprocess.PIPE, text=True)
                          for i, node in enumerate(nodes)]

    def epoch(self):
        """Returns the samples of all ranks in their next epoch, and its seconds."""
        for p in self.processes:
            p.stdin.write("\n")
            p.stdin.flush()
        lines = [p.stdout.readline() for p in self.processes]
        if not all(lines):
            raise SystemExit("a rank has ended")
        found = [json.loads(line) for line in lines]
        return sum(f["samples"] for f in found), max(f["seconds"] for f in found)

    def end(self):
        for p in self.processes:
            p.wait()


@contextlib.contextmanager
def fleet(net, folder, cache):
    """Yields (nodes, the URL of their Redis)."""
    (folder / "key").write_bytes(os.urandom(32))
    (folder / "key").chmod(0o600)
    redis = subprocess.Popen([*net.wrap(-1), "redis-server", "--bind", net.hub_host, "--port", "6390", "--protected-mode", "no", "--save", "",
                              "--dir", folder], stdout=subprocess.DEVNULL)
    url = f"redis://{net.hub_host}:6390"
    try:
        with started(Node(net, i, folder, cache, "--cluster", url, "--cluster-listen", f"{host}:7700", "--cluster-name", f"node{i}",
                          "--cluster-key", folder / "key") for i, host in enumerate(net.hosts)) as nodes:
            yield nodes, url
    finally:
        redis.kill()
        redis.wait()


@contextlib.contextmanager
def alone(net, folder, cache):
    """Yields nodes that share nothing with each other."""
    folder.mkdir()
    with started(Node(net, i, folder, cache) for i in range(len(net.hosts))) as nodes:
        yield nodes


@contextlib.contextmanager
def started(starting):
    nodes = []
    try:
        for node in starting:
            nodes.append(node)
        yield nodes
    finally:
        for node in nodes:
            node.stop()


def rank_program(folder):
    lib = pathlib.Path(os.environ.get("DIESEL_LIB", support.ROOT / "build/release/lib"))
    return support.build(folder, HERE.parent / "rank.c", "-D_GNU_SOURCE", f"-I{support.ROOT / 'client/include'}", f"-L{lib}", "-ldiesel",
                         f"-Wl,-rpath,{lib}")
