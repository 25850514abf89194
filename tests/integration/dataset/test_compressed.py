#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests compressed chunks with all verbs of dieselctl on datasets: the packed content is there, at every version, whoever wrote it.

    test_compressed.py folder|redis|bucket
"""
import hashlib
import io
import os
import pathlib
import random
import shutil
import signal
import subprocess
import tarfile
import time

from engines import DIESELCTL, ENGINES, SOURCE, running, write

WORDS = [bytes(random.Random(i).choices(b"abcdefghijklmnopqrstuvwxyz", k=3 + i % 7)) for i in range(300)]
RNG = random.Random(4)


def text(n):
    return b" ".join(RNG.choices(WORDS, k=n // 5 + 1))[:n]


def digests(engine, version=None):
    """Returns the digests of all samples, as cat prints the samples."""
    options = [f"--version={version}"] if version else []
    paths = engine.ctl("ls", "-R", *options, engine.dataset).splitlines()
    found = {}
    for path in paths:
        done = subprocess.run([DIESELCTL, "cat", *options, engine.dataset, path], env=engine.env, capture_output=True, timeout=60, check=True)
        found[path] = hashlib.sha256(done.stdout).hexdigest()
    return found


def expected():
    root = pathlib.Path(SOURCE)
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in root.rglob("*") if path.is_file()}


def make(n=24):
    shutil.rmtree(SOURCE, ignore_errors=True)
    for i in range(n):
        write(f"c{i % 3}/{i}", RNG.randbytes(200_000) if i % 4 == 0 else text(RNG.randrange(700_000)))


def check(engine):
    assert digests(engine) == expected()
    assert engine.ctl("verify", engine.dataset).startswith("sound"), "verify"


def test_changes(engine):
    """Tests changes between plain and compressed chunks, rm, purge and rebuild."""
    make()
    engine.new("changes")
    engine.pack("--zstd", "3")
    check(engine)
    stat = engine.json("stat", engine.dataset)
    assert stat["compressed"] and stat["stored_bytes"] < 0.8 * stat["plain_bytes"], stat
    assert "compressed" in engine.ctl("stat", engine.dataset)
    first = expected()
    write("c0/plain", text(500_000))
    write("c1/1", text(10_000))
    engine.pack("--append")
    check(engine)
    write("c2/again", text(800_000))
    engine.pack("--append", "--zstd", "19")
    check(engine)
    assert digests(engine, 1) == first
    assert engine.ctl("diff", engine.dataset, "2", "3") == "+ c2/again\n"
    for gone in ("c1/1", "c0/3"):
        os.unlink(f"{SOURCE}/{gone}")
    engine.ctl("rm", engine.dataset, "c1/1", "c0/3")
    check(engine)
    purged = engine.ctl("purge", "--keep", "1", "--older-than", "0", engine.dataset)
    assert "removed" in purged, purged
    check(engine)
    stat = engine.json("stat", engine.dataset)
    assert stat["compressed"] and stat["stored_bytes"] < 0.8 * stat["plain_bytes"], stat
    engine.ctl("rebuild", engine.dataset)
    check(engine)
    engine.ctl("rebuild", "--digest", "sha256", engine.dataset)
    check(engine)
    write("c2/more", text(300_000))
    engine.pack("--append", "--zstd", "5")
    check(engine)


def test_plain_first(engine):
    make(8)
    engine.new("plain")
    engine.pack()
    assert engine.json("stat", engine.dataset)["compressed"] is False
    write("c0/text", text(900_000))
    engine.pack("--append", "--zstd", "1")
    assert engine.json("stat", engine.dataset)["compressed"] is True
    check(engine)


def test_archive(engine):
    make(8)
    engine.new("archive")
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        tar.add(SOURCE, arcname="")
    done = subprocess.run([DIESELCTL, *engine.pack_words("--zstd", "3")[:-2], "-", engine.dataset], input=data.getvalue(), env=engine.env,
                          capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    check(engine)


def test_created(engine):
    """Tests compressed chunks that a Python program writes."""
    if type(engine) is not ENGINES["folder"]:
        return
    os.environ["DIESEL_DIESELCTL"] = DIESELCTL
    import diesel_loader
    make(8)
    engine.new("created")
    with diesel_loader.create(engine.dataset, zstd=3) as w:
        for path in pathlib.Path(SOURCE).rglob("*"):
            if path.is_file():
                w.put(str(path.relative_to(SOURCE)), path.read_bytes())
    assert engine.json("stat", engine.dataset)["compressed"] is True
    check(engine)
    for level in (0, 20, -1):
        try:
            diesel_loader.create(engine.dataset, append=True, zstd=level)
        except ValueError as error:
            assert "1 to 19" in str(error), error
        else:
            raise AssertionError(f"level {level}")


def test_killed(engine):
    """Kills a pack at any moment: the same command then makes the content that an undisturbed pack makes."""
    make(60)
    engine.new("killed")
    for n in range(7):
        process = engine.start(*engine.pack_words("--zstd", "6"))
        if n < 6:
            time.sleep(RNG.random() * 1.0)
        if n < 6 and process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        said = "".join(map(str, process.communicate()))
        if process.returncode == 0 or "has 60 samples already" in said:  # killed between publication and exit
            break
    else:
        raise AssertionError(said)
    check(engine)


def test_damaged(engine):
    """Flips a bit of a block. verify names the sample, which repair restores from an undamaged copy or from the files."""
    if type(engine) is ENGINES["bucket"]:
        return
    make()
    engine.new("damaged")
    engine.pack("--zstd", "3", "--digest", "sha256")
    replica = engine.dataset + ".replica"
    shutil.copytree(engine.dataset, replica)
    chunks = sorted(pathlib.Path(engine.dataset, "chunks").iterdir())
    for source in (replica, SOURCE):
        for harm in ("bit", "cut", "missing", "garbage"):
            chunk = RNG.choice(chunks)
            whole = chunk.read_bytes()
            data = bytearray(whole)
            if harm == "bit":
                for _ in range(3):
                    data[RNG.randrange(8192, len(data) - 4096)] ^= 1 << RNG.randrange(8)
                chunk.write_bytes(data)
            elif harm == "cut":
                os.truncate(chunk, len(data) // 2 // 4096 * 4096)
            elif harm == "missing":
                chunk.unlink()
            else:
                chunk.write_bytes(RNG.randbytes(len(data)))
            if source == SOURCE and harm in ("missing", "garbage"):
                done = subprocess.run([DIESELCTL, "verify", "--repair", "--from", source, engine.dataset], env=engine.env, text=True,
                                      capture_output=True, timeout=60, check=False)
                assert done.returncode == 1 and "no intact copy of the chunk's head" in done.stdout, done.stdout + done.stderr
                chunk.write_bytes(whole)
                continue
            engine.ctl("verify", "--repair", "--from", source, engine.dataset)
            assert chunk.read_bytes() == whole, (source, harm)
            check(engine)


def main():
    with running() as (engine, _):
        for test in (test_changes, test_plain_first, test_archive, test_created, test_killed, test_damaged):
            begin = time.monotonic()
            test(engine)
            print(f"{test.__name__} {time.monotonic() - begin:.1f} s", flush=True)


main()
