# SPDX-License-Identifier: Apache-2.0
"""Tests dieselctl mount with odd names, large and many files, a replaced daemon or dataset, and curious users."""
import contextlib
import ctypes
import errno
import mmap
import os
import random
import resource
import shutil
import struct
import subprocess
import sys

from dieseld_support import BIN, CTL, SCRATCH, main, pack
from common.waiting import wait_until
from mount_support import FUSE, Mount, digests, is_mounted

from common.users import MALLORY, Other, bind

N_OPEN = 10_000
RECORDS, HASH, TREE, PATHS = range(1, 5)  # sections of a snapshot
LARGE = 17 << 20
ODD = [b"new\nline", b"tab\tbell\a", b"not \xff\xfe UTF-8", b"-rf", b"*", b"...", b". .", b" ", b"back\\slash", b"a,b=c", b"%s%n", b"l" * 255,
       "e\u0301".encode(), "\u00e9".encode(), b"a", b"a.b", b"a-b", b"a b", b"\x01"]


def trees(root):
    """Returns {path: bytes} of files below, and None for folders. Paths are bytes."""
    found = {}
    for folder, folders, names in os.walk(os.fsencode(root)):
        for name in (*folders, *names):
            path = os.path.join(folder, name)
            with open(path, "rb") if name in names else contextlib.nullcontext() as f:
                found[os.path.relpath(path, os.fsencode(root))] = f and f.read()
    return found


class Names(Mount):
    def test_odd_names_are_files(self):
        source = os.fsencode(self.folder())
        for i, name in enumerate(ODD):
            os.makedirs(source + b"/folder " + name[:248])
            for path in (name, b"folder " + name[:248] + b"/" + name):
                with open(source + b"/" + path, "wb") as f:
                    f.write(b"%d" % i)
        deep = source + b"/" + b"/".join([b"d" * 250] * 14)  # about 3,500 bytes
        os.makedirs(deep)
        with open(deep + b"/" + b"f" * 200, "wb") as f:
            f.write(b"deep")
        dataset = pack(os.fsdecode(source), "odd", "--as-files")  # includes hidden files
        self.assertEqual(trees(self.mount(dataset=dataset)), trees(source))

    def test_a_dataset_at_an_odd_path_is_mounted(self):
        odd = os.path.join(self.folder(), "new\nline, \\and=\xff")
        os.symlink(self.dataset, odd)
        self.assertEqual(len(digests(self.mount(dataset=odd))), 602)

    def test_names_that_are_not_there_are_errors(self):
        where = os.fsencode(self.mount())
        for name in (b"..\n", b"class0/..\\..", b"top.txt/", b"class0/\xff", b"class0//x", b"n" * 255, b"n" * 1025, b"class0" + b"/x" * 1000):
            with self.assertRaises(OSError) as raised:
                os.stat(where + b"/" + name)
            self.assertIn(raised.exception.errno, (errno.ENOENT, errno.ENAMETOOLONG, errno.ENOTDIR), name)
        self.assertEqual(os.stat(where + b"/class0/../top.txt").st_ino, os.stat(where + b"/top.txt").st_ino)


class Many(Mount):
    def test_open_files_survive_a_restart_of_the_daemon(self):
        allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        if most < N_OPEN + 100:
            self.skipTest(f"{most} open files are allowed")
        resource.setrlimit(resource.RLIMIT_NOFILE, (N_OPEN + 100, most))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (allowed, most))
        node = self.daemon(cache="64M")
        where, files = self.mount(node=node), []
        paths = list(digests(self.source))
        try:
            while len(files) < N_OPEN:
                name = paths[len(files) % len(paths)]
                files.append((os.open(f"{where}/{name}", os.O_RDONLY), name))
            node.kill()
            node.start()
            # The kernel does not request its cached data again, so this reads everything that it may not have.
            for fd, name in files[:len(paths)] + random.Random(5).sample(files, 1000):
                with open(f"{self.source}/{name}", "rb") as f:
                    self.assertEqual(os.pread(fd, 1 << 20, 0), f.read(), name)
        finally:
            for fd, _ in files:
                os.close(fd)


class Large(Mount):
    """Tests files larger than a chunk, and chunks that exceed the cache."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        source = os.path.join(SCRATCH, "large.src")
        os.mkdir(source)
        for i in range(3):
            with open(f"{source}/{i}", "wb") as f:
                f.write(random.Random(i).randbytes(LARGE + i))
        cls.large, cls.large_source = pack(source, "large", chunk="4M"), source

    def test_each_is_a_chunk(self):
        node = self.daemon(cache="64M")
        where = self.mount(dataset=self.large, node=node)
        self.assertEqual(digests(where), digests(self.large_source))
        with open(f"{where}/1", "rb") as ours, open(f"{self.large_source}/1", "rb") as theirs:
            expected = theirs.read()
            with mmap.mmap(ours.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE) as m:
                for at in random.Random(1).sample(range(LARGE), 200):
                    self.assertEqual(m[at], expected[at])
                m[0] ^= 255  # its private copy
            self.assertEqual(ours.read(1), expected[:1])

    def test_a_file_without_space_in_the_cache_is_an_error(self):
        node, where, told = self.daemon(cache="16M"), self.folder(), os.path.join(SCRATCH, "told")
        with open(told, "w", encoding="utf-8") as out:
            process = subprocess.run(self.command(self.large, where, "--", "cat", f"{where}/0", node=node), stdout=subprocess.DEVNULL,
                                     stderr=out, timeout=60, check=False)
        with open(told, encoding="utf-8") as out:
            lines = out.read().splitlines()
        self.assertEqual(process.returncode, 1, lines)
        self.assertTrue(any("cache" in line for line in lines), lines)
        self.assertTrue(any("Input/output error" in line for line in lines), lines)


class Unverified(Mount):
    """Tests a snapshot of which the daemon has verified only the tables: a name's other sections are verified when it is looked up."""

    def spoil(self, dataset, section):
        with open(f"{dataset}/snapshot", "r+b") as f:
            f.seek(96 + 24 * section)  # the header's extents
            place = struct.unpack("<Q", f.read(8))[0] + 40
            f.seek(place)
            byte = f.read(1)[0]
            f.seek(place)
            f.write(bytes([byte ^ 1]))

    def test_damage_where_names_are_is_an_error(self):
        original = os.path.join(SCRATCH, "many")
        subprocess.run([os.path.join(BIN, "many_samples"), original, "81000", "16", "9"], check=True)
        self.assertGreater(os.stat(f"{original}/snapshot").st_size, 4 << 20)  # SNAPSHOT_WHOLE_BYTES
        where = self.mount(dataset=original)
        self.assertEqual((len(os.listdir(where)), sum(len(names) for _, _, names in os.walk(where))), (9, 81_000))
        for section in (RECORDS, HASH, TREE, PATHS):
            dataset, over, told = shutil.copytree(original, f"{original}{section}"), self.folder(), f"{original}{section}.told"
            self.spoil(dataset, section)
            with open(told, "w", encoding="utf-8") as out:
                where = self.folder()
                command = self.command(dataset, where, "--", "sh", "-c", f"ls {where}; cat {where}/class0000/x; ls {where}")
                subprocess.run(command, stdout=out, stderr=out, timeout=60, check=False)
            with open(told, encoding="utf-8") as out:
                lines = out.read()
            self.assertEqual(lines.count("checksum mismatch"), 1, lines)
            self.assertEqual(lines.count("Input/output error"), 3, lines)
            self.assertNotIn("class0000\n", lines)
            os.mkdir(f"{over}/class0000")
            self.fails("checksum mismatch", "--over", dataset, over)


class Replaced(Mount):
    def test_a_kept_version_is_mounted(self):
        """The version also stays after a restart, and can be mounted by its number next to the newest."""
        source = shutil.copytree(self.source, self.folder(), dirs_exist_ok=True)
        dataset, node = pack(source, "kept"), self.daemon(cache="64M")
        where, expected = self.mount(dataset=dataset, node=node), digests(source)
        with open(f"{where}/class0/deep name, with\\ comma", "rb") as late:
            with open(f"{source}/more", "w", encoding="utf-8") as f:
                f.write("more\n")
            subprocess.run([CTL, "pack", "--append", source, dataset], check=True, capture_output=True)
            node.kill()
            node.start()
            self.assertEqual(os.pread(late.fileno(), 5, 600_000), b"xxxxx")
        self.assertEqual(digests(where), expected)
        self.assertEqual(digests(self.mount("--version", "1", dataset=dataset, node=node)), expected)
        self.assertEqual(digests(self.mount("--version", "2", dataset=dataset, node=node)), digests(source))

    def test_another_version_after_a_restart_is_told(self):
        source = shutil.copytree(self.source, self.folder(), dirs_exist_ok=True)
        dataset, node, where = pack(source, "restarted"), self.daemon(cache="64M"), self.folder()
        told = open(os.path.join(SCRATCH, "restarted.told"), "w+", encoding="utf-8")
        self.addCleanup(told.close)
        process = subprocess.Popen(self.command("-f", dataset, where, node=node), stderr=told)
        self.addCleanup(process.wait)
        self.addCleanup(subprocess.run, ["fusermount3", "-quz", where], check=False)
        wait_until("the new state of the mount", lambda: is_mounted(where))
        with open(f"{where}/top.txt", "rb") as kept, open(f"{where}/class0/deep name, with\\ comma", "rb") as late:
            self.assertEqual(kept.read(), b"top\n")
            with open(f"{source}/more", "w", encoding="utf-8") as f:
                f.write("more\n")
            subprocess.run([CTL, "pack", "--append", "--keep-snapshots", "1", source, dataset], check=True, capture_output=True)
            node.kill()
            node.start()
            kept.seek(0)
            self.assertEqual(kept.read(), b"top\n")  # the kernel has it cached
            for _ in range(2):
                with self.assertRaises(OSError) as raised:
                    os.pread(late.fileno(), 100, 600_000)
                self.assertEqual(raised.exception.errno, errno.ESTALE)
        self.assertEqual(len(os.listdir(f"{where}/class0")), len(os.listdir(f"{source}/class0")))
        subprocess.run(["fusermount3", "-u", where], check=True)
        self.assertEqual(process.wait(60), 0)
        told.seek(0)
        self.assertEqual(told.read().count("unmount and mount it again"), 1)
        self.assertEqual(len(digests(self.mount(dataset=dataset, node=node))), 603)


class Neighbours(Mount):
    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("takes root")

    def test_another_user_with_namespaces_sees_nothing(self):
        where = self.mount()

        def look(_):
            found, libc, target = [], ctypes.CDLL(None, use_errno=True), os.path.join(SCRATCH, "open")
            for path in (where, f"{where}/top.txt", f"{where}/class0"):
                try:
                    os.stat(path) and os.listdir(path)
                    found.append(path)
                except OSError as error:
                    assert error.errno == errno.EACCES, error
            with contextlib.suppress(OSError):
                bind(where, target)
                found += os.listdir(target)
            libc.umount2(os.fsencode(where), 2)
            return found

        os.makedirs(os.path.join(SCRATCH, "open"), exist_ok=True)
        for namespaces in (False, True):
            try:
                self.assertEqual(Other(look, MALLORY, namespaces).finish(), [])
            except AssertionError as error:
                if namespaces and "unshare" in str(error):
                    self.skipTest("users may have no namespaces here")
                raise
        subprocess.run(["setpriv", f"--reuid={MALLORY}", f"--regid={MALLORY}", "--clear-groups", "fusermount3", "-uz", where],
                       capture_output=True, check=False)
        self.assertTrue(is_mounted(where))
        self.assertEqual(len(digests(where)), 602)


if __name__ == "__main__":
    if not FUSE:
        print("skipped: takes /dev/fuse and fusermount3")
        sys.exit(77)
    main()
