# SPDX-License-Identifier: Apache-2.0
"""Tests dieselctl mount: a dataset as files, for programs that do not use DIESEL."""
import ctypes
import filecmp
import hashlib
import mmap
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
import unittest

from dieseld_support import CTL, Daemon, chunk_files, main, pack
from common.processes import process_stat
from common.waiting import wait_until
from mount_support import FUSE, Mount, digests, is_mounted


class Files(Mount):
    def test_files_are_what_was_packed(self):
        where = self.mount()
        self.assertEqual(digests(where), digests(self.source))
        compared = filecmp.dircmp(self.source, where)
        self.assertEqual((compared.left_only, compared.right_only), ([], []))
        for name in ("top.txt", "class0/deep name, with\\ comma"):
            ours, theirs = os.stat(f"{where}/{name}"), os.stat(f"{self.source}/{name}")
            self.assertEqual((ours.st_size, ours.st_mtime_ns), (theirs.st_size, theirs.st_mtime_ns))
            self.assertEqual(ours.st_mode & 0o777, theirs.st_mode & 0o555)
        self.assertEqual(os.statvfs(where).f_files, 602)

    def test_parts_maps_and_copies_of_files_are_right(self):
        where = self.mount()
        big = f"{where}/class0/deep name, with\\ comma"
        with open(big, "rb") as f:
            f.seek(699_990)
            self.assertEqual(f.read(100), b"x" * 10)
            self.assertEqual(f.read(), b"")
            with mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as m:
                self.assertEqual(m[350_000:350_004], b"xxxx")
        copy = self.folder()
        subprocess.run(["cp", "-r", f"{where}/class1", copy], check=True)
        self.assertEqual(digests(f"{copy}/class1"), digests(f"{self.source}/class1"))

    def test_many_readers_read_at_once(self):
        where, expected = self.mount(), digests(self.source)
        wrong = []

        def read(seed):
            names = sorted(expected)
            random.Random(seed).shuffle(names)
            for name in names[:300]:
                with open(f"{where}/{name}", "rb") as f:
                    if hashlib.md5(f.read()).hexdigest() != expected[name]:
                        wrong.append(name)

        readers = [threading.Thread(target=read, args=(seed,)) for seed in range(12)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        self.assertEqual(wrong, [])

    def test_many_files_can_be_open(self):
        where = self.mount()
        files = [(os.open(f"{where}/{name}", os.O_RDONLY), name) for name in digests(self.source)]
        self.addCleanup(lambda: [os.close(fd) for fd, _ in files])
        for fd, name in files:
            with open(f"{self.source}/{name}", "rb") as f:
                self.assertEqual(os.pread(fd, 300, 1000), os.pread(f.fileno(), 300, 1000))

    def test_nothing_can_be_changed(self):
        where = self.mount()
        for change in (lambda: open(f"{where}/new", "w", encoding="utf-8"), lambda: os.remove(f"{where}/top.txt"),
                       lambda: os.truncate(f"{where}/top.txt", 0), lambda: os.mkdir(f"{where}/d"),
                       lambda: os.rename(f"{where}/top.txt", f"{where}/t")):
            with self.assertRaises(OSError):
                change()
        for name in ("no", "top.txt/no", "class0/no/no", "class", "n" * 300):
            with self.assertRaises(OSError):
                os.stat(f"{where}/{name}")

    def test_classes_are_those_of_the_source(self):
        self.assertEqual(sorted(os.listdir(self.mount())), sorted(os.listdir(self.source)))


class Compressed(Files):
    """Runs the tests of Files on compressed chunks."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        source = cls.source + ".text"
        shutil.copytree(cls.source, source)
        for i, name in enumerate(sorted(digests(source))):
            path = os.path.join(source, name)
            if i % 3 and name.endswith(".bin"):
                with open(path, "r+b") as f:
                    f.write((b"%d bottles of beer on the wall, " % i * 10000)[:os.path.getsize(path)])
        cls.dataset, cls.source = pack(source, "text", "--zstd", "3"), source
        cls.stored = sum(os.path.getsize(name) for name in chunk_files(cls.dataset))

    def test_compressed_files_take_less(self):
        self.assertLess(self.stored, 0.7 * sum(os.path.getsize(os.path.join(self.source, name)) for name in digests(self.source)))

    def test_one_compressed_file_is_read_alone(self):
        """A mount reads only the file. It reads the rest of the chunk when more of the chunk is needed."""
        node = Daemon(cache="64M")
        self.addCleanup(node.log.close)
        self.addCleanup(node.stop)
        where = self.mount(node=node)
        name = next(name for name in sorted(digests(self.source)) if os.path.getsize(f"{self.source}/{name}") == 5000)
        with open(f"{where}/{name}", "rb") as f, open(f"{self.source}/{name}", "rb") as original:
            self.assertEqual(f.read(), original.read())
        self.assertLess(node.status()["cache"]["read_bytes"], 1 << 20)


class Ahead(Mount):
    """A program that reads small files in order finds the next ones in the page cache."""

    def has(self, path):
        """Returns whether the page cache has all of the file, which is not empty."""
        with open(path, "rb") as f:
            size = os.fstat(f.fileno()).st_size
            pages = (ctypes.c_ubyte * (-(-size // mmap.PAGESIZE)))()
            with mmap.mmap(f.fileno(), 0, flags=mmap.MAP_PRIVATE) as m:
                address = ctypes.c_char.from_buffer(m)
                result = ctypes.CDLL(None).mincore(ctypes.c_void_p(ctypes.addressof(address)), ctypes.c_size_t(size), pages)
                del address
            self.assertEqual(result, 0)
            return all(page & 1 for page in pages)

    def names(self):
        return sorted(name for name in digests(self.source) if name.startswith("class1/"))

    def read(self, where, names):
        for name in names:
            with open(f"{where}/{name}", "rb") as ours, open(f"{self.source}/{name}", "rb") as theirs:
                self.assertEqual(ours.read(), theirs.read(), name)

    def test_files_are_found_by_name_and_listed(self):
        for listed in (False, True):
            with self.subTest(listed=listed):
                where, names = self.mount(), self.names()
                if listed:
                    os.listdir(f"{where}/class1")
                self.read(where, names[:16])
                later = [name for name in names[20:26] if os.path.getsize(f"{self.source}/{name}") > 0]
                wait_until("the new state of the mount", lambda w=where, n=later: sum(self.has(f"{w}/{name}") for name in n) >= len(n) - 1)  # one file is left out
                self.read(where, names)
                self.assertEqual(digests(where), digests(self.source))

    def test_who_reads_here_and_there_gets_what_it_asks_for(self):
        where, names = self.mount(), self.names()
        self.read(where, names[::3])
        for name in names:
            if name not in names[::3] and os.path.getsize(f"{self.source}/{name}") > 0:
                self.assertFalse(self.has(f"{where}/{name}"), name)

    def test_one_file_is_not_a_whole_chunk(self):
        node = Daemon(cache="64M")
        self.addCleanup(node.log.close)
        self.addCleanup(node.stop)
        where, names = self.mount(node=node), self.names()
        few = [name for name in names if os.path.getsize(f"{self.source}/{name}") == 4096][:1]
        self.read(where, few)
        self.assertLess(node.status()["cache"]["read_bytes"], 1 << 20)
        self.read(where, few * 2)
        self.assertEqual(node.status()["cache"]["reads"], 1)
        self.assertEqual(digests(where), digests(self.source))
        total = sum(os.path.getsize(os.path.join(folder, name)) for folder, _, found in os.walk(self.dataset) for name in found)
        self.assertLess(node.status()["cache"]["read_bytes"], total + (len(os.listdir(f"{self.dataset}/chunks")) << 20))

    def test_it_ends_with_the_mount(self):
        where = self.mount()
        self.read(where, self.names())
        server = int(subprocess.run(["pgrep", "-f", f"mount .*{where}$"], capture_output=True, text=True, check=True).stdout.split()[0])
        children = subprocess.run(["pgrep", "-P", str(server)], capture_output=True, text=True, check=True).stdout.split()
        self.assertEqual(len(children), 1)
        os.kill(int(children[0]), signal.SIGKILL)  # reading continues without it
        self.assertEqual(digests(where), digests(self.source))
        subprocess.run(["fusermount3", "-u", where], check=True)
        wait_until("the new state of the mount", lambda: not os.path.exists(f"/proc/{server}"))


class Command(Mount):
    def run_in(self, *arguments):
        return subprocess.run(self.command(*arguments), capture_output=True, text=True, timeout=60, check=False)

    def test_a_mount_can_cover_the_files_themselves(self):
        spoiled = shutil.copytree(self.source, self.folder(), dirs_exist_ok=True)
        with open(f"{spoiled}/top.txt", "w", encoding="utf-8") as f:
            f.write("not this\n")
        done = self.run_in("--over", self.dataset, spoiled, "--", "sh", "-c", f"cat {spoiled}/top.txt; find {spoiled} -type f | wc -l")
        self.assertEqual((done.returncode, done.stdout.split()), (0, ["top", "602"]), done.stderr)
        self.assertFalse(is_mounted(spoiled))
        with open(f"{spoiled}/top.txt", encoding="utf-8") as f:
            self.assertEqual(f.read(), "not this\n")

    def test_nobody_else_sees_it(self):
        where, told = self.folder(), os.path.join(self.folder(), "told")
        process = subprocess.Popen(self.command(self.dataset, where, "--", "sh", "-c", f"ls {where} > {told}.part; mv {told}.part {told}; exec sleep 60"))
        self.addCleanup(process.wait)
        self.addCleanup(process.send_signal, signal.SIGTERM)
        for _ in range(6000):
            if os.path.exists(told):
                break
            time.sleep(0.01)
        with open(told, encoding="utf-8") as f:
            self.assertIn("top.txt", f.read())
        self.assertEqual(os.listdir(where), [])

    def test_its_end_is_the_commands_end(self):
        self.assertEqual(self.run_in(self.dataset, self.folder(), "--", "sh", "-c", "exit 7").returncode, 7)
        self.assertEqual(self.run_in(self.dataset, self.folder(), "--", "sh", "-c", "kill -9 $$").returncode, 137)
        done = self.run_in(self.dataset, self.folder(), "--", "no-such-command")
        self.assertEqual(done.returncode, 127)
        self.assertIn("cannot run no-such-command", done.stderr)


SYS_FUTEX = 202  # on x86-64


def threads_of(pid):
    """All threads of a process but the main one."""
    return [int(thread) for thread in os.listdir(f"/proc/{pid}/task") if int(thread) != pid]


def in_call(pid, thread, number):
    with open(f"/proc/{pid}/task/{thread}/syscall", encoding="ascii") as f:
        return f.read().split()[0] == str(number)


def is_in_disk_sleep(thread):
    return process_stat(thread)[1] == "D"


class Stopped:
    """Threads of another process that do not run, as a debugger stops them."""

    PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207
    WALL = 0x40000000

    def __init__(self, threads):
        self.threads = threads
        self.trace = ctypes.CDLL(None, use_errno=True).ptrace
        self.trace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]

    def __enter__(self):
        for thread in self.threads:
            for request in (self.PTRACE_SEIZE, self.PTRACE_INTERRUPT):
                if self.trace(request, thread, None, None):
                    raise OSError(ctypes.get_errno(), "ptrace")
            os.waitpid(thread, self.WALL)
        return self

    def go_on(self):
        for thread in self.threads:
            self.trace(self.PTRACE_DETACH, thread, None, None)
        self.threads = []

    def __exit__(self, *_):
        """Also takes note of those that were killed meanwhile, for which the process waits."""
        for thread in self.threads:
            if self.trace(self.PTRACE_DETACH, thread, None, None):
                os.waitpid(thread, self.WALL)


class Ends(Mount):
    def server(self, where):
        found = subprocess.run(["pgrep", "-f", f"dieselctl mount .*{where}$"], capture_output=True, text=True, check=True)
        return int(found.stdout.split()[0])

    def wait_unmounted(self, where):
        for _ in range(1000):
            if not is_mounted(where):
                return
            time.sleep(0.01)
        self.fail(f"{where} is still mounted")

    def test_a_mount_ends_when_it_is_told_to(self):
        where = self.mount()
        os.kill(self.server(where), signal.SIGTERM)
        self.wait_unmounted(where)

    def test_a_mount_that_is_killed_at_any_moment_goes_away(self):
        for delay in (0, 0.005, 0.01, 0.03, 0.1):
            where = self.mount()
            self.assertIn("top.txt", os.listdir(where))
            readers = [subprocess.Popen(["sh", "-c", f"cat {where}/class*/*"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL),
                       subprocess.Popen(["cat", *(f"{where}/{name}" for name in sorted(digests(self.source)))], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)]
            time.sleep(delay)
            os.kill(self.server(where), signal.SIGKILL)
            for reader in readers:
                reader.wait(timeout=60)
            self.wait_unmounted(where)
        self.assertEqual(len(digests(self.mount())), 602)

    @unittest.skipIf(os.geteuid(), "stopping threads of another process needs root")
    def test_readers_end_if_the_mount_is_killed_in_a_store(self):
        """A thread that stores a file ahead cannot be killed while a reader has locked its page, and the reader waits for an answer."""
        where = self.mount()
        pid = self.server(where)
        names = sorted(digests(self.source))
        # After two small files in a row were read, the small ones from the sixth on are stored.
        small = [0 < os.stat(f"{where}/{name}").st_size <= 5000 for name in names]
        first = next(i for i in range(len(names)) if small[i : i + 2] + small[i + 6 : i + 8] == 4 * [True])
        digests(f"{where}/class1")  # maps all chunks

        def at_rest():  # the prefetch and the keeper of views
            found = [thread for thread in threads_of(pid) if in_call(pid, thread, SYS_FUTEX)]
            return found if len(found) == 2 else None

        ahead = wait_until("a prefetch at rest", at_rest)
        with Stopped(ahead) as stopped_ahead:
            for name in names[first : first + 2]:
                with open(f"{where}/{name}", "rb") as f:
                    f.read()
            files = [open(f"{where}/{name}", "rb") for name in names[first + 6 : first + 8]]
            with Stopped([thread for thread in threads_of(pid) if thread not in ahead]):
                readers = [subprocess.Popen(["cat"], stdin=f, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for f in files]
                wait_until("readers that wait", lambda: any(is_in_disk_sleep(reader.pid) for reader in readers))
                stopped_ahead.go_on()
                wait_until("a store that waits", lambda: any(is_in_disk_sleep(thread) for thread in ahead))
                os.kill(pid, signal.SIGKILL)
        for f, reader in zip(files, readers):
            reader.wait(timeout=60)
            f.close()
        self.wait_unmounted(where)

    def test_a_killed_mount_goes_away_without_fusermount3(self):
        where = self.mount()
        found = subprocess.run(["pgrep", "-f", f"fusermount3 .*{where}$"], capture_output=True, text=True, check=True)
        for pid in found.stdout.split():
            os.kill(int(pid), signal.SIGKILL)
        os.kill(self.server(where), signal.SIGKILL)
        self.wait_unmounted(where)

    def test_files_come_back_with_the_daemon(self):
        node = self.daemon(cache="64M")
        where = self.mount(node=node)
        with open(f"{where}/top.txt", "rb") as f:
            f.read()
        node.kill()
        digest = subprocess.Popen([sys.executable, "-c", f"""
import hashlib
print(hashlib.md5(open({os.path.join(where, 'class0', 'deep name, with' + chr(92) + ' comma')!r}, 'rb').read()).hexdigest())"""],
                                  stdout=subprocess.PIPE, text=True)
        time.sleep(0.3)
        node.start()
        self.assertEqual(digest.communicate(timeout=60)[0].strip(), hashlib.md5(b"x" * 700_000).hexdigest())
        self.assertEqual(digests(where), digests(self.source))

    def test_a_mount_keeps_the_version_that_it_has(self):
        source = shutil.copytree(self.source, self.folder(), dirs_exist_ok=True)
        dataset = pack(source, "replaced")
        where = self.mount(dataset=dataset)
        with open(f"{source}/late", "w", encoding="utf-8") as f:
            f.write("late\n")
        subprocess.run([CTL, "pack", "--append", source, dataset], check=True, capture_output=True)
        self.assertEqual(digests(where), digests(self.source))  # the version that was mounted
        self.assertEqual(len(digests(self.mount(dataset=dataset))), 603)

    def test_a_damaged_chunk_is_an_error_of_its_files(self):
        dataset = pack(self.source, "damaged")
        with open(chunk_files(dataset)[0], "r+b") as f:
            f.seek(os.path.getsize(f.name) // 2)
            f.write(b"\0" * 1000)
        where, failed = self.mount(dataset=dataset), 0
        for name, digest in digests(self.source).items():
            try:
                with open(f"{where}/{name}", "rb") as f:
                    self.assertEqual(hashlib.md5(f.read()).hexdigest(), digest)
            except OSError:
                failed += 1
        self.assertTrue(0 < failed < 602, failed)


class Refusals(Mount):
    def test_wrong_use_is_an_error(self):
        self.fails("a dataset and a folder", self.dataset, code=2)
        self.fails("a command comes behind --", self.dataset, self.folder(), "ls", code=2)
        self.fails("a command comes behind --", self.dataset, self.folder(), "--", code=2)
        self.fails("must be a version number from 1", "--version", "x", self.dataset, self.folder(), code=2)

    def test_what_cannot_be_mounted_is_an_error(self):
        full = self.folder()
        with open(f"{full}/other", "w", encoding="utf-8"):
            pass
        self.fails("is not empty", self.dataset, full)
        self.fails("would hide", "--over", self.dataset, full)
        self.fails("cannot mount at", self.dataset, full + "/no")
        self.fails("has no version 2: its newest version is 1", "--version", "2", self.dataset, self.folder())
        self.fails("dieselctl pack", self.source, self.folder())
        gone = self.daemon()
        gone.stop()
        self.fails("no dieseld at", self.dataset, self.folder(), node=gone)


class Neighbours(Mount):
    def as_nobody(self, *command):
        return subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *command], capture_output=True, text=True,
                              timeout=60, check=False)

    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("takes root")

    def test_other_users_see_nothing(self):
        where = self.mount()
        self.assertNotEqual(self.as_nobody("ls", where).returncode, 0)

    def test_others_are_let_in_as_far_as_they_may_read_the_dataset(self):
        open_to_all = self.mount("--allow-other")
        self.assertEqual(self.as_nobody("cat", f"{open_to_all}/class1/000001.bin").returncode, 0)
        self.assertNotEqual(self.as_nobody("cat", f"{open_to_all}/top.txt").returncode, 0)  # mode 0640
        closed = pack(self.source, "closed")
        os.chmod(f"{closed}/snapshot", 0o600)
        where = self.mount("--allow-other", dataset=closed)
        self.assertNotEqual(self.as_nobody("ls", where).returncode, 0)
        self.assertNotEqual(self.as_nobody("cat", f"{where}/class1/000001.bin").returncode, 0)
        # The list's version is 2. The user may read, the user 65534 nothing, and group, mask and others may read.
        entries = ((1, 4, 0xffffffff), (2, 0, 65534), (4, 4, 0xffffffff), (16, 4, 0xffffffff), (32, 4, 0xffffffff))
        acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
        try:
            os.setxattr(f"{closed}/snapshot", "system.posix_acl_access", acl)
        except OSError:
            self.skipTest("no access control lists here")
        self.fails("access control list", "--allow-other", closed, self.folder())


if __name__ == "__main__":
    if not FUSE:
        print("skipped: takes /dev/fuse and fusermount3")
        sys.exit(77)
    main()
