# SPDX-License-Identifier: Apache-2.0
"""Subsets of a dataset's samples."""
from __future__ import annotations

import ctypes
import errno
import os

from . import errors, native
from .native import byref, lib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


def _made(result: int, handle: ctypes.c_void_p, path: str) -> Subset:
    if result == -errno.EEXIST:
        raise ValueError(f"{path}: an index occurs twice, but a subset has each sample only once")
    if result == -errno.ERANGE:
        raise IndexError(f"{path}: an index is larger than the number of samples")
    if result < 0:
        raise errors.of_look_up(result, path, f"cannot choose samples of {path}: {os.strerror(-result)}")
    return Subset(handle)


def _handle(of: Subset | None) -> ctypes.c_void_p | None:
    return None if of is None else of.handle


class Subset:
    """Numbers of samples, ascending: libdiesel's diesel_subset. Immutable; can be pickled.

    The functions take libdiesel's dataset, its path for messages, and the Subset to choose from (None: all samples). Indices refer to
    that Subset."""

    def __init__(self, handle: ctypes.c_void_p) -> None:
        self.handle = handle
        self._count: int = lib.diesel_subset_count(handle)

    @classmethod
    def select(cls, dataset: Any, path: str, of: Subset | None, indices: Sequence[int]) -> Subset:
        """Returns the subset of samples with these indices, which must not be negative. ValueError: an index occurs twice. IndexError: it
        is too large."""
        numbers, handle = (native.c_uint64 * len(indices))(*indices), ctypes.c_void_p()
        result = lib.diesel_subset_select(dataset, _handle(of), numbers, len(numbers), byref(handle))
        return _made(result, handle, path)

    @classmethod
    def slice(cls, dataset: Any, path: str, of: Subset | None, chosen: range) -> Subset:
        """Returns the subset with the indices of a range with a positive step."""
        handle = ctypes.c_void_p()
        end = max(chosen.start, chosen.stop)
        return _made(lib.diesel_subset_slice(dataset, _handle(of), chosen.start, end, chosen.step, byref(handle)),
                     handle, path)

    @classmethod
    def filter(cls, dataset: Any, path: str, of: Subset | None, classes: bytes | None, pattern: str | None) -> Subset:
        """Returns the matching samples. classes: a byte per class, 1 to include it, and one more for samples without a class. pattern: as
        for fnmatch(3)."""
        handle = ctypes.c_void_p()
        text = None if pattern is None else os.fsencode(pattern)
        return _made(lib.diesel_subset_filter(dataset, _handle(of), classes, text, byref(handle)), handle, path)

    @staticmethod
    def stranger(dataset: Any, path: str, of: Subset | None, kind: int) -> int | None:
        """Returns the first sample of a kind: native.NO_IMAGE or NO_CLASS; None: there is none."""
        number = native.c_uint64()
        result: int = lib.diesel_subset_stranger(dataset, _handle(of), kind, byref(number))
        if result < 0:
            raise errors.of_look_up(result, path, os.strerror(-result))
        return number.value if result else None

    @classmethod
    def split(cls, dataset: Any, path: str, of: Subset | None, sizes: Sequence[int], seed: int,
              by_class: bool) -> list[Subset]:
        """Splits the samples at random into subsets of these sizes."""
        numbers, handles = (native.c_uint64 * len(sizes))(*sizes), (ctypes.c_void_p * len(sizes))()
        result = lib.diesel_subset_split(dataset, _handle(of), numbers, len(sizes), seed, by_class, handles)
        return [_made(result, ctypes.c_void_p(handle), path) for handle in handles]

    def __len__(self) -> int:
        return self._count

    def sample(self, k: int) -> int:
        """Returns the number of the k-th sample."""
        number = native.c_uint64()
        if lib.diesel_subset_sample(self.handle, k, byref(number)) < 0:
            raise IndexError(k)
        return number.value

    def samples(self) -> Any:
        """Returns all sample numbers, as a ctypes array."""
        numbers = (native.c_uint64 * self._count)()
        lib.diesel_subset_samples(self.handle, numbers)
        return numbers

    def to_indices(self, numbers: Any, count: int) -> None:
        """Replaces the first `count` sample numbers in a ctypes array by their indices in the subset."""
        if lib.diesel_subset_indices(self.handle, numbers, count) < 0:
            raise IndexError("a sample that is not in the subset")

    def n_bytes(self, dataset: Any, path: str) -> int:
        """Returns the total size of the subset's samples, in bytes."""
        count = native.c_uint64()
        result = lib.diesel_subset_bytes(dataset, self.handle, byref(count))
        if result < 0:
            raise errors.of_look_up(result, path, os.strerror(-result))
        return count.value

    def words(self) -> tuple[int, bytes]:
        """Returns the dataset's number of samples, and a bit per sample, in little-endian words of 64 bits."""
        n_samples = native.c_uint64()
        words = lib.diesel_subset_words(self.handle, byref(n_samples))
        return n_samples.value, ctypes.string_at(words, (n_samples.value + 63) // 64 * 8)

    def digest(self) -> str:
        """Returns a digest that identifies the subset."""
        import hashlib  # importing it takes as long as all of this package, and it is rarely needed
        return hashlib.sha256(self.words()[1]).hexdigest()[:16]

    def __reduce__(self) -> Any:
        return _load, self.words()

    def __del__(self) -> None:
        lib.diesel_subset_free(self.handle)


def _load(n_samples: int, words: bytes) -> Subset:
    handle = ctypes.c_void_p()
    return _made(lib.diesel_subset_load(n_samples, words, byref(handle)), handle, "a dataset")
