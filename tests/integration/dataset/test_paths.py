# SPDX-License-Identifier: Apache-2.0
"""Tests samples by their paths, as in folders, without torch, and with it where it is installed."""
import importlib.util
import os
import re
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "bench"))
import support  # noqa: E402
from serving import Daemon, pack  # noqa: E402

try:
    import diesel_loader
except ImportError as error:
    support.skip(f"needs {error.name}")

FILES = {"cat/1.bin": b"one", "cat/2.bin": b"", "cat/deeper/3.bin": b"three" * 1000, "cat-more/4.bin": b"4", "top": b"t",
         os.fsdecode(b"cat/\xff\n.bin"): b"of any bytes", "größe/ü.bin": b"u"}


class Paths(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.tree = cls.folder / "tree"
        for i, (path, data) in enumerate(FILES.items()):
            (cls.tree / path).parent.mkdir(parents=True, exist_ok=True)
            (cls.tree / path).write_bytes(data)
            os.chmod(cls.tree / path, 0o600 + i)
            os.utime(cls.tree / path, ns=(0, 10**18 + i))
        cls.path = pack(cls.tree, cls.folder / "set")
        cls.daemon = cls.enterClassContext(Daemon(cls.folder))
        cls.ds = diesel_loader.open(cls.path)

    def test_a_path_gives_the_bytes_of_its_file(self):
        for path, data in FILES.items():
            found = self.ds[path]
            self.assertIs(type(found), bytes)
            self.assertEqual(found, data)
            self.assertIn(path, self.ds)
            self.assertEqual(self.ds.sample_path(self.ds.find(path)), path)
        self.assertEqual({path: bytes(data) for (data, _), (path, _) in zip(self.ds, self.ds.samples)}, FILES)
        for wrong in ("", "cat", "cat/", "/top", "top/", "cat/1.bi", "cat/1.bin\0", "x" * 5000, "./top"):
            self.assertNotIn(wrong, self.ds)
            for look in (self.ds.find, self.ds.stat, self.ds.__getitem__):
                with self.assertRaises(KeyError):
                    look(wrong)
        names = [*FILES, *reversed(FILES)] * 300  # more than one look-up takes
        self.assertEqual(self.ds.find_many(names), [self.ds.find(name) for name in names])
        self.assertEqual(self.ds.find_many([]), [])
        for wrong in ("cat", "cat/1.bin\0", "x" * 5000):
            with self.assertRaisesRegex(KeyError, re.escape(repr(wrong)[1:40])):
                self.ds.find_many([*names, wrong, "dog"])
        for wrong in (None, 3, b"top"):
            self.assertNotIn(wrong, self.ds)

    def test_folders_are_listed_as_os_lists_them(self):
        """Compares all folders with os."""
        for folder in ("", "cat", "cat/deeper", "cat-more", "größe"):
            names = self.ds.listdir(folder)
            self.assertEqual(sorted(names), sorted(os.listdir(self.tree / folder)))
            is_folder = [(self.tree / folder / name).is_dir() for name in names]
            self.assertEqual(is_folder, sorted(is_folder))  # files come first
        self.assertEqual(self.ds.listdir("cat/"), self.ds.listdir("cat"))
        with self.assertRaises(FileNotFoundError):
            self.ds.listdir("dog")
        with self.assertRaises(NotADirectoryError):
            self.ds.listdir("cat/1.bin")

    def test_stat_is_that_of_the_file(self):
        for path in FILES:
            found, real = self.ds.stat(path), os.stat(self.tree / path)
            self.assertEqual((found.bytes, found.mode, found.mtime_ns), (real.st_size, real.st_mode, real.st_mtime_ns))
            self.assertEqual(found.label, self.ds.label(found.sample))
        self.assertEqual(self.ds.stat("top").label, -1)

    def test_a_subset_has_its_own_paths(self):
        cats = self.ds.filter(classes="cat")
        self.assertIn("cat/1.bin", cats)
        self.assertEqual(cats["cat/1.bin"], b"one")
        self.assertNotIn("top", cats)
        with self.assertRaises(KeyError):
            cats["top"]
        self.assertEqual([cats.number(i) for i in cats.find_many(["cat/1.bin"])], [self.ds.find("cat/1.bin")])
        self.assertEqual(cats.stat("cat/1.bin").sample, cats.find("cat/1.bin"))
        with self.assertRaisesRegex(KeyError, "top"):
            cats.find_many(["cat/1.bin", "top"])
        for part in (cats, self.ds.filter(paths="*deeper*"), self.ds.filter(paths="top"), self.ds[:0]):
            listed = [f"{folder}/{file}" if folder else file for folder, _, files in part.walk() for file in files]
            self.assertEqual(sorted(listed), sorted(path for path, _ in part.samples))
            self.assertEqual(set(part.listdir()), {path.split("/")[0] for path, _ in part.samples})
        with self.assertRaisesRegex(FileNotFoundError, "this subset of .* has no folder"):
            cats.listdir("größe")
        with self.assertRaises(TypeError):
            self.ds.listdir(None)

    @unittest.skipUnless(importlib.util.find_spec("torch"), "there is no torch")
    def test_paths_work_with_torch(self):
        import diesel_loader.torch as diesel
        ds = diesel.Dataset(self.path, transform=lambda sample: sample[:1])
        self.assertEqual((ds["cat/1.bin"], ds.listdir("cat-more")), (b"one", ["4.bin"]))
        self.assertEqual(len(ds[2:4]), 2)


if __name__ == "__main__":
    unittest.main()
