# SPDX-License-Identifier: Apache-2.0
"""Arrays as .npy files in memory."""
from __future__ import annotations

import functools
import io

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAGIC = b"\x93NUMPY"


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        raise ImportError("fields that are arrays need NumPy: pip install numpy") from None
    return numpy


def header_bytes(data: bytes) -> int:
    """Returns the length of the header, from the first 12 bytes or more. Raises ValueError."""
    if len(data) < 12 or not data.startswith(MAGIC):
        raise ValueError("it is no .npy file")
    return 10 + int.from_bytes(data[8:10], "little") if data[6] == 1 else 12 + int.from_bytes(data[8:12], "little")


@functools.lru_cache(maxsize=256)
def parse_header(header: bytes) -> tuple[tuple[int, ...], bool, Any]:
    """Returns (shape, whether it is in Fortran order, dtype). Raises ValueError."""
    numpy = _numpy()
    file = io.BytesIO(header)
    version = tuple(header[6:8])
    file.seek(8)
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise ValueError(f"it is a .npy file of version {version}")
    # The format of 2.0 and 3.0 differs only in the length and the encoding of the header.
    read = numpy.lib.format.read_array_header_1_0 if version == (1, 0) else numpy.lib.format.read_array_header_2_0
    try:
        shape, is_fortran, dtype = read(file)
    except Exception as error:  # of several classes: the header is parsed as Python
        raise ValueError(f"its header is damaged: {error}") from None
    if dtype.hasobject:
        raise ValueError("it is an array of Python objects")
    if any(side < 0 for side in shape):
        raise ValueError(f"it has shape {shape}")
    return shape, is_fortran, dtype


@functools.lru_cache(maxsize=256)
def holds(dtype: Any) -> bool:
    """Returns False for types of other packages, such as bfloat16, of which a header has only the size."""
    try:
        return dtype.names is not None or bool(_numpy().dtype(dtype.str) == dtype)
    except TypeError:
        return False


def data_bytes(shape: tuple[int, ...], dtype: Any) -> int:
    n: int = dtype.itemsize
    for side in shape:
        n *= side
    return n


def decode(data: bytes) -> Any:
    """Returns the array, whose memory is its own. Raises ValueError."""
    begin = header_bytes(data)
    shape, is_fortran, dtype = parse_header(data[:begin])
    if len(data) - begin != data_bytes(shape, dtype):
        raise ValueError(f"its data has {len(data) - begin} bytes, its shape {shape} of {dtype} needs {data_bytes(shape, dtype)}")
    if not data_bytes(shape, dtype):
        return _numpy().empty(shape, dtype)
    flat = _numpy().frombuffer(data, dtype=dtype, offset=begin).copy()
    return flat.reshape(shape[::-1]).transpose() if is_fortran else flat.reshape(shape)


@functools.lru_cache(maxsize=256)
def _header(dtype: str, shape: tuple[int, ...]) -> bytes:
    file = io.BytesIO()
    _numpy().lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
    return file.getvalue()


def encode(array: Any) -> bytes:
    """Returns the .npy file, version 1.0, of an array or a NumPy scalar."""
    numpy, file = _numpy(), io.BytesIO()
    array = numpy.asanyarray(array)
    if array.dtype.kind in "biufc" and (array.flags.c_contiguous or not array.flags.f_contiguous):
        return _header(array.dtype.str, array.shape) + array.tobytes()
    numpy.lib.format.write_array(file, array, version=(1, 0), allow_pickle=False)
    return file.getvalue()
