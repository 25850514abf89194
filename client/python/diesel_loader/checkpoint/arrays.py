# SPDX-License-Identifier: Apache-2.0
"""A state of NumPy's arrays as an .npz file, without torch: an array for each one, and tree.json, which says where they belong.

A value of tree.json is a number, text, true, false or null, or one of {"dict": [[key, value], ...]}, {"list": [...]},
{"tuple": [...]}, {"array": name}, {"scalar": name}, {"bytes": name}. "dtype" names a type of ml_dtypes, such as bfloat16, of
which the file has the bytes.
"""
from __future__ import annotations

import io
import json
import types
import urllib.parse
from typing import Any

import numpy

from . import image
from .persist import RECORD
from .snapshot import Image

TREE = "tree.json"


class _Bytes:
    """The memory of an array, as snapshot.py asks for it."""

    device = types.SimpleNamespace(type="cpu")

    def __init__(self, array: Any) -> None:
        self._array = array

    def nbytes(self) -> int:
        return int(self._array.nbytes)

    def data_ptr(self) -> int:
        return int(self._array.ctypes.data)


class Arrays:
    """As tensors.Pickled. Raises TypeError for a state that could not be restored as it is."""

    FILE, KIND = "state.npz", "numpy"

    def __init__(self, state: object) -> None:
        self._arrays: dict[str, tuple[bytes, Any]] = {}   # header and array
        try:
            self._tree = json.dumps(self._encoded(state, ())).encode()
        except RecursionError:
            raise TypeError("the state contains itself, or is nested too deeply: pass arrays, numbers, texts, and dicts, lists and tuples of "
                            "them") from None
        self.kinds = frozenset({Arrays})

    def check(self) -> None:
        pass   # done

    def _encoded(self, value, path):
        kind = type(value)
        if value is None or kind in (bool, int, float, str):
            return value
        if kind is dict:
            wrong = next((key for key in value if type(key) not in (str, int)), None)
            if wrong is not None:
                raise TypeError(f"{_named(path)} has the key {wrong!r}: keys of a checkpoint must be texts or integers")
            return {"dict": [[key, self._encoded(item, (*path, key))] for key, item in value.items()]}
        if kind in (list, tuple):
            return {kind.__name__: [self._encoded(item, (*path, i)) for i, item in enumerate(value)]}
        if kind in (bytes, bytearray):
            return {"bytes": self._added(numpy.frombuffer(value, numpy.uint8), path)[0]}
        if kind.__module__.partition(".")[0] in ("jax", "jaxlib") and hasattr(value, "__array__"):
            value = numpy.asarray(value)
            kind = type(value)
        if kind is not numpy.ndarray and not isinstance(value, numpy.generic):
            raise TypeError(f"{_named(path)} is of the type {kind.__module__}.{kind.__qualname__}, which a checkpoint cannot restore: pass NumPy's "
                            f"arrays, numbers, texts, and dicts, lists and tuples of them")
        name, dtype = self._added(numpy.asarray(value), path)
        return {"array" if kind is numpy.ndarray else "scalar": name, **({"dtype": dtype} if dtype else {})}

    def _added(self, array, path):
        dtype = array.dtype
        named = dtype.type.__module__.partition(".")[0] == "ml_dtypes"
        if not named and (dtype.hasobject or numpy.lib.format.descr_to_dtype(numpy.lib.format.dtype_to_descr(dtype)) != dtype):
            raise TypeError(f"{_named(path)} is an array of {dtype}, which a file of NumPy cannot hold without pickle: convert it, such as by "
                            f".astype(float)")
        if named:
            array = numpy.ascontiguousarray(array).reshape(array.shape).view(f"u{dtype.itemsize}")
        header = numpy.lib.format.header_data_from_array_1_0(array)
        if not header["fortran_order"]:
            array = numpy.ascontiguousarray(array).reshape(array.shape)
        file = io.BytesIO()
        try:
            numpy.lib.format.write_array_header_1_0(file, header)
        except ValueError:   # of many fields
            file = io.BytesIO()
            numpy.lib.format.write_array_header_2_0(file, header)
        base = name = "/".join(urllib.parse.quote(str(key), safe=" ").replace(".", "%2E") for key in path) or "state"
        while name in self._arrays:
            name = f"{base}~{len(self._arrays)}"
        self._arrays[name] = (file.getvalue(), array)
        return name, dtype.name if named else None

    def bound(self) -> int:
        records = [(f"{name}.npy", len(header) + array.nbytes) for name, (header, array) in self._arrays.items()]
        return image.bound([*records, (TREE, len(self._tree))]) + RECORD.size * (len(records) + 2)

    def fill(self, memory: memoryview, begin: int = 0) -> Image:
        archive, parts = image.Archive(memory, begin, None), []
        for name, (header, array) in self._arrays.items():
            at = archive.add(f"{name}.npy", len(header) + array.nbytes)
            memory[at:at + len(header)] = header
            parts.append((at + len(header), _Bytes(array)))
        archive.add_bytes(TREE, self._tree)
        return Image(archive.end(), archive.records, parts)


def _named(path):
    return "the state" + "".join(f"[{key!r}]" for key in path)


def load(file: Any) -> Any:
    """Returns the state of a file or path."""
    with numpy.load(file, allow_pickle=False) as arrays:
        return _decoded(json.loads(arrays[TREE]), arrays)


def _decoded(value, arrays):
    if not isinstance(value, dict):
        return value
    if "dict" in value:
        return {key: _decoded(item, arrays) for key, item in value["dict"]}
    if "list" in value:
        return [_decoded(item, arrays) for item in value["list"]]
    if "tuple" in value:
        return tuple(_decoded(item, arrays) for item in value["tuple"])
    if "bytes" in value:
        return arrays[value["bytes"]].tobytes()
    array = arrays[value.get("array", value.get("scalar"))]
    if "dtype" in value:
        import ml_dtypes
        array = array.view(getattr(ml_dtypes, value["dtype"]))
    return array if "array" in value else array[()]
