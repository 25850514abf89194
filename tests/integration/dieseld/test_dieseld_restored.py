# SPDX-License-Identifier: Apache-2.0
"""Tests chunks that outlive the daemon in the service manager's store: only bytes that storage would give come back. The
manager is a stand-in for systemd (common/service_manager.py)."""
import ctypes
import fcntl
import os
import shutil
import struct
import subprocess

from dieseld_support import BIN, KINDS, MIB, SOURCES, Case, chunk_files, dataset, finish_probe, main, make_source, pack, probe, \
    start_probe
from common.processes import children, files_of
from common.wire_client import Client
from common.service_manager import KeptDaemon, Store

SIZE_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


def memory(data, size=None, seals=SIZE_SEALS, mode=0o400, uid=None):
    """Makes memory as dieseld makes it for a chunk, except for the given arguments."""
    fd = os.memfd_create("diesel-chunk", os.MFD_ALLOW_SEALING)
    os.write(fd, data)
    os.ftruncate(fd, size or len(data))
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    os.fchmod(fd, mode)
    if uid is not None:
        os.fchown(fd, uid, uid)
    return fd


def content(fd):
    return os.pread(fd, os.fstat(fd).st_size, 0)


class Index:
    """The index in the store, in the layout of handover.h."""

    def __init__(self, store):
        self.fd = store.descriptor("index")
        _, _, self.dataset_bytes, self.chunk_bytes, self.n_datasets, self.n_chunks = \
            struct.unpack("<8sIIIII", os.pread(self.fd, 28, 0))

    def dataset_at(self, i):
        return 32 + i * self.dataset_bytes

    def chunk_at(self, name):
        """is_valid and dataset (4 bytes each), chunk, bytes (8), stamp."""
        return self.dataset_at(self.n_datasets) + int(name[1:]) * self.chunk_bytes

    def get(self, name):
        return os.pread(self.fd, self.chunk_bytes, self.chunk_at(name))

    def put(self, name, offset, data):
        os.pwrite(self.fd, data, self.chunk_at(name) + offset)


class Carried(Case):
    def start(self, *options, maximum=512, **more):
        self.store = Store(maximum)
        self.addCleanup(self.store.close)
        daemon = KeptDaemon(self.store, *options, **more)
        self.addCleanup(daemon.log.close)
        self.addCleanup(lambda: self.assertEqual(daemon.stop() if daemon.process.poll() is None else 0, 0,
                                                 daemon.output()))
        return daemon

    def own(self, name):
        """Returns (dataset, source). The test may change both."""
        path, source = self.copy("few", name)
        own = os.path.join(SOURCES, name + ".src")
        shutil.copytree(source, own)
        self.addCleanup(shutil.rmtree, own)
        return path, own

    def read_all(self, daemon, path, source):
        """Reads it once. How many chunks were read from storage for that, and how many were restored."""
        before = daemon.status()["cache"]
        probe(daemon, path, "--source", source)
        after = daemon.status()["cache"]
        return after["reads"] - before["reads"], after["restored"] - before["restored"]

    def fill(self, daemon, path, source):
        n = len(chunk_files(path))
        self.assertEqual(self.read_all(daemon, path, source), (n, 0))
        self.store.wait_for("all in the store", lambda chunks: len(chunks) == n)
        return n

    def has_all(self, chunks, n):
        """Returns true if the store holds n chunks, and the index has each of them right. A chunk that the daemon dropped stays in
        the store until its manager reads the message."""
        index = Index(self.store)
        rows = [struct.unpack_from("<IIQQ", index.get(name)) for name in chunks]
        return (len(rows) == n and all(valid and chunk < n for valid, _, chunk, _ in rows) and len({chunk for *_, chunk, _ in rows}) == n
                and len({size for *_, size in rows}) == 1)

    def n_datasets(self):
        return sum(name[0] == "d" for name, _ in self.store.stored)

    def restart(self, daemon, change=lambda: None):
        daemon.kill()
        change()
        daemon.start()


    def steps(self, *steps):
        """Takes each step with all chunks of one dataset in the store."""
        daemon, (path, source) = self.start(), self.copy("few", steps[0].__name__)
        n = self.fill(daemon, path, source)
        for step in steps:
            with self.subTest(step.__name__):
                self.store.wait_for("all in the store", lambda chunks: self.has_all(chunks, n) and self.n_datasets() == 1)
                step(daemon, path, source, n)

    def dataset_name(self):
        return next(name for name, _ in self.store.stored if name[0] == "d")


class Restart(Carried):
    def test_a_daemon_that_is_killed_or_ended_in_mid_epoch_reads_nothing_again(self):
        for kind, ends in (("packed", ("kill", "stop")), ("views", ("stop", "kill"))):
            with self.subTest(kind):
                daemon, (path, source) = self.start(), dataset(kind)
                n = len(chunk_files(path))
                p = start_probe(daemon, path, "--source", source, "--pause-us", 10000, "--reconnect-ms", 30000,
                                "--hold", 2, "--epochs", 4)
                daemon.wait_for("the second epoch", lambda s: s["sessions"] and s["sessions"][0]["epoch"] > 0)
                self.assertEqual(daemon.status()["cache"]["reads"], n)
                for end in ends:
                    getattr(daemon, end)()
                    daemon.start()
                    status = daemon.wait_for("the job", lambda s: s["sessions"] and s["sessions"][0]["delivered"] > 12)
                    self.assertEqual(status["cache"]["reads"], 0)
                finish_probe(p)
                self.assertEqual(daemon.status()["cache"]["reads"], 0)
                self.assertEqual(self.read_all(daemon, path, source)[0], 0)

    def test_a_daemon_killed_in_the_first_epoch_reads_the_rest(self):
        """Verified chunks are not read again, and unverified ones are."""
        daemon, (path, source) = self.start("--prefetch", "1", "--window", "1"), dataset("views")
        p = start_probe(daemon, path, "--source", source, "--pause-us", 20000, "--reconnect-ms", 30000, "--epochs", 2)
        daemon.wait_for("some chunks", lambda s: s["cache"]["reads"] > 3)
        daemon.kill()
        self.assertLess(len(self.store.chunks()), len(chunk_files(path)))
        daemon.start()
        finish_probe(p)
        cache = daemon.status()["cache"]
        self.assertGreater(cache["restored"], 0)
        self.assertEqual(cache["reads"] + cache["restored"], len(chunk_files(path)))

    def test_a_live_batch_stays_as_it_is(self):
        """A client of the previous daemon uses its chunks; the next daemon copies them, or needs their space."""
        for end, others in (("given up", (dataset("packed"), self.copy("few", "another"))), ("copied", (dataset("views"),))):
            with self.subTest(end):
                self.live_batch(others)

    def live_batch(self, others):
        import diesel_loader.session as client
        from diesel_loader import Dataset
        daemon, (path, _) = self.start(cache="64M"), dataset("views")
        session = client.Session(Dataset(path, daemon.socket), world=1, batch=256, window_chunks=2, reconnect_ms=30000)
        lease = session.next_batch()
        items = [lease.batch.items[i] for i in range(lease.batch.n_items)]
        seen = [ctypes.string_at(item.data, item.bytes) for item in items]
        daemon.wait_for("it all", lambda s: s["cache"]["loading"] == 0)
        self.restart(daemon)
        self.assertGreater(daemon.status()["cache"]["restored_bytes"], 30 * MIB)
        for path, source in others:
            probe(daemon, path, "--source", source, "--epochs", 2)
        self.assertEqual(daemon.status()["cache"]["restored_bytes"], 0)
        changed = [i for i, item in enumerate(items) if ctypes.string_at(item.data, item.bytes) != seen[i]]
        self.assertEqual(changed, [])
        del lease
        session.close()


class Changed(Carried):
    def test_what_was_changed_while_no_daemon_ran_is_read_from_storage(self):
        self.steps(self.a_file_that_was_replaced_is_read, self.a_snapshot_that_was_written_to_is_another_one)

    def a_file_that_was_replaced_is_read(self, daemon, path, source, n):
        chunk = chunk_files(path)[0]

        def copy():
            shutil.copyfile(chunk, chunk + ".new")
            os.rename(chunk + ".new", chunk)

        self.restart(daemon, copy)
        self.assertEqual(self.read_all(daemon, path, source), (1, n - 1))

    def test_a_damaged_file_is_not_hidden(self):
        daemon, (path, source) = self.start(), self.copy("few", "damaged")
        self.fill(daemon, path, source)

        def damage():
            before = os.stat(chunk_files(path)[0])
            with open(chunk_files(path)[0], "r+b") as f:
                f.seek(2 * MIB)
                byte = f.read(1)
                f.seek(-1, os.SEEK_CUR)
                f.write(bytes([byte[0] ^ 1]))
            # A user who may write a file can set its modification time, but not its change time.
            os.utime(f.name, ns=(before.st_atime_ns, before.st_mtime_ns))

        self.restart(daemon, damage)
        self.assertIn(os.path.basename(chunk_files(path)[0]), probe(daemon, path, "--source", source)["error"])

    def test_a_file_that_is_gone_or_closed_is_not_served(self):
        for word, change in (("No such file", os.unlink), ("may be read by fewer users", lambda file: os.chmod(file, 0o600))):
            with self.subTest(word):
                daemon, (path, source) = self.start(), self.copy("few", "closed" + word[:2])
                self.fill(daemon, path, source)
                self.restart(daemon, lambda: change(chunk_files(path)[0]))
                self.assertIn(word, probe(daemon, path, "--source", source)["error"])

    def test_another_dataset_in_its_place_is_read(self):
        daemon, (path, source) = self.start(), self.own("packed-again")
        self.fill(daemon, path, source)

        def pack_again():
            """Packs again into the same directory."""
            shutil.rmtree(source)
            make_source("packed-again", *KINDS["few"], seed=99)
            new = pack(source, "packed-new")
            for name in os.listdir(path):
                old = os.path.join(path, name)
                shutil.rmtree(old) if os.path.isdir(old) else os.unlink(old)
            for name in os.listdir(new):
                os.rename(os.path.join(new, name), os.path.join(path, name))
            os.rmdir(new)

        self.restart(daemon, pack_again)
        self.assertEqual(self.read_all(daemon, path, source), (len(chunk_files(path)), 0))

    def test_an_older_version_leaves_the_store(self):
        daemon, (path, source) = self.start(), self.own("older")
        self.fill(daemon, path, source)

        def append():
            with open(os.path.join(source, "class0", "more.bin"), "wb") as f:
                f.write(os.urandom(5000))
            pack(source, "older", "--append", chunk="4M")

        self.restart(daemon, append)
        n = len(chunk_files(path))
        self.assertEqual(self.read_all(daemon, path, source), (n, 0))
        self.store.wait_for("the new ones alone", lambda chunks: len(chunks) == n)
        self.assertEqual(self.n_datasets(), 1)

    def test_an_older_version_that_somebody_holds_stays(self):
        """The copy of its snapshot takes memory: the next daemon accounts for that, too."""
        daemon, (path, source) = self.start(), self.own("held")
        self.fill(daemon, path, source)
        client = Client(daemon.socket)
        client.send_open_dataset(path)
        copies = client.receive()[2]
        client.close()

        def append():
            with open(os.path.join(source, "class0", f"more{os.urandom(4).hex()}.bin"), "wb") as f:
                f.write(os.urandom(5000))
            pack(source, "held", "--append", chunk="4M")

        self.restart(daemon, append)
        self.read_all(daemon, path, source)
        self.store.wait_for("both versions", lambda _: self.n_datasets() == 2)
        for fd in copies:
            os.close(fd)
        append()
        self.read_all(daemon, path, source)
        self.store.wait_for("the new version alone", lambda _: self.n_datasets() == 1)

    def a_snapshot_that_was_written_to_is_another_one(self, daemon, path, source, n):
        """Its inode is the same, and no daemon ran that would have noticed a change."""

        def write():
            with open(os.path.join(path, "snapshot"), "r+b") as f:
                text = f.read()
                f.seek(0)
                f.write(text)

        self.restart(daemon, write)
        self.assertEqual(self.read_all(daemon, path, source), (n, 0))
        self.store.wait_for("the new ones alone", lambda chunks: len(chunks) == n)


class Corrupted(Carried):
    def test_what_the_manager_changed_is_read_from_storage(self):
        self.steps(self.other_bytes_are_read_from_storage, self.other_memory_is_refused, self.another_copy_of_the_snapshot_is_not_used,
                   self.an_index_that_says_nonsense_is_not_used, self.a_chunk_that_the_index_has_wrong_is_read,
                   self.a_dataset_that_the_index_has_wrong_is_read)

    def other_bytes_are_read_from_storage(self, daemon, path, source, n):

        def write():
            fds = sorted(self.store.chunks().items())
            os.pwrite(fds[0][1], b"\xff" * 5000, 8192)
            os.pwrite(fds[1][1], b"\0" * 64, 0)

        self.restart(daemon, write)
        self.assertEqual(self.read_all(daemon, path, source), (2, n - 2))
        self.assertIn("(a copy restored after the restart); reading the chunk from storage", daemon.output())

    def other_memory_is_refused(self, daemon, path, source, n):
        # The right bytes in wrong memory. Its size may change, others may write it, another user owns it, it is too short, or it is no
        # memory at all.
        others = [{"seals": 0}, {"seals": fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL}, {"mode": 0o600}, {"size": 4096}]
        if os.geteuid() == 0:
            others.append({"uid": 12345})
        self.assertGreater(n, len(others) + 1)

        def replace():
            (first, _), *chunks = sorted(self.store.chunks().items())
            self.store.replace(first, os.open("/dev/null", os.O_RDONLY))
            for other, (name, fd) in zip(others, chunks):
                data = content(fd)
                self.store.replace(name, memory(data[:other.get("size")], **other))

        self.restart(daemon, replace)
        bad = len(others) + 1
        self.assertEqual(self.read_all(daemon, path, source), (bad, n - bad))
        self.assertIn(f"{bad} chunks not restored after the restart: the service manager returned other data than dieseld stored",
                      daemon.output())
        self.store.wait_for("good ones", lambda chunks: self.has_all(chunks, n))

    def another_copy_of_the_snapshot_is_not_used(self, daemon, path, source, n):
        for change in ("writable", "damaged", "another user's"):
            with self.subTest(change):
                n_told = daemon.output().count("not restored after the restart")
                if change == "another user's" and os.geteuid() != 0:
                    self.skipTest("needs root to give memory away")
                name = self.dataset_name()
                data = bytearray(content(self.store.descriptor(name)))
                if change == "damaged":
                    data[len(data) // 2] ^= 1
                new = memory(bytes(data), seals=SIZE_SEALS | (0 if change == "writable" else fcntl.F_SEAL_WRITE),
                             uid=12345 if change == "another user's" else None)
                self.restart(daemon, lambda: self.store.replace(name, new))
                self.assertEqual(daemon.status()["cache"]["restored_bytes"], 0)
                self.assertEqual(self.read_all(daemon, path, source), (n, 0))
                self.assertEqual(daemon.output().count("not restored after the restart"), n_told + 1, daemon.output())
                self.store.wait_for("all in the store", lambda chunks: len(chunks) == n and self.n_datasets() == 1)

    def test_without_the_index_nothing_is_used(self):
        def another(_):
            self.store.replace("index", memory(os.urandom(70000)))

        def none(_):
            self.store.replace("index", os.memfd_create("diesel-restored"))

        def of_an_older_version(index):
            os.pwrite(index, struct.pack("<I", 0), 8)

        def writable(index):
            self.store.replace("index", memory(content(index), seals=0))

        def of_a_larger_store(_):
            self.store.maximum //= 2

        daemon, (path, source) = self.start(), self.copy("few", "index")
        n = self.fill(daemon, path, source)
        for change in (another, none, of_an_older_version, writable, of_a_larger_store):
            with self.subTest(change.__name__):
                self.restart(daemon, lambda: change(self.store.descriptor("index")))
                self.store.wait_for("an empty store", lambda chunks: not chunks)
                self.assertEqual(self.read_all(daemon, path, source), (n, 0))
                self.store.wait_for("all in the store", lambda chunks: len(chunks) == n and self.n_datasets() == 1)
                self.restart(daemon)
                self.assertEqual(self.read_all(daemon, path, source), (0, n))

    def an_index_that_says_nonsense_is_not_used(self, daemon, path, source, n):
        index = self.store.descriptor("index")
        size = os.fstat(index).st_size

        def scribble():
            os.pwrite(index, os.urandom(size - 64), 64)  # all but the header

        self.restart(daemon, scribble)
        self.assertEqual(self.read_all(daemon, path, source), (n, 0))

    def a_chunk_that_the_index_has_wrong_is_read(self, daemon, path, source, n):
        def no_such_chunk(index, first, _):
            index.put(first, 8, struct.pack("<Q", 1 << 40))

        def no_such_dataset(index, first, _):
            index.put(first, 4, struct.pack("<I", 0xffffffff))

        def never_verified(index, first, _):
            index.put(first, 0, struct.pack("<I", 0))

        def of_another_size(index, first, _):
            size = struct.unpack_from("<Q", index.get(first), 16)[0]
            index.put(first, 16, struct.pack("<Q", 16 * size))
            self.store.replace(first, memory(content(self.store.descriptor(first)), size=16 * size))

        def the_same_twice(index, first, second):
            index.put(second, 0, index.get(first))

        def exchanged(index, first, second):
            a, b = index.get(first), index.get(second)
            index.put(first, 0, b)
            index.put(second, 0, a)

        for change, n_read, n_here in ((no_such_chunk, 1, n - 1), (no_such_dataset, 1, n - 1),
                                       (never_verified, 1, n - 1), (of_another_size, 1, n - 1),
                                       (the_same_twice, 1, n - 1), (exchanged, 2, n)):
            with self.subTest(change.__name__):
                names = sorted(self.store.chunks())
                one = struct.unpack_from("<Q", Index(self.store).get(names[0]), 16)[0]
                self.restart(daemon, lambda: change(Index(self.store), *names[:2]))
                self.assertEqual(daemon.status()["cache"]["restored_bytes"], n_here * one)
                self.assertEqual(self.read_all(daemon, path, source), (n_read, n - n_read))
                self.store.wait_for("good ones", lambda chunks: self.has_all(chunks, n))

    def a_dataset_that_the_index_has_wrong_is_read(self, daemon, path, source, n):
        def never_used(index, at):
            os.pwrite(index.fd, struct.pack("<Q", 0), at)

        def of_another_length(index, at):
            path = index.dataset_bytes - 4096  # the last field; copy_uid and copy_bytes come before it
            os.pwrite(index.fd, struct.pack("<Q", os.fstat(self.store.descriptor(self.dataset_name())).st_size - 8), at + path - 16)

        for change in (never_used, of_another_length):
            with self.subTest(change.__name__):
                index = Index(self.store)
                self.restart(daemon, lambda: change(index, index.dataset_at(int(self.dataset_name()[1:]))))
                self.assertEqual(self.read_all(daemon, path, source), (n, 0))
                self.store.wait_for("all in the store", lambda chunks: len(chunks) == n and self.n_datasets() == 1)

    def test_of_two_entries_of_one_name_the_first_counts(self):
        """The first one counts, both of two with one name and of two names of one dataset."""
        daemon, (path, source) = self.start(), self.copy("few", "twice")
        n = self.fill(daemon, path, source)
        index, first = Index(self.store), sorted(self.store.chunks())[0]

        def add():
            entry = os.pread(index.fd, index.dataset_bytes, index.dataset_at(0))
            os.pwrite(index.fd, entry, index.dataset_at(1))
            self.store.stored += [("d1", os.dup(self.store.descriptor("d0"))),
                                  (first, os.open("/dev/null", os.O_RDONLY))]

        self.restart(daemon, add)
        self.assertEqual(self.read_all(daemon, path, source), (0, n))
        self.assertEqual(self.n_datasets(), 1)

    def test_what_is_passed_to_another_process_is_not_ours(self):
        daemon, (path, source) = self.start(), self.copy("few", "stranger")
        n = self.fill(daemon, path, source)
        daemon.environment["LISTEN_PID"] = "1"
        self.restart(daemon)
        self.assertEqual(self.read_all(daemon, path, source), (n, 0))


class Bounds(Carried):
    def test_the_store_is_never_asked_for_more_than_it_takes(self):
        daemon, (path, source) = self.start(maximum=8), self.copy("few", "bounded")
        self.assertEqual(self.read_all(daemon, path, source)[0], len(chunk_files(path)))
        self.store.wait_for("a full store", lambda chunks: len(chunks) == 5)  # an index, at most two datasets
        self.assertEqual(self.store.refused, 0)
        self.restart(daemon)
        self.assertEqual(self.read_all(daemon, path, source), (len(chunk_files(path)) - 5, 5))

    def test_a_user_takes_its_share_of_the_store(self):
        daemon, (path, source) = self.start("--user-share", "50", maximum=12), self.copy("few", "share")
        for folder, _, files in os.walk(path):
            for name in (folder, *(os.path.join(folder, file) for file in files)):
                os.chown(name, 12345, 12345)
        n = len(chunk_files(path))
        self.read_all(daemon, path, source)
        self.restart(daemon)
        # Space for an index, three datasets and eight chunks.
        self.assertEqual(self.read_all(daemon, path, source), (n - 4, 4))
        self.assertEqual(self.n_datasets(), 1)
        # A second dataset of the same owner would exceed its half of three; root's do not count for it.
        second = pack(make_source("second", 10, lambda rng: 1000), "second")
        self.addCleanup(shutil.rmtree, second)
        for owner, n_stored in ((12345, 1), (0, 2)):
            for name in ("", "snapshot"):
                os.chown(os.path.join(second, name), owner, owner)
            probe(daemon, second)
            self.store.wait_for("a dataset in the store", lambda _: self.n_datasets() >= n_stored)
            self.assertEqual(self.n_datasets(), n_stored)

    def test_without_a_store_nothing_is_sent(self):
        for maximum in (0, 7):  # no store; too small for an index
            daemon, (path, source) = self.start(maximum=maximum), self.copy("few", f"storeless{maximum}")
            self.read_all(daemon, path, source)
            daemon.stop()
            self.assertEqual((self.store.stored, self.store.refused), ([], 0))

    def test_a_manager_that_is_busy_gets_all_later(self):
        with open("/proc/sys/net/unix/max_dgram_qlen") as f:
            if int(f.read()) > 20:
                self.skipTest("its socket takes more at once than there is")
        daemon, n = self.start(), 0
        with self.store.lock:
            for path, source in (dataset("packed"), dataset("views")):
                self.assertGreater(self.read_all(daemon, path, source)[0], 9)
                n += len(chunk_files(path))
        self.store.wait_for("all in the store", lambda chunks: len(chunks) == n)
        self.restart(daemon)
        self.assertEqual(self.read_all(daemon, *dataset("views"))[0], 0)

    def test_what_is_given_up_leaves_the_store(self):
        daemon, (path, source) = self.start(), dataset("packed")
        n = self.fill(daemon, path, source)
        self.restart(daemon)
        status = daemon.status()["cache"]
        self.assertGreater(status["restored_bytes"], 40 * MIB)
        self.assertEqual(status["restored_bytes"], status["segment_bytes"])
        self.assertEqual(status["borrowed_bytes"], status["segment_bytes"] + status["snapshot_bytes"])
        subprocess.run([os.path.join(BIN, "dieselctl"), "set", "--limit", "cache-max=16M", "--socket", daemon.socket],
                       check=True, stdout=subprocess.DEVNULL)
        self.store.wait_for("a smaller store", lambda chunks: 0 < len(chunks) <= 4)
        daemon.wait_for("less memory", lambda s: s["cache"]["restored_bytes"] <= 16 * MIB)
        self.assertLess(n, 20)

    def test_a_smaller_cache_takes_less(self):
        daemon, (path, source) = self.start(), dataset("packed")
        self.fill(daemon, path, source)
        daemon.command[daemon.command.index("256M")] = "24M"
        self.restart(daemon)
        cache = daemon.status()["cache"]
        self.assertLessEqual(cache["segment_bytes"] + cache["snapshot_bytes"], 24 * MIB)
        self.store.wait_for("a smaller store", lambda chunks: 0 < len(chunks) <= 6)
        # Other chunks of it come in their place, but not into their memory.
        probe(daemon, path, "--source", source, "--epochs", 2)

    def test_no_other_process_keeps_the_memory(self):
        daemon, (path, source) = self.start(), self.copy("few", "children")
        self.fill(daemon, path, source)
        self.restart(daemon)
        found = children(daemon.process.pid)
        self.assertTrue(found)
        # Children close their inherited descriptors first; the daemon does not wait for that.
        self.store.wait_for("children without chunks", lambda _: not any("diesel-chunk" in name for pid in found for name in files_of(pid)))


if __name__ == "__main__":
    main()
