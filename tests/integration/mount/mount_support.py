# SPDX-License-Identifier: Apache-2.0
"""Helpers of the tests of `dieselctl mount`: a dataset, a dieseld, mounts that end with the test."""
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile

from dieseld_support import CTL, SCRATCH, Case, Daemon, make_source, pack

FUSE = os.access("/dev/fuse", os.R_OK | os.W_OK) and shutil.which("fusermount3")


def digests(root):
    """Returns {relative path: MD5} of all files below."""
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as f:
                found[os.path.relpath(path, root)] = hashlib.md5(f.read()).hexdigest()
    return found


def is_mounted(path):
    with open("/proc/self/mounts", encoding="utf-8") as f:
        return any(line.split()[1] == path for line in f)


@functools.cache
def made():
    """Returns (dataset, source)."""
    source = make_source("files", 600, lambda rng: rng.choice((0, 1, 4096, 5000, 200000)))
    with open(os.path.join(source, "class0", "deep name, with\\ comma"), "wb") as f:
        f.write(b"x" * 700_000)
    with open(os.path.join(source, "top.txt"), "w", encoding="utf-8") as f:
        f.write("top\n")
    os.chmod(os.path.join(source, "top.txt"), 0o640)
    return pack(source, "files"), source


class Mount(Case):
    @classmethod
    def setUpClass(cls):
        cls.dataset, cls.source = made()
        cls.node = Daemon(cache="64M")
        cls.addClassCleanup(cls.node.log.close)
        cls.addClassCleanup(cls.node.stop)

    def command(self, *arguments, node=None):
        return [CTL, "mount", "--socket", (node or self.node).socket, *arguments]

    def folder(self):
        return tempfile.mkdtemp(dir=SCRATCH)

    def mount(self, *options, dataset=None, node=None):
        where = self.folder()
        self.addCleanup(subprocess.run, ["fusermount3", "-quz", where], check=False)
        done = subprocess.run(self.command(*options, dataset or self.dataset, where, node=node), capture_output=True, text=True,
                              timeout=60, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return where

    def fails(self, says, *arguments, node=None, code=1):
        done = subprocess.run(self.command(*arguments, node=node), capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn(says, done.stderr)
