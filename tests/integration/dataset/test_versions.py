#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests a dataset's versions: their log, and reading old ones.

    test_versions.py folder|redis|bucket
"""
import getpass
import os
import socket
import sqlite3
import time

from engines import SCRATCH, SOURCE, running, write


def test_log(engine):
    for i in range(6):
        write(f"a/{i}", b"%d" % i * 1000)
    begin = time.time_ns()
    engine.new("log").pack()
    engine.ctl("rm", engine.dataset, "a/0", "a/1")
    write("a/2", b"other")
    write("b/new", b"new")
    engine.pack("--append")
    log = engine.json("log", engine.dataset)
    changes = log["changes"]
    assert log["version"] == 3 and [c["version"] for c in changes] == [3, 2, 1], log
    counts = [[c[key] for key in ("added", "replaced", "deleted", "samples")] for c in changes]
    assert counts == [[3, 1, 0, 7], [0, 0, 2, 4], [6, 0, 0, 6]], counts
    assert [c["bytes_written"] for c in changes] == [2008, 0, 6000], changes
    times = [c["time_ns"] for c in changes]
    assert begin < times[2] < times[1] < times[0] < time.time_ns()
    for change in changes:
        assert change["host"] == socket.gethostname()[:60] and change["user"] == getpass.getuser() and change["readable"], change
    assert changes[0]["command"].startswith("pack -c 4M") and changes[0]["command"].endswith(f"--append {SOURCE} {engine.dataset}")
    text = engine.ctl("log", engine.dataset)
    assert "3 added, 1 replaced, 0 deleted; samples: 7" in text and "not " not in text, text
    # Without a change, nothing is recorded. A rebuild knows neither its changes nor the content before.
    engine.pack("--append")
    assert engine.json("log", engine.dataset)["changes"] == changes
    engine.ctl("rebuild", engine.dataset)
    again = engine.json("log", engine.dataset)
    assert again["changes"][1:] == [dict(c, readable=False) for c in changes], again
    assert again["changes"][0]["added"] is None and again["changes"][0]["samples"] == 7 and again["changes"][0]["readable"]


def content(engine, *version):
    """Returns {path: bytes} of a version, by ls and cat."""
    entries, found, at = engine.json("ls", "-R", *version, engine.dataset), {}, 0
    data = engine.ctl("cat", *version, engine.dataset, *(entry["path"] for entry in entries))
    for entry in entries:
        found[entry["path"]] = data[at:at + entry["bytes"]]
        at += entry["bytes"]
    assert at == len(data)
    return found


def test_old_versions(engine):
    engine.new("versions")
    states = []
    for step in range(5):
        if step % 2 == 0:
            for i in range(step, step + 4):
                write(f"c{i % 2}/{i}", f"{step} of {i} ".encode() * (i + 1))
            engine.pack(*["--append"] * (step > 0), *["--digest", "sha256"] * (step == 0))
        else:
            engine.ctl("rm", engine.dataset, f"c{step % 2}/{step}")
        states.append(content(engine))
    assert len({str(state) for state in states}) == 5
    for version, state in enumerate(states, 1):
        assert content(engine, "--version", str(version)) == state, version
        told = engine.json("stat", "--version", str(version), engine.dataset)
        assert (told["version"], told["samples"]) == (version, len(state)) and told["digest"] == "sha256", told
    for a, b in ((1, 2), (2, 3), (1, 5), (5, 1), (4, 3), (3, 3)):
        told = engine.json("diff", engine.dataset, str(a), str(b))
        found = {(c["change"], c["path"]) for c in told["changes"]}
        old, new = states[a - 1], states[b - 1]
        assert found == ({("added", p) for p in new.keys() - old.keys()} | {("deleted", p) for p in old.keys() - new.keys()}
                         | {("changed", p) for p in old.keys() & new.keys() if old[p] != new[p]}), (a, b, told)
        assert sum(told[key] for key in ("added", "changed", "deleted")) == len(found)
    assert engine.ctl("diff", engine.dataset, "1", "2") == "- c1/1\n"
    assert "no version 9: its newest version is 5" in engine.ctl("ls", "--version", "9", engine.dataset, fails=True)
    assert not [name for name in os.listdir(engine.env["TMPDIR"]) if name.startswith("dieselctl-")]
    engine.ctl("rebuild", engine.dataset)
    text = engine.ctl("cat", "--version", "2", engine.dataset, "c0/2", fails=True)
    assert "cannot be read any more: the oldest readable version is 6" in text, text
    return states


def test_missing_chunk(engine):
    """A version is complete or an error, and never has less than before."""
    write("d/1", b"one")
    engine.new("missing").pack()
    engine.ctl("rm", "--keep-snapshots", "1", engine.dataset, "d/1")
    folder = engine.dataset + "/chunks"
    first = min(os.listdir(folder))
    os.rename(f"{folder}/{first}", SCRATCH + "/aside")
    text = engine.ctl("ls", "-R", "--version", "1", engine.dataset, fails=True)
    assert first in text and "needs all of its chunks" in text, text


def test_old_metadata(engine):
    """Tests metadata of a program that kept no log: the log begins with the next version, and shows that."""
    engine.new("old").pack()
    engine.ctl("rm", engine.dataset, "a/2")
    database = sqlite3.connect(engine.dataset + "/meta.db")
    database.execute("DROP TABLE log")
    database.commit()
    database.close()
    assert engine.ctl("log", engine.dataset) == "versions 1 to 2  not recorded\n"
    engine.ctl("rm", engine.dataset, "a/3")
    assert engine.ctl("log", engine.dataset).endswith("versions 1 to 2  not recorded\n")
    assert [c["version"] for c in engine.json("log", engine.dataset)["changes"]] == [3]
    # Another writer in between: its changes are unknown.
    engine.ctl("rm", engine.dataset, "a/4")
    database = sqlite3.connect(engine.dataset + "/meta.db")
    database.execute("DELETE FROM log WHERE version = 4")
    database.commit()
    engine.ctl("rm", engine.dataset, "a/5")
    log = engine.json("log", engine.dataset)
    assert [(c["version"], c["readable"]) for c in log["changes"]] == [(5, True), (3, False)], log
    assert "version 4  not recorded\n" in engine.ctl("log", engine.dataset)
    database.execute("UPDATE log SET entry = entry || 'more' WHERE version = 5")
    database.commit()
    database.close()
    assert "damaged" in engine.ctl("log", engine.dataset, fails=True)
    assert "there is no dataset" in engine.ctl("log", SCRATCH + "/none", fails=True)


def test_secrets(engine):
    engine.new("secret").ctl("pack", "--meta", engine.server.url("secret").replace("//", "//:@"), SOURCE, engine.dataset)
    assert engine.json("log", engine.dataset)["changes"][0]["command"] == f"pack --meta redis://... {SOURCE} {engine.dataset}"


def main():
    with running() as (engine, name):
        test_log(engine)
        test_old_versions(engine)
        if name == "folder":
            test_old_metadata(engine)
            test_missing_chunk(engine)
        if name == "redis":
            test_secrets(engine)


if __name__ == "__main__":
    main()
