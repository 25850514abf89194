# SPDX-License-Identifier: Apache-2.0
"""Objects in a bucket, as files are read: by `dieselctl objects`, with the credentials of this process."""
from __future__ import annotations

import collections
import concurrent.futures
import errno
import io
import os
import pathlib
import threading

from .. import on_demand
from ..checkpoint.bucket import SCHEME, Bucket, memory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from typing_extensions import Buffer

THREADS = 16
MOST_WAITING = THREADS + 4  # requests whose data is in memory
MOST_BYTES = 4 << 20  # of a request
NEAR_BYTES = 128 << 10  # ranges with a smaller gap are read at once, as a request takes longer than these bytes
BLOCK_BYTES = 256 << 10  # of reads in order


class Wrong(Exception):
    """A file or object that cannot be read in place; the text says why."""


class _Reader(Bucket):
    """A bucket, for one thread."""

    def __init__(self, url: str) -> None:
        self._pid = os.getpid()
        super().__init__(url, on_demand.dieselctl())
        self._memory = memory()
        os.ftruncate(self._memory, MOST_BYTES)

    def part(self, key: str, offset: int, size: int) -> tuple[bytes, int]:
        """Returns (at most MOST_BYTES of an object, its stamp)."""
        stamp = self.read_range(key, offset, size, self._memory)
        return os.pread(self._memory, size, 0), stamp

    def __del__(self) -> None:
        if hasattr(self, "_memory"):
            os.close(self._memory)
            if os.getpid() == self._pid:   # or it is the parent's
                self.close()


_pool = concurrent.futures.ThreadPoolExecutor(THREADS)  # which starts threads as they are needed
_readers = threading.local()  # with the readers of each thread as `by_url`
_states: dict[str, tuple[int, int]] = {}  # (length, stamp) by the object's name


def close() -> None:
    """Ends the readers of this thread, and forgets the states of objects."""
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

    def _asked(self, question: Callable[..., Any], *arguments: int) -> Any:
        """Returns the answer of this method of the bucket for the key in it."""
        bucket, _, key = self.name[len(SCHEME):].partition("/")
        readers = vars(_readers).setdefault("by_url", {})
        if bucket not in readers:
            readers[bucket] = _Reader(SCHEME + bucket)
        try:
            return question(readers[bucket], key, *arguments)
        except OSError as error:
            raise Wrong(error.strerror or str(error)) from error

    def state(self) -> tuple[int, int]:
        """Returns (length, stamp) of the state that is read."""
        if self.name not in _states:
            _states[self.name] = self._asked(_Reader.state)
        return _states[self.name]

    def exists(self) -> bool:
        try:
            self._asked(_Reader.state)
        except Wrong as wrong:
            if isinstance(wrong.__cause__, FileNotFoundError):
                return False
            raise
        return True

    def read(self, offset: int, size: int) -> bytes:
        """Returns fewer bytes only at the end."""
        length, stamp = self.state()
        parts = []
        end = min(offset + size, length)
        while offset < end:
            data, found = self._asked(_Reader.part, offset, min(end - offset, MOST_BYTES))
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
