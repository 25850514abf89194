# SPDX-License-Identifier: Apache-2.0
"""Objects in a bucket, as files are read: by `dieselctl ranges`, with the credentials of this process."""
from __future__ import annotations

import collections
import concurrent.futures
import errno
import io
import os
import pathlib
import socket
import struct
import subprocess
import threading

from .. import on_demand

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from typing_extensions import Buffer

SCHEME = "s3://"
THREADS = 16
MOST_WAITING = THREADS + 4  # requests whose data is in memory
MOST_BYTES = 4 << 20  # of a request; `dieselctl ranges` takes up to 16 MiB
NEAR_BYTES = 128 << 10  # ranges with a smaller gap are read at once, as a request takes longer than these bytes
BLOCK_BYTES = 256 << 10  # of reads in order
REQUEST, REPLY = struct.Struct("=QII"), struct.Struct("=iIQQ")  # ctl/formats/ctl_ranges.c


class Wrong(Exception):
    """A file or object that cannot be read in place; the text says why."""


class _Reader:
    """A process that reads objects, for one thread."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        program = on_demand.dieselctl()
        with theirs:
            try:
                self._process = subprocess.Popen([program, "ranges"], stdin=theirs.fileno(), start_new_session=True)  # Ctrl-C is for this process
            except OSError as error:
                raise Wrong(f"{program}: cannot be started ({error.strerror}), but reads buckets: set DIESEL_DIESELCTL to the path of dieselctl") from None
        self._socket, self._file = ours, ours.makefile("rb")

    def ask(self, name: str, offset: int, size: int) -> tuple[int, int, int, bytes]:
        """Returns (result, length of the object, stamp, data or the text of the error)."""
        word = os.fsencode(name)
        try:
            self._socket.sendall(REQUEST.pack(offset, size, len(word)) + word)
            result, n, length, stamp = REPLY.unpack(self._read(REPLY.size))
            return result, length, stamp, self._read(n)
        except ConnectionError:
            raise Wrong(f"{name}: `dieselctl ranges` has ended: is dieselctl of the version of diesel_loader?") from None

    def _read(self, n: int) -> bytes:
        data = self._file.read(n)
        if len(data) < n:
            raise ConnectionError
        return data

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()
            self._socket.close()
            self._process.wait()


_pool = concurrent.futures.ThreadPoolExecutor(THREADS)  # which starts threads as they are needed
_readers = threading.local()  # with the reader of each thread as `one`
_states: dict[str, tuple[int, int]] = {}  # (length, stamp) by the object's name


def close() -> None:
    """Ends the reader of this thread, and forgets the states of objects."""
    vars(_readers).clear()
    _states.clear()


class Object:
    """An object, or a prefix of objects, with those parts of pathlib.Path's interface that indexing uses. Until close(), all reads of
    one name are of one state: a changed object raises Wrong."""

    def __init__(self, name: str) -> None:
        self.name = name.rstrip("/")

    def __str__(self) -> str:
        return self.name

    def __truediv__(self, name: str) -> Object:
        return Object(f"{self.name}/{name}")

    @property
    def suffix(self) -> str:
        return pathlib.PurePosixPath(self.name).suffix

    @property
    def stem(self) -> str:
        return pathlib.PurePosixPath(self.name).stem

    def with_suffix(self, suffix: str) -> Object:
        return Object(self.name[:len(self.name) - len(self.suffix)] + suffix)

    def _ask(self, offset: int, size: int) -> tuple[int, int, int, bytes]:
        if not hasattr(_readers, "one"):
            _readers.one = _Reader()
        return _readers.one.ask(self.name, offset, size)

    def state(self) -> tuple[int, int]:
        """Returns (length, stamp) of the state that is read."""
        if self.name not in _states:
            result, length, stamp, text = self._ask(0, 0)
            if result < 0:
                raise Wrong(text.decode(errors="replace"))
            _states[self.name] = (length, stamp)
        return _states[self.name]

    def exists(self) -> bool:
        result, *_, text = self._ask(0, 0)
        if result < 0 and result != -errno.ENOENT:
            raise Wrong(text.decode(errors="replace"))
        return result == 0

    def read(self, offset: int, size: int) -> bytes:
        """Returns fewer bytes only at the end."""
        length, stamp = self.state()
        parts = []
        end = min(offset + size, length)
        while offset < end:
            result, _, found, data = self._ask(offset, min(end - offset, MOST_BYTES))
            if result < 0:
                raise Wrong(data.decode(errors="replace"))
            if found != stamp:
                raise Wrong(f"{self.name} changed while it was being indexed: run the command again")
            parts.append(data)
            offset += len(data)
        return b"".join(parts)

    def read_bytes(self) -> bytes:
        return self.read(0, self.state()[0])

    def read_many(self, ranges: Iterable[tuple[int, int]]) -> Iterator[bytes]:
        """Yields the bytes of ascending ranges (offset, length), several requests at a time."""
        self.state()
        waiting: collections.deque[tuple[Any, list[tuple[int, int]]]] = collections.deque()
        try:
            for group in _groups(ranges):
                waiting.append((_pool.submit(self.read, group[0][0], sum(group[-1]) - group[0][0]), group))
                if len(waiting) >= MOST_WAITING:
                    yield from _split(*waiting.popleft())
            while waiting:
                yield from _split(*waiting.popleft())
        finally:
            for read, _ in waiting:  # after an error
                read.cancel()

    def open(self) -> io.BufferedReader:
        return io.BufferedReader(_File(self), BLOCK_BYTES)


def _groups(ranges: Iterable[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Yields ranges that one request reads."""
    group: list[tuple[int, int]] = []
    for offset, size in ranges:
        if group and (offset - sum(group[-1]) > NEAR_BYTES or offset + size - group[0][0] > MOST_BYTES):
            yield group
            group = []
        group.append((offset, size))
    if group:
        yield group


def _split(read: Any, group: list[tuple[int, int]]) -> Iterator[bytes]:
    data = read.result()
    for offset, size in group:
        yield data[offset - group[0][0]:offset - group[0][0] + size]


class _File(io.RawIOBase):
    def __init__(self, source: Object) -> None:
        self._object, self._at = source, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._object.state()[0])[whence]
        if self._at < 0:
            raise OSError(errno.EINVAL, "negative position")
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Buffer) -> int:
        view = memoryview(buffer)
        data = self._object.read(self._at, len(view))
        view[:len(data)] = data
        self._at += len(data)
        return len(data)
