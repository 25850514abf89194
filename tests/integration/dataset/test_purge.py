#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests dieselctl purge: readable content stays unchanged, unneeded chunks go, and a killed purge loses nothing.

    test_purge.py folder|redis|bucket
"""
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import time

from engines import SCRATCH, SOURCE, running, write
from test_versions import content

NOW = ("--keep", "1", "--older-than", "0")


def sound(engine):
    told = engine.ctl("verify", engine.dataset)
    assert told.startswith("sound:"), told


def fill(engine, name, n=60, bytes_each=150_000):
    """Packs three chunks of 4 MiB with dead space of both kinds, and a tombstone."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    for i in range(n):
        write(f"c{i % 3}/{i}", bytes([65 + i % 26]) * bytes_each)
    engine.new(name).pack()
    engine.ctl("rm", engine.dataset, *(f"c{i % 3}/{i}" for i in range(0, n, 5)))
    for i in range(1, n, 7):
        write(f"c{i % 3}/{i}", b"changed" * (i + 1))
    for i in range(0, n, 5):
        os.remove(f"{SOURCE}/c{i % 3}/{i}")
    engine.pack("--append")
    return content(engine)


def test_all_at_once(engine):
    state = fill(engine, "all")
    before = engine.n_chunks()
    assert before >= 4
    plan = engine.json("purge", "--dry-run", *NOW, engine.dataset)
    assert plan["dry_run"] and plan["version"] == 3 and plan["rewritten_chunks"] >= 2 and plan["removed_chunks"] >= 3, plan
    assert engine.n_chunks() == before and engine.json("log", engine.dataset)["version"] == 3
    done = engine.json("purge", *NOW, engine.dataset)
    assert {**plan, "dry_run": False, "version": 4, "written_chunks": done["written_chunks"]} == done, (plan, done)
    assert engine.n_chunks() == before - done["removed_chunks"] + done["written_chunks"]
    assert content(engine) == state
    sound(engine)
    newest = engine.json("log", engine.dataset)["changes"][0]
    assert [newest[key] for key in ("version", "added", "replaced", "deleted", "samples")] == [4, 0, 0, 0, len(state)], newest
    text = engine.ctl("ls", "--version", "3", engine.dataset, fails=True)
    assert "cannot be read any more: the oldest readable version is 4" in text, text
    # Nothing is left to do, and a rebuild from only the chunks gives the same.
    again = engine.json("purge", *NOW, engine.dataset)
    assert again["version"] == 4 and again["rewritten_chunks"] == again["removed_chunks"] == again["waiting_chunks"] == 0, again
    engine.ctl("rebuild", engine.dataset)
    assert content(engine) == state
    sound(engine)


def test_old_ones_stay(engine):
    """By default, versions that were in use within a day stay; --keep sets how many versions stay."""
    state = fill(engine, "old")
    states = {version: content(engine, "--version", str(version)) for version in (1, 2, 3)}
    before = engine.n_chunks()
    done = engine.json("purge", engine.dataset)
    assert done["version"] == 4 and done["oldest"] == 1 and done["removed_chunks"] == 0 and done["waiting_chunks"] >= 2, done
    assert engine.n_chunks() == before + done["written_chunks"]
    states[4] = state
    for version, was in states.items():
        assert content(engine, "--version", str(version)) == was, version
    assert engine.json("purge", engine.dataset)["version"] == 4
    # Version 3 needs all of its chunks, so dropping earlier versions gains nothing.
    done = engine.json("purge", "--keep", "3", "--older-than", "0s", engine.dataset)
    assert done["version"] == 4 and done["oldest"] == 1 and done["waiting_chunks"], done
    # Two stay: the version that the purge makes, and the one before.
    done = engine.json("purge", "--keep", "2", "--older-than", "0s", engine.dataset)
    assert done["version"] == 5 and done["oldest"] == 4 and done["removed_chunks"] >= 3 and not done["waiting_chunks"], done
    assert content(engine, "--version", "4") == content(engine) == state
    assert "cannot be read" in engine.ctl("ls", "--version", "3", engine.dataset, fails=True)
    sound(engine)
    engine.ctl("rebuild", engine.dataset)
    assert content(engine) == state


def test_random(engine, seed):
    """Runs changes and purges in any order: readable content stays unchanged, also after a rebuild from only the chunks."""
    choose = random.Random(seed)
    shutil.rmtree(SOURCE, ignore_errors=True)
    engine.new(f"random{seed}")
    states, names = {}, [f"c{i % 2}/{i}" for i in range(12)]
    for _ in range(9):
        step = choose.choice(("pack", "pack", "rm", "purge", "keep")) if states else "pack"
        if step == "pack":
            for name in choose.sample(names, 4):
                write(name, choose.randbytes(choose.randrange(1, 20)).hex().encode())
            engine.pack("--append")
        elif step == "rm" and states[max(states)]:
            gone = choose.sample(sorted(states[max(states)]), 1)
            engine.ctl("rm", engine.dataset, *gone)
            os.remove(f"{SOURCE}/{gone[0]}")
        elif step != "rm":
            words = ("--keep", str(choose.randrange(2, 4)), "--older-than", "0") if step == "keep" else NOW
            engine.ctl("purge", *words, engine.dataset)
        log = engine.json("log", engine.dataset)
        states[log["version"]] = content(engine)
    readable = {c["version"] for c in log["changes"] if c["readable"]}
    for version in states:
        if version in readable:
            assert content(engine, "--version", str(version)) == states[version], (seed, version)
    if states[max(states)]:
        sound(engine)
    engine.ctl("rebuild", engine.dataset)
    assert content(engine) == states[max(states)], seed


def test_killed(engine, seconds):
    """Kills a purge at any moment: all of the newest version stays, and the same command completes the purge."""
    choose, n_killed, n_resumed = random.Random(5), 0, 0
    states, took, n_done = fill(engine, "killed"), 0.3, 0
    end = time.monotonic() + seconds
    while (time.monotonic() < end or n_done < 3) and len(states) > 20:
        paths = choose.sample(sorted(states), 2)
        engine.ctl("rm", engine.dataset, *paths)
        for path in paths:
            del states[path]
        process, started = engine.start("purge", *NOW, engine.dataset), time.monotonic()
        try:
            process.communicate(timeout=choose.random() * took)
            took = time.monotonic() - started
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        n_killed += process.returncode != 0
        assert content(engine) == states
        n_done += 1
        if n_done % 3 == 0:
            n_resumed += engine.json("purge", *NOW, engine.dataset)["resumed_samples"]
            told = engine.start("verify", engine.dataset).communicate()
            assert told[0].startswith("sound:") and not told[1], told
    engine.ctl("purge", *NOW, engine.dataset)
    engine.ctl("rebuild", engine.dataset)
    assert content(engine) == states
    sound(engine)
    print(f"{n_done} purges, {n_killed} killed, {n_resumed} samples were copied before")


def test_resumed(engine):
    """Chunks that a killed purge has copied are not copied again."""
    for attempt in range(10):
        state = fill(engine, f"resumed{attempt}", n=90)
        before, process = engine.n_chunks(), engine.start("purge", *NOW, engine.dataset)
        while engine.n_chunks() == before and process.poll() is None:
            pass
        process.kill()
        process.communicate()
        done = engine.json("purge", *NOW, engine.dataset)
        assert content(engine) == state
        sound(engine)
        if done["resumed_samples"]:
            assert done["samples"] >= done["resumed_samples"] and done["removed_chunks"] >= 3, done
            return
    raise AssertionError("none was killed in the middle")


def test_old_metadata(engine):
    """Without a log, too, chunks in use now stay."""
    fill(engine, "unlogged")
    database = sqlite3.connect(engine.dataset + "/meta.db")
    database.execute("DROP TABLE log")
    database.commit()
    database.close()
    done = engine.json("purge", engine.dataset)
    assert done["oldest"] == 3 and done["waiting_chunks"] and done["removed_chunks"] == 0, done
    assert engine.json("purge", *NOW, engine.dataset)["removed_chunks"] >= 3
    sound(engine)


def test_damaged(engine):
    """Names a sample that cannot be copied, and changes nothing."""
    state = fill(engine, "damaged")
    chunks = [f"{engine.dataset}/chunks/{name}" for name in sorted(os.listdir(engine.dataset + "/chunks"))]
    with open(chunks[0], "r+b") as file:
        data = file.read()
        at = data.index(bytes([65 + 2]) * 1000)  # in an existing sample
        file.seek(at)
        file.write(b"!")
    text = engine.ctl("purge", *NOW, engine.dataset, fails=True)
    assert "is damaged" in text and os.path.basename(chunks[0]) in text, text
    with open(chunks[0], "r+b") as file:
        file.seek(at)
        file.write(data[at:at + 1])
    assert content(engine) == state
    engine.ctl("purge", *NOW, engine.dataset)
    assert content(engine) == state


def main():
    with running() as (engine, name):
        test_all_at_once(engine)
        test_old_ones_stay(engine)
        for seed in range({"folder": 4, "redis": 1, "bucket": 1}[name]):
            test_random(engine, seed)
        if name == "folder":
            test_damaged(engine)
            test_old_metadata(engine)
            test_resumed(engine)
        test_killed(engine, 6)
    assert name != "folder" or not [entry for entry in os.listdir(SCRATCH + "/tmp") if entry.startswith("dieselctl-")]


if __name__ == "__main__":
    main()
