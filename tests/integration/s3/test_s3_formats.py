#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `dieselctl index s3://...` of the formats that Python reads: samples in a bucket are those of the same files in a folder, and only
indexes, headers and keys are read to find them. The files are made by the formats' own writers."""
import errno
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import zipfile

from s3_support import DIESELCTL, ROOT, Proxy, ctl, environment, rclone, stop_all
from common.commands import needs
from dieseld_support import SCRATCH, Daemon
from wheel_support import importing_torch
from diesel_loader.checkpoint import bucket

BUCKET = pathlib.Path(SCRATCH, "rclone/bucket")
WITH_TORCH = """
import sys
from litdata.streaming.writer import BinaryWriter
from streaming import MDSWriter
rows = [{"id": i, "caption": f"text {i}", "raw": bytes([i % 256]) * (10 + i)} for i in range(400)]
with MDSWriter(out=sys.argv[1] + "/mds", columns={"id": "int", "caption": "str", "raw": "bytes"}, size_limit=30_000) as writer:
    for row in rows:
        writer.write(row)
writer = BinaryWriter(sys.argv[1] + "/litdata", chunk_size=100)
for i, row in enumerate(rows):
    writer[i] = row
writer.done()
writer.merge()
"""
READ = """
import hashlib, json, sys
from diesel_loader import Dataset
found = []
for url in json.loads(sys.argv[2]):
    dataset = Dataset(url, socket=sys.argv[1])
    samples = dataset.__getitems__(range(len(dataset))) if dataset.fields else map(bytes, dataset.read_many(range(len(dataset))))
    found.append({dataset.sample_path(i): hashlib.sha256(repr(sample).encode()).hexdigest() for i, sample in enumerate(samples)})
print(json.dumps(found))
"""


def write_all():
    rng = random.Random(3)
    BUCKET.mkdir(parents=True)
    python, path = importing_torch()
    done = subprocess.run([python, "-c", WITH_TORCH, BUCKET], capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(BUCKET / "photos.zip", "w") as archive:
        for i in range(300):
            archive.writestr(f"{'ab'[i % 2]}/{i}.jpg", rng.randbytes(rng.choice((1, 500, 300_000))))
    import lmdb
    with lmdb.open(str(BUCKET / "db.lmdb"), map_size=1 << 30, max_dbs=3) as env:
        many, named = env.open_db(b"many", dupsort=True), env.open_db(b"named")
        with env.begin(write=True, db=named) as transaction:
            for i in range(2000):
                transaction.put(b"%08d" % i, rng.randbytes(rng.choice((1, 500, 30_000))))
        with env.begin(write=True, db=many) as transaction:
            for i in range(3000):
                transaction.put(b"key %d" % (i % 3), b"%05d" % i)
    tokens = [rng.randrange(1 << 16) for _ in range(50_000)]
    (BUCKET / "text.bin").write_bytes(struct.pack(f"<{len(tokens)}H", *tokens))
    lengths = [100] * 500
    index = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 500, 501) + struct.pack("<500i", *lengths) + struct.pack("<500q", *range(0, 100_000, 200))
    (BUCKET / "text.idx").write_bytes(index + struct.pack("<501q", *range(501)))


def read(port, daemon, wanted):
    """Reads datasets in one process."""
    return subprocess.run([sys.executable, "-c", READ, daemon.socket, json.dumps(wanted)], env=environment(port, DIESEL_DIESELCTL=DIESELCTL), capture_output=True,
                          text=True, timeout=300, check=False)


def index(port, source, *words, **more):
    dataset = f"{SCRATCH}/{'bucket' if source.startswith('s3:') else 'folder'}-{'-'.join([pathlib.Path(source).name, *words])}"
    return dataset, ctl(port, "index", source, "--output", dataset, *words, DIESEL_PYTHON=sys.executable, **more)


def read_bytes(proxy):
    """Returns a fault that counts the bytes of ranges that were asked for."""
    proxy.n_bytes = 0

    def count(method, _path, headers, _count):
        first, _, last = headers.get("Range", "bytes=0--1").removeprefix("bytes=").partition("-")
        proxy.n_bytes += int(last) - int(first) + 1 if method == "GET" else 0
    return count


def samples_are_those_of_files(port, proxy, daemon):
    wanted = []
    for name, *words in (("photos.zip",), ("db.lmdb", "--db", "named"), ("db.lmdb", "--db", "many"), ("text.bin",), ("text.idx", "--tokens", "64"), ("mds",), ("litdata",)):
        local, _ = index(port, f"{BUCKET}/{name}", *words)
        proxy.reset(read_bytes(proxy))
        there, _ = index(proxy.port, f"s3://bucket/{name}", *words)
        if name in ("photos.zip", "db.lmdb"):
            source = BUCKET / name
            size = (source / "data.mdb" if source.is_dir() else source).stat().st_size
            assert proxy.n_bytes < size / 4, (name, proxy.n_bytes, size)
        wanted += [there, local]
    done = read(port, daemon, wanted)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for there, local, names in zip(found[::2], found[1::2], wanted[::2], strict=True):
        assert there == local and len(local) >= 300, names
    assert os.listdir(SCRATCH + "/tmp") == [], "temporary files are left"


def a_changed_object_is_refused(port, daemon):
    file = BUCKET / "photos.zip"
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    file.write_bytes(data)
    os.utime(file, (1, 1))
    shutil.copytree(f"{SCRATCH}/bucket-photos.zip", f"{SCRATCH}/again")  # of which the daemon has nothing
    done = read(port, daemon, [f"{SCRATCH}/again"])
    assert done.returncode and "s3://bucket/photos.zip has changed since it was indexed" in done.stderr, done.stderr


def refuses(port, source, says, *words, **more):
    error = ctl(port, "index", source, "--output", SCRATCH + "/none", *words, fails=True, DIESEL_PYTHON=sys.executable, **more)
    assert says in error and error.count("\n") == 1, error
    assert not os.path.exists(SCRATCH + "/none/snapshot")


def wrong_objects_are_refused_in_one_line(port, proxy):
    refuses(port, "s3://bucket/nothing", "there are no *.tar objects below s3://bucket/nothing")
    refuses(port, "s3://", "must be s3://BUCKET/PREFIX")
    refuses(port, "s3://bucket/none.zip", "s3://bucket/none.zip")
    refuses(port, "s3://bucket/db.lmdb", "of which --db chooses one: many, named")
    refuses(port, "s3://bucket/mds", "cannot be indexed by one command", "s3://bucket/nothing")
    whole = (BUCKET / "db.lmdb/data.mdb").read_bytes()
    for name, data in (("cut", whole[:len(whole) // 2]), ("zeros", whole[:8192] + bytes(len(whole) - 8192)), ("text", b"no database" * 1000)):
        (BUCKET / f"{name}.mdb").write_bytes(data)
        refuses(port, f"s3://bucket/{name}.mdb", f"s3://bucket/{name}.mdb", "--db", "named")
    first, second = min(pathlib.Path(BUCKET, "mds").glob("*.mds")), max(pathlib.Path(BUCKET, "mds").glob("*.mds"))
    shutil.copy(first, second)
    refuses(port, "s3://bucket/mds", f"{second.name} does not have the")
    # Another state of the object for each read: as if it were written meanwhile.
    proxy.reset(lambda method, path, _headers, count: (206, "x" * 8, ("ETag", f'"{count}"'), ("Content-Range", "bytes 0-7/8"))
                if method == "GET" and path.startswith("/bucket/text.idx") else None)
    refuses(proxy.port, "s3://bucket/text.bin", "text.idx")


def a_program_that_ends_at_once_is_named():
    program = "from diesel_loader.writing.objects import Object; Object('s3://bucket/a').state()"
    done = subprocess.run([sys.executable, "-c", program], env=os.environ | {"DIESEL_DIESELCTL": "/bin/true"}, capture_output=True, text=True, check=False)
    assert "s3://bucket: /bin/true ended without an answer. Is it of the same version as diesel_loader?" in done.stderr, done.stderr


def the_process_that_reads_objects_reads_nothing_else():
    by_hand = subprocess.run([DIESELCTL, "objects", "s3://bucket"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert "do not run it by hand" in by_hand.stderr, by_hand
    os.environ.update(environment(1))
    for url in ("/etc", "file:///etc"):
        try:
            bucket.Bucket(url, DIESELCTL).state("passwd")
            raise AssertionError(url)
        except OSError as error:
            assert error.errno == errno.EINVAL, error
    with bucket.Bucket("s3://bucket", DIESELCTL) as reader, open(os.devnull, "rb") as nothing:
        for request in (bucket._RANGE, 99):
            try:
                reader._call(request, "text.bin", 1 << 50, nothing.fileno())   # more than there is of memory
                raise AssertionError(request)
            except OSError as error:
                assert error.errno in (errno.EINVAL, errno.EACCES, errno.ENOMEM), error


if __name__ == "__main__":
    needs("lmdb", "numpy")
    daemon = None
    try:
        write_all()
        port = rclone()
        proxy, daemon = Proxy(port), Daemon()
        samples_are_those_of_files(port, proxy, daemon)
        a_changed_object_is_refused(port, daemon)
        wrong_objects_are_refused_in_one_line(port, proxy)
        a_program_that_ends_at_once_is_named()
        the_process_that_reads_objects_reads_nothing_else()
    finally:
        stop_all()
        if daemon:
            daemon.stop()
