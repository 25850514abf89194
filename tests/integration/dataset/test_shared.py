#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests several processes that write into one folder at once, with create(append=True, shared=True), and are killed.

usage: test_shared.py folder | redis
"""
import os
import pathlib
import random
import signal
import subprocess
import sys
import textwrap
import time
import unittest

from common.processes import commands
from dieseld_support import SCRATCH, Case, main
from engines import DIESELCTL, ENGINES

import diesel_loader

os.environ["DIESEL_DIESELCTL"] = os.path.abspath(DIESELCTL)
ENGINE = ENGINES[sys.argv.pop()]()
unittest.addModuleCleanup(ENGINE.stop)
os.environ.update(ENGINE.env)
# Writes versions of 30 samples until it is killed, and prints the name of each that is committed.
WRITER = textwrap.dedent("""
    import itertools, sys
    import diesel_loader
    name, dataset, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
    for i in itertools.islice(itertools.count(), n or None):
        with diesel_loader.create(dataset, append=True, shared=True, chunk_bytes=4 << 20) as w:
            for k in range(30):
                w.put(f"{name}-{i}/{k}", f"{name} {i} {k} ".encode() * 40_000)
        print(f"{name}-{i}", w.version, flush=True)
""")


def new(name):
    """Makes an empty dataset, with its metadata where the engine has them."""
    ENGINE.new(name)
    more = {"meta": ENGINE.server.url(name)} if type(ENGINE).__name__ == "Redis" else {}
    with diesel_loader.create(ENGINE.dataset, **more) as w:
        w.put("first", b"1")
    return ENGINE.dataset


def start(name, n=0):
    return subprocess.Popen([sys.executable, "-c", WRITER, name, ENGINE.dataset, str(n)], stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, text=True)


def committed(process):
    """Returns {name: version} of what a writer's process has committed."""
    out, _ = process.communicate(timeout=300)
    return dict((line.split()[0], int(line.split()[1])) for line in out.splitlines())


def put_processes():
    """Returns the processes that write the dataset for programs. Each is in a session of its own."""
    return commands("put", lambda word: word == os.fsencode(ENGINE.dataset))


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


class Shared(Case):
    def is_sound(self, names, ignored=()):
        told = ENGINE.json("verify", ENGINE.dataset)
        self.assertEqual(told["damages"], [])
        paths = ENGINE.ctl("ls", "-R", ENGINE.dataset).split()
        expected = {f"{name}/{k}" for name in names for k in range(30)} | {"first"}
        self.assertEqual(expected - set(paths), set())
        self.assertEqual({path.split("/")[0] for path in set(paths) - expected} - set(ignored), set())
        for name in random.sample(sorted(names), min(4, len(names))):
            writer, i = name.split("-")
            done = subprocess.run([DIESELCTL, "cat", ENGINE.dataset, f"{name}/29"], env=ENGINE.env, capture_output=True, check=True)
            self.assertEqual(done.stdout, f"{writer} {i} 29 ".encode() * 40_000)

    def no_leftovers(self):
        self.assertFalse(os.path.exists(ENGINE.dataset + "/.shared"))
        self.assertEqual(ENGINE.n_chunks(), ENGINE.json("stat", ENGINE.dataset)["chunks"])

    def test_each_writer_commits_versions_of_its_own(self):
        new("each")
        writers = [start(f"w{i}", 3) for i in range(8)]
        told = {}
        for writer in writers:
            told.update(committed(writer))
            self.assertEqual(writer.returncode, 0)
        self.assertEqual(len(told), 24)
        self.assertEqual(sorted(told.values()), list(range(2, 26)))
        self.is_sound(told)
        self.no_leftovers()
        changes = ENGINE.json("log", ENGINE.dataset)["changes"]
        self.assertEqual({change["added"] for change in changes if change["version"] > 1}, {30})

    def test_several_packs_write_into_one_dataset_at_once(self):
        new("packs")
        sources, wanted = [], {"first": b"1"}
        for i in range(4):
            source = pathlib.Path(SCRATCH, f"part{i}")
            for k in range(12):
                path = f"class{k % 3}/{i}-{k}"
                wanted[path] = f"{i} {k} ".encode() * 100_000
                (source / path).parent.mkdir(parents=True, exist_ok=True)
                (source / path).write_bytes(wanted[path])
            sources.append(source)
        archive = SCRATCH + "/part0.tar"
        subprocess.run(["tar", "-cf", archive, "-C", sources[0], "."], check=True)
        packs = [ENGINE.start("pack", "--shared", "-c", "4M", str(source), ENGINE.dataset) for source in (archive, *sources[1:])]
        self.assertEqual([(pack.communicate()[1], pack.returncode) for pack in packs], [("", 0)] * 4)
        self.assertEqual(ENGINE.json("stat", ENGINE.dataset)["version"], 5)
        self.assertEqual(set(ENGINE.ctl("ls", "-R", ENGINE.dataset).split()), set(wanted))
        for path in random.sample(sorted(wanted), 5):
            done = subprocess.run([DIESELCTL, "cat", ENGINE.dataset, path], env=ENGINE.env, capture_output=True, check=True)
            self.assertEqual(done.stdout, wanted[path])
        self.assertEqual(ENGINE.json("verify", ENGINE.dataset)["damages"], [])
        # A pack that finds nothing to pack, and one that is killed, leave the others nothing.
        os.makedirs(SCRATCH + "/nothing")
        self.assertIn("there are no files", ENGINE.ctl("pack", "--shared", SCRATCH + "/nothing", ENGINE.dataset, fails=True))
        killed = ENGINE.start("pack", "--shared", str(sources[1]), ENGINE.dataset)
        killed.kill()
        killed.communicate()
        ENGINE.ctl("pack", "--shared", str(sources[2]), ENGINE.dataset)
        self.assertFalse(os.path.exists(ENGINE.dataset + "/.shared"))

    def test_committed_samples_survive_kills_at_any_moment(self):
        new("kills")
        told, begun = {}, set()
        seed = random.randrange(1 << 30)
        print("seed", seed)
        pick = random.Random(seed)
        for turn in range(5):
            writers = [start(f"t{turn}x{i}") for i in range(6)]
            time.sleep(pick.uniform(0.6, 2))
            for _ in range(6):
                kill(pick.choice([*put_processes(), pick.choice(writers).pid]))
                time.sleep(pick.uniform(0, 0.3))
            for writer in writers:
                kill(writer.pid)
                told.update(committed(writer))
            while found := put_processes():
                for pid in found:
                    kill(pid)
                time.sleep(0.01)
            # A writer may have died between its commit and its snapshot, which the next one completes.
            with diesel_loader.create(ENGINE.dataset, append=True, shared=True) as w:
                w.put(f"last-{turn}/0", b"1")
            begun |= {f"last-{turn}"} | {f"t{turn}x{i}-{k}" for i in range(6) for k in range(200)}
            self.is_sound(told, begun)
        self.assertGreater(len(told), 4)
        self.no_leftovers()

    def test_other_writers_leave_the_chunks_of_a_living_one(self):
        dataset = new("living")
        with diesel_loader.create(dataset, append=True, shared=True, chunk_bytes=4 << 20) as slow:
            for i in range(30):
                slow.put(f"slow-0/{i}", f"slow 0 {i} ".encode() * 40_000)
            with diesel_loader.create(dataset, append=True) as w:  # one writer at a time, which removes leftovers
                w.put("other-0/0", b"1")
            with diesel_loader.create(dataset, append=True, shared=True) as w:
                w.put("other-0/1", b"1")
            self.assertEqual(w.version, 3)
        self.assertEqual(slow.version, 4)
        self.is_sound(["slow-0"], ["other-0"])
        self.no_leftovers()

    def test_a_block_that_raises_leaves_nothing(self):
        dataset = ENGINE.new("raises").dataset
        with self.assertRaises(ZeroDivisionError), diesel_loader.create(dataset, append=True, shared=True, chunk_bytes=4 << 20) as w:
            for i in range(6):
                w.put(f"{i}", os.urandom(2 << 20))
            1 / 0  # noqa: B018
        self.assertFalse(os.path.exists(dataset))
        with diesel_loader.create(dataset, append=True, shared=True) as w:
            pass
        self.assertFalse(os.path.exists(dataset))

    def test_digests_and_compression_are_kept(self):
        ENGINE.new("digests")
        with diesel_loader.create(ENGINE.dataset, digest="sha256") as w:
            w.put("first", b"1")
        writers = [diesel_loader.create(ENGINE.dataset, append=True, shared=True, zstd=3, chunk_bytes=4 << 20) for _ in range(3)]
        for name, writer in enumerate(writers):
            for k in range(30):
                writer.put(f"d{name}-0/{k}", f"d{name} 0 {k} ".encode() * 40_000)
        for writer in writers:
            writer.commit()
        self.is_sound([f"d{name}-0" for name in range(3)])
        self.assertEqual(ENGINE.json("stat", ENGINE.dataset)["digest"], "sha256")

    def test_shared_needs_append(self):
        with self.assertRaisesRegex(ValueError, "needs append=True"):
            diesel_loader.create(ENGINE.dataset, shared=True)


if __name__ == "__main__":
    main()
