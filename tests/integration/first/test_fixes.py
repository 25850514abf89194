#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the fixes that messages name: it runs the command or the option in the message, and then the failed command succeeds. Names have a
space, as users' folders may."""
import contextlib
import fcntl
import os
import pathlib
import pty
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest
import warnings
from unittest import mock

from dieseld_support import BIN, chunk_files
from first_support import BARE, CTL, Newcomer, commands
from on_demand_support import daemons_in, needs_root

import diesel_loader
from diesel_loader import numpy as diesel_numpy

try:
    import torch
except ImportError:
    torch = None

DIESELD, ANALYZE = (os.path.abspath(os.path.join(BIN, name)) for name in ("dieseld", "diesel-analyze"))
NOBODY = 65534
PNG = bytes.fromhex("89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b550000000a49444154789c63600000000200015e9f"
                    "f5310000000049454e44ae426082")


def flip(path, at=-1):
    with open(path, "r+b") as file:
        file.seek(at, os.SEEK_END if at < 0 else os.SEEK_SET)
        byte = file.read(1)
        file.seek(at, os.SEEK_END if at < 0 else os.SEEK_SET)
        file.write(bytes([byte[0] ^ 255]))


class Fixes(Newcomer):
    photos_in = "my photos"

    def setUp(self):
        super().setUp()
        self.packed = pathlib.Path(f"{self.photos}.diesel")

    def said(self, *words, **more):
        done = subprocess.run([CTL, *map(str, words)], capture_output=True, text=True, check=False, timeout=120, **more)
        return done.returncode, done.stdout + done.stderr

    def pack(self, *options):
        shutil.rmtree(self.packed, ignore_errors=True)
        self.ctl("pack", *options, self.photos, self.packed)

    def at_its_word(self, text, **words):
        """Runs the last command of a message. `words` replace its words in capitals."""
        command = commands(text)[-1]
        for word, value in words.items():
            command = re.sub(rf"\b{word}\b", lambda _, value=value: shlex.quote(str(value)), command)
        return self.run_shell(command).stdout


class OfDatasets(Fixes):
    def sound(self):
        self.assertEqual(self.said("verify", self.packed)[0], 0, self.said("verify", self.packed))

    def chunk(self):
        return chunk_files(self.packed)[0]

    def second_version(self):
        (self.photos / "cat" / "2.txt").write_bytes(b"another picture")
        self.ctl("pack", "--append", self.photos, self.packed)

    def keep(self, name):
        return lambda: shutil.copy(self.packed / name, pathlib.Path(self.top, name))

    def restore(self, name):
        """Restores an older file from a backup."""
        self.keep(name)()
        self.second_version()
        shutil.copy(pathlib.Path(self.top, name), self.packed / name)

    def test_damage(self):
        """The fix in any verb's message repairs the dataset."""
        damages = {
            "a head": lambda: flip(self.chunk(), 100),
            "no chunk": lambda: os.remove(self.chunk()),
            "a cut chunk": lambda: os.truncate(self.chunk(), 100),
            "an empty chunk": lambda: os.truncate(self.chunk(), 0),
            "a stray chunk": lambda: os.remove(self.packed / "meta.db") or os.remove(self.packed / "snapshot"),
            "no metadata": lambda: os.remove(self.packed / "meta.db"),
            "damaged metadata": lambda: (self.packed / "meta.db").write_bytes(b"no database" * 1000),
            "empty metadata": lambda: os.truncate(self.packed / "meta.db", 0),
            "no snapshot": lambda: os.remove(self.packed / "snapshot"),
            "a damaged snapshot": lambda: flip(self.packed / "snapshot", 200),
            "an empty snapshot": lambda: os.truncate(self.packed / "snapshot", 0),
            "a cut snapshot": lambda: os.truncate(self.packed / "snapshot", 100),
            "an older snapshot": lambda: self.restore("snapshot"),
            "older metadata": lambda: self.restore("meta.db"),
            "frozen": lambda: self.ctl("snapshot", "--frozen", self.packed),
            "frozen, no snapshot": lambda: (self.ctl("snapshot", "--frozen", self.packed), os.remove(self.packed / "snapshot")),
            "frozen, a damaged snapshot": lambda: (self.ctl("snapshot", "--frozen", self.packed), flip(self.packed / "snapshot", 200)),
        }
        (self.photos / "cat" / "1.txt").write_bytes(b"a picture " * 2000)
        self.pack()
        sound, found = shutil.copytree(self.packed, self.top + "/sound"), set()
        for damage, do in damages.items():
            for verb, more in {"verify": (), "stat": (), "rm": ("cat/1.txt",)}.items():
                (self.photos / "cat" / "2.txt").unlink(missing_ok=True)
                shutil.rmtree(self.packed)
                shutil.copytree(sound, self.packed)
                do()
                _, text = self.said(verb, self.packed, *more)
                fixes = [command for command in commands(text) if re.search("dieselctl'? (rebuild|snapshot)", command)]
                with self.subTest(damage=damage, verb=verb, said=text):
                    self.assertNotIn("`dieselctl", text)  # named by its path, as it is not in PATH
                    if fixes:
                        found.add(damage)
                        self.mend(text, fixes["frozen" in damage and "frozen" in text and -1])
                        self.sound()
        self.assertEqual(set(damages) - found, set())

    def mend(self, text, command):
        if "remove it and run" in text:
            os.remove(self.chunk())
        self.run_shell(command)

    def test_what_lists(self):
        self.pack()
        self.second_version()
        for words in (("stat", self.packed), ("cat", self.packed, "cat/no"), ("stat", self.packed, "cat/no")):
            with self.subTest(words):
                self.assertIn("cat/" if "cat/no" in words else "2 ", self.at_its_word(self.said(*words)[1]))

    def test_no_dataset(self):
        for verb in ("ls", "log", "rm", "stat", "purge", "snapshot"):
            with self.subTest(verb):
                shutil.rmtree(self.packed, ignore_errors=True)
                words = (verb, self.packed, *(("cat/1.txt",) if verb == "rm" else ()))
                code, text = self.said(*words)
                self.assertEqual(code, 1)
                self.at_its_word(text, SOURCE=self.photos, DATASET=self.packed)
                self.assertEqual(self.said(*words)[0], 0)

    def test_a_version_without_its_snapshot(self):
        self.pack()
        self.second_version()
        for path in self.packed.rglob("*"):
            if path.is_file() and path.parent != self.packed and path.suffix != ".chunk":
                path.unlink()
        code, text = self.said("ls", "--version", 1, self.packed)
        if code:
            self.at_its_word(text)
        self.ctl("ls", "--version", 1, self.packed)

    def test_digests(self):
        """Digests are requested where older chunks have none."""
        self.pack()
        (self.photos / "cat" / "2.txt").write_bytes(b"another picture")
        words = ("pack", "--append", "--digest", "sha256", self.photos, self.packed)
        code, text = self.said(*words)
        self.assertEqual(code, 1)
        self.at_its_word(text)
        self.ctl(*words)

    def test_options(self):
        """Adds the options in the message."""
        def an_empty_class():
            (self.photos / "ant").mkdir()

        def a_container():
            (self.photos / "cat" / "a.tar").write_bytes(b"no sample")

        def a_dataset():
            self.ctl("pack", self.photos, self.top + "/other")
            shutil.rmtree(self.photos)
            os.rename(self.top + "/other", self.photos)
            os.unlink(self.photos / "snapshot")

        def other_files():
            (self.photos / "cat" / "1.png").write_bytes(PNG)

        for prepare, option, fails in ((an_empty_class, "--drop-empty", True), (a_container, "--as-files", True),
                                       (a_dataset, "--as-files", True), (other_files, "--images", False)):
            with self.subTest(option, of=prepare.__name__):
                shutil.rmtree(self.photos)
                shutil.rmtree(self.packed, ignore_errors=True)
                (self.photos / "cat").mkdir(parents=True)
                (self.photos / "cat" / "1.txt").write_bytes(b"a picture")
                prepare()
                code, text = self.said("pack", self.photos, self.packed)
                self.assertEqual(bool(code), fails, text)
                self.assertIn(option, re.findall("--[a-z-]+", text))
                shutil.rmtree(self.packed, ignore_errors=True)
                self.assertEqual(self.ctl("pack", option, self.photos, self.packed).stderr, "")

    def test_an_empty_class_by_other_means(self):
        for option in ("--classes-of", None):
            (self.photos / "ant").mkdir(exist_ok=True)
            (self.photos / "ant" / "1.txt").write_bytes(b"an ant")
            self.pack()
            os.rename(self.packed, self.top + "/of")
            os.remove(self.photos / "ant" / "1.txt")
            text = self.ctl("pack", self.photos, self.packed, check=1).stderr
            self.assertIn("--classes-of DATASET", text)
            self.assertIn("Remove it", text)
            if not option:
                (self.photos / "ant").rmdir()
            self.ctl("pack", *([option, self.top + "/of"] if option else []), self.photos, self.packed)
            shutil.rmtree(self.top + "/of")
            shutil.rmtree(self.packed)

    def test_contradictions(self):
        """Leaves out the option in the message, or adds it."""
        for words, without in ((("ls", "--meta", "--version", "1", self.packed), ("--version", "1")),
                               (("snapshot", "--frozen", "--version", "1", self.packed), ("--version", "1")),
                               (("verify", "--repair", "--version", "1", self.packed), ("--version", "1"))):
            self.pack()
            code, text = self.said(*words)
            self.assertIn(f"leave out {without[0]}", text)
            self.assertNotEqual(code, 0)
            self.ctl(*[word for word in words if word not in without])
        self.pack()
        text = self.ctl("verify", "--dry-run", self.packed, check=2).stderr
        self.assertIn("--from and --dry-run need --repair", text)
        self.ctl("verify", "--repair", "--dry-run", self.packed)

    def test_archives(self):
        os.link(self.photos / "cat" / "1.txt", self.photos / "cat" / "2.txt")
        os.symlink("1.txt", self.photos / "cat" / "3.txt")
        options = []
        for _ in range(3):
            shutil.rmtree(self.packed, ignore_errors=True)
            subprocess.run(["tar", *options, "-cf", self.top + "/a.tar", "-C", self.photos, "."], check=True)
            code, text = self.said("pack", self.top + "/a.tar", self.packed)
            found = [command for command in commands(text) if command.startswith("tar ")]
            if not found:
                break
            options += found[0].split()[1:]
        self.assertEqual((code, sorted(set(options))), (0, ["--dereference", "--hard-dereference"]), text)
        self.assertEqual(len(diesel_loader.Dataset(self.packed)), 3)

    def test_an_archive_from_a_terminal(self):
        ours, theirs = pty.openpty()
        with open(ours, "rb", buffering=0), open(theirs, "rb", buffering=0) as terminal:
            text = self.ctl("pack", "-", self.packed, check=1, stdin=terminal).stderr
        with mock.patch.dict(os.environ, PATH=f"{os.path.dirname(CTL)}:{BARE}"):
            self.at_its_word(text, DIR=self.photos, DATASET=self.packed)
        self.sound()

    def test_a_lock(self):
        """The message suggests to try again later, which --wait does."""
        self.pack()
        with open(self.packed / ".writer", "w+b") as file:
            fcntl.lockf(file, fcntl.LOCK_EX)
            self.assertIn("try again later", self.ctl("rm", self.packed, "cat/1.txt", check=1).stderr)
            waits = subprocess.Popen([CTL, "rm", "--wait", "60", self.packed, "cat/1.txt"], stderr=subprocess.PIPE, text=True)
            self.assertIn("waiting", waits.stderr.readline())
        waits.communicate(timeout=60)
        self.assertEqual(waits.returncode, 0)

    @unittest.skipUnless(os.path.exists("/dev/fuse") and shutil.which("fusermount3"), "needs FUSE")
    def test_mount(self):
        self.pack()
        text = self.ctl("mount", self.packed, self.photos, "--", "true", check=1).stderr
        self.assertIn("--over", text)
        self.assertEqual(self.ctl("mount", "--over", self.packed, self.photos, "--", "cat", self.photos / "cat/1.txt").stdout, "a picture")


class OfDaemons(Fixes):
    def check(self, *words):
        done = subprocess.run([DIESELD, "--check-config", *map(str, words)], capture_output=True, text=True, check=False, cwd=self.top)
        return done.returncode, done.stdout + done.stderr

    def test_folders_of_a_configuration(self):
        for option in ("socket", "admin-socket", "history", "stage"):
            path = pathlib.Path(self.top, f"its {option}", "deeper", "x")
            with self.subTest(option):
                code, text = self.check(f"--{option}", path)
                self.assertNotEqual(code, 0)
                self.run_shell(re.search("mkdir -p (.*?)(?=, or )", text)[0])
                self.assertEqual(self.check(f"--{option}", path)[0], 0)

    def test_lines_of_a_configuration(self):
        file = pathlib.Path(self.top, "dieseld.conf")
        needed = {"cluster": "redis://localhost", "stage": self.top}
        for line in ("cluster-name = n", "cluster-limit = 1G", "stage-size = 1G", "stage-when = always"):
            name = line.split()[0]
            with self.subTest(line):
                file.write_text(f"[dieseld]\n{line}\n")
                code, text = self.check("--config", file)
                self.assertNotEqual(code, 0)
                wanted = re.search(r"write ([a-z-]+), too, or remove the line", text)[1]
                at = int(re.search(r":(\d+):", text)[1])
                self.assertIn(name, file.read_text().splitlines()[at - 1])
                file.write_text(f"[dieseld]\n{line}\n{wanted} = {needed[wanted]}\n")
                code, text = self.check("--config", file)
                self.assertNotIn("has no effect", text)
                file.write_text("[dieseld]\n")
                self.assertEqual(self.check("--config", file)[0], 0)

    def test_modes_of_files(self):
        for words in (("--cluster", "redis://localhost:1", "--cluster-listen", "127.0.0.1:0", "--cluster-key"),):
            key = pathlib.Path(self.top, "key")
            key.write_bytes(b"k" * 64)
            key.chmod(0o644)
            code, text = self.check(*words, key)
            self.assertNotEqual(code, 0)
            subprocess.run(re.search(r"Run: (chmod .*)", text)[1].split(), check=True)
            self.assertEqual(self.check(*words, key), (0, "the configuration is valid\n"))


class OfTheLoader(Fixes):
    def damage(self):
        (self.photos / "cat" / "1.txt").write_bytes(b"a picture " * 100)
        self.pack()
        return chunk_files(self.packed)[0]

    def test_damage(self):
        """Damaged chunks, as Python reports them."""
        def batches(dataset):
            return list(diesel_numpy.DataLoader(dataset, batch_size=1))

        for at in (0, 20, 100):
            with self.subTest(at=at):
                chunk = self.damage()
                flip(chunk, at)
                with self.assertRaises(diesel_loader.DamagedData) as caught:
                    batches(diesel_loader.Dataset(self.packed))
                self.assertIn("remove it and run", str(caught.exception))
                os.remove(chunk)
                self.at_its_word(str(caught.exception).partition("; batch 0")[0])
                self.ctl("verify", self.packed)

    def test_a_damaged_snapshot(self):
        self.pack()
        flip(self.packed / "snapshot", 200)
        with self.assertRaises(diesel_loader.DamagedData) as caught:
            diesel_loader.Dataset(self.packed)
        self.run_shell(commands(str(caught.exception))[0])
        self.assertEqual(bytes(diesel_loader.Dataset(self.packed).read(0)), b"a picture")

    def test_a_window_too_large(self):
        for i in range(192):
            (self.photos / "cat" / f"{i}.bin").write_bytes(os.urandom(1 << 18))
        self.pack("--chunk-size", "4M")
        self.options("--cache 16M")
        dataset = diesel_loader.Dataset(self.packed)
        with self.assertRaises(OSError) as caught:
            diesel_numpy.DataLoader(dataset, batch_size=4, order=diesel_numpy.Order(window_chunks=12))
            list(diesel_numpy.DataLoader(dataset, batch_size=4, order=diesel_numpy.Order(window_chunks=12)))
        fits = int(re.search(r"\(order=Order\(window_chunks=(\d+)\) fits\)", str(caught.exception)).group(1))
        order = diesel_numpy.Order(window_chunks=fits)
        self.assertEqual(sum(1 for _ in diesel_numpy.DataLoader(dataset, batch_size=4, order=order)), 49)

    def test_a_version(self):
        self.pack()
        with self.assertRaises(ValueError) as caught:
            diesel_loader.Dataset(self.packed, version="first")
        self.assertIn("dieselctl log", str(caught.exception))
        dataset = diesel_loader.Dataset(self.packed)
        (self.photos / "cat" / "2.txt").write_bytes(b"another")
        self.ctl("pack", "--append", self.photos, self.packed)
        with self.assertRaises(TypeError) as caught:
            diesel_numpy.DataLoader(dataset, version=2)
        fix, = re.findall(r"DataLoader\((.*\)), ...\)", str(caught.exception))
        found = eval(fix, {"diesel_loader": diesel_loader, "PATH": self.packed})  # noqa: S307
        self.assertEqual(diesel_numpy.DataLoader(found).dataset.version, 2)

    def test_an_option_that_is_in_a_group(self):
        """For each name that DataLoader itself does not take, the error shows a line that it takes."""
        self.pack()
        names = {**vars(diesel_numpy), "DataLoader": diesel_numpy.DataLoader}
        for wrong, value in (("lanes", 1), ("damaged", "error"), ("record", str(self.packed) + ".log"), ("group", "g"), ("world_size", None)):
            with self.assertRaises(TypeError) as caught:
                diesel_numpy.DataLoader(str(self.packed), **{wrong: value})
            said = str(caught.exception)
            self.assertNotIn("\n", said)
            group, fix = re.fullmatch(rf"DataLoader takes {wrong} in a group of options: write (\w+)=(.*)", said).groups()
            diesel_numpy.DataLoader(str(self.packed), **{group: eval(fix, names)})  # noqa: S307
        for wrong, right in (("windw_chunks", r"order=Order\(window_chunks=...\)\?"), ("dro_last", r"drop_last=...\?"), ("zzz", r"help\(DataLoader\)")):
            with self.assertRaisesRegex(TypeError, right):
                diesel_numpy.DataLoader(str(self.packed), **{wrong: 1})
        with self.assertRaisesRegex(TypeError, r"order must be Order\(...\), not 4"):
            diesel_numpy.DataLoader(str(self.packed), order=4)

    def test_what_cannot_be_set(self):
        (self.photos / "dog").mkdir()
        (self.photos / "dog" / "1.txt").write_bytes(b"a dog")
        self.pack()
        dataset = diesel_loader.Dataset(self.packed)
        with self.assertRaises(AttributeError) as caught:
            dataset.classes = ["dog", "cat"]
        for call in ("select()", "filter()", "with_classes()", "target_transform="):
            self.assertIn(call, str(caught.exception))
        self.assertEqual(list(dataset.with_classes(["dog", "cat"]).targets), [1, 0])
        self.assertEqual(list(dataset.select([1]).targets), [1])
        self.assertEqual(len(dataset.filter("dog")), 1)
        loader = diesel_numpy.DataLoader(dataset, batch_size=2, shuffle=False, decode=diesel_numpy.Decode(target_transform=lambda label: 1 - label))
        self.assertEqual([int(label) for _, labels in loader for label in labels], [1, 0])


@unittest.skipUnless(torch, "needs torch")
class OfTorch(Fixes):
    def setUp(self):
        super().setUp()
        from diesel_loader import torch as served
        self.served = served

    def test_not_packed(self):
        """A dataset object with a folder, such as ImageFolder, and one without."""
        class Folder(torch.utils.data.Dataset):
            def __init__(self, root):
                self.root = root
        with self.assertRaises(TypeError) as caught:
            self.served.DataLoader(Folder(str(self.photos)))
        self.at_its_word(str(caught.exception))
        path, = re.findall(r'DataLoader\("([^"]*)"', str(caught.exception))
        self.assertEqual(len(list(self.served.DataLoader(path))), 1)
        shutil.rmtree(path)
        with self.assertRaises(TypeError) as caught:
            self.served.DataLoader([1, 2, 3])
        with contextlib.suppress(FileNotFoundError):
            os.rename(self.photos, self.top + "/FOLDER")
        self.at_its_word(str(caught.exception))
        self.assertEqual(len(list(self.served.DataLoader(self.top + "/FOLDER.diesel"))), 1)

    def test_its_own_length(self):
        (self.photos / "cat" / "2.txt").write_bytes(b"b picture")
        self.pack()

        class Short(self.served.Dataset):
            def __len__(self):
                return 1
        with self.assertRaises(TypeError) as caught:
            self.served.DataLoader(Short(self.packed))
        self.assertIn("use select(), or a sampler", str(caught.exception))
        self.assertEqual(len(list(self.served.DataLoader(self.served.Dataset(self.packed).select([1])))), 1)
        self.assertEqual(len(list(self.served.DataLoader(self.served.Dataset(self.packed), sampler=[1]))), 1)

    def test_a_subset_that_changes(self):
        (self.photos / "cat" / "2.txt").write_bytes(b"b picture")
        self.pack()
        subset = torch.utils.data.Subset(self.served.Dataset(self.packed), [0])
        loader = self.served.DataLoader(subset)
        self.assertEqual(len(list(loader)), 1)
        subset.indices = [0, 1]
        with self.assertRaises(RuntimeError) as caught:
            list(loader)
        self.assertIn("make another loader", str(caught.exception))
        self.assertEqual(len(list(self.served.DataLoader(subset))), 2)


class OfTheAnalyzer(Fixes):
    JOB = ("sleep", "0.1")

    def analyze(self, *words, program=ANALYZE, **more):
        done = subprocess.run([program, *map(str, words)], capture_output=True, text=True, check=False, cwd=self.top, timeout=120, **more)
        return done.returncode, done.stdout + done.stderr

    def record(self, path, **more):
        return self.analyze("record", "--unprivileged", "-o", path, "--", *self.JOB, **more)

    def test_a_file_that_exists(self):
        path = pathlib.Path(self.top, "s.db")
        path.write_bytes(b"mine")
        for fix in (lambda: "other.db", lambda: path.unlink() or path):
            code, text = self.record(path)
            self.assertNotEqual(code, 0)
            self.assertIn("choose another -o or remove", text)
            self.assertEqual(self.record(fix())[0], 0)

    @needs_root
    def test_a_recording_of_another_user(self):
        """The recording of `sudo diesel-analyze` is one, for example."""
        path = pathlib.Path(self.top, "s.db")
        self.assertEqual(self.record(path)[0], 0)
        path.chmod(0o600)
        code, text = self.record(path, preexec_fn=lambda: os.setresuid(NOBODY, NOBODY, NOBODY))
        self.assertNotEqual(code, 0)
        self.assertNotIn("is not a recording", text)
        self.assertRegex(text, f"{path}.*: Permission denied")

    @needs_root
    @unittest.skipUnless(shutil.which("setcap", path="/usr/sbin:/sbin:/usr/bin"), "needs setcap")
    def test_no_privilege(self):
        folder = self.enterContext(tempfile.TemporaryDirectory(dir="/var/tmp"))
        os.chmod(folder, 0o755)
        program = shutil.copy(ANALYZE, folder)
        as_nobody = {"preexec_fn": lambda: os.setresuid(NOBODY, NOBODY, NOBODY), "program": program}
        _, text = self.analyze("check", **as_nobody)
        command = re.search(r"sudo (setcap \S+ \$\(command -v diesel-analyze\))", " ".join(text.split()))[1]
        with mock.patch.dict(os.environ, PATH=f"{folder}:{BARE}:/usr/sbin:/sbin"):
            if subprocess.run(command, shell=True, capture_output=True, check=False).returncode:
                self.skipTest("no file capabilities here")
        code, text = self.analyze("check", **as_nobody)
        if code == 126 or "not permitted" in text:
            self.skipTest("capabilities are bounded here")
        self.assertNotIn("no privilege to load", text)


if __name__ == "__main__":
    warnings.simplefilter("ignore", ResourceWarning)
    unittest.main()
