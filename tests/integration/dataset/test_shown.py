#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests that other users' names and texts on a terminal cannot control it, reverse neighbouring text, or stay invisible."""
import os
import pathlib
import shutil
import sqlite3
import subprocess
import tempfile
import unittest

from common.commands import on_terminal
from test_looking import ANALYZE, BIN, CTL, TOP  # noqa: E402

MARKS = [0x1b, 0x07, 0x7f, 0x9b, 0x61c, 0xad, 0x180e, *range(0x200b, 0x2010), *range(0x2028, 0x202f), *range(0x2060, 0x2070), 0xfeff,
         0xe0041]
ODD = "a" + "".join(map(chr, MARKS)) + "]2;x"


class Shown(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = tempfile.mkdtemp(prefix="diesel-shown-")
        cls.odd = f"{cls.root}/{ODD}"
        cls.source, cls.dataset, cls.other = (f"{cls.odd}/{name}{ODD}" for name in ("src", "set", "other"))
        os.makedirs(f"{cls.source}/class{ODD}")
        pathlib.Path(cls.source, f"class{ODD}", f"name{ODD}").write_text("1")
        for dataset in (cls.dataset, cls.other):
            subprocess.run([CTL, "pack", cls.source, dataset], check=True, capture_output=True)
        cls.recording = f"{cls.odd}/rec{ODD}.db"
        subprocess.run([ANALYZE, "record", "--unprivileged", "-o", cls.recording, "--", "sh", "-c", f": {ODD}; sleep 0.5"], check=True,
                       capture_output=True)
        with sqlite3.connect(cls.recording) as db:
            for key in ("host", "kernel", "machine", "command", "cgroup", "hooks_missing", "diesel_version"):
                db.execute("INSERT OR REPLACE INTO info VALUES(?, ?)", (key, key + ODD))
        db.close()

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.root)

    def check(self, *words, cwd=None):
        text = on_terminal(*words, cwd=cwd)[2].decode()  # UTF-8 in any case
        with self.subTest(words[:3]):
            self.assertTrue(text)
            # Colours and the progress line come from the program.
            mine = [0x1b] if any(own in text for own in ("\x1b[K", "\x1b[1m", "\x1b[0m", "\x1b[3")) else []
            self.assertNotIn("\x1b]", text)
            self.assertEqual([hex(code) for code in MARKS if chr(code) in text and code not in mine], [], repr(text))
        return text

    def test_names_in_datasets_steer_no_terminal(self):
        path = f"class{ODD}/name{ODD}"
        for words in (["stat", self.dataset], ["stat", self.dataset, path], ["stat", "--json", self.dataset], ["ls", self.dataset],
                      ["ls", "--json", self.dataset], ["ls", "-l", self.dataset, f"class{ODD}"], ["log", self.dataset],
                      ["log", "--json", self.dataset], ["verify", self.dataset], ["cat", self.dataset, "none" + ODD],
                      ["stat", self.dataset + ODD], ["pack", self.source + ODD, self.dataset], ["none" + ODD], ["ls", "--" + ODD],
                      ["rm", self.dataset, "none" + ODD], ["rebuild", self.source], ["snapshot", self.source],
                      ["status", "--socket", self.odd], ["jobs", "--socket", self.odd], ["why", "--socket", self.odd],
                      ["cat", "--meta", self.dataset, ODD], ["mount", self.dataset + ODD, self.odd]):
            self.check(CTL, *words)

    def test_names_in_reports_of_damage_steer_no_terminal(self):
        dataset = f"{self.odd}/damaged{ODD}"
        shutil.copytree(self.other, dataset)
        with sqlite3.connect(dataset + "/meta.db") as db:
            db.execute("UPDATE path SET path = path || ? || ?", ("\n", ODD))
            db.execute("UPDATE log SET entry = replace(entry, 'host ', ?)", ("host " + ODD.replace("\x07", ""),))
        db.close()
        for words in (["verify"], ["verify", "--json"], ["log"], ["ls", "--meta"], ["verify", "--repair", "--from", self.source]):
            self.check(CTL, *words, dataset)
        chunk = next(pathlib.Path(dataset, "chunks").iterdir())
        chunk.write_bytes(chunk.read_bytes()[:-1] + b"?")
        self.check(CTL, "verify", dataset)

    def test_texts_of_recordings_steer_no_terminal(self):
        for words in ([ANALYZE, "report"], [ANALYZE, "report", "--format", "json"], [ANALYZE, "report", "--format", "openmetrics"],
                      [ANALYZE, "what-if"], [ANALYZE, "what-if", "--json"], [CTL, "replay"], [TOP, "-r"], [TOP, "-b", "-r"]):
            self.check(*words, self.recording)
            self.check(*words, self.recording + ODD)
            self.check(*words, self.dataset + "/meta.db")
        self.check(ANALYZE, "diff", self.recording, self.recording)
        self.check(ANALYZE, "record", "--unprivileged", "--", self.odd)
        self.check(ANALYZE, "report" + ODD)
        self.check(str(BIN / "dieseld"), "--history", self.dataset, "--socket", self.odd)
        self.check(str(BIN / "dieseld"), "--" + ODD)

    def test_the_name_of_a_running_job_steers_no_terminal(self):
        """The job's name and its command line, in diesel-top."""
        program = f"{self.odd}/prog{ODD}"
        shutil.copy("/bin/sleep", program)
        job = subprocess.Popen([program, "60"])
        try:
            for words in (["-b", "-n", "1"], ["--json", "-n", "1"]):
                self.check(TOP, *words)
        finally:
            job.kill()
            job.wait()


if __name__ == "__main__":
    unittest.main(verbosity=2)
