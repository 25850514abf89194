# SPDX-License-Identifier: Apache-2.0
"""Samples and batches as NumPy's arrays. tensors.py has the same for torch."""
from __future__ import annotations

import collections.abc
import contextlib
import functools
import importlib
import multiprocessing

import numpy

from .fields import check_rows, dtype_of, pad_fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def array_of(buffer, dtype, shape):
    """Returns an array that views the buffer and keeps it alive."""
    if not memoryview(buffer).nbytes:
        return numpy.empty(shape, dtype)
    return numpy.frombuffer(buffer, dtype=dtype).reshape(shape)


def collate(samples):
    """Combines a list of samples into one batch, field by field. Arrays of one shape and dtype, and numbers, are stacked. Each
    field of mappings, tuples and lists is a batch (tuples and lists give a list). Anything else stays a list."""
    first = samples[0]
    if isinstance(first, numpy.ndarray):
        same = all(isinstance(s, numpy.ndarray) and s.shape == first.shape and s.dtype == first.dtype for s in samples)
        return numpy.stack(samples) if same else samples
    if isinstance(first, (bool, int, float, complex, numpy.number, numpy.bool_)):
        return numpy.asarray(samples)
    if isinstance(first, collections.abc.Mapping):
        return {key: collate([sample[key] for sample in samples]) for key in first}
    if isinstance(first, (tuple, list)):
        if any(len(sample) != len(first) for sample in samples):
            raise ValueError("samples of one batch have different numbers of fields: pass collate_fn=")
        return [collate(list(field)) for field in zip(*samples)]
    return samples


def list_collate(samples: list[Any]) -> list[Any]:
    """A collate_fn that leaves the samples as they are, in a list: [list of B samples, labels] or [list, labels, ids]. Dicts of
    fields stay a list of dicts.

    Where there is no loader and no transform either, dieseld gathers nothing: each is copied once, from where it has the samples."""
    if isinstance(samples[0], dict):
        return samples
    return [[sample[0] for sample in samples], *collate([sample[1:] for sample in samples])]


def pad_collate(samples: list[Any], value: float = 0, multiple: int = 1) -> Any:
    """A collate_fn that puts samples of different lengths in one array, padded at the end.

    samples: (sample, label) or (sample, label, number); samples are arrays [L] or [L, ...] that differ only in L. Gives
    [data, labels, lengths] or [data, labels, ids, lengths]: data [B, longest L, ...], filled up with `value`, lengths
    int64 [B]. multiple: the length of data is a multiple of this number. For other arguments, pass
    functools.partial(pad_collate, value=-1).

    If samples have fields, pads each field of 1-D arrays, and adds its lengths as FIELD_lengths."""
    if isinstance(samples[0], dict):
        return pad_fields(Arrays(), samples, functools.partial(_padded, value=value, multiple=multiple))
    data, lengths = _padded([sample[0] for sample in samples], value, multiple)
    return [data, *collate([sample[1:] for sample in samples]), lengths]


def _padded(arrays, value, multiple):
    """Returns (arrays of different lengths in one, their lengths). The dtype is one that holds the values of all."""
    longest = max(len(array) for array in arrays)
    check_rows(arrays)
    data = numpy.full((len(arrays), -(-longest // multiple) * multiple, *arrays[0].shape[1:]), value, numpy.result_type(*{array.dtype for array in arrays}))
    for row, array in zip(data, arrays):
        row[:len(array)] = array
    return data, numpy.array([len(array) for array in arrays])


class Arrays:
    """Creates and combines NumPy arrays, for Assembly, results and workers."""

    multiprocessing = multiprocessing
    list_collate = staticmethod(list_collate)
    byte = numpy.uint8
    of_torch = False

    def of(self, buffer, dtype, shape):
        """Returns an array that views a buffer and keeps it alive."""
        return array_of(buffer, dtype, shape)

    def of_bytes(self, data, name, shape):
        """Returns the array of this dtype in a bytearray."""
        return array_of(data, numpy.dtype(name), shape)

    def view(self, buffer):
        """Returns the bytes of a sample as a read-only 1-D array."""
        view = numpy.empty(0, numpy.uint8) if buffer is None else numpy.frombuffer(buffer, dtype=numpy.uint8)
        view.flags.writeable = False
        return view

    def numbers(self, buffer):
        """Returns a copy of the 64-bit integers in a buffer: int64, 1-D."""
        return numpy.frombuffer(buffer, dtype=numpy.int64).copy()

    def copy(self, array):
        return array.copy()

    def empty(self, shape, dtype):
        return numpy.empty(shape, dtype)

    def dtype(self, name):
        if name != "bfloat16":
            return numpy.dtype(name)
        try:
            return numpy.dtype(importlib.import_module("ml_dtypes").bfloat16)
        except ImportError:
            raise ValueError("bfloat16 arrays need the package ml_dtypes, which is not installed: "
                             "`pip install ml_dtypes`, or use float16") from None

    def element_bytes(self, dtype):
        return numpy.dtype(dtype).itemsize

    def collate(self, samples, allocate):
        """Like collate(), but stacks arrays of one shape in memory from allocate(shape, dtype)."""
        arrays = [sample[0] for sample in samples]
        first = arrays[0]
        if not all(type(a) is numpy.ndarray and a.shape == first.shape and a.dtype == first.dtype for a in arrays) \
                or first.dtype.hasobject:
            return collate(samples)
        out = numpy.stack(arrays, out=allocate((len(arrays), *first.shape), first.dtype))
        return [out, *collate([sample[1:] for sample in samples])]

    def column(self, values, allocate):
        """Returns the values of one field as an array: numbers, or arrays of one shape and dtype. Else the list itself."""
        if dtype := dtype_of(values):
            return numpy.array(values, dtype)
        first = values[0]
        if not isinstance(first, (numpy.ndarray, numpy.generic)) or first.dtype.hasobject or not all(
                type(v) is type(first) and v.shape == first.shape and v.dtype == first.dtype for v in values):
            return values
        return numpy.stack(values, out=allocate((len(values), *first.shape), first.dtype) if allocate else None)

    def out_of_band(self, obj):
        """Returns (address, bytes, owner, function that rebuilds the array from a buffer, its further arguments) if
        the data need not be pickled, else None."""
        if type(obj) is not numpy.ndarray or obj.dtype.hasobject:
            return None
        shape, obj = obj.shape, numpy.ascontiguousarray(obj)
        return obj.__array_interface__["data"][0], obj.nbytes, obj, array_of, (obj.dtype, shape)

    def begin_worker(self, number, n_workers, seed, dataset):
        """In a worker process."""

    def collating(self):
        return contextlib.nullcontext()
