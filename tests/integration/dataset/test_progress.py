# SPDX-License-Identifier: Apache-2.0
"""Tests that long verbs of dieselctl show on a terminal their stage, progress and remaining time, and nothing elsewhere."""
import json
import os
import pathlib
import pty
import subprocess
import unittest


from common.commands import on_terminal
from dieseld_support import CTL, SCRATCH, make_source

CLEAR = "\r\x1b[K"


def shown_on_terminal(*words):
    """Returns (exit status, standard output, text that the terminal got) of dieselctl."""
    status, out, shown = on_terminal(CTL, *words, stdout=subprocess.PIPE)
    return status, out.decode(), shown.decode()


class Progress(unittest.TestCase):
    def told(self, *words, stages, status=0):
        """Checks that each stage has a bar with its share and the time left, and that all of it disappears at the end."""
        code, out, shown = shown_on_terminal(*words)
        self.assertEqual(code, status, shown)
        at = 0
        for stage in stages:
            found = shown.find(f"{CLEAR}{stage} [", at)
            self.assertGreaterEqual(found, at, f"{stage} after {at} in {shown!r}")
            at = found + len(CLEAR + stage)
            self.assertRegex(shown[at:].split(CLEAR)[0], r"^ ?\[[#.]{30}\] +\d+ %.*  [\d.]+ [mu]?s left$")
        self.assertTrue(shown.endswith(CLEAR), shown)
        self.assertNotIn("\n", shown)
        return out

    def test_every_long_verb_shows_its_progress(self):
        source, dataset = make_source("source", 300, lambda rng: rng.randint(0, 9000)), os.path.join(SCRATCH, "set")
        archive = os.path.join(SCRATCH, "source.tar")
        subprocess.run(["tar", "cf", archive, "-C", source, "."], check=True)
        self.told("pack", source, dataset, stages=["packing", "committing", "snapshot"])
        self.told("pack", archive, dataset + "2", stages=["packing", "committing", "snapshot"])
        self.told("rm", "-r", dataset, "class3", "class4", stages=["looking for samples", "committing", "snapshot"])
        self.told("verify", dataset, stages=["verifying"])
        self.told("diff", dataset, "1", stages=["comparing"])
        out = self.told("purge", "--json", "--older-than", "0", dataset, stages=["purging", "committing", "snapshot", "removing"])
        self.assertGreater(json.loads(out)["removed_chunks"], 0)
        self.assertEqual(json.loads(self.told("snapshot", "--json", dataset, stages=["snapshot"]))["version"], 3)
        self.told("rebuild", dataset, stages=["rebuilding", "snapshot"])
        chunk = next(pathlib.Path(dataset, "chunks").glob("*.chunk"))
        with open(chunk, "r+b") as file:
            file.seek(-10000, os.SEEK_END)
            file.write(b"damage" * 100)
        code, out, shown = shown_on_terminal("verify", "--repair", "--from", source, dataset)
        self.assertEqual(code, 0, out + shown)
        self.assertIn(CLEAR + "repairing [", shown)

    def test_a_pipe_has_a_count_and_no_share(self):
        """An archive through a pipe shows a count only."""
        source = make_source("piped", 50, lambda rng: 1000)
        ours, theirs = pty.openpty()
        with subprocess.Popen(["tar", "cf", "-", "-C", source, "."], stdout=subprocess.PIPE) as tar:
            done = subprocess.run([CTL, "pack", "-", os.path.join(SCRATCH, "piped")], stdin=tar.stdout, stdout=subprocess.DEVNULL,
                                  stderr=theirs, check=False)
        os.close(theirs)
        shown = os.read(ours, 65536).decode()
        os.close(ours)
        self.assertEqual(done.returncode, 0, shown)
        self.assertRegex(shown, r"packing 1  [\d.]+ [KM]?i?B  ")

    def test_nothing_is_shown_without_a_terminal(self):
        source = make_source("quiet", 10, lambda rng: 1000)
        for words in (("pack", source, os.path.join(SCRATCH, "quiet")), ("verify", os.path.join(SCRATCH, "quiet"))):
            done = subprocess.run([CTL, *words], capture_output=True, check=True)
            self.assertEqual(done.stderr, b"")


if __name__ == "__main__":
    unittest.main(verbosity=2)
