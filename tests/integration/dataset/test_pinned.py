#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests jobs on versions of their own, with real PyTorch: each reads exactly its version, though others are published and purged.

    test_pinned.py folder|bucket
"""
import contextlib
import os
import pickle
import random
import shutil
import struct
import sys


from engines import SCRATCH, SOURCE, running, s3_support, write
from dieseld_support import Daemon, start_probe, finish_probe
from common.users import MALLORY, run_as
from common.wire_client import Client, Refused

try:
    import torch

    import diesel_loader.numpy
    import diesel_loader.torch
    from diesel_loader import Dataset
except ImportError as error:
    print(f"skipped: needs {error.name}")
    sys.exit(77)

NOW = ("--keep", "1", "--older-than", "0")
SAMPLE = 40_000


class Scene:
    """A dataset whose versions are known sample by sample, and a daemon."""

    def __init__(self, engine, name, n=240):
        self.engine, self.states = engine, {}
        self.random = random.Random(7)
        shutil.rmtree(SOURCE, ignore_errors=True)
        self.files = {}
        self.publish([f"c{i % 3}/{i:04d}" for i in range(n)], name)

    def publish(self, paths, name=None):
        for path in paths:
            self.files[path] = self.random.randbytes(SAMPLE + self.random.randrange(1000))
            write(path, self.files[path])
        if name:
            self.engine.new(name).pack()
        else:
            self.engine.pack("--append")
        self.note()

    def remove(self, *paths):
        self.engine.ctl("rm", self.engine.dataset, *paths)
        for path in paths:
            del self.files[path]
            os.remove(f"{SOURCE}/{path}")
        self.note()

    def purge(self):
        self.engine.ctl("purge", *NOW, self.engine.dataset)
        self.note()

    def note(self):
        self.states[self.engine.json("log", self.engine.dataset)["version"]] = sorted(self.files.values())

    def loader(self, daemon, module=diesel_loader.torch, version=None, **options):
        os.environ["DIESEL_SOCKET"] = daemon.socket
        dataset = self.engine.dataset if version is None else diesel_loader.Dataset(self.engine.dataset, version=version)
        return module.DataLoader(dataset, batch_size=16, shuffle=True, seed=3, **options)


def samples(batches):
    return [bytes(memoryview(item.numpy() if isinstance(item, torch.Tensor) else item)) for data, _ in batches for item in data]


def test_two_at_once(engine, daemon):
    scene = Scene(engine, "two")
    scene.publish([f"c1/new{i}" for i in range(60)])
    scene.remove("c0/0000", "c1/0001")
    found = {}
    loaders = {version: scene.loader(daemon, version=version) for version in (1, 3, None)}
    loaders[2] = scene.loader(daemon, diesel_loader.numpy, version=2)
    iterators = {version: iter(loader) for version, loader in loaders.items()}
    while iterators:
        for version, iterator in list(iterators.items()):
            batch = next(iterator, None)
            if batch is None:
                del iterators[version]
            else:
                found.setdefault(version, []).append(batch)
    assert loaders[None].dataset.version == 3
    for version, batches in found.items():
        assert sorted(samples(batches)) == scene.states[version or 3], version
    status = daemon.status()
    served = sorted(d["version"] for d in status["datasets"])
    assert set(served) == {1, 2, 3} and len(served) == 3, served  # a job without a version is on the newest one
    if not engine.dataset.startswith("s3://"):  # jobs need no metadata store
        engine.ctl("snapshot", "--frozen", engine.dataset)
        assert sorted(samples(scene.loader(daemon))) == scene.states[3]
    # Another job on an earlier version finds all of it in memory.
    more = scene.loader(daemon, version=1)
    assert sorted(samples(more)) == scene.states[1]
    assert daemon.status()["cache"]["reads"] == status["cache"]["reads"]


def test_shared(engine, daemon):
    """Where a version is read while another one has its chunks in memory, storage is read only for the new chunks."""
    scene = Scene(engine, "shared")
    first = scene.loader(daemon)
    assert sorted(samples(first)) == scene.states[1]
    scene.publish([f"c2/more{i}" for i in range(20)])
    before = daemon.status()["cache"]
    assert sorted(samples(scene.loader(daemon))) == scene.states[2]
    after = daemon.status()["cache"]
    assert after["reads"] - before["reads"] == 1 and after["shared"] - before["shared"] >= 2, (before, after)
    assert sorted(samples(first)) == scene.states[1]


def test_published_meanwhile(engine, daemon):
    """Runs append, rm and purge during reading; workers and unpickled datasets open the same version again."""
    scene = Scene(engine, "meanwhile")
    loader = scene.loader(daemon, num_workers=2, transform=bytes_of, collate_fn=list)
    steps = iter(loader)
    found = [next(steps) for _ in range(3)]
    kept = pickle.dumps(loader.dataset)
    scene.publish([f"c0/more{i}" for i in range(30)])
    scene.remove("c2/0002")
    assert sorted(data for batch in found + list(steps) for data, _ in batch) == scene.states[1]
    again = pickle.loads(kept)
    assert again.version == 1 and sorted(bytes(again[i][0]) for i in range(len(again))) == scene.states[1]
    # The daemon ends, and starts again.
    steps = iter(loader)
    found = [next(steps) for _ in range(3)]
    daemon.kill()
    daemon.start()
    assert sorted(data for batch in found + list(steps) for data, _ in batch) == scene.states[1]
    # Chunks that no user may read any more give an error, or are still in memory, but never give other bytes.
    steps = iter(loader)
    found = [next(steps) for _ in range(3)]
    scene.purge()
    n_errors = take_all(steps, found, scene)
    daemon.kill()
    daemon.start()
    n_errors += take_all(loader, [], scene)
    assert n_errors > 0
    loader.close()
    for version, said in ((1, "has no snapshot of version 1 any more"), (99, "has no version 99: its newest version is 4")):
        try:
            scene.loader(daemon, version=version)
        except FileNotFoundError as error:
            assert said in str(error) and "\n" not in str(error), error
        else:
            raise AssertionError(f"version {version} was opened")
    for wrong in (0, -1, True, "1", 1.0, 1 << 63):
        try:
            Dataset(engine.dataset, version=wrong)
        except ValueError as error:
            assert "version must be an integer from 1" in str(error)
        else:
            raise AssertionError(wrong)


def bytes_of(tensor):
    return bytes(tensor.numpy())


def take_all(batches, found, scene):
    """Checks that samples are of version 1, each at most once, or that the error has one line. Returns the number of errors."""
    n_errors, seen, steps = 0, [data for batch in found for data, _ in batch], None
    while n_errors < 40:
        try:
            if steps is None:
                steps = iter(batches)  # opens a session, if an unfinished iterator has the loader's
            batch = next(steps, None)
        except OSError as error:
            assert str(error) and "\n" not in str(error), error
            n_errors += 1
            continue
        if batch is None:
            break
        seen += [data for data, _ in batch]
    assert len(seen) == len(set(seen)) and set(seen) <= set(scene.states[1])
    assert n_errors or len(seen) == len(scene.states[1])
    return n_errors


def test_resumed(engine, daemon):
    """A state continues with its version, at its position: each unseen sample once, in the same order."""
    scene = Scene(engine, "resumed")
    whole = samples(scene.loader(daemon))
    loader = scene.loader(daemon)
    steps = iter(loader)
    first = samples(next(steps) for _ in range(5))
    state = loader.state_dict()
    scene.publish([f"c1/later{i}" for i in range(40)])
    scene.remove("c2/0005")
    for module in (diesel_loader.torch, diesel_loader.numpy):
        other = scene.loader(daemon, module)
        assert other.dataset.version == 3
        other.load_state_dict(state)
        assert (other.dataset.version, len(other), other.state_dict()) == (1, len(loader), state)
        assert first + samples(other) == whole
        assert sorted(samples(other)) == scene.states[1]  # the next epoch, too
    pinned = scene.loader(daemon, version=1)
    pinned.load_state_dict(state)
    assert first + samples(pinned) == whole
    said = refused(scene.loader(daemon, version=3), state, ValueError)
    assert "version 1 of" in said and "was opened with version=3" in said, said
    part = diesel_loader.torch.DataLoader(Dataset(engine.dataset)[::2], batch_size=16, shuffle=True, seed=3)
    assert "away from version 3" in refused(part, state, ValueError)
    scene.purge()
    loader = scene.loader(daemon)
    assert "cannot resume: " in (said := refused(loader, state, FileNotFoundError)) and "no snapshot of version 1" in said, said
    assert sorted(samples(loader)) == scene.states[4]  # the content is unchanged


def refused(loader, state, kind):
    try:
        loader.load_state_dict(state)
    except kind as error:
        assert "\n" not in str(error)
        return str(error)
    raise AssertionError("it was resumed")


def test_neighbours(engine, daemon):
    """A user may read a version if its snapshot and chunks are accessible, and gets no access to closed ones."""
    if os.geteuid() != 0:
        print("not root: neighbours are left out")
        return
    scene = Scene(engine, "neighbours", n=30)
    scene.publish(["c0/open"])
    path, own = engine.dataset, f"{SCRATCH}/mallory"
    shutil.copytree(path, own)
    for folder, folders, names in os.walk(own):
        for name in [".", *folders, *names]:
            os.chown(os.path.join(folder, name), MALLORY, MALLORY)

    def opens(folder, snapshot):
        """Returns whether the daemon accepts this snapshot as one of that folder's, and serves a batch of it."""
        def attack():
            client = Client(daemon.socket)
            fds = [os.open(folder, os.O_PATH), os.open(snapshot, os.O_RDONLY)]
            try:
                for fd in client.call("OPEN_DATASET", struct.pack("<QII", 0, 0, 0), fds)[2]:
                    os.close(fd)
            except Refused as refusal:
                return str(refusal)
            return True
        try:
            return run_as(attack)
        except AssertionError as error:  # the kernel's PermissionError
            return str(error)

    assert opens(path, f"{path}/snapshots/1") is True and opens(path, f"{path}/snapshot") is True
    # For a closed folder, an open file proves nothing, not even a user's own snapshot of any version.
    os.chmod(path, 0o711)
    os.chmod(f"{path}/snapshots", 0o700)
    assert opens(path, f"{own}/snapshots/1") is not True and "was not retained" in opens(path, f"{own}/snapshots/1")
    assert "was not retained" in opens(path, f"{own}/snapshot")
    assert "Permission denied" in opens(path, f"{path}/snapshots/1")
    os.chmod(f"{path}/snapshots", 0o755)
    os.chmod(f"{path}/snapshots/1", 0o600)
    assert "Permission denied" in opens(path, f"{path}/snapshots/1")
    # Links out of the user's own folder give no access either.
    shutil.rmtree(f"{own}/snapshots")
    os.symlink(f"{path}/snapshots", f"{own}/snapshots")
    os.chmod(f"{path}/snapshots/1", 0o644)
    assert "was not retained" in opens(own, f"{path}/snapshots/1")
    # Chunks that were closed after the version was published stay closed, also where another version's reader has them.
    # Root has them in memory.
    assert sorted(samples(scene.loader(daemon))) == scene.states[2]
    for name in os.listdir(f"{path}/chunks"):
        os.chmod(f"{path}/chunks/{name}", 0o600)
    os.chmod(path, 0o755)
    said = run_as(lambda: probe_as(daemon, path))
    assert said["samples"] == 0 and "chmod" in said["error"], said


def probe_as(daemon, path):
    """Returns the samples of version 1 that a job of this user gets."""
    return finish_probe(start_probe(daemon, path, "--version", 1))[0]


def main():
    with running() as (engine, name), contextlib.ExitStack() as cleanup:
        os.environ.update(engine.env, DIESEL_DIESELCTL=s3_support.DIESELCTL)
        daemon = Daemon(cache="1G")  # each job on a bucket takes 32 MiB
        cleanup.callback(daemon.kill)
        test_two_at_once(engine, daemon)
        if name == "folder":
            test_shared(engine, daemon)
        test_published_meanwhile(engine, daemon)
        test_resumed(engine, daemon)
        if name == "folder":
            test_neighbours(engine, daemon)


if __name__ == "__main__":
    main()
