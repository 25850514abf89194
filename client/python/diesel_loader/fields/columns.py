# SPDX-License-Identifier: Apache-2.0
"""Samples as they lie in the shards of MosaicML Streaming (MDS) and in the chunks of LitData: the lengths of the values, then the
values. Names and encodings are in index.json, once for all samples."""
from __future__ import annotations

import ctypes
import functools
import json
import os
import struct

from .. import native
from . import decode
from .encode import is_image

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

INDEX = "index.json"
MDS, LITDATA = "mds", "litdata"
# Encodings whose values libdiesel's kinds hold as they are.
KINDS = {MDS: {"bytes": native.FIELD_BYTES, "str": native.FIELD_TEXT, "int": native.FIELD_INT, "int64": native.FIELD_INT, "float64": native.FIELD_FLOAT,
               "jpeg": native.FIELD_IMAGE, "png": native.FIELD_IMAGE, "json": native.FIELD_JSON},
         LITDATA: {"bytes": native.FIELD_BYTES, "file": native.FIELD_BYTES, "str": native.FIELD_TEXT, "text": native.FIELD_TEXT, "int": native.FIELD_INT,
                   "integer": native.FIELD_INT, "float": native.FIELD_FLOAT, "bool": native.FIELD_BOOL, "boolean": native.FIELD_BOOL,
                   "jpeg": native.FIELD_IMAGE, "image": native.FIELD_IMAGE}}
NUMBERS = {"uint8": "B", "int8": "b", "uint16": "H", "int16": "h", "uint32": "I", "int32": "i", "uint64": "Q", "float16": "e", "float32": "f"}  # of MDS
DECODED = native.FIELD_JSON  # kind of values that decoder() decodes
SIZES = {native.FIELD_INT: 8, native.FIELD_FLOAT: 8, native.FIELD_BOOL: 1}
RUNS_CODE = ("pkl", "pickle", "graph")  # encodings that may hold a pickle
ARRAYS = {8: "uint8", 9: "int8", 16: "uint16", 17: "int16", 18: "float16", 32: "uint32", 33: "int32", 34: "float32", 64: "uint64", 65: "int64",
          66: "float64"}  # the first byte of an ndarray of MDS


class Columns:
    """The columns of an index.json, or of the folder that has one; each may be in a bucket. text: its content. Raises OSError, ValueError."""

    def __init__(self, path: str | os.PathLike[str], text: bytes | None = None) -> None:
        self.path, read = _place_of(os.fspath(path), text)
        try:
            index = json.loads(read)
            self.format, self.names, self.encodings, fixed = _of_mds(index) if "shards" in index else _of_litdata(index)
            _check(self.names, self.encodings, fixed)
        except (LookupError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"{self.path} is no index of MDS shards or LitData chunks ({type(error).__name__}: {error})") from None
        except ValueError as error:
            raise ValueError(f"{self.path}: {error}") from None
        self._fixed = fixed  # length of each value; 0: it differs
        self._n_lengths = fixed.count(0)
        self.kinds = tuple(KINDS[self.format].get(encoding.partition(":")[0], DECODED) for encoding in self.encodings)

    def places(self, address: int, size: int) -> list[tuple[int, int]]:
        """Returns the (address, length) of each value of a sample in memory. Raises ValueError: it is no such sample."""
        at = 4 * self._n_lengths
        if at > size:
            raise ValueError("it is shorter than the lengths of its values")
        lengths = iter(struct.unpack(f"<{self._n_lengths}I", ctypes.string_at(address, at)))
        found = []
        for kind, fixed in zip(self.kinds, self._fixed):
            length = fixed or next(lengths)
            found.append((address + at, length))
            at += length
            if SIZES.get(kind, length) != length:
                raise ValueError("a number has another length")
        if at != size:
            raise ValueError(f"its values have {at} bytes together, but it has {size}")
        return found


def _place_of(path: str, text: bytes | None) -> tuple[str, bytes]:
    """Returns (path, content) of an index.json."""
    if text is None and path.startswith("s3://"):
        from ..writing import objects
        path = path if path.endswith(".json") else f"{path.rstrip('/')}/{INDEX}"
        try:
            return path, objects.Object(path).read_bytes()
        except objects.Wrong as error:
            raise OSError(str(error)) from None
        finally:
            objects.close()
    if text is None:
        path = os.path.join(path, INDEX) if os.path.isdir(path) else path
        with open(path, "rb") as file:
            text = file.read()
    return path, text


def _check(names: tuple[str, ...], encodings: tuple[str, ...], fixed: tuple[int, ...]) -> None:
    """Raises ValueError for columns that no writer makes. Lengths below zero would lead out of a sample."""
    if not names or not len(names) == len(encodings) == len(fixed) or len(set(names)) < len(names):
        raise ValueError("its columns have no names, or names that occur twice")
    if not all(isinstance(text, str) for text in (*names, *encodings)) or not all(isinstance(size, int) and 0 <= size < 1 << 31 for size in fixed):
        raise ValueError("its columns have names, encodings or sizes that they cannot have")


def _of_mds(index: dict[str, Any]) -> tuple[str, tuple[str, ...], tuple[str, ...], tuple[int, ...]]:
    found = None
    for shard in index["shards"]:
        if shard["format"] != "mds":
            raise ValueError(f"its shards are of format {shard['format']}, not mds")
        columns = (tuple(shard["column_names"]), tuple(shard["column_encodings"]), tuple(size or 0 for size in shard["column_sizes"]))
        if found not in (None, columns):
            raise ValueError("its shards have different columns")
        found = columns
    if found is None:
        raise ValueError("it lists no shards")
    return MDS, *found


def _of_litdata(index: dict[str, Any]) -> tuple[str, tuple[str, ...], tuple[str, ...], tuple[int, ...]]:
    config = index["config"]
    if (config.get("item_loader") or "PyTreeLoader") != "PyTreeLoader":
        raise ValueError(f"its chunks are for {config['item_loader']}, such as tokens, and have no samples")
    names: list[str] = []

    def walk(spec: dict[str, Any], path: tuple[str, ...]) -> None:
        kind, parts = spec["type"], spec["children_spec"]
        if kind is None:
            names.append(".".join(path) or "data")
            return
        if kind not in ("builtins.dict", "builtins.list", "builtins.tuple", "collections.OrderedDict"):
            raise ValueError(f"its samples have a {kind}")
        keys = json.loads(spec["context"]) if kind.endswith("ict") else range(len(parts))
        for key, part in zip(keys, parts):
            walk(part, (*path, str(key)))
    walk(json.loads(config["data_spec"])[1], ())
    encodings = tuple(config["data_format"])
    return LITDATA, tuple(names), encodings, (0,) * len(names)


def _ndarray(dtype: str, shape: str, data: bytes) -> Any:
    """Decodes an array of MDS, whose type and shape are in its encoding or in front of it."""
    import numpy
    at = 0
    if not dtype:
        dtype, at = ARRAYS[data[0]], 1
    sides: Any = tuple(map(int, shape.split(","))) if shape else None
    if sides is None:
        n, size = data[at] >> 2, 1 << data[at] % 4
        at += 1 + n * size
        sides = tuple(numpy.frombuffer(data[at - n * size:at], f"<u{size}").tolist())
    return numpy.frombuffer(data, numpy.dtype(dtype).newbyteorder("<"), offset=at).astype(dtype).reshape(sides)


@functools.lru_cache(maxsize=1024)
def decoder(form: str, encoding: str) -> Callable[[bytes], Any]:
    """Returns the function that makes a value of bytes. ImportError: it is that of a package that is not installed."""
    if form == MDS:
        name, _, rest = encoding.partition(":")
        if name in NUMBERS:
            return lambda data: struct.unpack(f"<{NUMBERS[name]}", data)[0]
        if name == "ndarray":
            dtype, _, shape = rest.partition(":")
            return functools.partial(_ndarray, dtype, shape)
        from streaming.base.format.mds.encodings import mds_decode  # type: ignore[import-not-found, import-untyped, unused-ignore]
        return functools.partial(mds_decode, encoding)
    from litdata.streaming.serializers import _get_serializers  # type: ignore[import-not-found, import-untyped, unused-ignore]
    made = _get_serializers(None)[encoding.partition(":")[0]]
    made.setup(encoding)
    deserialize: Callable[[bytes], Any] = made.deserialize
    if "tensor" in encoding:  # arrays, as fields have them, whose memory may be written to
        return lambda data: deserialize(bytearray(data)).numpy()  # type: ignore[arg-type]
    return deserialize


class ColumnReader(decode.Reader):
    """Reads the chosen columns of samples. Values that may be pickles are left out."""

    not_native = "only index.json names the columns, which dieseld does not read"

    def __init__(self, columns: Columns, names: Iterable[str] | None, path: str) -> None:
        safe = [name for name, encoding in zip(columns.names, columns.encodings) if encoding.partition(":")[0] not in RUNS_CODE]
        super().__init__(native.LAYOUT_FIELDS, names, path)
        self.columns, self.form = columns, columns.format
        for name in self._stored:
            if name in columns.names and name not in safe:
                raise ValueError(f"column {name!r} of {columns.path} may hold pickles, which run code when they are read: leave it out of fields=")
            if name not in columns.names:
                raise ValueError(f"{columns.path} has no column {name!r}, but {', '.join(safe)}")
        self._safe = safe
        self._numbers = {name: k for k, name in enumerate(columns.names)}
        self._encodings = {name: columns.encodings[k] for name, k in self._numbers.items() if columns.kinds[k] == DECODED}

    def listed(self, address: int, size: int) -> list[tuple[str, int, int, int]]:
        places = self.columns.places(address, size)
        return [(name, self._kind(k, *places[k]), *places[k]) for name, k in self._numbers.items() if name in self._safe]

    def _search(self, found: decode.Found, items: Any) -> int | None:
        n = found.n
        numbers = [self._numbers[name] for name in found.names]
        kinds = bytearray(n * len(numbers))
        for i in range(n):
            try:
                places = self.columns.places(items[i].data or 0, items[i].bytes)
            except ValueError:
                return i
            for k, number in enumerate(numbers):
                found.addresses[k * n + i], found.sizes[k * n + i] = places[number]
                kinds[k * n + i] = self._kind(number, *places[number])
            found.counts[i] = len(numbers)
        found.kinds = bytes(kinds)
        return None

    def _kind(self, number: int, address: int, size: int) -> int:
        """Returns the kind of a value: bytes may be an image, as create() finds out, too."""
        kind = self.columns.kinds[number]
        return native.FIELD_IMAGE if kind == native.FIELD_BYTES and is_image(ctypes.string_at(address, min(size, 12))) else kind

    def value(self, name: str, kind: int, address: int, size: int, named: Callable[[int], str], i: int) -> Any:
        encoding = self._encodings.get(name)
        if encoding is None or encoding == "json" and self.form == MDS:
            return super().value(name, kind, address, size, named, i)
        try:
            made = decoder(self.form, encoding)
        except KeyError:
            raise ValueError(f"column {name!r} of {self.columns.path} has the encoding {encoding}, which litdata does not know: choose others with fields=") from None
        except ImportError as error:
            raise ImportError(f"column {name!r} of {self.columns.path} has the encoding {encoding}, which needs the package {error.name}: pip install "
                              f"{'mosaicml-streaming' if self.form == MDS else 'litdata'}, or choose others with fields=") from None
        try:
            return made(ctypes.string_at(address, size))
        except Exception as error:  # of a package that does not say which
            raise decode.damaged(f"column {name!r} of {named(i)} is damaged: {type(error).__name__}: {' '.join(str(error).split())[:200]}") from None


def reader_of(path: str, layout: int, names: Sequence[str] | None, columns: Columns | None) -> decode.Reader | None:
    """Returns the reader of a dataset's samples. None: they have no fields."""
    if layout != native.LAYOUT_PLAIN:
        if columns is not None:
            raise ValueError(f"samples of {path} have fields of their own: leave out columns=")
        return decode.Reader(layout, names, path)
    if columns is not None:
        return ColumnReader(columns, names, path)
    if names is not None:
        raise ValueError(f"samples of {path} have no fields: leave out fields={tuple(names)!r}")
    return None
