# SPDX-License-Identifier: Apache-2.0
"""Seeds the random numbers of transforms from the batch or sample, so that they do not depend on the process or the time.

This covers Python's `random` and, if they are loaded, NumPy's global generator and torch's default CPU generator.
"""
import hashlib
import random
import struct
import sys

BATCH, SAMPLE = "batch", "sample"


def derive(*numbers: int) -> int:
    """Returns 64 bits that depend on all of the integers (BLAKE2b)."""
    data = struct.pack(f"<{len(numbers)}Q", *(n & 0xffffffffffffffff for n in numbers))
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def _numpy_random():
    return getattr(sys.modules.get("numpy"), "random", None)


def _torch_generator():
    return getattr(sys.modules.get("torch"), "default_generator", None)


def seed_all(seed):
    """Seeds the three generators with a 64-bit number."""
    random.seed(seed)
    torch_generator, numpy_random = _torch_generator(), _numpy_random()
    if torch_generator:
        torch_generator.manual_seed(seed)
    if numpy_random:
        numpy_random.seed(seed & 0xffffffff)


class Kept:
    """Saves the generators' states, and restores them at the end: a transform in the trainer must not disturb the trainer's own draws."""

    def __enter__(self):
        self._torch, self._numpy = _torch_generator(), _numpy_random()  # a module loaded later has drawn nothing yet
        self._states = (random.getstate(), self._torch.get_state() if self._torch else None,
                        self._numpy.get_state(legacy=False) if self._numpy else None)

    def __exit__(self, *_):
        python, torch_state, numpy_state = self._states
        random.setstate(python)
        if self._torch:
            self._torch.set_state(torch_state)
        if self._numpy:
            self._numpy.set_state(numpy_state)


class Seeding:
    """Rule by which the samples of a session are seeded.

    mode: "batch": once a batch, from (seed, epoch, rank, world size, batch size, batch); "sample": before each
    sample, from (seed, epoch, number of the sample in the dataset): then neither batch size nor ranks matter; None: no seeding."""

    def __init__(self, mode, seed, rank, world_size, batch_size):
        self.mode, self._seed = mode, seed
        self._shape = (rank, world_size, batch_size)

    def begin_batch(self, epoch, index):
        if self.mode == BATCH:
            seed_all(derive(self._seed, epoch, *self._shape, index))

    def begin_sample(self, epoch, sample):
        if self.mode == SAMPLE:
            seed_all(derive(self._seed, epoch, sample))
