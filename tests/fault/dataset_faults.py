#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A failing disk, a full disk, a kill and bad input harm no dataset. No data is lost, the next command continues, and each
failure gives one clear line.

usage: dataset_faults.py kth | crash | full | limit | refuse
"""
import fcntl
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
import types

from common.memory import memory
from dataset_support import DIESELCTL, content, dieselctl, failing, files_of, make_source, one_line, patched, skip, stray_files


class Scene:
    """Makes a dataset of version 1, and a source whose pack makes version 2."""

    def __init__(self, root, *options):
        self.root = root
        self.source = root / "src"
        make_source(self.source, 4, 1_500_000, 1)
        self.before = root / "before"
        dieselctl("pack", "--chunk-size", "4M", *options, self.source, self.before, check=0)
        self.old = files_of(self.source)
        make_source(self.source / "added", 5, 1_500_000, 2)
        (self.source / "class0" / "0.bin").write_bytes(b"replaced")
        self.new = files_of(self.source)
        self.dataset = root / "ds"

    def reset(self):
        shutil.rmtree(self.dataset, ignore_errors=True)
        shutil.copytree(self.before, self.dataset)

    def pack(self, **kwargs):
        return dieselctl("pack", "--append", "--chunk-size", "4M", self.source, self.dataset, **kwargs)

    def check_unharmed(self, where):
        """Asserts that the dataset is as before or as after, nothing in between, and that the next pack completes it and cleans up."""
        state = content(self.dataset)
        assert state in (self.old, self.new), f"{where}: neither the old nor the new version"
        check_kept(self.dataset, {1: self.old, 2: self.new}, where)
        verified = dieselctl("verify", self.dataset)
        assert verified.returncode == 0, f"{where}: {verified.stdout}{verified.stderr}"
        self.pack(check=0)
        assert content(self.dataset) == self.new, f"{where}: not completed"
        verified = dieselctl("verify", self.dataset, check=0)
        assert verified.stderr == "", f"{where}: {verified.stderr}"
        assert not stray_files(self.dataset), f"{where}: {stray_files(self.dataset)}"
        assert check_kept(self.dataset, {1: self.old, 2: self.new}, where) == [1, 2], where


KNOWN = set()  # snapshots with the expected contents


def check_kept(dataset, states, where):
    """Returns the versions whose snapshots are kept. Each was published, and still has the contents that it had then."""
    folder = dataset / "snapshots"
    kept = sorted(int(p.name) for p in folder.iterdir() if p.name != ".tmp") if folder.exists() else []
    for version in kept:
        data = (folder / str(version)).read_bytes()
        if data in KNOWN or data == (dataset / "snapshot").read_bytes():  # checked already
            continue
        assert content(dataset, "--version", version) == states[version], f"{where}: version {version}"
        KNOWN.add(data)
    return kept


def run_to_call(scene, k, error, stay=False):
    """Returns (result, whether call k was made) of a pack whose k-th call fails."""
    return failing(scene.pack, k, error, stay)


def test_kth(root):
    scene = Scene(root)
    for error, stay in ((5, False), (28, True)):  # EIO once; ENOSPC from then on
        n_failed = 0
        for k in range(1, 1000):
            scene.reset()
            done, reached = run_to_call(scene, k, error, stay)
            if not reached:
                assert done.returncode == 0, done.stderr
                break
            if done.returncode != 0:
                n_failed += 1
                assert done.returncode == 1, f"call {k}: {done.returncode}"
                one_line(done, "dieselctl pack: ")
            scene.check_unharmed(f"errno {error}, call {k}: {done.stderr.strip()}")
        print(f"errno {error}{' from then on' if stay else ''}: {k - 1} calls, {n_failed} told as failures")
        assert k > 20 and n_failed > 10, "the shim does not work"


def test_crash(root):
    scene = Scene(root, "--digest", "sha256")  # verified by check_unharmed()
    for k in range(1, 1000):
        scene.reset()
        done, reached = run_to_call(scene, k, 0)
        if not reached:
            assert done.returncode == 0, done.stderr
            break
        assert done.returncode == -signal.SIGKILL
        scene.check_unharmed(f"killed at call {k}")
    print(f"killed at each of {k - 1} calls")
    assert k > 20, "the shim does not work"
    # Then at random times, without the shim.
    for i in range(10):
        scene.reset()
        process = subprocess.Popen([DIESELCTL, "pack", "--append", "--chunk-size", "4M", scene.source, scene.dataset],
                                   stdout=subprocess.DEVNULL)
        time.sleep(0.004 * i)
        process.kill()
        process.wait()
        scene.check_unharmed(f"killed after {4 * i} ms")


def test_full(root):
    """Packs into a tmpfs whose size grows from too small for anything to large enough."""
    if os.geteuid() != 0:
        skip("needs root to mount a small tmpfs (dataset_faults.py limit runs without)")
    scene = Scene(root)
    mount = root / "disk"
    mount.mkdir()
    n_full = 0
    for kib in list(range(64, 6144 + 64, 2048)) + list(range(6200, 40000, 1500)):
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kib}k", "none", mount], capture_output=True)
        if done.returncode != 0:
            skip("cannot mount a tmpfs: " + done.stderr.decode().strip())
        try:
            try:
                shutil.copytree(scene.before, mount / "ds")
            except (OSError, shutil.Error):
                continue
            scene.dataset = mount / "ds"
            packed = scene.pack()
            if packed.returncode == 0:
                assert content(scene.dataset) == scene.new
                break
            n_full += 1
            one_line(packed, "No space left on device", "unchanged")
            assert content(scene.dataset) == scene.old, f"{kib} KiB"
            dieselctl("verify", scene.dataset, check=0)
            # With more space, the same command continues.
            subprocess.run(["mount", "-o", "remount,size=64m", mount], check=True)
            scene.check_unharmed(f"{kib} KiB")
        finally:
            subprocess.run(["umount", mount], check=True)
    assert n_full > 2, "never full"
    print(f"{n_full} sizes too small")


def test_limit(root):
    """With RLIMIT_FSIZE, the kernel cuts short the write that crosses the limit."""
    scene = Scene(root)
    for limit in (0, 1, 4096, 100_000, 1_400_000, 3_000_000):
        scene.reset()
        done = scene.pack(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        assert done.returncode == 1, (limit, done.stderr)
        one_line(done, "File too large")
        assert content(scene.dataset) == scene.old
        scene.check_unharmed(f"limit {limit}")


def as_nobody():
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)


def test_refuse(root):
    source, dataset = root / "src", root / "ds"
    one_line(dieselctl("pack", root / "none", dataset, check=1), "none", "No such file")
    assert not dataset.exists()
    source.mkdir()
    one_line(dieselctl("pack", source, dataset, check=1), "no files")
    make_source(source, 6, 1000, 3)
    one_line(dieselctl("ls", dataset, check=1), "dieselctl pack")
    for verb in ("cat", "rm"):
        one_line(dieselctl(verb, dataset, "x", check=1), "dieselctl pack")
    for verb in ("stat", "verify", "snapshot", "rebuild"):
        refused = dieselctl(verb, dataset, check=1)
        one_line(refused, str(dataset))
        assert "sound" not in refused.stdout, refused.stdout
    for args in ((), ("nosuch",), ("pack",), ("pack", source), ("ls",), ("ls", "-Q", dataset), ("verify", dataset, "x"),
                 ("pack", "--order", "odd", source, dataset), ("pack", "-j", "0", source, dataset),
                 ("pack", "--digest", "md5", source, dataset), ("rebuild", "--digest", "md5", dataset),
                 ("pack", "--zstd", "20", source, dataset), ("pack", "--zstd", "x", source, dataset),
                 ("pack", "--chunk-size", "1M", source, dataset), ("pack", "--seed", "x", source, dataset)):
        assert dieselctl(*args).returncode == 2, args
    for verb in ("pack", "ls", "cat", "stat", "verify", "snapshot", "rebuild", "rm", "status"):
        assert f"usage: dieselctl {verb} " in dieselctl(verb, "--help", check=0).stdout
    dieselctl("pack", source, dataset, check=0)
    one_line(dieselctl("pack", source, dataset, check=1), "--append")
    one_line(dieselctl("cat", dataset, "class0", check=1), "class0")
    one_line(dieselctl("rm", dataset, "class9/x", check=1), "class9/x", "nothing was removed")
    one_line(dieselctl("ls", dataset, "bad\nname\x1b[2J", check=1), "bad\\x0aname\\x1b[2J")
    (root / "other").mkdir()
    (root / "other" / "letter.txt").write_text("mine")
    one_line(dieselctl("pack", source, root / "other", check=1), "not empty")
    assert list((root / "other").iterdir()) == [root / "other" / "letter.txt"]
    refuse_truncation_while_reading(root)
    refuse_damage(root, source, dataset)
    refuse_permissions(root, source)


def refuse_truncation_while_reading(root):
    """A snapshot that is truncated while it is mapped gives an error line, not a bus error."""
    source, dataset = root / "many", root / "many.diesel"
    make_source(source, 2000, 1, 5)
    dieselctl("pack", source, dataset, check=0)
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    lister = subprocess.Popen([DIESELCTL, "ls", "-R", dataset], stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    with open(read, "rb", buffering=0) as pipe:
        assert pipe.read(1)  # the rest exceeds the space in between, so the process waits for the test
        os.truncate(dataset / "snapshot", 4096)
        while pipe.read(4096):
            pass
    one_line(types.SimpleNamespace(stderr=lister.communicate()[1]), str(dataset / "snapshot"), "truncated")
    assert lister.returncode == 1, lister.returncode


def refuse_damage(root, source, dataset):
    """Newer versions, flipped bits and truncated files are named, never served, and repaired if possible."""
    broken = root / "broken"

    def fresh():
        shutil.rmtree(broken, ignore_errors=True)
        shutil.copytree(dataset, broken)
        return next((broken / "chunks").iterdir())

    fresh()
    patched(broken / "snapshot", 8, struct.pack("<I", 6))
    one_line(dieselctl("ls", broken, check=1), "format 6", "update")
    fresh()
    patched(broken / "snapshot", 300, b"\xff")
    one_line(dieselctl("ls", broken, check=1), "damaged", "dieselctl snapshot")
    assert "dieselctl snapshot" in dieselctl("verify", broken, check=1).stdout
    dieselctl("snapshot", broken, check=0)
    dieselctl("verify", broken, check=0)
    fresh()
    os.truncate(broken / "snapshot", 900)
    one_line(dieselctl("stat", broken, check=1), "truncated")
    chunk = fresh()
    patched(chunk, 8, struct.pack("<I", 9))
    assert "version 9" in dieselctl("verify", broken, check=1).stdout
    one_line(dieselctl("rebuild", broken, check=1), "version 9", "update")
    chunk = fresh()
    patched(chunk, 4096 + 20, b"\xff\xfe\xfd")  # the first sample's bytes
    told = dieselctl("verify", broken, check=1).stdout
    assert chunk.name in told and "class" in told and "at byte 4096" in told, told
    damage = json.loads(dieselctl("verify", "--json", broken, check=1).stdout)["damages"]
    assert len(damage) == 1 and damage[0]["chunk"] == chunk.stem and damage[0]["offset"] == 4096
    one_line(dieselctl("cat", broken, damage[0]["path"], check=1), chunk.name, damage[0]["path"])
    chunk = fresh()
    os.truncate(chunk, 5000)
    assert "truncated" in dieselctl("verify", broken, check=1).stdout
    assert "left out" in dieselctl("rebuild", broken, check=1).stdout
    chunk = fresh()
    chunk.unlink()
    assert "missing" in dieselctl("verify", broken, check=1).stdout
    fresh()
    database = sqlite3.connect(broken / "meta.db")
    database.execute("PRAGMA user_version = 7")
    database.close()
    one_line(dieselctl("pack", "--append", source, broken, check=1), "version 7", "update")
    fresh()
    database = sqlite3.connect(broken / "meta.db")
    database.execute("DELETE FROM path WHERE path LIKE 'class0/%'")
    database.commit()
    database.close()
    assert "dieselctl rebuild" in dieselctl("verify", broken, check=1).stdout
    dieselctl("rebuild", broken, check=0)
    dieselctl("verify", broken, check=0)
    assert content(broken) == content(dataset)


    # Damages any page of the metadata, which is rebuilt from the chunks.
    n_pages = (dataset / "meta.db").stat().st_size // 4096
    for page in range(n_pages):
        fresh()
        patched(broken / "meta.db", 4096 * page, random.Random(page).randbytes(4096))
        dieselctl("rebuild", broken, check=0)
        assert dieselctl("verify", broken, check=0).stderr == ""
        assert content(broken) == content(dataset)
        assert (broken / "meta.db.damaged").exists()


def refuse_permissions(root, source):
    if os.geteuid() != 0:
        print("not root: what another user's files do is not tried")
        return
    # A folder that an unprivileged user can reach, with a program that this user may run.
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        program, closed, target = (pathlib.Path(place) / name for name in ("dieselctl", "closed", "target"))
        shutil.copy(DIESELCTL, program)
        shutil.copytree(source, closed)
        os.chmod(closed / "class0" / "0.bin", 0)
        target.mkdir()
        os.chmod(target, 0o777)

        def run(*args):
            return subprocess.run([program, *map(str, args)], capture_output=True, text=True, preexec_fn=as_nobody)

        done = run("pack", closed, target / "ds")
        assert done.returncode == 1, done
        one_line(done, "class0/0.bin", "Permission denied")
        done = run("pack", "--skip-unreadable", closed, target / "ds")
        assert done.returncode == 0, done.stderr
        assert "1 unreadable" in done.stdout and "class0/0.bin" in done.stderr
        done = run("pack", closed, pathlib.Path(place) / "ds")
        assert done.returncode == 1
        one_line(done, "Permission denied")
        os.chmod(target / "ds" / "snapshot", 0)
        os.chown(target / "ds" / "snapshot", 0, 0)
        done = run("ls", target / "ds")
        assert done.returncode == 1
        one_line(done, "snapshot", "Permission denied")


def main():
    name = sys.argv[1]
    with tempfile.TemporaryDirectory(prefix="diesel-fault-", dir=memory()) as root:
        globals()[f"test_{name}"](pathlib.Path(root))


main()
