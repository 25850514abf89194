# SPDX-License-Identifier: Apache-2.0
"""Chunks outlive the daemon in the service manager's store, and nothing but what storage would give comes back. The
manager is a stand-in for systemd (service_manager.py)."""
import ctypes
import os
import shutil
import subprocess

from dieseld_support import BIN, MIB, SCRATCH, Case, chunk_files, dataset, finish_probe, main, make_source, pack, probe, \
    start_probe
from service_manager import KeptDaemon, Store


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
        """(dataset, source) that may be damaged: some 6 chunks of unequal samples."""
        source = make_source(name, 120, lambda rng: rng.randint(0, 400000), seed=len(name))
        path = pack(source, name, chunk="4M")
        self.addCleanup(shutil.rmtree, path)
        return path, source

    def read_all(self, daemon, path, source):
        """Reads it once. How many chunks were read from storage for that, and how many were carried over."""
        before = daemon.status()["cache"]
        probe(daemon, path, "--source", source)
        after = daemon.status()["cache"]
        return after["reads"] - before["reads"], after["carried"] - before["carried"]

    def fill(self, daemon, path, source):
        n = len(chunk_files(path))
        self.assertEqual(self.read_all(daemon, path, source), (n, 0))
        self.store.wait_for("all in the store", lambda chunks: len(chunks) == n)
        return n

    def restart(self, daemon, change=lambda: None):
        daemon.kill()
        change()
        daemon.start()


class Restart(Carried):
    def test_killed_and_ended_in_mid_epoch(self):
        for kind in ("packed", "views"):
            for end in ("kill", "stop"):
                with self.subTest(kind=kind, end=end):
                    daemon, (path, source) = self.start(), dataset(kind)
                    n = len(chunk_files(path))
                    p = start_probe(daemon, path, "--source", source, "--pause-us", 10000, "--reconnect-ms", 30000,
                                    "--hold", 2, "--epochs", 4)
                    daemon.wait_for("the second epoch", lambda s: s["sessions"] and s["sessions"][0]["epoch"] > 0)
                    self.assertEqual(daemon.status()["cache"]["reads"], n)
                    for _ in range(2):
                        getattr(daemon, end)()
                        daemon.start()
                        status = daemon.wait_for("the job", lambda s: s["sessions"] and
                                                 s["sessions"][0]["delivered"] > 12)
                        self.assertEqual(status["cache"]["reads"], 0)
                    finish_probe(p)
                    self.assertEqual(daemon.status()["cache"]["reads"], 0)
                    self.assertEqual(self.read_all(daemon, path, source)[0], 0)

    def test_killed_in_the_first_epoch(self):
        """What was verified is not read again, what was not is."""
        daemon, (path, source) = self.start("--prefetch", "1", "--window", "1"), dataset("views")
        p = start_probe(daemon, path, "--source", source, "--pause-us", 20000, "--reconnect-ms", 30000, "--epochs", 2)
        daemon.wait_for("some chunks", lambda s: s["cache"]["reads"] > 3)
        daemon.kill()
        self.assertLess(len(self.store.chunks()), len(chunk_files(path)))
        daemon.start()
        finish_probe(p)
        cache = daemon.status()["cache"]
        self.assertGreater(cache["carried"], 0)
        self.assertEqual(cache["reads"] + cache["carried"], len(chunk_files(path)))

    def test_a_live_batch_stays_as_it_is(self):
        """A client of the daemon that was looks at its chunks; the next one has other use for the room."""
        import diesel_loader.session as client
        from diesel_loader import Dataset
        daemon, (path, _) = self.start(cache="64M"), dataset("views")
        session = client.Session(Dataset(path, daemon.socket), world=1, batch=256, window_chunks=2, reconnect_ms=30000)
        lease = session.next_batch()
        items = [lease.batch.items[i] for i in range(lease.batch.n_items)]
        seen = [ctypes.string_at(item.data, item.bytes) for item in items]
        daemon.wait_for("it all", lambda s: s["cache"]["loading"] == 0)
        self.restart(daemon)
        self.assertGreater(daemon.status()["cache"]["carried_bytes"], 30 * MIB)
        for path, source in (dataset("packed"), self.own("another")):
            probe(daemon, path, "--source", source, "--epochs", 2)
        self.assertEqual(daemon.status()["cache"]["carried_bytes"], 0)
        changed = [i for i, item in enumerate(items) if ctypes.string_at(item.data, item.bytes) != seen[i]]
        self.assertEqual(changed, [])
        del lease
        session.close()


class Changed(Carried):
    def test_a_file_that_was_replaced_is_read(self):
        daemon, (path, source) = self.start(), self.own("replaced")
        n = self.fill(daemon, path, source)
        chunk = chunk_files(path)[0]

        def copy():
            shutil.copyfile(chunk, chunk + ".new")
            os.rename(chunk + ".new", chunk)

        self.restart(daemon, copy)
        self.assertEqual(self.read_all(daemon, path, source), (1, n - 1))

    def test_a_damaged_file_is_not_hidden(self):
        daemon, (path, source) = self.start(), self.own("damaged")
        self.fill(daemon, path, source)

        def damage():
            with open(chunk_files(path)[0], "r+b") as f:
                f.seek(2 * MIB)
                byte = f.read(1)
                f.seek(-1, os.SEEK_CUR)
                f.write(bytes([byte[0] ^ 1]))

        self.restart(daemon, damage)
        self.assertIn(os.path.basename(chunk_files(path)[0]), probe(daemon, path, "--source", source)["error"])

    def test_a_file_that_is_gone_or_closed_is_not_served(self):
        for word, change in (("No such file", os.unlink), ("may be read by fewer", lambda file: os.chmod(file, 0o600))):
            with self.subTest(word):
                daemon, (path, source) = self.start(), self.own("closed" + word[:2])
                self.fill(daemon, path, source)
                self.restart(daemon, lambda: change(chunk_files(path)[0]))
                self.assertIn(word, probe(daemon, path, "--source", source)["error"])

    def test_another_dataset_in_its_place(self):
        daemon, (path, source) = self.start(), self.own("packed-again")
        self.fill(daemon, path, source)

        def pack_again():
            shutil.rmtree(path)
            shutil.rmtree(source)
            make_source("packed-again", 120, lambda rng: rng.randint(0, 400000), seed=99)
            pack(source, "packed-again", chunk="4M")

        self.restart(daemon, pack_again)
        self.assertEqual(self.read_all(daemon, path, source), (len(chunk_files(path)), 0))

    def test_an_older_version_goes(self):
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
        self.assertEqual(sum(name[0] == "d" for name, _ in self.store.stored), 1)

    def test_a_snapshot_that_was_written_to_is_another_one(self):
        """Its inode is the same: nothing kept that while no daemon ran."""
        daemon, (path, source) = self.start(), self.own("written")
        n = self.fill(daemon, path, source)

        def write():
            with open(os.path.join(path, "snapshot"), "r+b") as f:
                text = f.read()
                f.seek(0)
                f.write(text)

        self.restart(daemon, write)
        self.assertEqual(self.read_all(daemon, path, source), (n, 0))
        self.store.wait_for("the new ones alone", lambda chunks: len(chunks) == n)


class Corrupted(Carried):
    def test_other_bytes_are_read_from_storage(self):
        daemon, (path, source) = self.start(), self.own("bytes")
        n = self.fill(daemon, path, source)

        def write():
            fds = sorted(self.store.chunks().items())
            os.pwrite(fds[0][1], b"\xff" * 5000, 8192)
            os.pwrite(fds[1][1], b"\0" * 64, 0)

        self.restart(daemon, write)
        self.assertEqual(self.read_all(daemon, path, source), (2, n - 2))
        self.assertIn("(carried over the restart); reading it from storage", daemon.output())

    def test_other_memory_is_refused(self):
        daemon, (path, source) = self.start(), self.own("memory")
        n = self.fill(daemon, path, source)

        def replace():
            (first, fd), (second, _), (third, _) = sorted(self.store.chunks().items())[:3]
            # The right bytes, and nothing that keeps somebody from changing them; too short; no memory at all.
            for name, size in ((first, os.fstat(fd).st_size), (second, 4096)):
                new = os.memfd_create("diesel-chunk", os.MFD_ALLOW_SEALING)
                os.write(new, os.pread(fd, size, 0))
                os.fchmod(new, 0o400)
                self.store.replace(name, new)
            self.store.replace(third, os.open("/dev/null", os.O_RDONLY))

        self.restart(daemon, replace)
        self.assertEqual(self.read_all(daemon, path, source), (3, n - 3))
        self.assertIn("3 chunks not used: what the service manager kept is not as dieseld made it", daemon.output())
        self.store.wait_for("good ones", lambda chunks: len(chunks) == n)

    def test_without_the_index_nothing_is_used(self):
        for change in ("another", "none"):
            with self.subTest(change):
                daemon, (path, source) = self.start(), self.own("index" + change)
                n = self.fill(daemon, path, source)
                new = os.memfd_create("diesel-carried")
                os.write(new, os.urandom(70000))
                if change == "none":
                    os.lseek(new, 0, os.SEEK_SET)
                    os.truncate(new, 0)
                self.restart(daemon, lambda: self.store.replace("index", new))
                self.store.wait_for("an empty store", lambda chunks: not chunks)
                self.assertEqual(self.read_all(daemon, path, source), (n, 0))
                self.restart(daemon)
                self.assertEqual(self.read_all(daemon, path, source), (0, n))

    def test_an_index_that_says_nonsense(self):
        daemon, (path, source) = self.start(), self.own("nonsense")
        n = self.fill(daemon, path, source)
        index = next(fd for name, fd in self.store.stored if name == "index")
        size = os.fstat(index).st_size

        def scribble():
            os.pwrite(index, os.urandom(size - 64), 64)  # all but the header

        self.restart(daemon, scribble)
        self.assertEqual(self.read_all(daemon, path, source), (n, 0))

    def test_what_is_passed_to_another_process_is_not_ours(self):
        daemon, (path, source) = self.start(), self.own("stranger")
        n = self.fill(daemon, path, source)
        daemon.environment["LISTEN_PID"] = "1"
        self.restart(daemon)
        self.assertEqual(self.read_all(daemon, path, source), (n, 0))


class Bounds(Carried):
    def test_the_store_is_never_asked_for_more_than_it_takes(self):
        daemon, (path, source) = self.start(maximum=8), self.own("bounded")
        self.assertEqual(self.read_all(daemon, path, source)[0], len(chunk_files(path)))
        self.store.wait_for("a full store", lambda chunks: len(chunks) == 5)  # an index, two datasets at most
        self.assertEqual(self.store.refused, 0)
        self.restart(daemon)
        self.assertEqual(self.read_all(daemon, path, source), (len(chunk_files(path)) - 5, 5))

    def test_a_user_takes_its_share_of_the_store(self):
        daemon, (path, source) = self.start("--user-share", "50", maximum=12), self.own("share")
        for folder, _, files in os.walk(path):
            for name in (folder, *(os.path.join(folder, file) for file in files)):
                os.chown(name, 12345, 12345)
        n = len(chunk_files(path))
        self.read_all(daemon, path, source)
        self.restart(daemon)
        # Of an index, three datasets and eight chunks.
        self.assertEqual(self.read_all(daemon, path, source), (n - 4, 4))

    def test_without_a_store_nothing_is_sent(self):
        daemon, (path, source) = self.start(maximum=0), self.own("storeless")
        self.read_all(daemon, path, source)
        daemon.stop()
        self.assertEqual((self.store.stored, self.store.refused), ([], 0))

    def test_what_is_given_up_leaves_the_store(self):
        daemon, (path, source) = self.start(), dataset("packed")
        n = self.fill(daemon, path, source)
        self.restart(daemon)
        status = daemon.status()["cache"]
        self.assertGreater(status["carried_bytes"], 40 * MIB)
        self.assertEqual(status["carried_bytes"], status["segment_bytes"])
        self.assertEqual(status["borrowed_bytes"], status["segment_bytes"] + status["snapshot_bytes"])
        subprocess.run([os.path.join(BIN, "dieselctl"), "set", "--limit", "cache-max=16M", "--socket", daemon.socket],
                       check=True, stdout=subprocess.DEVNULL)
        self.store.wait_for("a smaller store", lambda chunks: 0 < len(chunks) <= 4)
        daemon.wait_for("less memory", lambda s: s["cache"]["carried_bytes"] <= 16 * MIB)
        self.assertLess(n, 20)

    def test_a_smaller_cache_takes_less(self):
        daemon, (path, source) = self.start(), dataset("packed")
        self.fill(daemon, path, source)
        daemon.command[daemon.command.index("256M")] = "24M"
        self.restart(daemon)
        cache = daemon.status()["cache"]
        self.assertLessEqual(cache["segment_bytes"] + cache["snapshot_bytes"], 24 * MIB)
        self.store.wait_for("a smaller store", lambda chunks: 0 < len(chunks) <= 6)

    def test_no_other_process_keeps_the_memory(self):
        daemon, (path, source) = self.start(), self.own("children")
        self.fill(daemon, path, source)
        self.restart(daemon)
        with open(f"/proc/{daemon.process.pid}/task/{daemon.process.pid}/children") as f:
            children = f.read().split()
        self.assertTrue(children)
        # They close what they have inherited first of all; the daemon does not wait for that.
        self.store.wait_for("children without chunks", lambda _: not any(map(self.has_chunks, children)))

    @staticmethod
    def has_chunks(pid):
        folder = f"/proc/{pid}/fd"
        return any("diesel-chunk" in os.readlink(os.path.join(folder, fd)) for fd in os.listdir(folder))


if __name__ == "__main__":
    main()
