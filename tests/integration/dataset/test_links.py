#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Root changes a dataset of a user, who plants links and pipes in it. Root must make, change or remove nothing outside of it."""
import contextlib
import multiprocessing
import os
import pathlib
import shutil
import sqlite3
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
from common.users import MALLORY, become
import planted  # noqa: E402
from test_looking import ANALYZE, CTL, TOP, run  # noqa: E402

VERBS = ("append", "rm", "rebuild", "purge", "snapshot", "version", "frozen", "repair", "put")
# All names that a writer uses in a dataset's folder, with the content of those that are folders.
NAMES = ("meta.db", "meta.db-journal", "meta.db-wal", "meta.db-shm", "meta.db.damaged", "snapshot", ".snapshot.tmp", "snapshots",
         "chunks", "frozen", ".frozen.tmp", "meta.redis", "meta.redis.tmp", ".writer", ".snapshot.sort.tmp", ".purge",
         ".purge.tmp")


def tree(folder):
    """Returns the state of a tree without link counts, as a user may have made some links, and the writer may remove them."""
    return {str(path): (path.lstat().st_ino, path.lstat().st_size, path.lstat().st_mtime_ns)
            for path in [pathlib.Path(folder), *sorted(pathlib.Path(folder).rglob("*"))]}


def exchange(path, kinds, ends):
    """As another user: makes a name lead alternately to two ends."""
    become(MALLORY)
    i = 0
    while not ends.is_set():
        other = f"{path}.{i % 2}"
        with contextlib.suppress(OSError):
            if not os.path.lexists(other):
                os.symlink(kinds[i % len(kinds)], other)
            os.rename(path, f"{path}.old")
            os.rename(other, path)
            os.remove(path)
            os.rename(f"{path}.old", path)
        i += 1
    with contextlib.suppress(OSError):
        os.rename(f"{path}.old", path)


class Links(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="diesel-links-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
        os.chmod(self.root, 0o755)
        self.source = self.root / "src"
        for i in range(8):
            (self.source / f"c{i % 2}").mkdir(parents=True, exist_ok=True)
            (self.source / f"c{i % 2}" / str(i)).write_text(f"sample {i}")
        self.precious = self.root / "precious"
        self.make_precious()
        self.home = self.root / "home"
        self.home.mkdir()
        self.dataset = str(self.home / "set")
        for _ in range(2):
            self.assertEqual(run(CTL, "pack", str(self.source), str(self.root / "made"), "--append")[0], 0)
            (self.source / "c0/0").write_text("changed")
        self.make()

    def tearDown(self):
        shutil.rmtree(self.root)

    def make_precious(self):
        """Makes root's files, with the names of a dataset's files, so that nothing fails because one is missing."""
        self.precious.mkdir()
        for name in (*NAMES, "file", ".tmp", "1", "2"):
            (self.precious / name).write_text("keep " + name)
        with sqlite3.connect(self.precious / "base") as db:
            db.execute("CREATE TABLE t(a)")
        db.close()

    def make(self):
        shutil.rmtree(self.dataset, ignore_errors=True)
        shutil.copytree(self.root / "made", self.dataset)
        self.own()

    def own(self):
        for path in (self.home, *self.home.rglob("*")):
            os.lchown(path, MALLORY, MALLORY)
        os.chmod(self.home, 0o755)

    def words(self, verb):
        (self.source / "c1/more").write_text(os.urandom(8).hex())
        chunks = pathlib.Path(self.dataset, "chunks")
        if verb == "repair" and chunks.is_dir() and not os.path.islink(self.dataset):
            for path in sorted(chunks.glob("*.chunk"))[:1]:
                path.rename(self.home / "gone")
        return {"append": [CTL, "pack", str(self.source), self.dataset, "--append"], "rm": [CTL, "rm", self.dataset, "c1/1"],
                "rebuild": [CTL, "rebuild", self.dataset], "purge": [CTL, "purge", "--older-than", "0s", self.dataset],
                "snapshot": [CTL, "snapshot", self.dataset], "version": [CTL, "snapshot", "--version", "1", self.dataset],
                "frozen": [CTL, "snapshot", "--frozen", self.dataset],
                "repair": [CTL, "verify", "--repair", "--from", str(self.source), self.dataset],
                "put": [CTL, "pack", str(self.source), self.dataset]}[verb]

    def check(self, verb, what):
        before = tree(self.precious)
        status, text = run(*self.words(verb))
        with self.subTest(verb=verb, planted=what):
            self.assertIsNotNone(status, text)
            self.assertGreaterEqual(status, 0, text)
            self.assertEqual(tree(self.precious), before, text)
            if status:
                self.assertTrue(text.strip(), "it says why")
        return status, text

    def plant(self, name, how):
        path = pathlib.Path(self.dataset, name)
        path.parent.mkdir(exist_ok=True)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        target = self.precious / ("base" if name == "meta.db" else path.name)
        if not target.exists():
            target = self.precious / "file"
        if how == "symlink":
            os.symlink(self.precious if name in ("snapshots", "chunks") else target, path)
        elif how == "dangling":
            os.symlink(self.precious / "nothing", path)
        elif how == "hard link":
            os.link(target, path)
        else:
            os.mkfifo(path)

    def test_no_verb_follows_planted_names(self):
        kinds = ("symlink", "dangling", "hard link", "pipe")
        for i, verb in enumerate(VERBS):
            for j, name in enumerate((*NAMES, "snapshots/.tmp", "snapshots/1")):
                for how in kinds if verb in ("append", "rebuild") else kinds[(i + j) % 4:][:1]:
                    self.make()
                    self.plant(name, how)
                    self.own_names()
                    self.check(verb, f"{name}: {how}")

    def own_names(self):
        """Returns the names, not their targets: a hard link's file stays root's."""
        for path in self.home.rglob("*"):
            if path.lstat().st_nlink == 1 or path.is_dir():
                os.lchown(path, MALLORY, MALLORY)

    def test_root_follows_no_link_to_a_folder_of_others(self):
        """A user's link leads root into no folder of another user, but into the user's own."""
        other = self.root / "other"
        shutil.copytree(self.dataset, other)
        for path in (other, *other.rglob("*")):
            os.chown(path, 0, 0)
        os.rename(self.dataset, self.home / "real")
        os.symlink(other, self.dataset)
        os.lchown(self.dataset, MALLORY, MALLORY)
        for path in sorted((other / "chunks").iterdir())[:1]:
            path.unlink()  # lets repair make it
        before = tree(other)
        for verb in VERBS:
            status, text = self.check(verb, "a link to root's dataset")
            self.assertEqual((status, tree(other)), (1, before), verb + text)
            if verb in ("append", "rm", "rebuild", "frozen"):
                self.assertIn("the path is a link", text)
        os.remove(self.dataset)
        os.symlink("real", self.dataset)
        os.lchown(self.dataset, MALLORY, MALLORY)
        self.assertEqual(run(*self.words("append"))[0], 0)

    def test_no_verb_follows_a_super_journal(self):
        for verb in VERBS:
            self.make()
            planted.plant_journal(self.dataset + "/meta.db", str(self.precious / "file"))
            self.own()
            self.check(verb, "a super-journal")

    def test_links_that_are_exchanged_meanwhile_lead_nowhere(self):
        """A loop exchanges folders for links, while root writes repeatedly."""
        for name in ("snapshots", "chunks", "meta.db", "snapshot"):
            self.make()
            ends = multiprocessing.Event()
            process = multiprocessing.Process(target=exchange, args=(
                f"{self.dataset}/{name}", [str(self.precious), str(self.precious / "base")], ends))
            process.start()
            for verb in ("append", "snapshot", "rm", "rebuild") * 3:
                self.check(verb, f"{name} is exchanged")
            ends.set()
            process.join()

    def test_recordings_and_reports_follow_no_links(self):
        """Tests diesel-analyze and diesel-top, whose files are in a folder of a user."""
        recording = self.root / "r.db"
        self.assertEqual(run(ANALYZE, "record", "--unprivileged", "-o", str(recording), "--", "true")[0], 0)
        for how in ("symlink", "dangling", "hard link", "pipe"):
            for name in ("r.db", "r.db-journal", "report.json", "reel"):
                shutil.rmtree(self.home)
                self.home.mkdir()
                os.mkdir(self.dataset)
                self.plant(name, how)
                self.own_names()
                before = tree(self.precious)
                for words in ([ANALYZE, "record", "--unprivileged", "-o", f"{self.dataset}/r.db", "--", "true"],
                              [ANALYZE, "report", str(recording), "-o", f"{self.dataset}/report.json"],
                              [TOP, "-b", "-n", "1", "-w", f"{self.dataset}/reel"]):
                    status, text = run(*words)
                    with self.subTest(words=words, how=how, name=name):
                        self.assertIsNotNone(status, text)
                        self.assertEqual(tree(self.precious), before, text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
