#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests that reading another user's dataset or recording changes nothing, starts nothing and ends in bounded time."""
import os
import pathlib
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
from common.users import ALICE, MALLORY
import planted  # noqa: E402

BIN = pathlib.Path(os.environ.get("DIESEL_BIN", "build/release/bin")).resolve()
CTL, ANALYZE, TOP = (str(BIN / name) for name in ("dieselctl", "diesel-analyze", "diesel-top"))
OF_RECORDING = ([ANALYZE, "report"], [ANALYZE, "what-if"], [ANALYZE, "dump"], [CTL, "replay"], [TOP, "-r"])
OF_DATASET = (["stat"], ["verify"], ["ls", "--meta"], ["cat", "--meta"], ["log"])


def run(*words):
    """Returns (exit status, output), None if it did not end."""
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               start_new_session=True)
    try:
        text = process.communicate(timeout=60)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None, "hangs"
    return process.returncode, text.decode(errors="replace")


def files(folder):
    return {path: (path.stat().st_mtime_ns, path.stat().st_size, path.stat().st_ino)
            for path in sorted(pathlib.Path(folder).rglob("*")) if not path.is_fifo()}


class Looking(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.made = pathlib.Path(tempfile.mkdtemp(prefix="diesel-look-"))
        os.chmod(cls.made, 0o755)
        source = cls.made / "src"
        for i in range(8):
            (source / f"c{i % 2}").mkdir(parents=True, exist_ok=True)
            (source / f"c{i % 2}" / str(i)).write_text(f"sample {i}")
        assert run(CTL, "pack", str(source), str(cls.made / "set"))[0] == 0
        status, text = run(ANALYZE, "record", "--unprivileged", "-o", str(cls.made / "r.db"), "--", "sleep", "0.5")
        assert status == 0, text

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.made)

    def setUp(self):
        """A folder of another user, with a recording and a dataset, and a file of root's."""
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="mallory-", dir=self.made))
        self.victim = self.made / "victim"
        self.victim.write_text("keep this")
        shutil.copy(self.made / "r.db", self.folder)
        shutil.copytree(self.made / "set", self.folder / "set")
        for path in (self.folder, *self.folder.rglob("*")):
            os.chown(path, MALLORY, MALLORY)
        os.chmod(self.folder, 0o755)
        self.recording, self.dataset = str(self.folder / "r.db"), str(self.folder / "set")
        self.meta = self.dataset + "/meta.db"

    def tearDown(self):
        shutil.rmtree(self.folder)
        self.victim.unlink(missing_ok=True)

    def own(self):
        for path in self.folder.rglob("*"):
            os.lchown(path, MALLORY, MALLORY)

    def verbs(self):
        yield from (words + [self.recording] for words in OF_RECORDING[:-1])
        yield [ANALYZE, "diff", self.recording, self.recording]
        for verb, *options in OF_DATASET:
            yield [CTL, verb, *options, self.dataset] + (["c0/0"] if verb == "cat" else [])
        yield [CTL, "diff", self.dataset, "1", "1"]

    def change_nothing(self, why):
        """Runs all verbs, and returns the output of each."""
        said = {}
        for words in self.verbs():
            before = files(self.folder)
            status, text = run(*words)
            name = " ".join(words[:2])
            with self.subTest(why, verb=name):
                self.assertIsNotNone(status, text)
                self.assertGreaterEqual(status, 0, text)  # did not end by a signal
                self.assertTrue(self.victim.exists(), f"{name} has removed a file: {text}")
                self.assertEqual(files(self.folder), before)
                said[name] = status, text
        return said

    def test_planted_journals_change_nothing(self):
        plain = self.change_nothing("nothing planted")
        for path in (self.recording, self.meta):
            planted.plant_journal(path, str(self.victim))
        self.own()
        said = self.change_nothing("a super-journal")
        # Whether the journal was played back or not, the page is unchanged.
        self.assertEqual({name: status for name, (status, _) in said.items()},
                         {name: status for name, (status, _) in plain.items()})

    def test_a_journal_of_a_stranger_is_not_believed(self):
        """In a folder such as /tmp, the stranger could not have written the file, so he cannot change its content."""
        with open(self.meta, "rb") as file:
            page = bytearray(file.read(planted.page_bytes(self.meta)))
        page[68:72] = b"EVIL"  # the application id
        for path in (self.recording, self.meta):
            planted.plant_journal(path, page=bytes(page))
            os.chown(path + "-journal", ALICE, ALICE)
        for name, (status, text) in self.change_nothing("a stranger's journal").items():
            self.assertIn(status, (0, 1, 3), name + text)
            self.assertNotIn("is not a recording", text)
            self.assertNotIn("not DIESEL metadata", text)

    def test_what_a_killed_writer_committed_is_read(self):
        """Reads the committed content only, without writing."""
        with open(self.meta, "rb") as file:
            before = file.read(planted.page_bytes(self.meta))
        planted.plant_journal(self.meta, page=before)
        with open(self.meta, "r+b") as file:  # the half that the writer wrote before its end
            file.seek(68)
            file.write(b"HALF")
        self.own()
        seen = files(self.folder)
        status, text = run(CTL, "verify", self.dataset)
        self.assertEqual(status, 0, text)
        self.assertEqual(files(self.folder), seen)

    def test_no_file_is_made_next_to_what_is_read(self):
        """No file next to it is made or truncated, whatever names exist there."""
        for path in (self.recording, self.meta):
            with sqlite3.connect(path) as db:
                db.execute("PRAGMA journal_mode = WAL")
            db.close()
            for suffix in ("-wal", "-shm", "-journal"):
                pathlib.Path(path + suffix).unlink(missing_ok=True)
                os.link(self.victim, path + suffix)
        for name, (_, text) in self.change_nothing("links to a file of root's").items():
            self.assertEqual(self.victim.read_text(), "keep this", name + text)

    def test_pipes_and_devices_hold_up_nobody(self):
        def pipe(path):
            os.remove(path)
            os.mkfifo(path)

        def link(path):
            os.remove(path)
            os.symlink("/dev/zero", path)
        for plant in (pipe, link):
            for path in (self.recording, self.meta):
                plant(path)
            said = self.change_nothing(plant.__name__)
            for name, (status, text) in said.items():
                if name.startswith(ANALYZE) or "replay" in name:
                    self.assertNotEqual(status, 0, name)
                    self.assertEqual(len(text.strip().splitlines()), 1, text)
            status, text = run(TOP, "-r", self.recording)
            self.assertEqual((status, len(text.strip().splitlines())), (1, 1), text)

    def test_journals_that_are_pipes_hold_up_nobody(self):
        for path in (self.recording, self.meta):
            os.mkfifo(path + "-journal")
        self.change_nothing("pipes for journals")

    def test_views_and_computed_columns_run_nothing(self):
        def view():
            planted.hide_behind_view(self.recording, "events")
            planted.hide_behind_view(self.meta, "path")

        def info():
            planted.hide_behind_view(self.recording, "info")
            planted.hide_behind_view(self.meta, "chunk")

        def disguised():
            planted.disguise_view(self.recording, "events")
            planted.disguise_view(self.meta, "path")

        def column():
            planted.compute_column(self.recording, "events", "max_end_ns")
            planted.compute_column(self.meta, "path", "mode")

        def trigger():
            for path in (self.recording, self.meta):
                with sqlite3.connect(path) as db:
                    table = db.execute("SELECT name FROM sqlite_master LIMIT 1").fetchone()[0]
                    db.execute(f"CREATE TRIGGER t AFTER INSERT ON {table} BEGIN DELETE FROM {table}; END")
                db.close()
        for plant in (view, info, disguised, column, trigger):
            self.tearDown()
            self.setUp()
            plant()
            said = self.change_nothing(plant.__name__)
            for name, (status, text) in said.items():
                if name.startswith(ANALYZE) or name.endswith((" log", " verify")):
                    self.assertEqual(status, 1, name + text)
                    self.assertRegex(text, "DIESEL does not create|is damaged", name)

    def test_a_tree_without_an_end_is_given_up(self):
        """Pages of a table share their children, so a small file has endlessly many rows."""
        planted.share_children(self.recording, "events")
        planted.share_children(self.meta, "log")
        self.change_nothing("shared pages")


if __name__ == "__main__":
    unittest.main(verbosity=2)
