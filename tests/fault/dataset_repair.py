#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""dieselctl verify --repair restores chunks bit for bit, from a replica, from the files, or from both. Chunks that
cannot be repaired are named and stay as they are.

usage: dataset_repair.py damage | refuse
"""
import fcntl
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile

from common.memory import memory
from dataset_support import content, dieselctl, failing, files_of, make_source, one_line, patched, skip, stray_files


class Scene:
    """Makes a dataset of several chunks with replaced and removed samples, its replica, and its source files."""

    def __init__(self, root, *options, n_bytes=200_000):
        self.source, self.replica, self.dataset = root / "src", root / "replica", root / "ds"
        make_source(self.source, 41, n_bytes, 7)
        dieselctl("pack", "--chunk-size", "4M", *options, self.source, self.replica, check=0)
        (self.source / "class0" / "0.bin").write_bytes(b"replaced")
        dieselctl("pack", "--append", "--chunk-size", "4M", self.source, self.replica, check=0)
        dieselctl("rm", self.replica, "class1/1.bin", check=0)
        self.chunks = {path.name: path.read_bytes() for path in sorted((self.replica / "chunks").iterdir())}
        self.names = list(self.chunks)  # in id order, so a tombstone is the last
        # If the metadata knows all samples of a chunk, the chunk is restored without a replica, including its head.
        self.all_live = next(i for i, data in enumerate(self.chunks.values())
                             if b"class0/0.bin" not in data and b"class1/1.bin" not in data)
        assert len(self.names) >= 4
        self.content = content(self.replica)

    def reset(self):
        shutil.rmtree(self.dataset, ignore_errors=True)
        shutil.copytree(self.replica, self.dataset)

    def chunk(self, number):
        return self.dataset / "chunks" / self.names[number]

    def repair(self, *options, check=None, **kwargs):
        return dieselctl("verify", "--repair", *options, self.dataset, check=check, **kwargs)

    def check_whole(self, where):
        now = {path.name: path.read_bytes() for path in (self.dataset / "chunks").iterdir()}
        assert now == self.chunks, f"{where}: {[name for name in self.chunks if now.get(name) != self.chunks[name]]}"
        verified = dieselctl("verify", self.dataset, check=0)
        assert verified.stderr == "", f"{where}: {verified.stderr}"
        assert content(self.dataset) == self.content, where
        assert "pending" not in dieselctl("stat", self.dataset, check=0).stdout, where
        assert not stray_files(self.dataset), where


def first_sample(data):
    """Returns (offset, length) of a chunk's first sample."""
    return int.from_bytes(data[128:136], "little"), int.from_bytes(data[136:140], "little")


def harms(scene):
    """Returns functions that damage a chunk, by name. Each takes the chunk's path."""
    def garbage(chunk):
        chunk.write_bytes(random.Random(1).randbytes(chunk.stat().st_size))

    def other(chunk):  # a complete chunk with another id
        shutil.copyfile(scene.replica / "chunks" / next(name for name in scene.names if name != chunk.name), chunk)

    return {
        "sample": lambda chunk: patched(chunk, first_sample(chunk.read_bytes())[0], b"\xff\x00\xff"),
        "head": lambda chunk: patched(chunk, 200, b"\xff\xfe"),
        "cut": lambda chunk: os.truncate(chunk, chunk.stat().st_size // 2 // 4096 * 4096),
        "empty": lambda chunk: os.truncate(chunk, 0),
        "longer": lambda chunk: os.truncate(chunk, chunk.stat().st_size + 4096),
        "missing": lambda chunk: chunk.unlink(),
        "garbage": garbage,
        "other": other,
    }


def test_damage(root):
    scene = Scene(root)
    for name, harm in harms(scene).items():
        for where, number in (("source", scene.all_live), ("replica", 0), ("replica", -1)):
            if number == -1 and name == "sample":
                continue  # a tombstone has none
            scene.reset()
            harm(scene.chunk(number))
            os.chmod(scene.dataset / "chunks", 0o750)
            places = {"source": ["--from", scene.source], "replica": ["--from", scene.replica]}[where]
            before = files_of(scene.dataset)
            told = scene.repair("--dry-run", *places, check=1).stdout
            assert "would" in told and scene.names[number] in told, told
            assert files_of(scene.dataset) == before, f"{name}: changed by --dry-run"
            done = scene.repair(*places, check=0)
            assert f"repaired {1}, not repaired 0" in done.stdout, done.stdout
            assert str(places[1]) in done.stdout or "head from the metadata, 0 of" in done.stdout or name == "longer", done.stdout
            scene.check_whole(f"{name} of chunk {number} from {where}")
    damage_twice(scene)
    damage_metadata(scene)
    damage_rewritten(root)


def damage_twice(scene):
    """Neither copy is complete, and the files have changed, but together they have everything."""
    scene.reset()
    other = scene.dataset.with_name("other")
    shutil.copytree(scene.replica, other)
    for name in scene.names[:2]:
        offset, _ = first_sample(scene.chunks[name])
        last = len(scene.chunks[name]) - 4096
        patched(scene.dataset / "chunks" / name, offset, b"\xff\x00\xff")
        patched(other / "chunks" / name, last, random.Random(2).randbytes(4096))
    told = json.loads(scene.repair("--json", "--from", other, check=0).stdout)
    assert told["repaired"] == 2 and told["unrepaired"] == 0 and len(told["damages"]) == 2, told
    assert all(entry["repaired"] and entry["replaced"] == 1 for entry in told["repairs"]), told
    scene.check_whole("two damaged copies")
    shutil.rmtree(other)


def damage_metadata(scene):
    for harm in ("snapshot", "snapshot gone", "metadata", "metadata gone", "both", "metadata and a chunk"):
        scene.reset()
        if "snapshot" in harm or harm == "both":
            patched(scene.dataset / "snapshot", 300, b"\xff\xfe\xfd")
        if "metadata" in harm or harm == "both":
            patched(scene.dataset / "meta.db", 0, bytes(100))
        if harm == "snapshot gone":
            (scene.dataset / "snapshot").unlink()
        if harm == "metadata gone":
            (scene.dataset / "meta.db").unlink()
        if "chunk" in harm:
            scene.chunk(1).unlink()
            left = scene.repair(check=1).stdout  # without a source for the repair, nothing is made
            assert "dieselctl rebuild" in left and scene.names[1] in left, left
        scene.repair("--from", scene.replica, check=0)
        scene.check_whole(harm)


def damage_rewritten(root):
    """Files that pack rewrote before it stored them are rewritten again for the repair."""
    pictures = next(pathlib.Path("/usr/share/backgrounds").rglob("*.jpg"), None)
    if not pictures:
        print("no JPEG file here: rewritten files are not tried")
        return
    place = root / "rewritten"
    source, dataset = place / "src", place / "ds"
    source.mkdir(parents=True)
    shutil.copy(pictures, source / "a.jpg")
    shutil.copy(pictures, source / "b.jpg")
    dieselctl("pack", "--jpeg-restarts", "--digest", "sha256", source, dataset, check=0)
    chunk = next((dataset / "chunks").iterdir())
    data = chunk.read_bytes()
    for harm in (lambda: patched(chunk, first_sample(data)[0] + 100, bytes(50)), chunk.unlink):
        harm()
        dieselctl("verify", "--repair", "--from", source, dataset, check=0)
        assert chunk.read_bytes() == data


def test_refuse(root):
    scene = Scene(root, "--digest", "sha256", n_bytes=200_000)
    scene.reset()
    assert "sound" in scene.repair(check=0).stdout
    for args in (("verify", "--from", scene.replica, scene.dataset), ("verify", "--dry-run", scene.dataset),
                 ("verify", "--repair", "--from"), ("verify", "--repair")):
        assert dieselctl(*args).returncode == 2, args
    one_line(scene.repair("--from", root / "nothing", check=1), "nothing", "No such file")
    refuse_changed_source(scene)
    refuse_wrong_digest(scene)
    refuse_another_writer(scene)
    keep_owner_and_mode(scene)
    fail_each_call(scene)
    full_disk(root, scene)


def refuse_changed_source(scene):
    """A changed file is not used as the sample, even if its size is equal. Unchanged files still restore theirs."""
    scene.reset()
    changed = root_copy = scene.dataset.with_name("changed")
    shutil.copytree(scene.source, root_copy)
    chunk = scene.chunk(0)
    offset, length = first_sample(scene.chunks[chunk.name])
    patched(chunk, offset, b"\xff\x00\xff")
    before = chunk.read_bytes()
    damage = json.loads(dieselctl("verify", "--json", scene.dataset, check=1).stdout)["damages"]
    path = next(entry["path"] for entry in damage if "path" in entry)
    (changed / path).write_bytes(bytes(length))
    told = scene.repair("--from", changed, check=1).stdout
    assert f"no intact copy of sample '{path}'" in told and "repaired 0, not repaired 1" in told, told
    told = json.loads(scene.repair("--json", "--from", changed, check=1).stdout)
    assert [entry["path"] for entry in told["repairs"] if "path" in entry] == [path] and told["unrepaired"] == 1, told
    (changed / path).unlink()
    scene.repair("--from", changed, check=1)
    (changed / path).mkdir()
    scene.repair("--from", changed, check=1)
    assert chunk.read_bytes() == before
    scene.repair("--from", changed, "--from", scene.source, check=0)
    scene.check_whole("the second of two sources")
    shutil.rmtree(changed)


def refuse_wrong_digest(scene):
    """A user who can write to a replica cannot insert other samples, because metadata and digest identify the chunk."""
    scene.reset()
    forged = scene.dataset.with_name("forged")
    other = scene.dataset.with_name("forged_source")
    shutil.copytree(scene.source, other)
    for file in other.rglob("*.bin"):
        file.write_bytes(bytes(file.stat().st_size))
    dieselctl("pack", "--chunk-size", "4M", other, forged, check=0)
    made = sorted((forged / "chunks").iterdir())[0]
    made.rename(forged / "chunks" / scene.names[0])  # with another id inside
    scene.chunk(0).unlink()
    told = scene.repair("--from", forged, check=1).stdout
    assert scene.names[0] in told and "not repaired 1" in told and not scene.chunk(0).exists(), told
    # The gaps, which only the digest covers, not a checksum.
    scene.reset()
    patched(scene.chunk(0), 4096 - 8, b"\1")
    if scene.chunk(0).read_bytes() != scene.chunks[scene.names[0]]:
        dieselctl("verify", scene.dataset, check=1)
        scene.repair("--from", scene.replica, check=0)
        scene.check_whole("gaps")
    shutil.rmtree(forged)
    shutil.rmtree(other)


def refuse_another_writer(scene):
    scene.reset()
    scene.chunk(0).unlink()
    with open(scene.dataset / ".writer", "w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
        done = scene.repair("--from", scene.replica, check=1)
        one_line(done, "another dieselctl")
        assert not scene.chunk(0).exists()


def keep_owner_and_mode(scene):
    scene.reset()
    patched(scene.chunk(0), 200, b"\xff\xfe")
    os.chmod(scene.chunk(0), 0o640)
    if os.geteuid() == 0:
        os.chown(scene.chunk(0), 1234, 1235)
    before = scene.chunk(0).stat()
    scene.repair("--from", scene.replica, check=0)
    after = scene.chunk(0).stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)


def fail_each_call(scene):
    """Fails the disk, fills it, kills the process, or fails or cuts short a read: at each call, in the suite only at some calls."""
    gone = scene.all_live
    cut = 0 if gone else 1
    for error, kind, stay in ((5, "change", False), (28, "change", True), (0, "change", False), (5, "read", False),
                              (1, "short", False)):
        k = n = 0
        while True:
            k += 1 if k < 6 or os.environ.get("DIESEL_ALL_CALLS") else 11
            scene.reset()
            patched(scene.chunk(cut), first_sample(scene.chunks[scene.names[cut]])[0], b"\xff\x00\xff")
            scene.chunk(gone).unlink()
            done, reached = failing(lambda **more: scene.repair("--from", scene.source, **more), k, error, stay, kind)
            n += 1
            if not reached:
                assert done.returncode == 0, done.stderr
                break
            where = f"errno {error}, {kind}, call {k}: {done.stderr}{done.stdout}"
            assert done.returncode == (-signal.SIGKILL if error == 0 else done.returncode) and done.returncode in (0, 1, -9), where
            assert kind != "short" or done.returncode == 0, where
            now = {path.name: path.read_bytes() for path in (scene.dataset / "chunks").glob("*.chunk")}
            for i, name in enumerate(scene.names):
                assert now.get(name) == scene.chunks[name] or i in (cut, gone), where
            assert now.get(scene.names[gone]) in (None, scene.chunks[scene.names[gone]]), where
            assert len(now[scene.names[cut]]) == len(scene.chunks[scene.names[cut]]), where
            scene.repair("--from", scene.source, check=0)
            dieselctl("verify", scene.dataset, check=0)
        print(f"errno {error}, {kind}: {n} calls of {k}")
        assert n > 5, "the shim does not work"


def full_disk(root, scene):
    if os.geteuid() != 0:
        print("not root: a full disk is not tried")
        return
    mount = root / "disk"
    mount.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", mount], capture_output=True).returncode != 0:
        print("no tmpfs can be mounted: a full disk is not tried")
        return
    try:
        scene.dataset = mount / "ds"
        scene.reset()
        patched(scene.chunk(0), 200, b"\xff\xfe")
        before = scene.chunk(0).read_bytes()
        usage = shutil.disk_usage(mount)
        with open(mount / "ballast", "wb") as ballast:
            os.posix_fallocate(ballast.fileno(), 0, usage.free - (1 << 20))
        told = scene.repair("--from", scene.replica, check=1).stdout
        assert "No space left on device" in told and "cannot be repaired" in told, told
        assert scene.chunk(0).read_bytes() == before and not stray_files(scene.dataset)
        (mount / "ballast").unlink()
        scene.repair("--from", scene.replica, check=0)
        scene.check_whole("after a full disk")
    finally:
        subprocess.run(["umount", mount], check=True)


def main():
    if not pathlib.Path(os.environ["DIESEL_LIB"], "libfailk.so").exists():
        skip("the failing calls are injected into plain builds only")
    with tempfile.TemporaryDirectory(prefix="diesel-repair-", dir=memory()) as root:
        globals()[f"test_{sys.argv[1]}"](pathlib.Path(root))


main()
