# SPDX-License-Identifier: Apache-2.0
"""A file with only those pages of an LMDB in a bucket that have its keys, where they are in the whole file. lmdb reads it as it reads the
whole file, as long as nobody reads long values, which have pages of their own."""
from __future__ import annotations

import contextlib
import os
import struct
import sys
import tempfile

from .objects import Object, Wrong

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import IO

MAGIC, PAGE_HEADER, DATABASE = 0xBEEFC0DE, 16, 48
BRANCH, LEAF, LEAF_OF_ARRAY = 1, 2, 0x20  # flags of pages
TREE, OF_VALUES = 2, 4  # flags of a node whose value is a database, and one with the values of one key
NONE = (1 << 64) - 1  # root of a database without keys
TOLD_BYTES = 64 << 20


@contextlib.contextmanager
def copied(file: Object, database: str | None) -> Iterator[str]:
    """Gives the path of a temporary file, in $TMPDIR."""
    with tempfile.NamedTemporaryFile(prefix="diesel-", suffix=".mdb") as to:
        _copy(file, database.encode() if database else None, to)
        to.flush()
        yield to.name


def _copy(file: Object, database: bytes | None, to: IO[bytes]) -> None:
    size = file.state()[0]
    head = file.read(0, 4096)
    if len(head) < 4096 or struct.unpack_from("<I", head, PAGE_HEADER)[0] != MAGIC:
        raise Wrong(f"{file} is no LMDB database, or damaged")
    page = struct.unpack_from("<I", head, PAGE_HEADER + 24)[0]
    if page not in (1 << n for n in range(8, 17)) or size < 2 * page:
        raise Wrong(f"{file} is damaged: its pages have {page} bytes")
    metas = file.read(0, 2 * page)
    to.truncate(size)
    to.seek(0)
    to.write(metas)
    newest = max(metas[:page], metas[page:], key=lambda meta: struct.unpack_from("<Q", meta, PAGE_HEADER + 128)[0])
    _tell(file, newest, page)
    roots = [struct.unpack_from("<Q", newest, PAGE_HEADER + 24 + DATABASE + 40)[0]]
    seen: set[int] = set()
    while roots:
        wanted = sorted(set(roots) - {NONE})
        if not seen.isdisjoint(wanted):
            raise Wrong(f"{file} is damaged: one page is in two places of its tree")
        seen.update(wanted)
        _check_space(file, to, len(wanted) * page)
        roots = []
        for number, data in zip(wanted, file.read_many((number * page, page) for number in wanted)):
            if len(data) < page or struct.unpack_from("<Q", data)[0] != number:
                raise Wrong(f"{file} is damaged or cut off: page {number} is not where it should be")
            to.seek(number * page)
            to.write(data)
            try:
                roots += _below(data, database)
            except struct.error:
                raise Wrong(f"{file} is damaged: page {number} contradicts itself") from None


def _below(data: bytes, database: bytes | None) -> Iterable[int]:
    """Yields the pages to which a page of a tree refers, without those of long values and of other databases."""
    flags, lower = struct.unpack_from("<HH", data, 10)
    if flags & LEAF_OF_ARRAY or not flags & (BRANCH | LEAF) or lower < PAGE_HEADER:
        return
    for at in struct.unpack_from(f"<{(lower - PAGE_HEADER) // 2}H", data, PAGE_HEADER):
        low, high, kind, n = struct.unpack_from("<HHHH", data, at)
        if flags & BRANCH:
            yield low | high << 16 | kind << 32
        elif kind & TREE and (kind & OF_VALUES or data[at + 8:at + 8 + n] == database):
            yield struct.unpack_from("<Q", data, at + 8 + n + 40)[0]


def _tell(file: Object, meta: bytes, page: int) -> None:
    _, _, _, branches, leaves = struct.unpack_from("<IHHQQ", meta, PAGE_HEADER + 24 + DATABASE)
    if (branches + leaves) * page > TOLD_BYTES:
        print(f"dieselctl index: {file}: reading its keys, {(branches + leaves) * page >> 20} MiB of {file.state()[0] >> 20} MiB", file=sys.stderr)


def _check_space(file: Object, to: IO[bytes], size: int) -> None:
    disk = os.statvfs(to.fileno())
    if size > disk.f_bavail * disk.f_frsize:
        raise Wrong(f"{file}: the pages of its keys need {size >> 20} MiB in {os.path.dirname(to.name)}, which has {disk.f_bavail * disk.f_frsize >> 20} MiB: "
                    "set TMPDIR to a folder with more space, or copy the file to a folder and index it there")
