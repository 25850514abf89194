#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests jobs on datasets in buckets: each sample comes once and as it was packed, by a dieseld without credentials and network.

    test_s3_jobs.py rclone|compressed|juicefs|faults|neighbours|kept|purged|shards
"""
import functools
import hashlib
import json
import mmap
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys


from s3_support import DIESELCTL, KEY_ID, SECRET, Proxy, ctl, environment, juicefs, rclone, stop_all
import dieseld_support
from dieseld_support import SCRATCH, Daemon, make_source, probe
from common.commands import dieselctl
from common.processes import commands, family, read_of
from common.users import MALLORY, run_as
from common.waiting import wait_until
from common.wire_client import Client, Refused
from common.service_manager import KeptDaemon, Store

URL = "s3://bucket/jobs"
FETCHED = 1  # WIRE_DATASET_FETCHED

JOB = """
import hashlib, json, sys
from diesel_loader import Dataset
from diesel_loader.numpy import DataLoader, Order
options = json.loads(sys.argv[1])
dataset = Dataset(options["url"], socket=options["socket"])
if "select" in options:
    dataset = dataset.select(options["select"])
loader = DataLoader(dataset, batch_size=7, shuffle=True, seed=3, order=Order(window_chunks=1))
found = []
try:
    for epoch in range(options.get("epochs", 1)):
        loader.set_epoch(epoch)
        for data, labels in loader:
            found += [hashlib.sha256(bytes(sample)).hexdigest() for sample in data]
            if options.get("steps"):
                print("batch", flush=True)
                sys.stdin.readline()
except Exception:
    print(json.dumps({"found": found}))
    raise
read = [hashlib.sha256(dataset.read(i)).hexdigest() for i in range(0, len(dataset), 9)] if options.get("read") else []
print(json.dumps({"found": found, "read": read}))
"""


# Goes on after batches that fail, and counts them.
PATIENT_JOB = """
import hashlib, json, sys
from diesel_loader import Dataset
from diesel_loader.numpy import DataLoader, Order
options = json.loads(sys.argv[1])
dataset = Dataset(options["url"], socket=options["socket"])
found, failed = [], 0
loader = DataLoader(dataset, batch_size=7, shuffle=True, seed=3, order=Order(window_chunks=1))
batches = iter(loader)
for _ in range(len(loader)):
    try:
        found += [hashlib.sha256(bytes(sample)).hexdigest() for sample in next(batches)[0]]
    except PermissionError:
        failed += 1
assert failed and next(batches, None) is None
print(json.dumps({"found": found, "failed": failed}))
"""


# Runs with a function of the user in torch's processes, and without one.
TORCH_JOB = """
import hashlib, json, sys
import torch, diesel_loader.torch
options = json.loads(sys.argv[1])
def digest(sample):
    return hashlib.sha256(sample.numpy()).hexdigest()
def loader(**more):
    return diesel_loader.torch.DataLoader(diesel_loader.Dataset(options["url"], socket=options["socket"]), batch_size=7, shuffle=True, seed=3, **more)
found = [digest(sample) for samples, labels in loader() for sample in samples]
again = loader(num_workers=2, transform=digest, collate_fn=list)
assert isinstance(again, torch.utils.data.DataLoader)
assert [name for batch in again for name, label in batch] == found
print(json.dumps({"found": found}))
"""


FIELDS_JOB = """
import hashlib, json, sys
from diesel_loader import Dataset
from diesel_loader.numpy import DataLoader
options = json.loads(sys.argv[1])
loader = DataLoader(Dataset(options["url"], socket=options["socket"]), batch_size=7, shuffle=True, seed=3, collate_fn=list)
print(json.dumps({"found": [hashlib.sha256(sample["bin"]).hexdigest() for batch in loader for sample in batch]}))
"""


def job(port, daemon, url=URL, program=JOB, **options):
    more = {"DIESEL_DIESELCTL": options.pop("ctl", DIESELCTL)}
    words = json.dumps({"url": url, "socket": daemon.socket, **options})
    return subprocess.Popen([sys.executable, "-c", program, words], env=environment(port, **more), stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process):
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert SECRET not in out + errors
    return json.loads(out.splitlines()[-1])


def digests(source):
    return sorted(hashlib.sha256(open(os.path.join(folder, name), "rb").read()).hexdigest()
                  for folder, _, names in os.walk(source) for name in names)


def pack(port, url=URL, name="jobs", n=120):
    """Packs the files in chunks of a few MiB."""
    source = make_source(name, n, lambda rng: rng.randrange(100_000, 300_000))
    ctl(port, "pack", "-c", "8M", "--digest", "sha256", source, url, DIESEL_S3_SINGLE_WRITER="1")
    return source


@functools.cache
def local_dataset():
    return dieseld_support.pack(make_source("local", 20, lambda rng: 4096), "local")


def fetchers():
    """Returns the processes that read a bucket for a job of this test."""
    return commands("fetch", lambda word: os.fsencode(SCRATCH) in word)


def says_nothing_secret(daemon):
    secret = SECRET.encode()
    for pid in family(daemon.process.pid):
        for name in ("cmdline", "environ"):
            assert secret not in read_of(pid, name), (pid, name)
    assert SECRET not in json.dumps(daemon.status()) + daemon.output()
    for folder, _, names in os.walk(SCRATCH + "/.cache"):
        for name in names:
            assert secret not in pathlib.Path(folder, name).read_bytes(), name


DAEMONS = []


def new_daemon(*options, **more):
    DAEMONS.append(Daemon(*options, **more))
    return DAEMONS[-1]


def is_mounted(port, daemon, source):
    """A mount of the bucket has the files that were packed. Its rights cannot be those of objects."""
    where, wanted = SCRATCH + "/mounted", {str(path.relative_to(source)) for path in pathlib.Path(source).rglob("*") if path.is_file()}
    os.makedirs(where)
    words = ["mount", "--socket", daemon.socket, URL, where, "--"]
    assert set(ctl(port, *words, "find", where, "-type", "f", "-printf", "%P\n").split()) == wanted
    path = sorted(wanted)[0]
    found = ctl(port, *words, "sha256sum", f"{where}/{path}").split()[0]
    assert found == hashlib.sha256(pathlib.Path(source, path).read_bytes()).hexdigest()
    assert "leave out --allow-other" in ctl(port, words[0], "--allow-other", *words[1:], "true", fails=True)


def against(server):
    port = server()
    source = pack(port)
    state = SCRATCH + "/history.db"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    os.environ.clear()
    os.environ.update(clean)
    daemon = new_daemon("--history", state)
    result = finish(job(port, daemon, read=True))
    assert sorted(result["found"]) == digests(source)
    assert set(result["read"]) <= set(result["found"]) and len(result["read"]) == 14
    if server == rclone and os.access("/dev/fuse", os.W_OK) and shutil.which("fusermount3"):
        is_mounted(port, daemon, source)
    # For a few samples, only those are read of a chunk that has no digest of the whole.
    ctl(port, "pack", "-c", "8M", source, URL + "/plain", DIESEL_S3_SINGLE_WRITER="1")
    result = finish(job(port, daemon, url=URL + "/plain", select=[3, 50, 117], epochs=2))
    assert len(result["found"]) == 6 and set(result["found"]) <= set(digests(source))
    assert sorted(finish(job(port, daemon, program=TORCH_JOB))["found"]) == digests(source)
    # A job under way: the daemon serves it, without credentials.
    process = job(port, daemon, steps=True, epochs=2)
    assert process.stdout.readline() == "batch\n"
    assert len(fetchers()) == 1
    says_nothing_secret(daemon)
    # Another daemon follows: each sample still comes once.
    for _ in range(5):
        process.stdin.write("\n")
    process.stdin.flush()
    daemon.kill()
    daemon.start()
    process.stdin.write("\n" * 50)
    process.stdin.flush()
    assert sorted(finish(process)["found"]) == sorted(digests(source) * 2)
    wait_until("the end of what reads for a job that has ended", lambda: not fetchers())
    # The snapshot is kept for the next job, and that of a later version replaces it.
    kept = SCRATCH + "/.cache/diesel/s3/bucket_jobs"
    assert [name[:2] for name in os.listdir(kept)] == ["1-"]
    with open(source + "/class0/later", "w") as file:
        file.write("later")
    ctl(port, "pack", "--append", source, URL, DIESEL_S3_SINGLE_WRITER="1")
    assert sorted(finish(job(port, daemon))["found"]) == digests(source)
    assert [name[:2] for name in os.listdir(kept)] == ["2-"]
    assert daemon.stop() == 0
    assert SECRET.encode() not in pathlib.Path(state).read_bytes()


def case_rclone():
    against(rclone)


def case_compressed():
    """The process that reads the bucket for the job decompresses its chunks; plain chunks may exist, too."""
    port, name = rclone(), URL + "/text"
    source = make_source("text", 150, lambda rng: rng.randrange(20_000, 200_000))
    for i, path in enumerate(sorted(pathlib.Path(source).rglob("*.bin"))):
        if i % 5:
            path.write_bytes(b"".join(b"%x" % (byte % (i + 2)) for byte in path.read_bytes()))
    ctl(port, "pack", "-c", "4M", "--zstd", "3", source, name, DIESEL_S3_SINGLE_WRITER="1")
    with open(source + "/class0/later", "wb") as file:
        file.write(os.urandom(300_000))
    ctl(port, "pack", "--append", source, name, DIESEL_S3_SINGLE_WRITER="1")
    stat = json.loads(ctl(port, "stat", "--json", name))
    assert stat["compressed"] and stat["stored_bytes"] < stat["plain_bytes"] * 0.8, stat
    daemon = new_daemon()
    result = finish(job(port, daemon, url=name, read=True, epochs=2))
    assert sorted(result["found"]) == sorted(digests(source) * 2)
    assert set(result["read"]) <= set(result["found"]) and len(result["read"]) == 17
    few = finish(job(port, new_daemon(), url=name, select=[3, 50, 117], epochs=2))
    assert len(few["found"]) == 6 and set(few["found"]) <= set(digests(source))
    # A damaged chunk in the bucket is lost, and reported.
    chunk = max(pathlib.Path(SCRATCH, "rclone", "bucket", "jobs", "text", "chunks").iterdir(), key=lambda path: path.stat().st_size)
    data = bytearray(chunk.read_bytes())
    data[len(data) // 2:len(data) // 2 + 2000] = bytes(2000)
    chunk.write_bytes(data)
    fails(job(port, new_daemon(), url=name), chunk.stem)


def case_juicefs():
    against(juicefs)


def fails(process, *words):
    """Checks the error of a job that has to fail: one line with these words."""
    out, errors = process.communicate(timeout=120)
    line = errors.strip().splitlines()[-1] if errors else ""
    assert process.returncode == 1, (out[-500:], errors)
    for word in words:
        assert word in line, (word, errors)
    assert SECRET not in out + errors


def case_faults():
    proxy = Proxy(rclone())
    port = proxy.port
    source = pack(proxy.upstream)

    def of_chunks(fault, from_count=0, until=10 ** 9):
        return lambda method, path, headers, count: (
            fault if "/chunks/" in path and method == "GET" and from_count < count <= until else None)

    def refused(status, code):
        return status, f"<Error><Code>{code}</Code></Error>"

    # Temporary faults: each range fails at first.
    for fault in (refused(503, "SlowDown"), "cut"):
        daemon = new_daemon()
        proxy.reset(of_chunks(fault, until=1))
        assert sorted(finish(job(port, daemon))["found"]) == digests(source)
        daemon.stop()
    # The job reports permanent faults, with the object and the fix; the same daemon continues.
    daemon = new_daemon()
    for fault, words in ((refused(403, "AccessDenied"), ["PermissionError", "AccessDenied"]),
                         (refused(404, "NoSuchKey"), ["FileNotFoundError", "chunks/", "verify --repair"]),
                         (refused(400, "ExpiredToken"), ["PermissionError", "renew them"]),
                         (refused(400, "BadRequest"), ["OSError: [Errno 5]", "is AWS_ENDPOINT_URL_S3 an S3 server?"])):
        proxy.reset(of_chunks(fault))
        fails(job(port, daemon), URL, *words)
    assert daemon.status()["cache"]["quarantined"] == 0
    where = SCRATCH + "/refused"
    os.makedirs(where)
    proxy.reset(of_chunks(refused(403, "AccessDenied")))
    done = dieselctl("mount", "--socket", new_daemon().socket, URL, where, "--", "sh", "-c", f"cat {where}/class0/*", env=environment(port))
    assert done.returncode and "Permission denied" in done.stderr and "AccessDenied" in done.stderr, done.stderr
    first = sorted(pathlib.Path(SCRATCH, "rclone/bucket/jobs/chunks").iterdir())[0].name
    proxy.reset(lambda method, path, *_: refused(403, "AccessDenied") if path.endswith(first) and method == "GET" else None)
    patient = finish(job(port, new_daemon(), program=PATIENT_JOB))
    assert len(patient["found"]) >= 120 - 7 * patient["failed"] > 0 and set(patient["found"]) < set(digests(source)), patient["failed"]
    # Nothing is known about the bytes of such chunks: they are neither damaged nor repaired.
    proxy.reset(of_chunks(refused(403, "AccessDenied")))
    for words in (["verify"], ["verify", "--repair", "--from", source]):
        done = dieselctl(*words, URL, check=1, env=environment(port, DIESEL_S3_SINGLE_WRITER="1"))
        n = done.stdout.count("answered 403 (AccessDenied): these credentials do not permit this")
        assert n and f"\n{n} not read of {n} chunks" in done.stdout and "damaged" not in done.stdout, done.stdout
        assert not any(method in ("PUT", "POST", "DELETE") for method, _ in proxy.seen), proxy.seen
    proxy.reset(lambda *_: refused(403, "AccessDenied"))
    fails(job(port, daemon), URL, "AccessDenied")
    proxy.reset()
    fails(job(port, daemon, url=URL + "/none"), "there is no dataset")
    fails(job(port, daemon, url="s3://bucket//x"), "BUCKET/PREFIX")
    # Other bytes than the packed ones are never delivered.
    def other_bytes(method, path, headers, count):
        if "/chunks/" not in path or method != "GET":
            return None
        first, last = (int(part) for part in headers["Range"].removeprefix("bytes=").split("-"))
        return (b"HTTP/1.1 206 Partial Content\r\n" + f"Content-Range: bytes {first}-{last}/99999999\r\nContent-Length: "
                f"{last - first + 1}\r\n\r\n".encode() + b"x" * (last - first + 1))
    proxy.reset(other_bytes)
    fails(job(port, daemon), "chunk")
    # A server that does not answer holds up no other job, and only its own job reports that its reading process was killed.
    path = local_dataset()
    path = local_dataset()
    proxy.reset(of_chunks("slow"))
    slow = job(port, daemon)
    wait_until("a read", lambda: any("/chunks/" in path for _, path in list(proxy.seen)))
    probe(daemon, path)
    assert slow.poll() is None
    for pid in fetchers():
        os.kill(pid, signal.SIGKILL)
    fails(slow, "OSError: [Errno 5]", "dieselctl fetch", "has ended")  # no damage: the data is good
    assert not any(dataset["quarantined"] for dataset in daemon.status()["datasets"])
    proxy.reset()
    assert sorted(finish(job(port, daemon))["found"]) == digests(source)
    # A missing program for reading.
    fails(job(port, daemon, ctl="/nowhere/dieselctl"), "/nowhere/dieselctl", "DIESEL_DIESELCTL")
    assert daemon.stop() == 0


class Counted:
    """A bucket behind a proxy that counts the bytes of chunks, or refuses them."""

    def __init__(self):
        self.proxy, self.n, self.refuses = Proxy(rclone()), 0, False
        self.source = pack(self.proxy.upstream, n=400)
        self.total = sum(path.stat().st_size for path in self.chunks())
        self.proxy.reset(self.see)

    @staticmethod
    def chunks():
        return sorted(pathlib.Path(SCRATCH, "rclone/bucket/jobs/chunks").iterdir())

    def see(self, method, path, headers, count):
        if "/chunks/" not in path:
            return None
        if method == "GET":
            first, last = (int(part) for part in headers["Range"].removeprefix("bytes=").split("-"))
            self.n += last - first + 1
        return (403, "<Error><Code>AccessDenied</Code></Error>") if self.refuses else None

    def epoch(self, daemon):
        """Runs a correct epoch, and returns the bytes that it read from the bucket."""
        before = self.n
        assert sorted(finish(job(self.proxy.port, daemon))["found"]) == digests(self.source)
        return self.n - before

    def is_spared(self, daemon):
        """Checks that an epoch reads almost nothing from the bucket. In earlier epochs, a disk may sometimes be late."""
        epochs = [self.epoch(daemon)]
        while epochs[-1] >= self.total / 50:
            assert len(epochs) < 20, epochs
            epochs.append(self.epoch(daemon))

    def is_refused(self, daemon):
        self.refuses = True
        fails(job(self.proxy.port, daemon), URL, "AccessDenied")
        self.refuses = False


def staged_chunks(bucket):
    folder = SCRATCH + "/stage"
    daemon = new_daemon("--stage", folder, "--stage-size", "1G", "--stage-when", "always", "--tune", "off", cache="96M")
    daemon.wait_for("the folder", lambda s: s["stage"]["open"])
    assert bucket.total > 64 << 20 and bucket.epoch(daemon) >= bucket.total
    bucket.is_spared(daemon)
    assert daemon.status()["stage"]["hits"] > 0, daemon.status()
    # The next daemon has the chunks, too. Neither daemon serves them to a job without access to the bucket.
    for _ in range(2):
        bucket.is_spared(daemon)
        bucket.is_refused(daemon)
        daemon.kill()
        daemon.start()
        daemon.wait_for("the folder", lambda s: s["stage"]["open"])
    # Other bytes on that disk are detected, and read from the bucket instead.
    for path in pathlib.Path(folder).iterdir():
        with open(path, "r+b") as file:
            file.seek(1 << 20)
            file.write(b"\xff" * 4096)
    assert bucket.epoch(daemon) >= bucket.total / 2
    assert daemon.status()["stage"]["damaged"] > 0
    assert daemon.stop() == 0


def carried_chunks(bucket):
    store = Store()
    daemon = KeptDaemon(store)
    DAEMONS.append(daemon)
    n = len(bucket.chunks())
    assert bucket.epoch(daemon) >= bucket.total
    store.wait_for("all in the store", lambda chunks: len(chunks) == n)
    for end in (daemon.kill, daemon.stop):
        end()
        daemon.start()
        assert bucket.epoch(daemon) < bucket.total / 50
        assert daemon.status()["cache"]["reads"] == 0
    daemon.kill()
    daemon.start()
    bucket.is_refused(daemon)
    assert bucket.epoch(daemon) > 0
    store.wait_for("all in the store", lambda chunks: len(chunks) == n)
    daemon.kill()
    for fd in store.chunks().values():
        os.pwrite(fd, b"\xff" * 5000, 1 << 20)
    daemon.start()
    assert bucket.epoch(daemon) >= bucket.total / 2
    assert "(a copy restored after the restart); reading the chunk from storage" in daemon.output()
    assert daemon.stop() == 0
    store.close()


def case_kept():
    """Kept chunks of a bucket are served only to users with access to the bucket, and only as they were packed."""
    bucket = Counted()
    staged_chunks(bucket)
    carried_chunks(bucket)


def case_purged():
    """A job began with an older version. A purge keeps that version for a day; later the job gets right samples or an error."""
    port, more = rclone(), {"DIESEL_S3_SINGLE_WRITER": "1"}
    source = make_source("purged", 400, lambda rng: rng.randrange(100_000, 300_000))
    names = [os.path.relpath(path, source) for path in pathlib.Path(source).rglob("*.bin")]
    for place in (SCRATCH + "/purged", URL):
        for options, may_fail in (((), False), (("--keep", "1", "--older-than", "0"), True)):
            url = f"{place}-{len(options)}"
            ctl(port, "pack", "-c", "4M", source, url, **more)
            daemon = new_daemon(cache="128M" if place == URL else "32M")
            process = job(port, daemon, url=url, steps=True, epochs=2)
            if process.stdout.readline() != "batch\n":
                raise AssertionError(process.communicate()[1])
            ctl(port, "rm", url, *sorted(names)[::3], **more)
            ctl(port, "purge", *options, url, **more)
            process.stdin.write("\n" * 200)
            process.stdin.flush()
            out, err = process.communicate(timeout=120)
            found = json.loads(out.splitlines()[-1])["found"]
            assert process.returncode == 0 or (may_fail and process.returncode == 1), err
            if process.returncode:
                line = err.strip().splitlines()[-1]
                assert "chunk" in line and len(found) >= 7 and set(found) <= set(digests(source)), (line, len(found))
            else:
                assert sorted(found) == sorted(digests(source) * 2)
            print(f"{url.partition(':')[0]}, {' '.join(options) or 'as it is'}: {len(found)} samples, then {err.strip().splitlines()[-1:]}")
            # A job that opens the dataset again gets all of the newest version.
            assert len(finish(job(port, daemon, url=url))["found"]) == len(names) - len(names[::3])
            assert daemon.stop() == 0


class Fetcher:
    """A fetcher that answers anything."""

    def __init__(self, daemon, folder):
        self.client = Client(daemon.socket)
        self.client.open_dataset(folder, FETCHED)
        fd = self.client.call("FETCHER")[2][0]
        self.landing = mmap.mmap(fd, os.fstat(fd).st_size)
        os.close(fd)

    def order(self):
        """Returns (offset, bytes, landing, size, name of the object)."""
        _, body, _ = self.client.receive()
        return (*struct.unpack_from("<QIIQ", body), body[24:].split(b"\0")[0].decode())

    def answer(self, landing, result=0, text=b""):
        self.client.send("FETCHED", struct.pack("<iI448s", result, landing, text))

    def is_cut_off(self):
        try:
            while True:
                self.client.receive()
        except ConnectionResetError:
            return True


def own_snapshot(folder, uid):
    """Makes a folder of that user, like that of a dataset in a bucket, with this one's kept snapshot."""
    kept = next(pathlib.Path(SCRATCH, ".cache/diesel/s3/bucket_jobs").iterdir())
    os.makedirs(folder + "/chunks")
    shutil.copy(kept / "snapshot", folder)
    for name in ("", "chunks", "snapshot"):
        os.chown(os.path.join(folder, name), uid, uid)
    return str(kept)


def is_refused(words, action):
    try:
        action()
    except Refused as error:
        assert words in error.text, error
        return True
    return False


def case_neighbours():
    if os.geteuid() != 0:
        print("skipped: only root can be two users")
        sys.exit(77)
    port = rclone()
    source = pack(port)
    daemon = new_daemon()
    os.chmod(daemon.socket, 0o666)
    assert sorted(finish(job(port, daemon))["found"]) == digests(source)
    theirs = SCRATCH + "/theirs"
    kept = own_snapshot(theirs, MALLORY)
    process = job(port, daemon, steps=True)  # all chunks are in memory meanwhile
    assert process.stdout.readline() == "batch\n"

    def attack():
        """Another user gets nothing of it, whatever part of the snapshot he has."""
        try:
            Client(daemon.socket).open_dataset(kept, FETCHED)
            return "opened what is kept"
        except PermissionError:
            pass
        # The same snapshot without a reading process: no session.
        client = Client(daemon.socket)
        client.open_dataset(theirs, FETCHED)
        if not is_refused("no process reads", client.open_session):
            return "a session without anybody who reads"
        if not is_refused("no such chunk", lambda: client.segment(0)):
            return "a segment"
        # As a dataset of files it has no chunks.
        plain = Client(daemon.socket)
        plain.open_dataset(theirs)
        if not is_refused("no such chunk", lambda: plain.segment(0)):
            return "a segment of the folder"
        # His own fetcher is asked for every chunk again, though all are in memory for another user.
        fetcher = Fetcher(daemon, theirs)
        client.open_session()
        offset, n, landing, size, name = fetcher.order()
        if not name.endswith(".chunk") or offset != 0 or size < n:
            return "no order"
        # His fetcher cannot reach the memory in which its data are verified, and affects only him.
        fetcher.landing[landing * (4 << 20):landing * (4 << 20) + 64] = b"x" * 64
        fetcher.answer(landing)
        # An answer without a request.
        fetcher.answer(landing ^ 7)
        return fetcher.is_cut_off() or "not cut off"
    assert run_as(attack) is True
    # Read access to another user's folder does not help either: data that a user's processes deliver are for that user.
    os.chmod(theirs, 0o755)
    assert is_refused("another user", lambda: Client(daemon.socket).open_dataset(theirs, FETCHED))
    process.stdin.write("\n" * 50)
    process.stdin.flush()
    assert sorted(finish(process)["found"]) == digests(source)
    # A fetcher is accepted only for a dataset in a bucket.
    client = Client(daemon.socket)
    client.open_dataset(local_dataset())
    client.send("FETCHER")
    try:
        client.receive()
        raise AssertionError("a fetcher of files")
    except ConnectionResetError:
        pass
    # A fetcher that changes its memory after it answered spoils only its own dataset: chunks have a digest.
    folder = SCRATCH + "/own"
    own_snapshot(folder, os.geteuid())
    fetcher, client = Fetcher(daemon, folder), Client(daemon.socket)
    client.open_dataset(folder, FETCHED)
    client.open_session()
    chunks = pathlib.Path(SCRATCH, "rclone/bucket/jobs/chunks")
    for _ in range(3):
        offset, n, landing, size, name = fetcher.order()
        whole = (chunks / name).read_bytes()
        assert len(whole) == size
        at = landing * (4 << 20)
        fetcher.landing[at:at + n] = whole[offset:offset + n]
        fetcher.answer(landing)
        fetcher.landing[at:at + n] = bytes(n)
    fetcher.client.close()
    assert daemon.status() and daemon.stop() == 0


def others_name_no_objects_of_mine(port):
    """Whoever made the dataset chose the names of objects, which are read with the reader's credentials."""
    foreign, elsewhere = SCRATCH + "/foreign", "s3://other/over"
    shutil.copytree(SCRATCH + "/over", foreign)
    for chunk in pathlib.Path(foreign, "chunks").iterdir():
        os.chown(chunk, MALLORY, MALLORY)
    ctl(port, "index", "s3://bucket/shards", "--output", elsewhere, DIESEL_S3_SINGLE_WRITER="1")
    sample = next(line for line in ctl(port, "ls", "-R", foreign).split() if not line.endswith("/"))
    for dataset in (foreign, elsewhere):
        for sources in ("", "s3://bucket/shard", "s3://bucket/other,/bucket"):
            assert "s3://bucket/shards/s-0.tar is not read" in ctl(port, "cat", dataset, sample, fails=True, DIESEL_SOURCES=sources)
        for sources in ("s3://bucket", "/x,s3://bucket/shards/"):
            subprocess.run([DIESELCTL, "cat", dataset, sample], env=environment(port, DIESEL_SOURCES=sources), stdout=subprocess.DEVNULL, check=True)


def case_shards():
    """Tar shards in a bucket, read in place, from a dataset in a folder and from one in the bucket."""
    os.makedirs(f"{SCRATCH}/rclone/other")  # another bucket
    port, daemon = rclone(), new_daemon()
    objects = pathlib.Path(SCRATCH, "rclone/bucket/shards")
    objects.mkdir(parents=True)
    packed = []
    for shard in range(3):
        source = make_source(f"shard{shard}", 30, lambda rng: rng.randrange(100_000, 300_000))
        names = sorted(str(path.relative_to(source)) for path in pathlib.Path(source).rglob("*") if path.is_file())
        for name in names:
            data = pathlib.Path(source, name).read_bytes() + bytes([shard])
            pathlib.Path(source, name.replace("/", "_").partition(".")[0] + ".bin").write_bytes(data)
            packed.append(hashlib.sha256(data).hexdigest())
        subprocess.run(f"tar --sort=name -cf {objects}/s-{shard}.tar *.bin", shell=True, cwd=source, check=True)
    for dataset in (SCRATCH + "/over", "s3://bucket/over"):
        said = ctl(port, "index", "s3://bucket/shards", "--output", dataset, "--json", DIESEL_S3_SINGLE_WRITER="1")
        assert json.loads(said)["samples"] == 90, said
        result = finish(job(port, daemon, url=dataset, program=FIELDS_JOB))
        assert sorted(result["found"]) == sorted(packed), dataset
    others_name_no_objects_of_mine(port)
    changed = objects / "s-1.tar"
    data = bytearray(changed.read_bytes())
    data[700] ^= 1
    changed.write_bytes(data)
    os.utime(changed, (1, 1))
    shutil.copytree(SCRATCH + "/over", SCRATCH + "/again")  # of which the daemon has nothing
    process = job(port, daemon, url=SCRATCH + "/again", program=FIELDS_JOB)
    _out, errors = process.communicate(timeout=120)
    assert process.returncode and "s3://bucket/shards/s-1.tar has changed since it was indexed" in errors, errors
    for shard in range(3):
        subprocess.run(["curl", "-s", "-f", "--aws-sigv4", "aws:amz:us-east-1:s3", "--user", f"{KEY_ID}:{SECRET}", "-X", "DELETE",
                        f"http://127.0.0.1:{port}/bucket/shards/s-{shard}.tar"], check=True)
    shutil.copytree(SCRATCH + "/over", SCRATCH + "/gone")
    fails(job(port, daemon, url=SCRATCH + "/gone", program=FIELDS_JOB), "FileNotFoundError", "s3://bucket/shards/s-", "dieselctl rm -r")
    told = dieselctl("verify", SCRATCH + "/gone", check=1, env=environment(port)).stdout
    assert " not read of " in told and "damaged" not in told, told


if __name__ == "__main__":
    try:
        globals()["case_" + sys.argv[1]]()
    finally:
        stop_all()
        for daemon in DAEMONS:
            daemon.stop()
