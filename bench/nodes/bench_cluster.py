# SPDX-License-Identifier: Apache-2.0
"""Measures how much of the link between them two nodes use: dieseld-peer over TLS, in network namespaces whose link is limited to
a rate each way. The nodes are real processes without daemons around them (tests/integration/cluster/cluster_node.c), so
this measures the exchange, not a job.

    plain      bytes over one TCP connection, which is what the link gives
    chunks     of 8 MiB, 8 under way, one way and both ways at once
    questions  chunks of 1 KiB, one after the other (how long each takes) and 32 under way (CPU time)
    memcached  values of 4 KiB, 100 per request and two requests under way, in its text protocol: the rate of a cache whose unit is
               a sample, on the same link
    killed     from the end of the owner's process (SIGKILL) to the next chunk from it

    bench_cluster.py [--mbit N] [--seconds S]
"""
import argparse
import contextlib
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve()
sys.path[:0] = [str(HERE.parent.parent), *(str(HERE.parent.parent.parent / "tests/integration" / module) for module in ("", "cluster"))]
import support

CHUNK, SMALL, VALUE = 8 << 20, 1 << 10, 4096
AT_ONCE, QUESTIONS_AT_ONCE = 8, 32
KEYS, A_REQUEST = 10000, 100
PORT = 11299


# ---- programs within a namespace --------------------------------------------------------------------------


def take(s, n, buffer):
    while n > 0:
        got = s.recv_into(buffer, min(n, len(buffer)))
        if not got:
            raise EOFError
        n -= got


def plain_server(host, seconds):
    with socket.create_server((host, PORT)) as listener:
        print("ready", flush=True)
        s, _ = listener.accept()
        data = bytes(1 << 20)
        with contextlib.suppress(ConnectionError):
            while True:
                s.sendall(data)


def plain_client(host, seconds):
    s = socket.create_connection((host, PORT))
    buffer = bytearray(1 << 20)
    begin, total = time.monotonic(), 0
    while time.monotonic() < begin + seconds:
        total += s.recv_into(buffer)
    print(total / (time.monotonic() - begin))


def key(i):
    return b"k%06d" % (i % KEYS)


def memcached_client(host, seconds):
    s = socket.create_connection((host, PORT))
    buffer = bytearray(1 << 20)
    for i in range(KEYS):
        s.sendall(b"set %s 0 0 %d noreply\r\n%s\r\n" % (key(i), VALUE, bytes([i % 256]) * VALUE))
    answer = A_REQUEST * (len(b"VALUE  0 4096\r\n") + len(key(0)) + VALUE + 2) + len(b"END\r\n")
    requests = [b"get " + b" ".join(key(i) for i in range(at, at + A_REQUEST)) + b"\r\n" for at in range(0, KEYS, A_REQUEST)]
    s.sendall(requests[0])
    first = b""
    while len(first) < answer:
        first += s.recv(answer - len(first))
    if first.count(b"VALUE ") != A_REQUEST or not first.endswith(b"\r\nEND\r\n"):
        raise SystemExit("memcached sent an unexpected answer")
    s.sendall(requests[0])
    begin, n = time.monotonic(), 0
    while time.monotonic() < begin + seconds:
        s.sendall(requests[(n + 1) % len(requests)])
        take(s, answer, buffer)
        n += 1
    took = time.monotonic() - begin
    print(n * A_REQUEST * VALUE / took)


WITHIN = {f.__name__: f for f in (plain_server, plain_client, memcached_client)}


# ---- the bench --------------------------------------------------------------------------------------------


def within(link, i, name, host, seconds, **options):
    return subprocess.Popen([*link.wrap(i), sys.executable, str(HERE), "--within", name, host, str(seconds)], stdout=subprocess.PIPE,
                            text=True, **options)


def figure(process):
    out, _ = process.communicate()
    if process.returncode:
        raise SystemExit("a program of the benchmark failed")
    return float(out)


def plain(link, seconds):
    server = within(link, 1, "plain_server", link.hosts[1], seconds)
    server.stdout.readline()
    rate = figure(within(link, 0, "plain_client", link.hosts[1], seconds))
    server.wait()
    return rate


def memcached(link, seconds):
    server = subprocess.Popen([*link.wrap(1), "memcached", "-l", link.hosts[1], "-p", str(PORT), "-U", "0", "-u", "nobody", "-m", "256"])
    try:
        time.sleep(1)
        return figure(within(link, 0, "memcached_client", link.hosts[1], seconds))
    finally:
        server.kill()
        server.wait()


def cpu_s(pids):
    total = 0
    for pid in pids:
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


class Pull:
    """A node that keeps at_once of the other's chunks under way."""

    def __init__(self, node, size, at_once):
        self.node, self.size = node, size
        self.free = node.not_ours(size, 2 * at_once)
        self.busy = []
        self.n = 0
        for _ in range(at_once):
            self.ask()

    def ask(self):
        number = self.free.pop(0)
        self.node.ask(number, self.size, 60000)
        self.busy.append(number)

    def take(self):
        number = self.busy.pop(0)
        done = self.node.wait("done", number)
        if done[2] != "0":
            raise SystemExit(f"a chunk did not arrive: {' '.join(done)}")
        self.free.append(number)
        self.n += 1
        self.ask()

    def drain(self):
        for number in self.busy:
            self.node.wait("done", number)


def pull(nodes, size, at_once, seconds):
    """Returns bytes per second in total, CPU seconds of both processes, and the number of chunks that arrived."""
    pids = [node.talker() for node in nodes[:2]]
    pulls = [Pull(node, size, at_once) for node in nodes[2:] or nodes[:1]]
    for p in pulls:
        p.take()
    cpu, begin, before = cpu_s(pids), time.monotonic(), sum(p.n for p in pulls)
    while time.monotonic() < begin + seconds:
        for p in pulls:
            p.take()
    took, n = time.monotonic() - begin, sum(p.n for p in pulls) - before
    cpu = cpu_s(pids) - cpu
    for p in pulls:
        p.drain()
    return n * size / took, cpu, n


def one_by_one(node):
    number, = node.not_ours(SMALL)
    times = []
    for _ in range(300):
        begin = time.monotonic()
        if node.fetch(number, SMALL):
            raise SystemExit("a chunk did not arrive")
        times.append(time.monotonic() - begin)
    return statistics.median(times)


def killed(a, b, kill):
    number, = a.not_ours(SMALL)
    begin = time.monotonic()
    kill(b.talker())
    time.sleep(0.05)
    while a.fetch(number, SMALL, 1500) != 0:
        time.sleep(0.01)
    return time.monotonic() - begin


def measure(link, cluster, seconds, kill):
    a, b = (cluster.node(name, f"{link.hosts[i]}:7700", key=cluster.key(), wrap=link.wrap(i)) for i, name in enumerate("ab"))
    for node in (a, b):
        node.members(2)
        node.answers("kept")  # other work of the nodes is not measured
    raw = {"plain": [], "chunks": [], "memcached": [], "cpu_s_per_gib": []}
    for _ in range(3):  # alternated, as the machine's speed changes from minute to minute
        raw["plain"].append(plain(link, seconds))
        rate, cpu, n = pull([a, b], CHUNK, AT_ONCE, seconds)
        raw["chunks"].append(rate)
        raw["cpu_s_per_gib"].append(cpu / (n * CHUNK / 2**30))
        raw["memcached"].append(memcached(link, seconds))
    raw["both_ways"] = pull([a, b, a, b], CHUNK, AT_ONCE, seconds)[0]
    _, cpu, n = pull([a, b], SMALL, QUESTIONS_AT_ONCE, seconds)
    raw["question_cpu_us"] = cpu / n * 1e6
    raw["questions_per_s"] = n / seconds
    raw["question_s"] = one_by_one(a)
    raw["killed_s"] = [killed(a, b, kill) for _ in range(3)]
    return raw


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mbit", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--within", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.within:
        name, host, seconds = options.within
        WITHIN[name](host, float(seconds))
        return
    support.program("cluster_node")
    os.environ.setdefault("DIESEL_BIN", str(support.ROOT / "build/release/bin"))
    import test_cluster_links as links
    from cluster_support import Cluster, kill
    if links.WHY:
        support.skip(links.WHY)
    with links.Link() as link, Cluster() as cluster, support.Steal() as steal:
        for i in (0, 1):
            link.shape(i, "rate", f"{options.mbit}mbit", "burst", "256k", "latency", "10ms")
        raw = measure(link, cluster, options.seconds, kill)
    raw["mbit"], raw["steal"], raw["neighbours"] = options.mbit, steal.ratio, steal.neighbours
    middle = {name: statistics.median(raw[name]) for name in ("plain", "chunks", "memcached", "cpu_s_per_gib", "killed_s")}
    support.result_write("cluster", raw, link_mb_per_s=middle["plain"] / 1e6, chunks_mb_per_s=middle["chunks"] / 1e6,
                         chunks_of_link=middle["chunks"] / middle["plain"], both_ways_mb_per_s=raw["both_ways"] / 1e6,
                         memcached_mb_per_s=middle["memcached"] / 1e6, samples_of_memcached=middle["chunks"] / middle["memcached"],
                         exchange_cpu_s_per_gib=middle["cpu_s_per_gib"], exchange_question_us=raw["question_cpu_us"],
                         question_ms=raw["question_s"] * 1e3, back_after_kill_s=middle["killed_s"])


if __name__ == "__main__":
    main()
