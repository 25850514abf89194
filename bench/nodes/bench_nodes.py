# SPDX-License-Identifier: Apache-2.0
"""Measures a job over four nodes: real dieselds, each in a network namespace whose link has a rate limit in each direction, a real Redis, and
one folder as shared storage. Each node has a rank that stays in step with the others (rank.c). All nodes share this machine's cores. Samples
are 4 KiB.

    lanes      one lane per node, and a quarter of the memory of a node of `private`: reads from storage by epoch, bytes between nodes,
               samples per second of all ranks, CPU time of the dieselds
    private    the same with dieselds that do not share: each has memory for the whole dataset, and all use one order; epochs of
               `private` and `lanes` alternate
    drift      another order on the nodes with lanes: a quarter of the chunks moves to another lane in each epoch
    memcached  the same samples as values, spread over four servers, one per node; one client per node asks all servers, with 100 values
               per request and one request in progress at each server
    juicefs    some of the files on a JuiceFS whose metadata are in that Redis, a mount and a client per node; all files are in
               each node's cache, so no file crosses a link

    bench_nodes.py [--mbit N] [--epochs N] [--mib N]
"""
import argparse
import contextlib
import os
import pathlib
import random
import socket
import subprocess
import sys
import time

from fleet import Job, Net, alone, fleet, rank_program, support  # fleet adds the path of the imports below
import stores
from bench_cluster import take
from juicefs import juicefs
from serving import pack

HERE = pathlib.Path(__file__).resolve()
N, SAMPLE = 4, 4096
PORT, A_REQUEST = 11299, 100
N_MOUNTED = 4000  # files of JuiceFS, which takes about 2 ms to write one
DRIFT, N_DRIFT = 4, 4
ON_THE_WAY = 256 << 20  # windows, batches and prefetched chunks, in addition to all of the data


WHY_NOT = "late", "failed", "refused"


def unanswered(nodes):
    """Returns the number of unanswered questions so far, by reason."""
    figures = [node.answers()["cluster"] for node in nodes]
    return {why: sum(f[why] for f in figures) for why in WHY_NOT}


class Measured:
    """Measures a job in each of its epochs."""

    def __init__(self, start, nodes, n_chunks):
        """start(): starts the job."""
        self.nodes, self.n_chunks, self.rows = nodes, n_chunks, []
        self.before = self.now()  # prefetch begins as soon as the job exists
        self.job = start()

    def now(self):
        answers = [node.answers() for node in self.nodes]
        clusters = [answer["cluster"] for answer in answers if answer.get("cluster")]
        return {"reads": sum(answer["cache"]["reads"] for answer in answers), "bytes_in": sum(c["bytes_in"] for c in clusters),
                "cpu_s": stores.usage.cpu_of([node.process.pid for node in self.nodes]), **{why: sum(c[why] for c in clusters) for why in WHY_NOT}}

    def epoch(self):
        self.before = self.before if not self.rows else self.now()
        samples, seconds = self.job.epoch()
        row = {name: value - self.before[name] for name, value in self.now().items()}
        self.rows.append({"samples": samples, "seconds": seconds, "reads_a_chunk": row.pop("reads") / self.n_chunks, **row})

    def later(self, what):
        """Returns the figures of the epochs after the first."""
        return [what(row) for row in self.rows[1:]]


def together(net, seconds, command, cpu_s):
    """Returns the sum of the rates of a client on each node, and CPU seconds of the other processes per GiB. All clients begin when all are
    ready. command(i): command of the i-th client."""
    clients = [subprocess.Popen([*net.wrap(i), sys.executable, HERE, *(str(word) for word in command(i))], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                text=True) for i in range(N)]
    for c in clients:
        if not c.stdout.readline():
            raise SystemExit("a client has ended")
    before = cpu_s()
    for c in clients:
        c.stdin.write("\n")
        c.stdin.flush()
    rate = sum(float(c.stdout.readline()) for c in clients)
    spent = cpu_s() - before
    for c in clients:
        c.wait()
    return {"per_s": rate, "cpu_s_per_gib": spent / (rate * seconds * SAMPLE / 2**30)}


# ---- memcached --------------------------------------------------------------------------------------------


def key(i):
    return b"%08d" % i


def client(rank, n_keys, seconds, hosts):
    """Reads values of its share of the keys, one request after the other at each server, at all servers at once."""
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
    """Returns values per second of all clients, and CPU seconds of the servers per GiB."""
    servers = [subprocess.Popen([*net.wrap(i), "memcached", "-l", net.hosts[i], "-p", str(PORT), "-U", "0", "-u", "nobody", "-m", "1024"]) for i in range(N)]
    time.sleep(1)
    try:
        return together(net, seconds, lambda i: ("--client", i, n_keys, seconds, *net.hosts), lambda: stores.usage.cpu_of([s.pid for s in servers]))
    finally:
        for s in servers:
            s.kill()
            s.wait()


# ---- juicefs ----------------------------------------------------------------------------------------------


def reader(folder, seconds):
    """Reads files at random."""
    paths, rng, n = sorted(map(str, pathlib.Path(folder).iterdir())), random.Random(os.getpid()), 0
    for path in paths:
        pathlib.Path(path).read_bytes()
    print("ready", flush=True)
    sys.stdin.readline()
    begin = time.monotonic()
    while time.monotonic() < begin + seconds:
        fd = os.open(rng.choice(paths), os.O_RDONLY)
        os.read(fd, SAMPLE)
        os.close(fd)
        n += 1
    print(n / (time.monotonic() - begin))


def mounted(net, url, files, folder, seconds):
    """Returns files per second of all clients, or None and the reason why this way is left out."""
    with contextlib.ExitStack() as stack:
        mounts = []
        for i in range(N):
            mount, why = juicefs(folder / f"juicefs{i}", f"{url}/1", wrap=net.wrap(i), objects=mounts[0].objects if mounts else None)
            if not mount:
                print(f"juicefs is left out: {why}")
                return None
            stack.callback(mount.stop)
            mounts.append(mount)
        (mounts[0].mount / "files").mkdir()
        for path in sorted(files.rglob("*.*"))[:N_MOUNTED]:
            (mounts[0].mount / "files" / path.name).write_bytes(path.read_bytes())
        return together(net, seconds, lambda i: ("--reader", mounts[i].mount / "files", seconds), lambda: sum(mount.cpu_s() for mount in mounts))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mbit", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--mib", type=int, default=800)
    parser.add_argument("--client", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--reader", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        rank, n_keys, seconds, *hosts = options.client
        client(int(rank), int(n_keys), float(seconds), hosts)
        return
    if options.reader:
        reader(options.reader[0], float(options.reader[1]))
        return
    if os.geteuid() != 0:
        support.skip("namespaces need root")
    size = options.mib << 20
    n_samples = size // SAMPLE
    with support.Scratch() as folder, Net(N, options.mbit) as net, support.Steal() as steal:
        program = rank_program(folder)
        support.random_files(folder / "files", n_samples, SAMPLE, per_class=1000)
        dataset = pack(folder / "files", folder / "data.diesel")
        n_chunks = len(list((pathlib.Path(dataset) / "chunks").glob("*.chunk")))
        with fleet(net, folder, (size + ON_THE_WAY) // N) as (nodes, url):
            with alone(net, folder / "alone", size + ON_THE_WAY) as others:
                lanes = Measured(lambda: Job(program, nodes, dataset, options.epochs, "lanes", folder), nodes, n_chunks)
                private = Measured(lambda: Job(program, others, dataset, options.epochs, "private", folder, 1, is_shared=False), others, n_chunks)
                for i in range(options.epochs):
                    for arm in (lanes, private) if i % 2 else (private, lanes):
                        arm.epoch()
                for arm in lanes, private:
                    arm.job.end()
            drift = Measured(lambda: Job(program, nodes, dataset, N_DRIFT, "drift", folder, drift=DRIFT), nodes, n_chunks)
            for _ in range(N_DRIFT):
                drift.epoch()
            drift.job.end()
            cached = memcached(net, n_samples, 8)
            juice = mounted(net, url, folder / "files", folder, 8)
    stores.tell(steal)

    def rate(arm):
        return support.median(arm.later(lambda row: row["samples"] / row["seconds"]))

    pairs = [a["samples"] / a["seconds"] / (b["samples"] / b["seconds"]) for a, b in zip(lanes.rows[1:], private.rows[1:])]
    figures = {"juicefs_per_s": juice["per_s"], "of_juicefs": rate(lanes) / juice["per_s"]} if juice else {}
    moved = drift.rows[0]["samples"] * SAMPLE * (N - 1) / N / DRIFT
    support.result_write("nodes", {"mbit": options.mbit, "chunks": n_chunks, "rows": lanes.rows, "private": private.rows, "drift": drift.rows,
                                   "memcached": cached, "juicefs": juice, "steal": steal.ratio},
                         reads_a_chunk_first=lanes.rows[0]["reads_a_chunk"], reads_a_chunk_later=max(lanes.later(lambda row: row["reads_a_chunk"])),
                         bytes_between_first=lanes.rows[0]["bytes_in"], bytes_between_later=max(lanes.later(lambda row: row["bytes_in"])),
                         samples_per_s=rate(lanes), private_per_s=rate(private), of_private=support.median(pairs),
                         cpu_s_per_gib=support.median(lanes.later(lambda row: row["cpu_s"] / (row["samples"] * SAMPLE / 2**30))),
                         drift_per_s=rate(drift), drift_moved_of_dealt=support.median(drift.later(lambda row: row["bytes_in"] / moved)),
                         drift_reads_a_chunk=max(drift.later(lambda row: row["reads_a_chunk"])),
                         memcached_per_s=cached["per_s"], memcached_cpu_s_per_gib=cached["cpu_s_per_gib"],
                         of_memcached=rate(lanes) / cached["per_s"], **figures)


if __name__ == "__main__":
    main()
