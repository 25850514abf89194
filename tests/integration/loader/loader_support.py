# SPDX-License-Identifier: Apache-2.0
"""Helpers of the tests of loaders that need no torch: a real dieseld with two datasets."""
import pathlib
import random
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "bench"))
import support  # noqa: E402
from serving import Daemon, grouped, pack  # noqa: E402

try:
    import numpy

    import diesel_loader.numpy as diesel
    from diesel_loader import native
    from diesel_loader.order import EpochOrder
except ImportError as error:
    support.skip(f"needs {error.name}")

N_CLASSES, PER_CLASS, EQUAL = 4, 75, 512
N = N_CLASSES * PER_CLASS


def make_tree(folder, sizes, seed=12):
    rng = random.Random(seed)
    for c in range(N_CLASSES):
        (folder / f"class{c}").mkdir(parents=True)
        for i in range(PER_CLASS):
            (folder / f"class{c}" / f"{i:03d}.bin").write_bytes(rng.randbytes(sizes(rng)))


def flat(batches):
    """Returns [(bytes, label)] of all samples, in order."""
    return [(bytes(memoryview(item)), int(label)) for batch in batches for item, label in zip(batch[0], batch[1])]


class LoaderCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        make_tree(cls.folder / "equal", lambda rng: EQUAL)
        make_tree(cls.folder / "ragged", lambda rng: rng.randint(0, 4000))
        cls.sets = {name: pack(cls.folder / name, cls.folder / f"{name}.diesel", "--chunk-size", "4M")
                    for name in ("equal", "ragged")}
        cls.daemon = cls.enterClassContext(Daemon(cls.folder))

    def loader(self, name="equal", make=diesel.DataLoader, **options):
        loader = make(self.sets[name], **grouped({"batch_size": 16, "shuffle": True, "seed": 3, **options}))
        self.addCleanup(loader.close)
        return loader

    def numbers(self, loader, epoch=0):
        """Returns the numbers of the samples, batch by batch, in the order of the daemon's session."""
        flags = (native.SHUFFLE if loader.shuffle else 0) | (native.DROP_LAST if loader.drop_last else 0)
        dealt = loader._lanes_of(epoch, loader.world_size)
        order = EpochOrder(loader.dataset, seed=loader.seed, epoch=epoch, flags=flags, rank=loader.rank,
                           world=loader.world_size, batch=loader.batch_size, window_chunks=loader._window(dealt) or 1, lanes=dealt[0],
                           drift=dealt[1])
        return [list(order.batch(k)) for k in range(len(order))]

    def contents(self, loader, numbers):
        """Returns the result of flat() for samples of these numbers."""
        return [(bytes(loader.dataset.read(n)), loader.dataset.label(n)) for n in numbers]


__all__ = ["EQUAL", "N", "Daemon", "LoaderCase", "diesel", "flat", "grouped", "numpy", "pack", "support"]
