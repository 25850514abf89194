#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A verb that changes a dataset loses nothing if it is killed at any moment or fails at any call. Every flipped bit is noticed.

usage: dataset_verbs.py kills | calls | flips

DIESEL_ROUNDS=N makes N kills, or flips, instead of a few. DIESEL_ALL_CALLS=1 fails every call, instead of some.
"""
import functools
import os
import pathlib
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

from common.memory import memory
from dataset_support import DIESELCTL, SHIM, content, dieselctl, failing, files_of, make_source, patched, skip, stray_files


class Scene:
    """Holds a small dataset of a few chunks, and the result of each verb on it."""

    def __init__(self, root):
        self.root, self.source, self.dataset, self.before = root, root / "src", root / "ds", root / "before"
        make_source(self.source, 24, 300_000, 11)
        dieselctl("pack", "--chunk-size", "4M", "--digest", "sha256", self.source, self.before, check=0)
        self.old = files_of(self.source)
        self.more = root / "more"
        shutil.copytree(self.source, self.more)
        make_source(self.more / "added", 4, 300_000, 12)
        (self.more / "class0" / "0.bin").write_bytes(b"replaced")
        self.appended = files_of(self.more)
        self.archive = root / "more.tar"
        subprocess.run(["tar", "--sort=name", "-cf", self.archive, "-C", self.more, "."], check=True)
        self.fewer = {path: data for path, data in self.old.items() if not path.startswith("class1/")}
        self.holed = root / "holed"
        shutil.copytree(self.before, self.holed)
        dieselctl("rm", "-r", self.holed, "class1", check=0)
        # For each verb: arguments, initial dataset, contents before and after.
        self.verbs = {
            "pack": (["pack", "--chunk-size", "4M", "--digest", "sha256", self.source, self.dataset], None, None, self.old),
            "append": (["pack", "--append", "--chunk-size", "4M", self.more, self.dataset], self.before, self.old, self.appended),
            "tar": (["pack", "--append", "--chunk-size", "4M", self.archive, self.dataset], self.before, self.old, self.appended),
            "rm": (["rm", "-r", self.dataset, "class1"], self.before, self.old, self.fewer),
            "purge": (["purge", "--keep", "1", "--older-than", "0", self.dataset], self.holed, self.fewer, self.fewer),
            "rebuild": (["rebuild", self.dataset], self.before, self.old, self.old),
            "snapshot": (["snapshot", self.dataset], self.before, self.old, self.old),
        }

    def reset(self, folder):
        shutil.rmtree(self.dataset, ignore_errors=True)
        if folder is not None:
            shutil.copytree(folder, self.dataset)

    @functools.cache
    def purged(self):
        """Returns how many chunks remain after an undisturbed run."""
        undisturbed = self.root / "undisturbed"
        shutil.copytree(self.holed, undisturbed)
        dieselctl("purge", "--keep", "1", "--older-than", "0", undisturbed, check=0)
        return len(os.listdir(undisturbed / "chunks"))

    def check(self, verb, where):
        """Asserts that a reader finds the complete dataset, as before or as after, and that the same command then
        finishes."""
        command, _, before, after = self.verbs[verb]
        if before is None and not (self.dataset / "snapshot").exists():
            pass  # not published yet
        else:
            state = content(self.dataset)
            assert state in (before, after), f"{where}: half of it"
            told = dieselctl("verify", self.dataset)
            assert told.returncode == 0, f"{where}: {told.stdout}{told.stderr}"
        if verb == "rm" and content(self.dataset) == after:
            return
        again = dieselctl(*command)
        done = verb == "pack" and "already" in again.stderr or verb == "rm" and "there is no sample" in again.stderr
        assert again.returncode == 0 or done, f"{where}: {again.stderr}"
        assert content(self.dataset) == after, f"{where}: not finished"
        told = dieselctl("verify", self.dataset, check=0)
        assert told.stderr == "" or verb == "rm", f"{where}: {told.stderr}"
        assert verb != "purge" or len(os.listdir(self.dataset / "chunks")) == self.purged(), f"{where}: chunks stay"
        assert not stray_files(self.dataset), f"{where}: {stray_files(self.dataset)}"


def test_kills(root):
    scene, generator = Scene(root), random.Random(13)
    rounds = int(os.environ.get("DIESEL_ROUNDS", "12"))
    longest = {}
    for verb, (command, folder, _, _) in scene.verbs.items():
        scene.reset(folder)
        start = time.monotonic()
        dieselctl(*command, check=0)
        longest[verb] = time.monotonic() - start
    n_killed = 0
    for i in range(rounds):
        verb = list(scene.verbs)[i % len(scene.verbs)]
        command, folder, _, _ = scene.verbs[verb]
        scene.reset(folder)
        process = subprocess.Popen([DIESELCTL, *map(str, command)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        moment = generator.uniform(0, longest[verb])
        time.sleep(moment)
        process.kill()
        n_killed += process.wait() == -signal.SIGKILL
        scene.check(verb, f"{verb} killed after {moment * 1000:.1f} ms")
    scene.reset(scene.before)  # killed between its commit and its snapshot
    behind = (scene.dataset / "snapshot").read_bytes()
    dieselctl(*scene.verbs["rm"][0], check=0)
    (scene.dataset / "snapshot").write_bytes(behind)
    scene.check("rm", "rm killed behind its commit")
    print(f"{n_killed} killed in {rounds} rounds")
    assert n_killed > 0


def test_calls(root):
    if not SHIM.exists():
        skip("the failing calls are injected into plain builds only")
    scene, generator = Scene(root), random.Random(14)
    all_calls = bool(os.environ.get("DIESEL_ALL_CALLS"))
    for verb, (command, folder, _, _) in scene.verbs.items():
        for error, kind, stay in ((5, "change", False), (28, "change", True), (0, "change", False), (5, "read", False), (1, "short", False)):
            k = n = 0
            while True:
                k += 1 if all_calls or (verb, error) == ("purge", 0) else generator.randrange(1, 40)
                scene.reset(folder)
                done, reached = failing(lambda **more: dieselctl(*command, **more), k, error, stay, kind)
                where = f"{verb}, errno {error}, {kind}, call {k}: {done.stderr.strip()}"
                if not reached:
                    assert done.returncode == 0, where
                    break
                n += 1
                assert done.returncode in ((-signal.SIGKILL,) if error == 0 else (0, 1)), where
                assert kind != "short" or done.returncode == 0, where
                assert done.returncode != 1 or len(done.stderr.splitlines()) == 1, where
                scene.check(verb, where)
            print(f"{verb}, errno {error}, {kind}: {n} of {k} calls")
    check_leftovers(scene)


def check_leftovers(scene):
    """Kills `rm` at each change that it makes to a dataset with chunks of a killed pack. Once its commit counts, a rebuild finds none of them."""
    old = {path.name for path in (scene.before / "chunks").iterdir()}
    for k in range(1, 100):
        scene.reset(scene.before)
        failing(lambda **more: dieselctl(*scene.verbs["append"][0], **more), k, 0)
        if {path.name for path in (scene.dataset / "chunks").glob("*.chunk")} - old:
            break
    left = scene.root / "left"
    shutil.copytree(scene.dataset, left)
    assert content(left) == scene.old
    k, n_committed, reached = 0, 0, True
    while reached:
        k += 1
        scene.reset(left)
        _, reached = failing(lambda **more: dieselctl(*scene.verbs["rm"][0], **more), k, 0)
        if content(scene.dataset) == scene.fewer:
            n_committed += 1
            dieselctl("rebuild", scene.dataset, check=0)
            assert content(scene.dataset) == scene.fewer, f"killed at change {k}: rebuild takes a chunk that was never committed"
    assert n_committed > 2, n_committed


def meaning(dataset):
    """Returns all rows of the metadata; None if it cannot be read."""
    try:
        with sqlite3.connect(dataset / "meta.db") as database:
            database.text_factory = bytes  # as read, with any bytes
            tables = [name for name, in database.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1")]
            return [sorted(map(repr, database.execute(f"SELECT * FROM {name}"))) for name in tables]
    except sqlite3.DatabaseError:
        return None


def test_flips(root):
    """Flips one bit of a chunk, the snapshot or the metadata. `verify` reports it, or no reader sees a difference."""
    scene, generator = Scene(root), random.Random(15)
    scene.reset(scene.before)
    said, listed = meaning(scene.dataset), dieselctl("ls", "-R", "-l", "--json", scene.dataset, check=0).stdout
    files = sorted(path for path in scene.dataset.rglob("*") if path.is_file())
    n = {"seen": 0, "without meaning": 0}
    for i in range(int(os.environ.get("DIESEL_ROUNDS", "120"))):
        path = files[i % len(files)]
        at = generator.randrange(path.stat().st_size)
        with open(path, "rb") as file:
            file.seek(at)
            byte = file.read(1)
        patched(path, at, bytes([byte[0] ^ 1 << generator.randrange(8)]))
        told = dieselctl("verify", scene.dataset)
        if told.returncode == 1 or told.stderr:
            n["seen"] += 1
        else:
            assert "chunk" not in path.suffix, f"{path.name}, byte {at}: not seen"
            assert content(scene.dataset) == scene.old and meaning(scene.dataset) == said, f"{path.name}, byte {at}: not seen"
            assert dieselctl("ls", "-R", "-l", "--json", scene.dataset, check=0).stdout == listed, f"{path.name}, byte {at}: not seen"
            n["without meaning"] += 1
        patched(path, at, byte)
    print(n)
    assert n["seen"] > n["without meaning"]


def main():
    with tempfile.TemporaryDirectory(prefix="diesel-verbs-", dir=memory()) as root:
        globals()[f"test_{sys.argv[1]}"](pathlib.Path(root))


main()
