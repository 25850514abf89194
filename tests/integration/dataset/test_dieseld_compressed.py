# SPDX-License-Identifier: Apache-2.0
"""Tests compressed chunks in dieseld: jobs get each sample as it was packed, from whole chunks, parts of them, copies on a local disk and
in memory. Damaged, truncated or forged data are not served, and cost no more memory than the chunk's head says."""
import contextlib
import ctypes
import ctypes.util
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import sys
import threading


from common.processes import ancestors
from dieseld_support import CTL, MIB, SCRATCH, Case, chunk_files, main, pack, probe
from common.service_manager import KeptDaemon, Store

SAMPLES = 900
WORDS = [bytes(random.Random(i).choices(b"abcdefghijklmnopqrstuvwxyz", k=3 + i % 7)) for i in range(400)]

FEW = """
import hashlib, json, sys
from diesel_loader import Dataset
path, socket, wanted = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
dataset = Dataset(path, socket=socket)
from diesel_loader.numpy import Batches, DataLoader
found = {}
few = dataset.select(wanted)
for data, labels, ids in DataLoader(few, batch_size=4, shuffle=True, seed=3, batches=Batches(return_ids=True)):
    for sample, i in zip(data, ids):
        found[few.number(int(i))] = hashlib.sha256(bytes(sample)).hexdigest()
read = {i: hashlib.sha256(dataset.read(i)).hexdigest() for i in wanted}
print(json.dumps({"found": found, "read": read, "path": {i: dataset.sample_path(i) for i in wanted}}))
"""


def text(rng, n):
    return b" ".join(rng.choices(WORDS, k=n // 5 + 1))[:n]


def make_source(name, seed=1):
    """Makes text files, among which some are incompressible, and one is longer than a chunk."""
    root, rng = pathlib.Path(SCRATCH, name + ".src"), random.Random(seed)
    for i in range(SAMPLES):
        path = root / f"class{i % 3}" / f"{i:04d}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(rng.randbytes(40_000) if i % 9 == 0 else text(rng, rng.randrange(60_000)))
    (root / "class0" / "long").write_bytes(text(rng, 9 * MIB))
    (root / "class1" / "empty").touch()
    return str(root)


class Head:
    """The fields of a compressed chunk's header."""

    def __init__(self, data):
        self.payload, self.file = struct.unpack_from("<I4xQ", data, 40)
        self.flags, = struct.unpack_from("<I", data, 12)
        self.stored, self.blocks_at, self.block = struct.unpack_from("<QII", data, 80)
        n = -(-(self.file - self.payload) // self.block) if self.flags & 2 else 0
        self.lengths = struct.unpack_from(f"<{n}I", data, self.blocks_at)


class Compressed(Case):
    @classmethod
    def setUpClass(cls):
        cls.source = make_source("text")
        cls.path = pack(cls.source, "text", "--zstd", "3")

    def copy(self):
        path = os.path.join(SCRATCH, "copy" + os.urandom(4).hex())
        shutil.copytree(self.path, path)
        self.addCleanup(shutil.rmtree, path)
        return path

    def test_epochs_have_the_samples_that_were_packed(self):
        daemon = self.daemon()
        stored = sum(os.path.getsize(name) for name in chunk_files(self.path))
        self.assertGreater(len(chunk_files(self.path)), 5)
        result = probe(daemon, self.path, "--source", self.source, "--epochs", 2)
        self.assertEqual((result["bad"], result["samples"]), (0, 2 * (SAMPLES + 2)))
        cache = daemon.status()["cache"]
        self.assertEqual(cache["reads"], len(chunk_files(self.path)))
        # Pages that two reads share are counted for both.
        self.assertLessEqual(stored, cache["read_bytes"])
        self.assertLess(cache["read_bytes"], stored + MIB // 4)

    def test_a_small_cache_serves_with_and_without_io_uring(self):
        for options in ([], ["--no-io-uring"]):
            daemon = self.daemon(*options, cache="48M")
            result = probe(daemon, self.path, "--source", self.source, "--epochs", 3, "--window", 1)
            self.assertEqual((result["bad"], result["samples"]), (0, 3 * (SAMPLES + 2)))

    def test_single_samples_are_decompressed(self):
        """Reads parts of chunks, and samples by number, without the daemon."""
        try:
            import numpy  # noqa: F401
        except ImportError:
            self.skipTest("needs numpy")
        daemon = self.daemon("--tune", "off")
        wanted = sorted(random.Random(5).sample(range(SAMPLES), 12))
        done = subprocess.run([sys.executable, "-c", FEW, self.path, daemon.socket, json.dumps(wanted)], text=True, timeout=120,
                              capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        for i in wanted:
            data = pathlib.Path(self.source, found["path"][str(i)]).read_bytes()
            self.assertEqual(found["found"][str(i)], hashlib.sha256(data).hexdigest())
            self.assertEqual(found["read"][str(i)], hashlib.sha256(data).hexdigest())
        self.assertLess(daemon.status()["cache"]["read_bytes"], sum(os.path.getsize(name) for name in chunk_files(self.path)) / 2)

    def test_chunks_are_staged_compressed(self):
        folder = os.path.join(SCRATCH, "stage" + os.urandom(4).hex())
        options = ("--stage", folder, "--stage-size", "1G", "--stage-when", "always", "--tune", "off")
        first = self.daemon(*options, cache="48M")
        first.wait_for("the folder", lambda status: status["stage"]["open"])
        for _ in range(20):
            probe(first, self.path, "--source", self.source, "--window", 1)
            if first.status()["stage"]["chunks"] > 4:
                break
        self.assertEqual(first.stop(), 0)
        second = self.daemon(*options, cache="48M")
        second.wait_for("staged chunks", lambda status: status["stage"]["open"] and status["stage"]["chunks"] > 0)
        self.assertEqual(probe(second, self.path, "--source", self.source, "--window", 1)["bad"], 0)
        # Staged copies are plain, as in memory. A disk that is sometimes late is no failure.
        stage = second.status()["stage"]
        self.assertGreater(stage["hits"], 0)
        self.assertEqual(stage["damaged"], 0)

    def test_chunks_are_restored_over_a_restart(self):
        store = Store()
        self.addCleanup(store.close)
        daemon = KeptDaemon(store, "--tune", "off")
        self.addCleanup(daemon.log.close)
        probe(daemon, self.path, "--source", self.source)
        store.wait_for("all in the store", lambda chunks: len(chunks) == len(chunk_files(self.path)))
        daemon.kill()
        daemon.start()
        self.assertEqual(probe(daemon, self.path, "--source", self.source)["bad"], 0)
        cache = daemon.status()["cache"]
        self.assertEqual((cache["reads"], cache["restored"]), (0, len(chunk_files(self.path))))
        self.assertEqual(daemon.stop(), 0)

    def test_two_versions_with_a_digest_are_served(self):
        """Serves a version whose appended chunks are plain, and the version before it."""
        source, path = make_source("two", 3), os.path.join(SCRATCH, "two")
        pack(source, "two", "--zstd", "9", "--digest", "sha256")
        with open(os.path.join(source, "class2", "more"), "wb") as f:
            f.write(text(random.Random(8), MIB))
        pack(source, "two", "--append")
        flags = [Head(pathlib.Path(name).read_bytes()).flags for name in chunk_files(path)]
        self.assertEqual({*flags}, {0, 2})
        daemon = self.daemon()
        result = probe(daemon, path, "--source", source)
        self.assertEqual((result["bad"], result["samples"]), (0, SAMPLES + 3))

    def refused_with(self, path, *words):
        """Checks that some samples are not served, with the reason in the error, and that all others are as they were packed."""
        daemon = self.daemon()
        result = probe(daemon, path, "--source", self.source)
        self.assertGreater(result["bad"], 0)
        self.assertTrue(any(word in result["error"] for word in words), result["error"])
        self.assertEqual(result["error"].count("\n"), 0)
        done = subprocess.run([CTL, "verify", path], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        return daemon

    def decompressors(self, daemon):
        """Returns /proc/PID of each process that decompresses for the daemon's readers."""
        found = []
        for status in pathlib.Path("/proc").glob("[0-9]*/status"):
            try:
                if status.read_text().startswith("Name:\tdieseld-unpack\n") and daemon.process.pid in ancestors(int(status.parent.name)):
                    found.append(status.parent)
            except OSError:
                continue
        return found

    def test_the_process_that_decompresses_has_no_rights(self):
        daemon = self.daemon()
        self.assertEqual(probe(daemon, self.path, "--source", self.source)["bad"], 0)
        found = self.decompressors(daemon)
        self.assertGreater(len(found), 0)
        for process in found:
            status = dict(line.split(":\t") for line in (process / "status").read_text().splitlines() if ":\t" in line)
            self.assertEqual({status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")}, {"0" * 16})
            self.assertEqual(status["NoNewPrivs"], "1")
            if status["Seccomp"] == "0" and "seccomp" in daemon.output():
                self.skipTest("no seccomp filters here")
            self.assertEqual((status["Seccomp"], status["Threads"]), ("2", "1"))
            if os.geteuid() == 0:
                links = [os.readlink(fd) for fd in (process / "fd").iterdir()]
                self.assertEqual([link.split(":")[0] for link in links], ["socket"])

    def test_a_decompressor_that_ends_is_replaced(self):
        """A fourth end could be that of a chunk, which is read twice, each time by two processes."""
        daemon = self.daemon(cache="48M")
        ended, n_killed = threading.Event(), [0]

        def kill():
            while n_killed[0] < 3 and not ended.wait(0.01):
                for process in self.decompressors(daemon)[:1]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(process.name), signal.SIGKILL)
                        n_killed[0] += 1

        thread = threading.Thread(target=kill)
        thread.start()
        try:
            result = probe(daemon, self.path, "--source", self.source, "--epochs", 6, "--window", 1)
        finally:
            ended.set()
            thread.join()
        self.assertGreater(n_killed[0], 0)
        self.assertEqual((result["bad"], result["samples"]), (0, 6 * (SAMPLES + 2)))

    def compressed_chunk(self, path):
        """Returns the path of a chunk that has one of several samples, and the chunk's bytes."""
        for name in chunk_files(path):
            data = pathlib.Path(name).read_bytes()
            head = Head(data)
            if head.flags & 2 and len(head.lengths) < 20 and any(n < head.block for n in head.lengths):
                return name, bytearray(data), head
        raise AssertionError("no chunk is compressed")

    def test_a_damaged_block_is_an_error(self):
        path = self.copy()
        name, data, head = self.compressed_chunk(path)
        at = next(i for i, n in enumerate(head.lengths) if n < head.block)
        begin = head.payload + sum(head.lengths[:at])
        data[begin + head.lengths[at] // 2] ^= 0x55
        data[begin + head.lengths[at] // 2 + 1] ^= 0x55
        pathlib.Path(name).write_bytes(data)
        self.refused_with(path, "cannot be decompressed", "checksum mismatch")

    def test_a_chunk_that_was_cut_is_an_error(self):
        path = self.copy()
        name, data, head = self.compressed_chunk(path)
        os.truncate(name, len(data) - 4096)
        self.refused_with(path, "truncated or replaced", "is truncated")

    def test_a_changed_table_is_an_error(self):
        path = self.copy()
        name, data, head = self.compressed_chunk(path)
        struct.pack_into("<I", data, head.blocks_at, head.lengths[0] + 1)
        pathlib.Path(name).write_bytes(data)
        self.refused_with(path, "is not the chunk that the snapshot describes")

    def test_a_frame_that_grows_is_cut_at_its_block(self):
        """A frame that would decompress to 4 GiB replaces a block: no more is written than the head says."""
        zstd = ctypes.CDLL(ctypes.util.find_library("zstd"))
        zstd.ZSTD_compress.restype = zstd.ZSTD_compressBound.restype = ctypes.c_size_t
        zstd.ZSTD_compressBound.argtypes = [ctypes.c_size_t]
        zstd.ZSTD_compress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int]
        zeros = bytes(256 * MIB)
        to = ctypes.create_string_buffer(zstd.ZSTD_compressBound(len(zeros)))
        bomb = to.raw[:zstd.ZSTD_compress(to, len(to), zeros, len(zeros), 19)] * 16
        path = self.copy()
        name, data, head = self.compressed_chunk(path)
        at = max(range(len(head.lengths)), key=lambda i: head.lengths[i] * (head.lengths[i] < head.block))
        begin = head.payload + sum(head.lengths[:at])
        data[begin:begin + head.lengths[at]] = bomb[:head.lengths[at]].ljust(head.lengths[at], b"\0")
        pathlib.Path(name).write_bytes(data)
        daemon = self.refused_with(path, "cannot be decompressed")
        self.assertLess(daemon.resident_bytes(), 400 * MIB)


if __name__ == "__main__":
    main()
