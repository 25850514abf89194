# SPDX-License-Identifier: Apache-2.0
"""Makes fields of Python values, for writers."""
from __future__ import annotations

import ctypes
import io
import json
import struct
import sys

from .. import native
from . import npy
from .decode import SPECIAL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

IMAGES = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF87a", b"GIF89a", b"BM", b"II*\0", b"MM\0*")


def is_image(data: bytes) -> bool:
    return data.startswith(IMAGES) or (data[:4] == b"RIFF" and data[8:12] == b"WEBP")


def _is_of(value: Any, module: str, *classes: str) -> bool:
    """Returns True if the value is an instance of one of these classes of a module, which is not imported for this."""
    known = sys.modules.get(module)
    return known is not None and isinstance(value, tuple(getattr(known, name) for name in classes))


def _png(image: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def _of_array(value: Any) -> bytes:
    if value.dtype.hasobject:
        raise TypeError("it is an array of Python objects")
    if not npy.holds(value.dtype):
        raise TypeError(f"it is an array of {value.dtype}, which a .npy file cannot hold: convert it, such as with .astype('float32')")
    return npy.encode(value)


def encoded(value: Any) -> tuple[int, Any]:
    """Returns (kind, bytes) of a value. Raises TypeError, ValueError."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = value if isinstance(value, bytes) else bytes(value)
        return native.FIELD_IMAGE if is_image(data) else native.FIELD_BYTES, data
    if isinstance(value, str):
        return native.FIELD_TEXT, value.encode()
    if value is None:
        return native.FIELD_NONE, b""
    if isinstance(value, bool):
        return native.FIELD_BOOL, bytes([value])
    if isinstance(value, int):
        if not -1 << 63 <= value < 1 << 63:
            raise ValueError(f"{value} has more than 64 bits: write it as text")
        return native.FIELD_INT, struct.pack("<q", value)
    if _is_of(value, "numpy", "ndarray", "generic"):  # before float: numpy.float64 is one
        return native.FIELD_ARRAY, _of_array(value)
    if isinstance(value, float):
        return native.FIELD_FLOAT, struct.pack("<d", value)
    if _is_of(value, "torch", "Tensor"):
        return native.FIELD_ARRAY, npy.encode(value.detach().cpu().numpy())
    if _is_of(value, "PIL.Image", "Image"):
        return native.FIELD_IMAGE, _png(value)
    if isinstance(value, (dict, list, tuple)):
        return native.FIELD_JSON, json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    raise TypeError(f"it is of type {type(value).__name__}, but fields are bytes, str, int, float, bool, None, arrays, tensors, PIL images, or "
                    "lists and dicts that JSON can hold")


def fields_of(sample: Mapping[str, Any], path: str) -> tuple[Any, int, list[Any]]:
    """Returns (an array of native.Field, their number, objects that own their memory). Raises TypeError, ValueError."""
    if len(sample) > native.FIELDS_MAX or not sample:
        raise ValueError(f"{path!r} has {len(sample)} fields: a sample has 1 to {native.FIELDS_MAX}")
    fields = (native.Field * len(sample))()
    owners: list[bytes] = []
    for field, (name, value) in zip(fields, sample.items()):
        if not isinstance(name, str):
            raise TypeError(f"{path!r}: names of fields must be str, not {name!r}")
        if name in SPECIAL:
            raise ValueError(f"{path!r}: {name} is no name for a field, because it stands for the sample's {name.strip('_')}")
        try:
            kind, data = encoded(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise (TypeError if isinstance(error, TypeError) else ValueError)(f"field {name!r} of {path!r}: {error}") from None
        text = name.encode("utf-8", "surrogateescape")
        field.name, field.name_length = ctypes.cast(ctypes.c_char_p(text), ctypes.c_void_p), len(text)
        field.data, field.bytes, field.kind = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p), len(data), kind
        owners += (text, data)
    return fields, len(sample), owners
