#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests snapshots of earlier versions: how many are kept, when they are removed, and that they equal the published ones.

    test_kept.py folder|redis|bucket
"""
import os
import re
import shutil
import subprocess

from engines import SCRATCH, SOURCE, running, s3_support, write
from test_versions import content

NOW = ("--keep", "1", "--older-than", "0")


def objects(engine, folder):
    """Returns the bucket's own list."""
    done = subprocess.run(["curl", "-s", "-f", "--aws-sigv4", "aws:amz:us-east-1:s3", "--user",
                           f"{s3_support.KEY_ID}:{s3_support.SECRET}",
                           f"http://127.0.0.1:{engine.proxy.upstream}/bucket?list-type=2&prefix={engine.dataset[12:]}%2F{folder}%2F"],
                          capture_output=True, text=True, check=True)
    return re.findall(r"<Key>([^<]*)</Key>", done.stdout)


def n_kept(engine):
    if engine.dataset.startswith("s3://"):
        return sum(key.endswith(".snapshot") for key in objects(engine, "data"))
    return len(os.listdir(engine.dataset + "/snapshots"))


def without_metadata(engine, version):
    """Returns the content by the kept snapshot, without metadata, or an error where no snapshot is kept."""
    away = []
    for name in () if engine.dataset.startswith("s3://") else ("meta.db", "meta.redis"):
        if os.path.exists(f"{engine.dataset}/{name}"):
            os.rename(f"{engine.dataset}/{name}", f"{SCRATCH}/{name}.away")
            away.append(name)
    env, engine.env = engine.env, dict(engine.env, TMPDIR="/nowhere")  # a version would be rebuilt in this folder
    try:
        return content(engine, "--version", str(version))
    finally:
        engine.env = env
        for name in away:
            os.rename(f"{SCRATCH}/{name}.away", f"{engine.dataset}/{name}")


def fill(engine, name, n=8):
    """Packs version 1 with n samples; each later version has one less. Returns the states, by version."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    for i in range(n):
        write(f"c{i % 2}/{i}", b"%d" % i * (i + 1))
    engine.new(name).pack()
    return {1: content(engine)}


def remove(engine, states, *words):
    path = min(states[max(states)])
    engine.ctl("rm", *words, engine.dataset, path)
    states[max(states) + 1] = {p: data for p, data in states[max(states)].items() if p != path}


def test_how_many(engine):
    states = fill(engine, "many")
    for _ in range(5):
        remove(engine, states)
    assert max(states) == 6 and n_kept(engine) == 4
    in_bucket = engine.dataset.startswith("s3://")
    for version in (3,) if in_bucket else (3, 4, 5, 6):
        assert without_metadata(engine, version) == states[version], version
    for version in (1,) if in_bucket else (1, 2):  # rebuilt from the heads of their chunks
        assert content(engine, "--version", str(version)) == states[version], version
    if in_bucket:
        assert sum(key.endswith(".meta") for key in objects(engine, "data")) == 2
        assert len(objects(engine, "versions")) == 7
    else:
        assert engine.json("stat", engine.dataset)["snapshots"] == [3, 4, 5, 6]
        assert "snapshots 3, 4, 5, 6: jobs can open these versions\n" in engine.ctl("stat", engine.dataset)
        newest = os.stat(engine.dataset + "/snapshot")
        assert os.path.samestat(newest, os.stat(engine.dataset + "/snapshots/6")) and newest.st_nlink == 2
    if in_bucket:
        assert "cannot be rebuilt" in engine.ctl("snapshot", "--version", "2", engine.dataset, fails=True)
    else:
        told = engine.json("snapshot", "--version", "2", engine.dataset)
        assert (told["version"], told["samples"]) == (2, 7) and n_kept(engine) == 5, told
        assert without_metadata(engine, 2) == states[2]
        assert engine.json("snapshot", "--version", "6", engine.dataset)["version"] == 6
        assert not [name for name in os.listdir(engine.dataset) if name.endswith(".tmp")]
        os.remove(engine.dataset + "/snapshots/2")
    remove(engine, states, "--keep-snapshots", "7")
    assert n_kept(engine) == 5
    remove(engine, states, "--keep-snapshots", "2")
    assert n_kept(engine) == 2 and without_metadata(engine, 7) == states[7]
    text = engine.ctl("ls", "--version", "99", engine.dataset, fails=True)
    assert "no version 99: its newest version is 8" in text, text
    return states


def test_purge(engine, states):
    """A purge removes the snapshots of versions that it makes unreadable, and keeps the others."""
    shutil.rmtree(SOURCE)
    write("c9/new", b"new")
    engine.pack("--append")
    states[9] = {**states[8], "c9/new": "new"}
    done = engine.json("purge", "--keep", "2", "--older-than", "0", engine.dataset)
    assert done["version"] == 10 and done["oldest"] == 9, done
    states[10] = states[9]
    assert n_kept(engine) == 2
    for version in (9, 10):
        assert without_metadata(engine, version) == states[version], version
    for words in (("ls",), *([("snapshot",)] if "://" not in engine.dataset else [])):
        text = engine.ctl(*words, "--version", "8", engine.dataset, fails=True)
        assert "cannot be read any more: the oldest readable version is 9" in text, (words, text)
    remove(engine, states)
    done = engine.json("purge", *NOW, engine.dataset)
    assert done["oldest"] == done["version"] == 12 and n_kept(engine) == 1, done
    assert content(engine) == states[11]
    engine.ctl("rebuild", engine.dataset)
    assert n_kept(engine) == 1 and content(engine) == states[11]


def test_folder(engine):
    """Tests cases that exist only in folders: foreign files stay, lost ones come back, and a folder without hard links has the newest
    one."""
    states = fill(engine, "folder")
    remove(engine, states)
    write_here(engine, "snapshots/notes.txt")
    write_here(engine, "snapshots/007")
    shutil.copy(engine.dataset + "/snapshot", engine.dataset + "/snapshots/77")  # the snapshot of a version that does not exist
    remove(engine, states)
    assert sorted(os.listdir(engine.dataset + "/snapshots")) == ["007", "1", "2", "3", "notes.txt"]
    # Everything except chunks and kept snapshots is lost: no version number is used twice.
    shutil.copytree(engine.dataset, engine.dataset + ".lost")
    for name in ("meta.db", "snapshot"):
        os.remove(f"{engine.dataset}.lost/{name}")
    assert "rebuilt version 4: " in engine.ctl("rebuild", engine.dataset + ".lost")
    assert sorted(os.listdir(engine.dataset + ".lost/snapshots")) == ["007", "4", "notes.txt"]
    shutil.rmtree(engine.dataset + "/snapshots")
    engine.ctl("snapshot", engine.dataset)
    assert os.listdir(engine.dataset + "/snapshots") == ["3"]
    shutil.copy(engine.dataset + "/snapshot", engine.dataset + "/snapshots/2")
    text = engine.ctl("ls", "--version", "2", engine.dataset, fails=True)
    assert "/snapshots/2 does not hold the snapshot of the version in its name: remove the file" in text, text
    os.remove(engine.dataset + "/snapshots/2")
    assert content(engine, "--version", "2") == states[2]
    shim = os.environ.get("DIESEL_LIB", "") + "/libfailk.so"
    if os.path.exists(shim):
        env, engine.env = engine.env, dict(engine.env, LD_PRELOAD=shim, FAILK_KIND="link", FAILK="1", FAILK_FROM="1", FAILK_ERRNO="1")
        remove(engine, states)
        engine.env = env
        assert os.listdir(engine.dataset + "/snapshots") == ["3"]
        assert content(engine) == states[4] == content(engine, "--version", "4")
    os.chmod(engine.dataset + "/snapshots", 0o755)
    assert "--keep-snapshots 0" in usage(engine, "rm", "--keep-snapshots", "0", engine.dataset, "c0/0")


def test_frozen(engine):
    """The snapshots suffice for reading. Nothing is changed before a rebuild."""
    states = fill(engine, "frozen")
    remove(engine, states)
    assert engine.ctl("snapshot", "--frozen", engine.dataset) == "frozen at version 2: 7 samples in 1 chunk\n"
    check_frozen(engine, states)
    again = engine.json("snapshot", "--frozen", engine.dataset)
    assert again == {"schema": "diesel.snapshot/1", "version": 2, "samples": 7, "chunks": 1, "frozen": True}, again
    # Kills a freeze before it has removed the metadata.
    write_here(engine, "meta.db")
    assert "is frozen" in engine.ctl("rm", engine.dataset, "c1/1", fails=True)
    engine.ctl("snapshot", "--frozen", engine.dataset)
    check_frozen(engine, states)
    engine.ctl("rebuild", engine.dataset)
    told = engine.json("stat", engine.dataset)
    assert (told["version"], told["frozen"]) == (3, False) and "frozen" not in os.listdir(engine.dataset), told
    assert content(engine) == states[2]
    states[3] = states[2]
    remove(engine, states)
    assert engine.json("log", engine.dataset)["version"] == 4 and content(engine) == states[4]
    assert engine.ctl("verify", engine.dataset).startswith("sound:")


def check_frozen(engine, states):
    before = sorted(os.listdir(engine.dataset))
    assert before == ["chunks", "frozen", "snapshot", "snapshots"], before
    assert content(engine) == states[2] and content(engine, "--version", "1") == states[1]
    for version in ((), ("--version", "1"), ("--version", "2")):
        assert engine.ctl("verify", *version, engine.dataset).startswith("sound: 1 chunk, 8 samples"), version
    assert engine.json("diff", engine.dataset, "1")["deleted"] == 1
    assert "metadata  none, because the dataset is frozen" in engine.ctl("stat", engine.dataset)
    for words in (("rm", engine.dataset, "c1/1"), ("pack", "--append", SOURCE, engine.dataset), ("purge", engine.dataset),
                  ("snapshot", engine.dataset), ("log", engine.dataset),
                  ("verify", "--repair", engine.dataset), ("ls", "--meta", engine.dataset), ("ls", "--version", "9", engine.dataset)):
        text = engine.ctl(*words, fails=True)
        assert "is frozen (it has a snapshot but no metadata)" in text and "dieselctl rebuild" in text, (words, text)
    assert sorted(os.listdir(engine.dataset)) == before


def test_frozen_killed(engine):
    """Fails every third call: the content stays, the dataset is frozen or not, and a rebuild restores it."""
    shim = os.environ.get("DIESEL_LIB", "") + "/libfailk.so"
    if not os.path.exists(shim):
        return
    fill(engine, "before", n=4)
    write("c0/more", b"more")
    engine.pack("--append")
    state, before, seen = content(engine), engine.dataset, set()
    for verb in (("snapshot", "--frozen"), ("rebuild",)):
        for k in range(1, 200, 3):
            engine.new("killed")
            shutil.rmtree(engine.dataset, ignore_errors=True)
            shutil.copytree(before, engine.dataset)
            if verb[0] == "rebuild":
                engine.ctl("snapshot", "--frozen", engine.dataset)
            process = subprocess.run([s3_support.DIESELCTL, *verb, engine.dataset], capture_output=True, check=False,
                                     env=dict(engine.env, LD_PRELOAD=shim, FAILK=str(k), FAILK_ERRNO="0"))
            assert content(engine) == state, (verb, k)
            seen.add((verb[0], process.returncode, engine.json("stat", engine.dataset)["frozen"]))
            if process.returncode == 0:
                break
            engine.ctl(*verb, engine.dataset)
            assert content(engine) == state and engine.json("stat", engine.dataset)["frozen"] == (verb[0] == "snapshot"), (verb, k)
            if k % 5 == 1:
                engine.ctl("rebuild", engine.dataset)
                engine.ctl("rm", engine.dataset, "c0/more")
                assert engine.ctl("verify", engine.dataset).startswith("sound:")
        assert process.returncode == 0 and k > 10, (verb, process)
    assert {("snapshot", -9, True), ("snapshot", -9, False), ("rebuild", -9, True)} <= seen, seen


def usage(engine, *words):
    done = subprocess.run([s3_support.DIESELCTL, *words], env=engine.env, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done
    return done.stderr


def write_here(engine, name):
    with open(f"{engine.dataset}/{name}", "wb") as file:
        file.write(b"somebody's")


def main():
    with running() as (engine, name):
        test_purge(engine, test_how_many(engine))
        if name == "bucket":
            assert "need nothing but the snapshot" in engine.ctl("snapshot", "--frozen", engine.dataset, fails=True)
        else:
            test_frozen(engine)
        if name == "folder":
            test_folder(engine)
            test_frozen_killed(engine)


if __name__ == "__main__":
    main()
