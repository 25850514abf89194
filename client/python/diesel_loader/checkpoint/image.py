# SPDX-License-Identifier: Apache-2.0
"""Lays out a file of torch.save()'s format in memory, around the place of each tensor's bytes. Needs no torch.

The file is a zip archive without compression. Its records have no checksum here: each one's follows its bytes (a "data
descriptor"), and the process that writes the file fills it in (seal.py).
"""
from __future__ import annotations

import struct

ALIGNMENT = 64   # as torch.save() aligns tensors, for torch.load(mmap=True)
NO_PATCH = 2**64 - 1
_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_END_64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR = struct.Struct("<4sIQI")
_EXTRA = struct.Struct("<2H")
_DESCRIBED, _UTF_8 = 1 << 3, 1 << 11
_FULL, _FULL_16 = 0xffffffff, 0xffff
_OLD, _NEW = 20, 45      # versions of the format: without and with 64-bit sizes
_DATE = 33               # 1980-01-01
_CENTRAL_CRC = 16
_PADDING = 0x4246        # torch's own tag


def bound(records: list[tuple[str, int]]) -> int:
    """Returns the size that an archive of these records (name, bytes) at most needs."""
    return sum(2 * len(name) + size + ALIGNMENT + 256 for name, size in records) + 512


class Archive:
    """An archive in memory, from offset begin on. Offsets are of the memory."""

    def __init__(self, memory: memoryview, begin: int, folder: str | None = "archive") -> None:
        self._memory, self._begin, self._at, self._folder = memory, begin, begin, f"{folder}/" if folder else ""
        self._central: list[tuple[bytes, int, int]] = []   # name, size, offset in the archive
        self.records: list[list[int]] = []                 # [offset, size, two places of its checksum]

    def add(self, name: str, size: int) -> int:
        """Adds a record, and returns the offset where its bytes belong."""
        path = f"{self._folder}{name}".encode()
        large = _EXTRA.pack(1, 16) + bytes(16) if size >= _FULL else b""
        data = self._at + _LOCAL.size + len(path) + len(large) + _EXTRA.size
        padding = -(data - self._begin) % ALIGNMENT
        extra = large + _EXTRA.pack(_PADDING, padding) + b"Z" * padding
        sizes = (_FULL, _FULL) if large else (0, 0)
        self._put(self._at, _LOCAL.pack(b"PK\3\4", _NEW if large else _OLD, _DESCRIBED | _UTF_8, 0, 0, _DATE, 0, *sizes, len(path), len(extra))
                  + path + extra)
        data += padding
        descriptor = data + size
        self._put(descriptor, struct.pack("<4sIQQ" if large else "<4sIII", b"PK\7\x08", 0, size, size))
        self._central.append((path, size, self._at - self._begin))
        self.records.append([data, size, descriptor + 4, NO_PATCH])
        self._at = descriptor + (24 if large else 16)
        return data

    def add_bytes(self, name: str, data: bytes) -> None:
        self._put(self.add(name, len(data)), data)

    def end(self) -> int:
        """Writes the directory of the archive, and returns the offset of the archive's end."""
        start = self._at
        for (path, size, offset), record in zip(self._central, self.records):
            large = [value for value in (size, size, offset) if value >= _FULL]
            extra = _EXTRA.pack(1, 8 * len(large)) + struct.pack(f"<{len(large)}Q", *large) if large else b""
            version = _NEW if large else _OLD
            record[3] = self._at + _CENTRAL_CRC
            self._at = self._put(self._at, _CENTRAL.pack(b"PK\1\2", version, version, _DESCRIBED | _UTF_8, 0, 0, _DATE, 0, min(size, _FULL),
                                                         min(size, _FULL), len(path), len(extra), 0, 0, 0, 0, min(offset, _FULL)) + path + extra)
        n, size, offset = len(self._central), self._at - start, start - self._begin
        if n >= _FULL_16 or size >= _FULL or offset >= _FULL:
            end = self._at - self._begin
            self._at = self._put(self._at, _END_64.pack(b"PK\6\6", _END_64.size - 12, _NEW, _NEW, 0, 0, n, n, size, offset)
                                 + _LOCATOR.pack(b"PK\6\7", 0, end, 1))
        self._at = self._put(self._at, _END.pack(b"PK\5\6", 0, 0, min(n, _FULL_16), min(n, _FULL_16), min(size, _FULL), min(offset, _FULL), 0))
        return self._at

    def _put(self, at, data):
        self._memory[at:at + len(data)] = data
        return at + len(data)
