# SPDX-License-Identifier: Apache-2.0
"""Tests dieselctl pack of tar archives: by GNU tar and by Python's tarfile, valid and invalid ones."""
import contextlib
import gzip
import io
import json
import os
import pathlib
import pty
import shutil
import signal
import struct
import subprocess
import tarfile
import time
import unittest


from dieseld_support import CTL, SCRATCH

ROOT = pathlib.Path(SCRATCH)
SOURCE = ROOT / "source"
FILES = {"cat/1.bin": b"one", "cat/2.bin": b"", "dog/" + "long" * 40 + "/3.bin": os.urandom(700_000), "top": b"t" * 512,
         "größe/ü": b"u", os.fsdecode(b"cat/\xff\n.bin"): b"of any bytes"}


def ctl(*words, **more):
    return subprocess.run([CTL, *map(str, words)], capture_output=True, timeout=120, check=False, **more)


def content(dataset):
    """Returns {path: (bytes, mode, mtime)}."""
    listed = json.loads(ctl("ls", "-R", "--json", dataset).stdout)
    paths = [entry["path"].replace("\\xff", os.fsdecode(b"\xff")) for entry in listed]
    data, found = io.BytesIO(ctl("cat", "-f", dataset, *paths).stdout), {}
    for path, entry in zip(paths, listed):
        found[path] = data.read(entry["bytes"]), entry["mode"], entry["mtime_ns"]
    assert data.read() == b""
    return found


def archive(*members, **more):
    """Returns the bytes of an archive of (name, data) or TarInfo, with or without data."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", **more) as tar:
        for member in members:
            info, data = member if isinstance(member, tuple) else (member, b"")
            if isinstance(info, str):
                info = tarfile.TarInfo(info)
                info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return file.getvalue()


def special(name, kind, target=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


class Tar(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        for i, (path, data) in enumerate(FILES.items()):
            (SOURCE / path).parent.mkdir(parents=True, exist_ok=True)
            (SOURCE / path).write_bytes(data)
            os.chmod(SOURCE / path, 0o600 + i)
            os.utime(SOURCE / path, ns=(0, (10**9 + i) * 10**9))
        done = ctl("pack", SOURCE, ROOT / "folder")
        assert done.returncode == 0, done.stderr
        cls.expected = content(ROOT / "folder")
        assert len(cls.expected) == len(FILES)

    def setUp(self):
        self.dataset = ROOT / "set"
        self.addCleanup(shutil.rmtree, self.dataset, ignore_errors=True)

    def pack(self, data, *options, says=None):
        """Packs bytes from standard input. says: the pack has to fail with this error, in one line, and publish nothing."""
        done = ctl("pack", *options, "-", self.dataset, input=data)
        if says is None:
            self.assertEqual((done.returncode, done.stderr), (0, b""))
            return done.stdout.decode()
        self.assertEqual((done.returncode, done.stdout, done.stderr.count(b"\n")), (1, b"", 1), done.stderr)
        self.assertIn(says, os.fsdecode(done.stderr))
        return None

    def test_an_archive_has_the_samples_of_its_folder(self):
        """The samples are the same, whichever program made the archive, and however it comes."""
        ways = {"gnu": [], "pax": ["--format=pax"], "sorted": ["--sort=name"], "gzip": ["-z"]}
        if shutil.which("zstd"):
            ways["zstd"] = ["--zstd"]
        for name, options in ways.items():
            with self.subTest(name):
                path = ROOT / f"{name}.tar"
                subprocess.run(["tar", *options, "-cf", path, "-C", SOURCE, "."], check=True)
                done = ctl("pack", path, self.dataset)
                self.assertEqual((done.returncode, done.stderr), (0, b""))
                self.assertEqual(content(self.dataset), self.expected)
                self.assertEqual(ctl("verify", self.dataset).returncode, 0)
                shutil.rmtree(self.dataset)
                self.pack(path.read_bytes())
                self.assertEqual(content(self.dataset), self.expected)
                shutil.rmtree(self.dataset)

    def test_a_pipe_is_read_to_its_end(self):
        """A pipe with unread data must not kill tar."""
        done = subprocess.run(["bash", "-c", 'set -o pipefail; tar -b 4000 -cf - -C "$1" . | "$2" pack --json - "$3"', "-", SOURCE, CTL,
                               self.dataset], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        told = json.loads(done.stdout)
        self.assertEqual((told["files"], told["version"]), (len(FILES), 1))
        self.assertEqual(content(self.dataset), self.expected)

    def test_sparse_files_keep_their_bytes(self):
        with open(ROOT / "sparse", "wb") as file:
            file.truncate(3_000_000)
            file.seek(1_000_000)
            file.write(b"here")
        data = subprocess.run(["tar", "--sparse", "-cf", "-", "-C", ROOT, "sparse"], check=True, capture_output=True).stdout
        self.assertLess(len(data), 100_000)
        self.pack(data)
        self.assertEqual(content(self.dataset)["sparse"][0], (ROOT / "sparse").read_bytes())

    def test_the_order_is_that_of_the_archive(self):
        self.pack(archive(("b", b"1"), ("a", b"2")))
        listed = json.loads(ctl("ls", "--json", self.dataset).stdout)
        self.assertEqual({entry["path"]: entry["sample"] for entry in listed}, {"b": 0, "a": 1})

    def test_append_takes_what_is_new_of_an_archive(self):
        self.pack(archive(("a", b"1"), ("b", b"2")))
        self.pack(archive(("c", b"3")), says="has 2 samples already")
        said = self.pack(archive(("a", b"1"), ("b", b"two"), ("c", b"3")), "--append")
        self.assertRegex(said, "^packed 2 files.*; 1 unchanged; dataset version 2")
        self.assertEqual({path: data for path, (data, *_) in content(self.dataset).items()}, {"a": b"1", "b": b"two", "c": b"3"})
        self.assertIn("version 2", self.pack(archive(("a", b"1")), "--append"))

    def test_jpegs_get_restart_markers_as_in_a_folder(self):
        """Adds restart markers as for files of a folder; `verify --repair` makes such samples again."""
        try:
            from PIL import Image
        except ImportError:
            self.skipTest("needs Pillow (apt install python3-pil)")
        file = io.BytesIO()
        Image.effect_noise((200, 150), 60).save(file, "JPEG")
        data = archive(("a.jpg", file.getvalue()), ("b.txt", b"text"))
        told = json.loads(ctl("pack", "--jpeg-restarts", "--json", "-", self.dataset, input=data).stdout)
        self.assertEqual({key: told["jpeg_restarts"][key] for key in ("added", "kept", "other")}, {"added": 1, "kept": 0, "other": 1})
        kept = content(self.dataset)
        self.assertEqual(kept["b.txt"][0], b"text")
        self.assertNotEqual(kept["a.jpg"][0], file.getvalue())
        self.assertEqual(Image.open(io.BytesIO(kept["a.jpg"][0])).tobytes(), Image.open(file).tobytes())

    def test_nothing_of_a_hostile_archive_is_published(self):
        """Nothing of such an archive is published, neither as a new dataset nor into an existing one."""
        big = tarfile.TarInfo("big")
        big.size = 2 << 30
        claimed = tarfile.TarInfo("claimed")
        claimed.size = 1 << 30
        whole = archive(("a", b"x" * 512), ("b", b"y"))
        cases = {
            "absolute": (archive(("/etc/passwd", b"x")), "'/etc/passwd' is not a valid path of a sample"),
            "above": (archive(("../x", b"x")), "'../x' is not a valid path"),
            "within": (archive(("a/../../x", b"x")), "is not a valid path"),
            "empty name": (archive(("a//b", b"x")), "is not a valid path"),
            "too long": (archive(("x/" * 2100 + "x", b"x")), "at most 4095 bytes"),
            "symbolic link": (archive(special("l", tarfile.SYMTYPE, "/etc/passwd")), "'l' is a symbolic link; make"),
            "link to a folder": (archive(special("l", tarfile.SYMTYPE, "/"), ("l/x", b"x")), "'l' is a symbolic link"),
            "hard link": (archive(("a", b"1"), special("l", tarfile.LNKTYPE, "a")), "'l' is a hard link; make"),
            "device": (archive(special("d", tarfile.BLKTYPE)), "'d' is a device"),
            "FIFO": (archive(special("f", tarfile.FIFOTYPE)), "'f' is a FIFO"),
            "twice": (archive(("a", b"1"), ("b", b"2"), ("./a", b"3")), "has 'a' twice"),
            "file and folder": (archive(("a", b"1"), ("a/b", b"2")), "a"),
            "huge": (big_head(big), "'big' has 2.0 GiB"),
            "claimed": (big_head(claimed) + b"x" * 5000, "damaged or cut off"),
            "text": (b"this is no archive\n" * 100, "neither a folder nor a tar archive"),
            "nothing": (b"", "neither a folder nor a tar archive"),
            "no files": (archive(special("d", tarfile.DIRTYPE)), "there are no files in"),
            "steers the terminal": (archive(("/\x1b]0;x\x07", b"x")), "'/\\x1b]0;x\\x07' is not a valid path"),
            "checksum": (whole[:1030] + b"!" + whole[1031:], "damaged or cut off"),
            "gzip cut": (gzip.compress(archive(("a", os.urandom(9000)), ("b", b"")))[:5000], "damaged or cut off"),
        }
        for end in (512, 700, 1024, 1536, 1600, 2048):
            cases[f"cut at {end}"] = whole[:end], "cut off"
        for name, (data, says) in cases.items():
            with self.subTest(name):
                self.pack(data, says=says)
                self.assertFalse(self.dataset.exists())
        self.pack(archive(("old", b"1")))
        before = sorted(os.listdir(self.dataset / "chunks"))
        filler = [(f"{i}", os.urandom(1 << 20)) for i in range(6)]  # so that chunks are written first
        for last in (("/x", b""), ("0", b"")):
            self.pack(archive(*filler, last), "--append", "--chunk-size", "4M", says="the dataset is unchanged")
        self.assertEqual(sorted(os.listdir(self.dataset / "chunks")), before)
        self.assertEqual(list(content(self.dataset)), ["old"])

    def test_frames_of_old_zstd_are_refused(self):
        """A frame of zstd 0.7, which libzstd could decode, is refused, as the first one or after others; skippable frames are fine."""
        data = archive(("a", b"1"), ("b", b"2"))

        def frame(of):
            return struct.pack("<IBQ", 0xfd2fb528, 0xe0, len(of)) + (len(of) << 3 | 1).to_bytes(3, "little") + of

        old = struct.pack("<IBH", 0xfd2fb527, 0x60, 1024 - 256) + bytes((0x40, 4, 0)) + bytes(1024) + bytes((0xc0, 0, 0))
        skipped = struct.pack("<II", 0x184d2a55, 7) + bytes(7)
        self.pack(skipped + frame(data) + skipped)
        self.assertEqual({path: got[0] for path, got in content(self.dataset).items()}, {"a": b"1", "b": b"2"})
        shutil.rmtree(self.dataset)
        self.pack(frame(data[:-1024]) + old, says="damaged")
        self.pack(skipped + old, says="compressed")
        self.pack(old, says="neither a folder nor a tar archive")
        self.pack(frame(frame(data)), says="compressed")  # decompressed data are not decompressed once more
        self.pack(frame(data)[:1600], says="damaged or cut off")

    def test_a_size_that_is_only_claimed_takes_no_memory(self):
        claimed = tarfile.TarInfo("claimed")
        claimed.size = 1 << 30
        process = subprocess.Popen([CTL, "pack", "-", self.dataset], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with process.stdin:
            process.stdin.write(big_head(claimed) + b"x" * 5000)
        status, used = os.wait4(process.pid, 0)[1:]
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 1)
        self.assertLess(used.ru_maxrss, 400 << 10)

    def test_without_libarchive_only_archives_cannot_be_packed(self):
        (ROOT / "libarchive.so.13").touch()
        without = {**os.environ, "LD_LIBRARY_PATH": str(ROOT)}
        done = ctl("pack", "-", self.dataset, input=archive(("a", b"1")), env=without)
        self.assertEqual((done.returncode, done.stderr.count(b"\n")), (1, 1), done.stderr)
        self.assertIn(b"install the package libarchive13", done.stderr)
        self.assertEqual(ctl("pack", SOURCE, self.dataset, env=without).returncode, 0)

    def test_options_that_an_archive_cannot_have_are_refused(self):
        path = ROOT / "one.tar"
        path.write_bytes(archive(("a", b"1")))
        for option, says in (("--order=random", "in its own order"), ("--skip-unreadable", "completely or not at all")):
            done = ctl("pack", option, path, self.dataset)
            self.assertEqual(done.returncode, 2)
            self.assertIn(says, done.stderr.decode())
        self.assertEqual(ctl("pack", "--order=source", path, self.dataset).returncode, 0)
        main_end, terminal = pty.openpty()
        done = ctl("pack", "-", ROOT / "no", stdin=terminal)
        self.assertIn(b"is a terminal", done.stderr)
        for fd in (main_end, terminal):
            os.close(fd)
        self.assertIn(b"No such file", ctl("pack", ROOT / "missing.tar", ROOT / "no").stderr)
        self.assertFalse((ROOT / "no").exists())

    def interrupt(self, data, number):
        """Ends a pack of data by a signal when its first chunks exist."""
        process = subprocess.Popen([CTL, "pack", "--chunk-size", "4M", "-", self.dataset], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdin.write(data[:9 << 20])
        process.stdin.flush()
        while len(list(self.dataset.glob("chunks/*.chunk"))) < 2:
            time.sleep(0.01)
        process.send_signal(number)
        with contextlib.suppress(BrokenPipeError), process.stdin:  # the pack may have ended already
            process.stdin.write(data[9 << 20:])
        said = process.stderr.read()
        process.stderr.close()
        self.assertEqual(process.wait(), 1 if number == signal.SIGTERM else -number, said)
        self.assertFalse((self.dataset / "snapshot").exists())
        return said

    def test_an_interrupted_pack_goes_on_with_the_same_archive(self):
        """The next run writes the missing rest, and only if the archive is the same."""
        samples = [(f"{i}", os.urandom(1 << 20)) for i in range(12)]
        data = archive(*samples)
        for number, says in ((signal.SIGTERM, b"dieselctl pack: interrupted; the dataset is unchanged. To continue, pack the same "
                              b"archive again\n"), (signal.SIGKILL, b"")):
            self.assertEqual(self.interrupt(data, number), says)
            told = json.loads(self.pack(data, "--chunk-size", "4M", "--json"))
            self.assertEqual((told["resumed"] + told["files"], told["version"]), (12, 1))
            self.assertGreaterEqual(told["resumed"], 6)
            self.assertEqual([data for data, *_ in content(self.dataset).values()], [data for _, data in sorted(samples)])
            self.assertEqual(ctl("verify", self.dataset).returncode, 0)
            shutil.rmtree(self.dataset)
        self.interrupt(data, signal.SIGKILL)
        changed = [samples[0], ("1", os.urandom(1 << 20)), *samples[2:]]
        told = json.loads(self.pack(archive(*changed), "--chunk-size", "4M", "--json"))
        self.assertEqual((told["resumed"], told["files"]), (0, 12))
        self.assertEqual([data for data, *_ in content(self.dataset).values()], [data for _, data in sorted(changed)])
        self.assertEqual(ctl("verify", self.dataset).returncode, 0)


def big_head(info):
    """Returns the head of a file, whose data the caller adds."""
    return info.tobuf(tarfile.GNU_FORMAT)


if __name__ == "__main__":
    unittest.main(verbosity=2)
