#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills each verb that changes a dataset at any moment: readers see the content from before, or all of the new one, and the same command
completes the change. For purge see test_purge.py, for a folder with SQLite tests/fault/dataset_verbs.py.

    test_killed.py redis|bucket                            DIESEL_ROUNDS=N: N rounds instead of a few
"""
import os
import random
import signal
import subprocess
import sys
import time

from engines import SOURCE, running, write
from test_versions import content

VERBS = {"redis": ("pack", "append", "rm", "rebuild", "snapshot"), "bucket": ("pack", "append", "rm", "rebuild")}
N, BYTES = 60, 150_000  # three chunks of 4 MiB


def source():
    found = {}
    for folder, _, names in os.walk(SOURCE):
        for name in names:
            with open(f"{folder}/{name}", encoding="ascii") as file:
                found[os.path.relpath(f"{folder}/{name}", SOURCE)] = file.read()
    return found


def seen(engine):
    """Returns the content, {} if nothing was published yet."""
    process = engine.start("ls", engine.dataset)
    listed, text = process.communicate()
    if process.returncode == 0:
        return content(engine) if listed else {}
    assert process.returncode == 1 and text.count("\n") == 1 and ("no dataset" in text or "not a dataset" in text), text
    return {}


def kill(engine, words, after_s):
    """Runs the command and kills it after that time. Returns the seconds that it took, or None if it was killed."""
    process, began = engine.start(*words), time.monotonic()
    try:
        _, text = process.communicate(timeout=after_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None
    assert process.returncode == 0, text
    return time.monotonic() - began


def prepare(engine, verb, i, choose):
    """Returns the command, and the content before and after it."""
    if verb == "pack":
        engine.new(f"new{i}")
        return engine.pack_words(), {}, source()
    engine.new("set")
    before = content(engine)
    after = dict(before)
    if verb == "rm":
        gone = choose.choice(sorted(before))
        os.remove(f"{SOURCE}/{gone}")
        del after[gone]
        return ["rm", engine.dataset, gone], before, after
    if verb == "append":
        for path in (f"c0/new{i}", choose.choice(sorted(before))):
            write(path, b"%d " % i * (BYTES // 4))
        return engine.pack_words("--append"), before, source()
    return [verb, engine.dataset], before, after


def complete(engine, verb, words, is_done):
    """Runs the command again. A committed but unpublished `rm` and a published `pack` have nothing left to do, and print that."""
    process = engine.start(*words)
    text = process.communicate()[1]
    if verb == "rm":
        assert process.returncode == 0 or (process.returncode == 1 and "there is no sample" in text), text
    elif verb != "pack" or not is_done:
        assert process.returncode == 0, text


def check_sound(engine, where, is_first):
    """The first pack may have been killed after the commit and before the snapshot was written: verify reports it, and complete() writes
    the snapshot."""
    process = engine.start("verify", engine.dataset)
    said, text = process.communicate()
    if is_first and process.returncode == 1:
        assert (said + text).count("has no snapshot") == 1, (where, said, text)   # on stdout if its metadata can be verified
    else:
        assert process.returncode == 0 and said.startswith("sound:"), (where, said, text)


def main():
    choose = random.Random(17)
    rounds, verbs, n_killed = int(os.environ.get("DIESEL_ROUNDS", "8")), VERBS[sys.argv[1]], 0
    took = dict.fromkeys(verbs, 0.3)
    with running() as (engine, _):
        for i in range(N):
            write(f"c{i % 3}/{i}", bytes([65 + i % 26]) * BYTES)
        engine.new("set").pack()
        for i in range(rounds):
            verb = verbs[i % len(verbs)]
            words, before, after = prepare(engine, verb, i, choose)
            moment = choose.random() * took[verb]
            where = f"{verb}, killed after {moment * 1000:.1f} ms"
            done_s = kill(engine, words, moment)
            n_killed += done_s is None
            took[verb] = done_s or took[verb]
            now = seen(engine)
            assert now in (before, after), f"{where}: half of it, {len(now)} samples"
            if now:
                check_sound(engine, where, verb == "pack")
            complete(engine, verb, words, now == after)
            assert content(engine) == after, f"{where}: not completed"
            assert engine.ctl("verify", engine.dataset).startswith("sound:"), where
    print(f"{n_killed} killed of {rounds}")
    assert n_killed > 0


if __name__ == "__main__":
    main()
