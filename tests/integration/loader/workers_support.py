# SPDX-License-Identifier: Apache-2.0
"""Helpers of the tests of worker processes: a real dieseld with two datasets, transforms that reveal the process that ran them, and lists
of living processes."""
import itertools
import os
import pathlib
import random
import tempfile
import time
import unittest
from unittest import mock

# Imported first: skips where modules are missing.
from torch_support import Daemon, grouped, pack
import numpy
import torch

import diesel_loader.torch as diesel
from diesel_loader.session import Session

N_CLASSES, PER_CLASS, EQUAL = 4, 75, 2048
N = N_CLASSES * PER_CLASS
CYCLE = (0, 2, 1, 3, 3, 0, 1, 0, 0, 2, 2, 2)


def make_tree(folder, sizes, seed=11):
    rng = random.Random(seed)
    for c in range(N_CLASSES):
        (folder / f"class{c}").mkdir(parents=True)
        for i in range(PER_CLASS):
            (folder / f"class{c}" / f"{i:03d}.bin").write_bytes(rng.randbytes(sizes(rng)))


def wish(*numbers):
    """The daemon's requested number, another one at every read, and then always the last."""
    left = list(numbers)
    return mock.patch.object(Session, "wanted_workers", property(lambda _: left.pop(0) if len(left) > 1 else left[0]))


def cycling(every=3):
    """A requested number that changes forever."""
    looks = itertools.count()
    return mock.patch.object(Session, "wanted_workers",
                             property(lambda _: CYCLE[next(looks) // every % len(CYCLE)]))


def flat(batches):
    return [(item.numpy().tobytes(), label) for data, labels in batches for item, label in zip(data, labels.tolist())]


def same(data):
    return data.clone()


def first_bytes(data):
    """Returns a tensor of one shape, whatever the sample's."""
    out = torch.zeros(16, dtype=torch.uint8)
    out[:len(data)] = data[:16]
    return out


def with_pid(data):
    return torch.tensor([os.getpid(), int(data[0])])


def fails(_):
    return 1 // 0


def noisy(data):
    """Augments randomly with all three generators."""
    return torch.tensor([random.random(), numpy.random.rand(), torch.rand(()).item(), float(data[0])],
                        dtype=torch.float64)


def pids(batches):
    return {pid for data, _ in batches for pid in data[:, 0].tolist()}


def children():
    """Returns the children of this process, without multiprocessing's own."""
    result = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as f:
                fields = f.read().rpartition(")")[2].split()
            with open(f"/proc/{pid}/cmdline") as f:
                command = f.read()
            ours = "multiprocessing" not in command and "dieseld" not in command
        except OSError:
            continue
        if int(fields[1]) == os.getpid() and fields[0] != "Z" and ours:
            result.add(int(pid))
    return result


def wait_until(what, condition):
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError(f"{what} did not happen")


class WorkersCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.entered(tempfile.TemporaryDirectory()))
        make_tree(cls.folder / "equal", lambda rng: EQUAL)
        make_tree(cls.folder / "ragged", lambda rng: rng.randint(1, 6000))
        cls.sets = {name: pack(cls.folder / name, cls.folder / f"{name}.diesel", "--chunk-size", "4M")
                    for name in ("equal", "ragged")}
        cls.daemon = cls.entered(Daemon(cls.folder))

    @classmethod
    def entered(cls, context):
        """Works like enterClassContext(), which unittest has from Python 3.11 on: the tests of device="cuda" run on older ones, too."""
        value = context.__enter__()
        cls.addClassCleanup(context.__exit__, None, None, None)
        return value

    def setUp(self):
        self.loaders = []
        self.addCleanup(lambda: [loader.close() for loader in self.loaders])

    def loader(self, name="equal", **options):
        loader = diesel.DataLoader(self.sets[name], **grouped({"batch_size": 16, "shuffle": True, "seed": 3, **options}))
        self.loaders.append(loader)
        return loader
