# SPDX-License-Identifier: Apache-2.0
"""The dieseld of one of four nodes is killed (SIGKILL), and started again at once, as its service manager does. Meanwhile two jobs run: one on
all four nodes, one with another dataset on two of the others. Nodes are network namespaces, with real dieselds and Redis. Their links are
limited to a rate below the speed of this machine's cores.

    gap        the job of the killed node: the longest time in which none of its steps ended, in the seconds after the kill, and the
               same without one; its ranks check that each epoch has every sample
    others     steps per second of the other job in the seconds after the kill, divided by those before it; the same without a kill
    refill     seconds per byte in which `dieselctl warm` fills an empty node again, divided by those of memcached, which a client
               fills from single files; neither chunks nor files are in the page cache

    bench_failure.py [--mbit N] [--mib N] [--rounds N]
"""
import argparse
import json
import mmap
import os
import pathlib
import signal
import struct
import subprocess
import threading
import time

from fleet import BATCH, Job, Net, fleet, rank_program, support  # fleet adds the path of the imports below
import stores
from serving import pack

N, N_OTHERS, VICTIM, SAMPLE, PORT = 4, 2, 3, 4096, 11299
SECONDS, EPOCHS = 6, 1000000


class Watched(Job):
    """A job whose progress is read from its barrier, which counts arriving ranks every 16 steps."""

    stdin = subprocess.DEVNULL

    def begin(self, path):
        self.said = [[] for _ in self.processes]
        for process, lines in zip(self.processes, self.said):  # without a reader, the ranks would block
            threading.Thread(target=lambda out=process.stdout, lines=lines: lines.extend(out), daemon=True).start()
        support.wait_for(lambda: path.exists() and path.stat().st_size, "the job begins")
        with open(path, "rb") as f:
            self.counter = mmap.mmap(f.fileno(), 8, prot=mmap.PROT_READ)
        support.wait_for(lambda: self.arrived() > 0, "the job's first steps")

    def arrived(self):
        return struct.unpack("<Q", self.counter[:8])[0]

    def stop(self):
        if any(p.poll() is not None for p in self.processes):
            raise SystemExit("a rank has ended")
        for p in self.processes:
            p.kill()
            p.wait()


def observe(jobs, seconds, event=None):
    """Returns for each job the steps per second, and the longest time without a step, in seconds."""
    begin = time.monotonic()
    first = [job.arrived() for job in jobs]
    last, since, gaps = list(first), [begin] * len(jobs), [0.0] * len(jobs)
    if event:
        event()
    while (now := time.monotonic()) < begin + seconds:
        for i, job in enumerate(jobs):
            arrived = job.arrived()
            gaps[i] = max(gaps[i], now - since[i])
            if arrived != last[i]:
                last[i], since[i] = arrived, now
        time.sleep(0.002)
    return [{"per_s": (last[i] - first[i]) / (now - begin), "gap_s": gaps[i]} for i in range(len(jobs))]


def kill_and_start(node):
    node.process.send_signal(signal.SIGKILL)
    node.process.wait()
    node.process = subprocess.Popen(list(map(str, node.command)), stderr=node.log)


def rounds_of(jobs, node, n):
    """Runs rounds alternately without and with a kill, and returns the figures of each job before and after."""
    found = {"calm": [], "killed": []}
    for _ in range(n):
        for kind, event in (("calm", None), ("killed", lambda: kill_and_start(node))):
            before = observe(jobs, SECONDS)
            found[kind].append({"before": before, "after": observe(jobs, SECONDS, event)})
    return found


def drop_caches():
    os.sync()
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")


def refill_by_chunks(node, dataset):
    """Returns (bytes that came into memory, seconds) of a dieseld that has just been started."""
    kill_and_start(node)
    support.wait_for(lambda: node.answers() is not None, "dieseld starts")
    drop_caches()
    begin = time.monotonic()
    subprocess.run([*node.net.wrap(node.i), support.program("dieselctl"), "warm", dataset, "--socket", node.socket, "--job", ""], check=True,
                   stdout=subprocess.DEVNULL)
    seconds = time.monotonic() - begin
    return node.answers()["cache"]["read_bytes"], seconds


def refill_by_files(net, files, n):
    """Returns the seconds in which a client fills memcached with n files, one after the other, like a training job that misses."""
    server = subprocess.Popen([*net.wrap(0), "memcached", "-l", net.hosts[0], "-p", str(PORT), "-U", "0", "-u", "nobody", "-m", "4096"])
    client = """
import pathlib, socket, sys, time
paths = sys.stdin.read().split("\\n")
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
begin = time.monotonic()
for i, path in enumerate(paths):
    data = pathlib.Path(path).read_bytes()
    s.sendall(b"set %d 0 0 %d\\r\\n%s\\r\\n" % (i, len(data), data))
    if s.recv(64) != b"STORED\\r\\n":
        raise SystemExit("it is not stored")
print(time.monotonic() - begin)
"""
    paths = sorted(map(str, files.rglob("*.*")))
    step = len(paths) // n
    try:
        time.sleep(1)
        drop_caches()
        done = subprocess.run([*net.wrap(0), support.PYTHON, "-c", client, net.hosts[0], str(PORT)], input="\n".join(paths[::step][:n]), text=True,
                              capture_output=True, check=True)
    finally:
        server.kill()
        server.wait()
    return float(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mbit", type=int, default=200)
    parser.add_argument("--mib", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if os.geteuid() != 0:
        support.skip("namespaces need root")
    n_samples = (options.mib << 20) // SAMPLE // (N * BATCH) * N * BATCH  # the same number of samples for each rank, with none left out
    with support.Scratch() as folder, Net(N, options.mbit) as net, support.Steal() as steal:
        program = rank_program(folder)
        support.random_files(folder / "files", n_samples, SAMPLE, per_class=1000)
        dataset = pack(folder / "files", folder / "data.diesel")
        support.random_files(folder / "other", n_samples // 4, SAMPLE, per_class=1000)
        other = pack(folder / "other", folder / "other.diesel")
        with fleet(net, folder, (options.mib << 20) * 3 // 4 + (160 << 20)) as (nodes, _):
            jobs = [Watched(program, nodes, dataset, EPOCHS, "all", folder), Watched(program, nodes[:N_OTHERS], other, EPOCHS, "others", folder)]
            for job, name in zip(jobs, ("all", "others")):
                job.begin(folder / f"{name}.steps")
            observe(jobs, 2 * SECONDS)  # runs until the datasets are in memory
            found = rounds_of(jobs, nodes[VICTIM], options.rounds)
            for job in jobs:
                job.stop()
            chunks = [refill_by_chunks(nodes[VICTIM], dataset) for _ in range(options.rounds)]
        n = min(n_samples // N, 20000)
        singles = [refill_by_files(net, folder / "files", n) for _ in range(options.rounds)]
    stores.tell(steal)
    write(found, check_epochs(jobs[0].said, n_samples), chunks, singles, n, steal, options)


def check_epochs(said, n_samples):
    """Checks that every epoch of the job, over all its ranks, has the samples of the first one."""
    epochs = [[json.loads(line) for line in lines if line.endswith("}\n")] for lines in said]
    n_epochs = min(map(len, epochs))
    sums = [sum(rank[i]["sum"] - (rank[i - 1]["sum"] if i else 0) for rank in epochs) for i in range(n_epochs)]
    counts = [sum(rank[i]["samples"] for rank in epochs) for i in range(n_epochs)]
    if len(set(sums)) != 1 or set(counts) != {n_samples}:
        raise SystemExit(f"an epoch does not have the samples of the first one: {sums} {counts}")
    return n_epochs


def write(found, n_epochs, chunks, singles, n, steal, options):
    def median(kind, what):
        return support.median(what(row) for row in found[kind])

    rate = support.median(size / seconds for size, seconds in chunks)
    rate_singles = support.median(n * SAMPLE / seconds for seconds in singles)
    support.result_write(
        "failure", {"mbit": options.mbit, "rounds": found, "refill": {"chunks": chunks, "singles": singles, "n_singles": n}, "steal": steal.ratio},
        gap_s=median("killed", lambda r: r["after"][0]["gap_s"]), gap_longest_s=max(r["after"][0]["gap_s"] for r in found["killed"]),
        gap_calm_s=median("calm", lambda r: r["after"][0]["gap_s"]),
        others_of_before=median("killed", lambda r: r["after"][1]["per_s"] / r["before"][1]["per_s"]),
        others_calm=median("calm", lambda r: r["after"][1]["per_s"] / r["before"][1]["per_s"]),
        own_of_before=median("killed", lambda r: r["after"][0]["per_s"] / r["before"][0]["per_s"]),
        epochs=n_epochs, refill_mb_per_s=rate / 1e6, memcached_refill_mb_per_s=rate_singles / 1e6,
        refill_of_memcached=rate_singles / rate)


if __name__ == "__main__":
    main()
