# SPDX-License-Identifier: Apache-2.0
"""Values in the encodings of MosaicML Streaming (MDS) and LitData that libdiesel leaves as bytes."""
from __future__ import annotations

import ctypes
import functools
import struct

from .. import native
from . import decode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

NUMBERS = {"uint8": "B", "int8": "b", "uint16": "H", "int16": "h", "uint32": "I", "int32": "i", "uint64": "Q", "float16": "e", "float32": "f"}  # of MDS
RUNS_CODE = ("pkl", "pickle", "graph")  # encodings that may hold a pickle
ARRAYS = {8: "uint8", 9: "int8", 16: "uint16", 17: "int16", 18: "float16", 32: "uint32", 33: "int32", 34: "float32", 64: "uint64", 65: "int64",
          66: "float64"}  # the first byte of an ndarray of MDS


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
def decoder(layout: int, encoding: str) -> Callable[[bytes], Any]:
    """Returns the function that makes a value of bytes. ImportError: it is that of a package that is not installed."""
    name, _, rest = encoding.partition(":")
    if layout == native.LAYOUT_MDS:
        if name in NUMBERS:
            return lambda data: struct.unpack(f"<{NUMBERS[name]}", data)[0]
        if name == "ndarray":
            dtype, _, shape = rest.partition(":")
            return functools.partial(_ndarray, dtype, shape)
        from streaming.base.format.mds import encodings  # type: ignore[import-not-found, import-untyped, unused-ignore]
        if not encodings.is_mds_encoding(encoding):
            raise KeyError(encoding)
        return functools.partial(encodings.mds_decode, encoding)
    from litdata.streaming.serializers import _get_serializers  # type: ignore[import-not-found, import-untyped, unused-ignore]
    made = _get_serializers(None)[name]
    made.setup(encoding)
    deserialize: Callable[[bytes], Any] = made.deserialize
    if "tensor" in encoding:  # arrays, as fields have them, whose memory may be written to
        return lambda data: deserialize(bytearray(data)).numpy()  # type: ignore[arg-type]
    return deserialize


class ColumnReader(decode.Reader):
    """Reads the chosen columns, which all samples have. None of them may be a pickle."""

    def __init__(self, form: decode.Form, names: Iterable[str] | None, path: str, native_field: str | None = None) -> None:
        try:
            self._encodings = {name: encoding for name, (_, encoding) in decode.encodings_of(form).items()}
        except ValueError:
            raise decode.damaged(f"the columns of {path} are damaged: run `dieselctl snapshot {path}`") from None
        self.columns = tuple(name for name, encoding in self._encodings.items() if encoding.partition(":")[0] not in RUNS_CODE)
        super().__init__(form, (self.columns or None) if names is None else names, path, native_field)   # None: value() refuses them
        for name in self._stored:
            if name in self.columns:
                continue
            if name in self._encodings:
                raise self._pickles(name)
            raise ValueError(f"{path} has no column {name!r}, but {', '.join(self.columns)}")

    def _pickles(self, name: str) -> ValueError:
        return ValueError(f"column {name!r} of {self.path} may hold pickles, which run code when they are read: leave it out of fields=")

    def value(self, name: str, kind: int, address: int, size: int, named: Callable[[int], str], i: int) -> Any:
        if kind != native.FIELD_ENCODED:
            return super().value(name, kind, address, size, named, i)
        if name not in (self.columns or ()):
            raise self._pickles(name)
        encoding, is_mds = self._encodings[name], self.layout == native.LAYOUT_MDS
        package = "mosaicml-streaming" if is_mds else "litdata"
        try:
            made = decoder(self.layout, encoding)
        except ImportError as error:
            raise ImportError(f"column {name!r} of {self.path} has the encoding {encoding}, which needs the package {error.name}: pip install "
                              f"{package}, or choose others with fields=") from None
        except Exception:  # which depends on the package
            raise ValueError(f"column {name!r} of {self.path} has the encoding {encoding}, which {package} does not know: choose others with fields=") from None
        try:
            return made(ctypes.string_at(address, size))
        except Exception as error:  # of a package that does not say which
            raise decode.damaged(f"column {name!r} of {named(i)} is damaged: {type(error).__name__}: {' '.join(str(error).split())[:200]}") from None


def reader_of(path: str, layout: int, columns: bytes, names: Sequence[str] | None) -> decode.Reader | None:
    """Returns the reader of a dataset's samples. None: they have no fields."""
    if layout != native.LAYOUT_PLAIN:
        made = ColumnReader if layout in decode.COLUMNS else decode.Reader
        return made(decode.Form(layout, columns), names, path)
    if names is not None:
        raise ValueError(f"samples of {path} have no fields: leave out fields={tuple(names)!r}")
    return None
