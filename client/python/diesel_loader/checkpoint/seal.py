# SPDX-License-Identifier: Apache-2.0
"""Checksums of a file: made while it is written from memory, and compared when it is read.

A file's checksums are a list of [end, CRC-32], one for each large record and each piece between them. So the bytes of a
record are read once for the archive's own checksum and for the file's.
"""
from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator

from .image import NO_PATCH

BLOCK = 4 << 20
LARGE = 64 << 10
_CRC = struct.Struct("<I")


def seal(memory: memoryview, size: int, records: list[tuple[int, int, int, int]], sums: list[list[int]]) -> Iterator[int]:
    """Fills in the records' checksums (image.py) in memory, and appends the file's to sums. Yields offsets up to which
    the memory is final, at least one for each block."""
    at = crc = 0
    for offset, n_bytes, *places in sorted(records):
        if n_bytes < LARGE:
            _patch(memory, places, zlib.crc32(memory[offset:offset + n_bytes]))
            continue
        for at, crc in _run(memory, at, offset, crc):
            yield at
        sums.append([offset, crc])
        crc = 0
        for at, crc in _run(memory, offset, offset + n_bytes, 0):
            yield at
        sums.append([at, crc])
        _patch(memory, places, crc)
        crc = 0
    for at, crc in _run(memory, at, size, crc):
        yield at
    sums.append([size, crc])


def _run(memory, at, end, crc):
    yield at, crc
    while at < end:
        until = min(end, at + BLOCK)
        crc = zlib.crc32(memory[at:until], crc)
        at = until
        yield at, crc


def _patch(memory, places, crc):
    for place in places:
        if place != NO_PATCH:
            _CRC.pack_into(memory, place, crc)


def compare(fd: int, sums: list[list[int]]) -> str | None:
    """Returns None if the file has these checksums and ends with the last, else what is wrong with it."""
    size = os.fstat(fd).st_size
    if size != sums[-1][0]:
        return f"it has {size} bytes instead of {sums[-1][0]}"
    at, buffer = 0, bytearray(BLOCK)
    for end, wanted in sums:
        begin, crc = at, 0
        while at < end:
            n = os.preadv(fd, [memoryview(buffer)[:min(BLOCK, end - at)]], at)
            if n == 0:
                return f"it ends at byte {at}"
            crc = zlib.crc32(memoryview(buffer)[:n], crc)
            at += n
        if crc != wanted:
            return f"its bytes {begin} to {end} do not match their checksum"
    return None
