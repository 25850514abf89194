# SPDX-License-Identifier: Apache-2.0
"""Tests datasets that Python writes: in a folder, with metadata on a Redis server, and in a bucket. Their content is compared
with that read by dieselctl.

usage: test_put.py folder | redis | bucket
"""
import array
import errno
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import time
import unittest

from common.processes import commands
from dieseld_support import SCRATCH, Case, main
from engines import DIESELCTL, ENGINES

import diesel_loader

os.environ["DIESEL_DIESELCTL"] = os.path.abspath(DIESELCTL)
ENGINE = ENGINES[sys.argv.pop()]()
unittest.addModuleCleanup(ENGINE.stop)
os.environ.update(ENGINE.env)
in_folder = unittest.skipUnless(type(ENGINE).__name__ == "Folder", "the same in a folder")


def create(name, **more):
    ENGINE.new(name)
    if type(ENGINE).__name__ == "Redis" and not os.path.exists(ENGINE.dataset):
        more["meta"] = ENGINE.server.url(name)
    return diesel_loader.create(ENGINE.dataset, **more)


def paths():
    return ENGINE.ctl("ls", "-R", ENGINE.dataset).split("\n")[:-1]


def read(path):
    done = subprocess.run([DIESELCTL, "cat", ENGINE.dataset, path], env=ENGINE.env, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def is_sound(version, n):
    told = ENGINE.json("verify", ENGINE.dataset)
    assert told["damages"] == [], told
    told = ENGINE.json("stat", ENGINE.dataset)
    assert (told["version"], told["samples"]) == (version, n), told


def is_sound_but_for_unused(version, n):
    """Checks a dataset of n samples, which is sound except for chunks that were written again, and stay until a purge."""
    told = ENGINE.json("stat", ENGINE.dataset)
    assert (told["version"], told["samples"]) == (version, n), told
    is_sound(ENGINE.json("purge", ENGINE.dataset)["version"], n)


def writers_of(dataset):
    """Returns processes `dieselctl put` of a dataset."""
    return commands("put", lambda word: word == os.fsencode(dataset))


class Put(Case):
    def test_samples_have_the_bytes_that_were_put(self):
        numbers = array.array("H", range(1000))
        samples = {"cat/1.bin": b"one", "cat/2.bin": b"", "dog/3.bin": bytearray(b"three" * 1000), "top": memoryview(b"0123456789")[::2],
                   "größe/ü": memoryview(b"read-only"), "numbers": numbers, os.fsdecode(b"cat/\xff\n.bin"): b"of any bytes"}
        with create("bytes") as w:
            for path, data in samples.items():
                w.put(path, data)
            w.put(pathlib.PurePosixPath("dog/last"), b"x" * 5000000, mode=0o640, mtime=1234567890.25)
        self.assertEqual(w.version, 1)
        is_sound(1, len(samples) + 1)
        for path, data in samples.items():
            self.assertEqual(read(path), bytes(data), path)
        last = next(entry for entry in ENGINE.json("ls", "-R", ENGINE.dataset) if entry["path"] == "dog/last")
        self.assertEqual((last["bytes"], last["mode"], last["mtime_ns"]), (5000000, 0o100640, 1234567890_250000000))
        with self.assertRaisesRegex(ValueError, "closed"):
            w.put("more", b"")

    @in_folder
    def test_order_is_that_of_put(self):
        with create("order") as w:
            for i in (3, 1, 2):
                w.put(f"{i}", b"%d" % i)
        listed = {entry["path"]: entry["sample"] for entry in ENGINE.json("ls", ENGINE.dataset)}
        self.assertEqual(listed, {"3": 0, "1": 1, "2": 2})

    def test_a_block_that_raises_leaves_nothing(self):
        with self.assertRaises(ZeroDivisionError), create("raises", chunk_bytes=4 << 20) as w:
            for i in range(6):
                w.put(f"{i}", os.urandom(2 << 20))  # some chunks are written by now
            1 / 0  # noqa: B018
        self.assertIn("no dataset" if type(ENGINE).__name__ != "Bucket" else "there is no", ENGINE.ctl("ls", ENGINE.dataset, fails=True))
        if not ENGINE.dataset.startswith("s3:"):
            self.assertFalse(os.path.exists(ENGINE.dataset))
        with create("raises") as w:  # the failed writer blocks nothing
            w.put("a", b"1")
        with self.assertRaises(ZeroDivisionError), create("raises", append=True, chunk_bytes=4 << 20) as w:
            for i in range(6):
                w.put(f"{i}", os.urandom(2 << 20))
            1 / 0  # noqa: B018
        if ENGINE.dataset.startswith("s3:"):  # another writer may have adopted the chunk, so only a purge removes it
            with create("raises", append=True) as w:
                w.put("b", b"1")
            is_sound_but_for_unused(2, 2)
        else:
            is_sound(1, 1)
        self.assertEqual(ENGINE.n_chunks(), 1 + ENGINE.dataset.startswith("s3:"))

    def test_append_adds_to_and_replaces_in_a_dataset(self):
        with create("append") as w:
            w.put("a", b"1")
            w.put("b", b"2")
        with self.assertRaisesRegex(FileExistsError, "has 2 samples already"):
            create("append")
        with create("append", append=True, digest=None) as w:
            w.put("b", b"two")
            w.put("c", b"three")
        self.assertEqual(w.version, 2)
        is_sound(2, 3)
        self.assertEqual([read(p) for p in ("a", "b", "c")], [b"1", b"two", b"three"])
        with create("append", append=True) as w:
            pass
        self.assertEqual(w.version, 2)
        self.assertIn("1 added, 1 replaced, 0 deleted", ENGINE.ctl("log", ENGINE.dataset))

    @in_folder
    def test_the_writer_goes_on_after_a_refusal(self):
        """The writer continues after each refusal."""
        with create("refused") as w:
            w.put("a/b", b"1")
            for wrong in ("", "/a", "a/", "a//b", ".", "..", "a/../b", "./a", "a\0b", "x" * 4096):
                with self.assertRaisesRegex(ValueError, "invalid sample path"):
                    w.put(wrong, b"")
            with self.assertRaisesRegex(FileExistsError, "has already put 'a/b'"):
                w.put("a/b", b"2")
            for wrong in ("a/b/c", "a/b/c/d"):
                with self.assertRaisesRegex(FileExistsError, f"'{wrong}' needs a folder 'a/b', but"):
                    w.put(wrong, b"")
            with self.assertRaisesRegex(FileExistsError, "'a' is a folder of samples"):
                w.put("a", b"")
            for wrong in ("text", 3, None):
                with self.assertRaises(TypeError):
                    w.put("c", wrong)
            with self.assertRaisesRegex(ValueError, "mode must be that of a regular file"):
                w.put("c", b"", mode=0o040755)
            with self.assertRaisesRegex(ValueError, "mtime"):
                w.put("c", b"", mtime=-1)
            w.put("c", b"3")
        with self.assertRaisesRegex(ValueError, "chunk_bytes must be a size .* not -1"):
            diesel_loader.create("other", chunk_bytes=-1)
        with self.assertRaisesRegex(NotADirectoryError, "test_put.py, or what is above it, is a file, but a dataset is a folder"):
            diesel_loader.create(__file__)
        is_sound(1, 2)
        self.assertEqual(read("a/b"), b"1")

    @in_folder
    def test_threads_may_share_a_writer(self):
        def put(thread):
            for i in range(300):
                w.put(f"{thread}/{i}", b"%d-%d" % (thread, i) * 500)
        with create("threads") as w:
            threads = [threading.Thread(target=put, args=(t,)) for t in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        is_sound(1, 1200)
        self.assertEqual(read("3/299"), b"3-299" * 500)

    @in_folder
    def test_a_file_and_a_folder_of_one_name_are_refused(self):
        with self.assertRaisesRegex(OSError, "a"), create("both") as w:
            w.put("a", b"1")
            w.put("a/b", b"2")
        self.assertEqual(writers_of(ENGINE.dataset), [])

    @unittest.skipUnless(type(ENGINE).__name__ == "Bucket", "a folder has one writer at a time")
    def test_the_second_of_two_writers_commits_upon_the_first(self):
        """The writer that commits second continues from the other's version: with chunks that are newer than the other's last one, and with
        older ones, which are written again."""
        with create("several") as w:
            w.put("first", b"1")
        early = create("several", append=True, chunk_bytes=4 << 20)
        early.put("early", b"e" * (3 << 20))
        early.put("both", b"early" * (1 << 18))
        early.put("early2", b"E" * (3 << 20))
        deadline = time.monotonic() + 60
        while ENGINE.n_chunks() < 2 and time.monotonic() < deadline:  # one of its chunks is in the store
            time.sleep(0.05)
        with create("several", append=True) as late:
            late.put("late", b"l" * 1000)
            late.put("both", b"late")
        early.put("last", b"L" * (2 << 20))
        self.assertEqual((late.version, early.commit()), (2, 3))
        is_sound_but_for_unused(3, 6)
        self.assertEqual(read("early"), b"e" * (3 << 20))
        self.assertEqual(read("both"), b"early" * (1 << 18))
        self.assertEqual((read("late"), read("last")), (b"l" * 1000, b"L" * (2 << 20)))
        refused = create("new")
        refused.put("a", b"1")
        with create("new") as w:
            w.put("b", b"2")
        with self.assertRaisesRegex(FileExistsError, "has 1 sample already"):
            refused.commit()
        refused.close()
        is_sound_but_for_unused(1, 1)

    @in_folder
    def test_wrong_use_is_an_error(self):
        os.makedirs(SCRATCH + "/other", exist_ok=True)
        pathlib.Path(SCRATCH, "other", "file").write_text("x")
        with self.assertRaisesRegex(OSError, "not empty and not a dataset"):
            diesel_loader.create(SCRATCH + "/other")
        with self.assertRaisesRegex(ValueError, "from 4 MiB to 64 MiB"):
            create("wrong", chunk_bytes=1000)
        with self.assertRaisesRegex(ValueError, "sha256"):
            create("wrong", digest="md5")
        with self.assertRaisesRegex(ValueError, "redis://"):
            create("wrong", meta="http://here")
        with self.assertRaises(FileNotFoundError):
            diesel_loader.create(SCRATCH + "/no/such/place")
        self.assertFalse(os.path.exists(SCRATCH + "/wrong"))
        given = os.environ["DIESEL_DIESELCTL"]
        try:
            for wrong, says in (("/no/dieselctl", "not found"), ("/bin/true", "exited without a message")):
                os.environ["DIESEL_DIESELCTL"] = wrong
                with self.assertRaisesRegex(OSError, says):
                    create("wrong")
        finally:
            os.environ["DIESEL_DIESELCTL"] = given
        done = subprocess.run([DIESELCTL, "put", SCRATCH + "/wrong"], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("do not run it by hand", done.stderr)

    @in_folder
    def test_a_second_writer_is_refused(self):
        with create("busy") as w:
            w.put("a", b"1")
            with self.assertRaises(OSError) as raised:
                create("busy", append=True)
            self.assertEqual(raised.exception.errno, errno.EBUSY)
        is_sound(1, 1)

    @in_folder
    def test_the_dataset_has_the_digest_that_was_asked_for(self):
        with create("digest", digest="sha256") as w:
            w.put("a", b"1")
        self.assertEqual(ENGINE.json("stat", ENGINE.dataset)["digest"], "sha256")

    @in_folder
    def test_a_forked_process_has_no_writer(self):
        with create("forked") as w:
            w.put("a", b"1")
            child = os.fork()
            if child == 0:
                try:
                    w.put("b", b"2")
                except ValueError as error:
                    os._exit(0 if "forked" in str(error) else 1)
                finally:
                    os._exit(2)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            child = os.fork()
            if child == 0:  # a child that outlives the block does not keep the writer's process
                time.sleep(30)
                os._exit(0)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        is_sound(1, 1)

    @in_folder
    def test_a_full_disk_is_an_error(self):
        if os.geteuid() != 0:
            self.skipTest("needs root to mount a small tmpfs")
        mount = pathlib.Path(SCRATCH, "disk")
        mount.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=9m", "none", mount], check=True)
        self.addCleanup(subprocess.run, ["umount", mount], check=True)
        with diesel_loader.create(mount / "set", chunk_bytes=4 << 20) as w:
            w.put("first", b"1")
        with self.assertRaises(OSError) as raised, diesel_loader.create(mount / "set", append=True, chunk_bytes=4 << 20) as w:
            for i in range(100):
                w.put(f"{i}", os.urandom(1 << 20))
        self.assertEqual(raised.exception.errno, errno.ENOSPC)
        self.assertIn(str(mount / "set"), str(raised.exception))
        ENGINE.dataset = str(mount / "set")
        is_sound(1, 1)
        self.assertEqual(ENGINE.n_chunks(), 1)  # the chunks were removed: there is space again
        with diesel_loader.create(mount / "set", append=True) as w:
            w.put("second", os.urandom(1 << 20))
        is_sound(2, 2)

    @in_folder
    def test_a_killed_writer_leaves_nothing_and_the_next_one_goes_on(self):
        """Kills the program, or its dieselctl, in mid-write: readers see nothing of it, and the next writer succeeds."""
        ENGINE.new("killed")
        program = textwrap.dedent(f"""
            import diesel_loader, os
            w = diesel_loader.create({ENGINE.dataset!r}, append=True, chunk_bytes=4 << 20)
            for i in range(1000):
                w.put(f"{{i}}", os.urandom(1 << 20))
                print(i, flush=True)
            """)
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        while int(process.stdout.readline()) < 20:
            pass
        process.kill()
        process.wait()
        process.stdout.close()
        deadline = time.monotonic() + 60
        while writers_of(ENGINE.dataset) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertEqual((writers_of(ENGINE.dataset), os.path.exists(ENGINE.dataset)), ([], False))
        with self.assertRaisesRegex(OSError, "exited without a message"), create("killed", append=True) as w:
            w.put("a", os.urandom(5 << 20))
            pid, = writers_of(ENGINE.dataset)
            os.kill(pid, signal.SIGKILL)
            for i in range(1000):
                w.put(f"{i}", os.urandom(1 << 20))
        with create("killed", append=True) as w:
            w.put("a", b"1")
        is_sound(1, 1)
        self.assertEqual(ENGINE.n_chunks(), 1)

    @in_folder
    def test_ctrl_c_ends_a_writer(self):
        """Also tests it while the writing process reads nothing more."""
        def interrupt():
            time.sleep(0.3)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.3)
            os.kill(pid, signal.SIGCONT)
        with self.assertRaises(KeyboardInterrupt), create("interrupted") as w:
            pid, = writers_of(ENGINE.dataset)
            os.kill(pid, signal.SIGSTOP)
            threading.Thread(target=interrupt).start()
            for i in range(1000):
                w.put(f"{i}", bytes(1 << 20))
        self.assertFalse(os.path.exists(ENGINE.dataset))

    @in_folder
    def test_a_writer_without_samples_makes_no_dataset(self):
        with create("nothing") as w:
            pass
        self.assertEqual((w.version, os.path.exists(ENGINE.dataset)), (0, False))

    @in_folder
    def test_a_writer_that_is_dropped_warns(self):
        w = create("dropped")
        w.put("a", b"1")
        with self.assertWarnsRegex(ResourceWarning, "without commit"):
            del w
        self.assertFalse(os.path.exists(ENGINE.dataset))


main()
