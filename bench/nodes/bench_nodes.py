# SPDX-License-Identifier: Apache-2.0
"""A job over four nodes: real dieselds, each in a network namespace whose link is held to a rate each way, a real Redis, one folder as
shared storage, and a rank a node that goes in step with the others (rank.c). All of it shares this machine's cores.

    job        samples of 4 KiB, memory for a third of the dataset a node: reads from storage by epoch, samples a second of all ranks once
               the nodes have all of it, bytes over the links, CPU time of the dieselds
    memcached  the same samples as values, spread over four servers, one a node; one client a node asks all of them, 100 values a
               request and one request under way at each server

    bench_nodes.py [--mbit N] [--epochs N] [--mib N]
"""
import argparse
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve()
sys.path[:0] = [str(HERE.parent.parent), str(HERE.parent.parent / "at_rest")]
import stores
import support
from bench_cluster import take
from serving import pack

N, SAMPLE, BATCH = 4, 4096, 64
PORT, A_REQUEST = 11299, 100


def ip(*words):
    subprocess.run(["ip", *words], check=True)


class Net:
    """Namespaces of nodes around a bridge in one of its own; each link is shaped at both ends."""

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
        return ["ip", "netns", "exec", self.names[i] if i >= 0 else self.hub]

    def received(self, i):
        """Bytes that came to this node."""
        out = subprocess.run([*self.wrap(i), "cat", "/sys/class/net/eth0/statistics/rx_bytes"], capture_output=True, text=True, check=True).stdout
        return int(out)


class Node:
    def __init__(self, net, i, folder, redis, cache):
        self.net, self.i, self.socket = net, i, folder / f"node{i}.sock"
        self.command = [*net.wrap(i), support.program("dieseld"), "--socket", self.socket, "--metrics", "off", "--tune", "off", "--cache", str(cache),
                        "--cluster", redis, "--cluster-listen", f"{net.hosts[i]}:7700", "--cluster-name", f"node{i}", "--cluster-key", folder / "key"]
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

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        self.process.wait()
        self.log.close()


class Job:
    """Its ranks, one a node."""

    def __init__(self, program, nodes, dataset, epochs, name, folder):
        self.processes = [subprocess.Popen(
            [*node.net.wrap(node.i), program, dataset, str(i), str(len(nodes)), str(BATCH), str(epochs), name, folder / f"{name}.steps"],
            env=os.environ | {"DIESEL_SOCKET": str(node.socket)}, stdout=subprocess.PIPE, text=True) for i, node in enumerate(nodes)]

    def epoch(self):
        """Samples of all ranks in their next epoch, and its seconds."""
        lines = [p.stdout.readline() for p in self.processes]
        if not all(lines):
            raise SystemExit("a rank has ended")
        found = [json.loads(line) for line in lines]
        return sum(f["samples"] for f in found), max(f["seconds"] for f in found)

    def end(self):
        for p in self.processes:
            p.wait()


def job(net, nodes, program, dataset, n_chunks, epochs, folder):
    run, rows, reads = Job(program, nodes, dataset, epochs, "bench", folder), [], 0
    for _ in range(epochs):
        cpu, came = stores.usage.cpu_of([node.process.pid for node in nodes]), sum(map(net.received, range(N)))
        samples, seconds = run.epoch()
        now = sum(node.reads() for node in nodes)
        rows.append({"samples": samples, "seconds": seconds, "reads_a_chunk": (now - reads) / n_chunks,
                     "received": sum(map(net.received, range(N))) - came,
                     "cpu_s": stores.usage.cpu_of([node.process.pid for node in nodes]) - cpu})
        reads = now
    run.end()
    return rows


# ---- memcached --------------------------------------------------------------------------------------------


def key(i):
    return b"%08d" % i


def client(rank, n_keys, seconds, hosts):
    """Values of its share of the keys, a request after the other at each server, all of them under way at once."""
    servers = [socket.create_connection((host, PORT)) for host in hosts]
    buffer = bytearray(1 << 20)
    mine = [[i for i in range(rank, n_keys, N) if i // N % len(hosts) == s] for s in range(len(hosts))]
    if rank == 0:
        for i in range(n_keys):
            servers[i // N % len(hosts)].sendall(b"set %s 0 0 %d noreply\r\n%s\r\n" % (key(i), SAMPLE, os.urandom(64) * (SAMPLE // 64)))
    print("ready", flush=True)
    sys.stdin.readline()
    answer = A_REQUEST * (len(b"VALUE  0 4096\r\n") + 8 + SAMPLE + 2) + len(b"END\r\n")
    begin, n = time.monotonic(), 0
    while time.monotonic() < begin + seconds:
        for keys, s in zip(mine, servers):
            at = n * A_REQUEST % (len(keys) - A_REQUEST)
            s.sendall(b"get " + b" ".join(map(key, keys[at:at + A_REQUEST])) + b"\r\n")
        for s in servers:
            take(s, answer, buffer)
        n += 1
    print(n * A_REQUEST * len(hosts) / (time.monotonic() - begin))


def memcached(net, n_keys, seconds):
    """Values a second of all clients, and CPU seconds of the servers a GiB."""
    servers = [subprocess.Popen([*net.wrap(i), "memcached", "-l", net.hosts[i], "-p", str(PORT), "-U", "0", "-u", "nobody", "-m", "1024"]) for i in range(N)]
    time.sleep(1)
    try:
        clients = [subprocess.Popen([*net.wrap(i), sys.executable, HERE, "--client", str(i), str(n_keys), str(seconds), *net.hosts],
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for i in range(N)]
        for c in clients:
            c.stdout.readline()
        cpu = stores.usage.cpu_of([s.pid for s in servers])
        for c in clients:
            c.stdin.write("\n")
            c.stdin.flush()
        rate = sum(float(c.stdout.readline()) for c in clients)
        cpu = stores.usage.cpu_of([s.pid for s in servers]) - cpu
        for c in clients:
            c.wait()
    finally:
        for s in servers:
            s.kill()
            s.wait()
    return {"per_s": rate, "cpu_s_per_gib": cpu / (rate * seconds * SAMPLE / 2**30)}


def rank_program(folder):
    lib = pathlib.Path(os.environ.get("DIESEL_LIB", support.ROOT / "build/release/lib"))
    return support.build(folder, HERE.parent / "rank.c", "-D_GNU_SOURCE", f"-I{support.ROOT / 'client/include'}", f"-L{lib}", "-ldiesel",
                         f"-Wl,-rpath,{lib}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mbit", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--mib", type=int, default=800)
    parser.add_argument("--client", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        rank, n_keys, seconds, *hosts = options.client
        client(int(rank), int(n_keys), float(seconds), hosts)
        return
    if os.geteuid() != 0:
        support.skip("namespaces need root")
    n_samples = (options.mib << 20) // SAMPLE
    with support.Scratch() as folder, Net(N, options.mbit) as net, support.Steal() as steal:
        program = rank_program(folder)
        support.random_files(folder / "files", n_samples, SAMPLE, per_class=1000)
        dataset = pack(folder / "files", folder / "data.diesel")
        n_chunks = len(list((pathlib.Path(dataset) / "chunks").glob("*.chunk")))
        (folder / "key").write_bytes(os.urandom(32))
        (folder / "key").chmod(0o600)
        redis = subprocess.Popen([*net.wrap(-1), "redis-server", "--bind", net.hub_host, "--port", "6390", "--protected-mode", "no", "--save", "",
                                  "--dir", folder], stdout=subprocess.DEVNULL)
        nodes = []
        try:
            nodes = [Node(net, i, folder, f"redis://{net.hub_host}:6390", (options.mib << 20) // 3 + (160 << 20)) for i in range(N)]
            rows = job(net, nodes, program, dataset, n_chunks, options.epochs, folder)
            cached = memcached(net, n_samples, 8)
        finally:
            for node in nodes:
                node.stop()
            redis.kill()
            redis.wait()
    stores.tell(steal)
    warm = rows[-1]
    elsewhere = warm["samples"] * (N - 1) / N * SAMPLE
    support.result_write("nodes", {"mbit": options.mbit, "chunks": n_chunks, "rows": rows, "memcached": cached, "steal": steal.ratio},
                         reads_a_chunk_first=rows[0]["reads_a_chunk"], reads_a_chunk_later=warm["reads_a_chunk"],
                         samples_per_s=warm["samples"] / warm["seconds"],
                         of_links=elsewhere / warm["seconds"] / (N * options.mbit * 1e6 / 8),
                         received_of_needed=warm["received"] / elsewhere, cpu_s_per_gib=warm["cpu_s"] / (elsewhere / 2**30),
                         memcached_per_s=cached["per_s"], memcached_cpu_s_per_gib=cached["cpu_s_per_gib"],
                         of_memcached=warm["samples"] / warm["seconds"] / cached["per_s"])


if __name__ == "__main__":
    main()
