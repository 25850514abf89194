# SPDX-License-Identifier: Apache-2.0
"""The batch log: a line of JSON for each batch that was handed out (docs/reference/formats.md)."""
from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import threading
import time
import weakref

log = logging.getLogger("diesel_loader")

FLUSH_BYTES = 1 << 16
FLUSH_S = 1.0  # interval between writes; checked only when the next batch is requested


def path_of(path: str, rank: int, world_size: int) -> str:
    """Returns the file of a rank: `path` itself for a single rank, else `path` with .rankN before the extension."""
    if world_size == 1:
        return path
    root, extension = os.path.splitext(path)
    return f"{root}.rank{rank}{extension}"


class Line:
    """given: True if the training loop has the batch (iterators set this last); None: not yet; False: the batch will
    never be handed out."""

    __slots__ = ("given", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.given: bool | None = None


class _Lines:
    """Lines to write, and their file. Separate from BatchLog, so that a finalizer of BatchLog can write them.

    Ctrl-C may interrupt after any call, so only assignments change the lines to write."""

    def __init__(self, path: str) -> None:
        self.path, self.pid = path, os.getpid()
        self._lock = threading.RLock()  # for iterators of several threads
        self._fd: int | None = None
        self._lines: list[Line] = []
        self._unwritten, self._size = b"", 0  # size: bytes of the file before the unwritten lines
        self._n_bytes, self._at = 0, time.monotonic()
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            self._size = size = os.fstat(self._fd).st_size
            if size and os.pread(self._fd, 1, size - 1) != b"\n":  # the last writer was killed within a line
                self._unwritten = b"\n"
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self._give_up(error)

    def add(self, line: Line) -> None:
        with self._lock:
            if self._fd is not None:
                self._n_bytes += len(line.text)
                self._lines.append(line)

    def is_due(self) -> bool:
        return self._n_bytes >= FLUSH_BYTES or time.monotonic() - self._at >= FLUSH_S

    def flush(self) -> None:
        if self.pid != os.getpid():  # after a fork, only the parent writes the lines
            return
        with self._lock:
            fd = self._fd
            if fd is None:
                return
            self._n_bytes, self._at = 0, time.monotonic()
            texts, left = [], []
            for line in self._lines:
                given = line.given
                if given:
                    texts.append(line.text)
                elif given is None:
                    left.append(line)
            if not self._unwritten:
                self._size = os.fstat(fd).st_size
            data = self._unwritten + "".join(texts).encode()
            self._unwritten, self._lines = data, left
            self._write(fd)

    def _write(self, fd: int) -> None:
        try:
            while self._unwritten:
                # map() leaves no point for Ctrl-C between the write and recording its result.
                for n in map(os.write, (fd,), (self._unwritten,)):
                    self._unwritten = self._unwritten[n:]
        except OSError as error:
            with contextlib.suppress(OSError):  # so that the file has only whole lines
                os.ftruncate(fd, self._size)
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        log.warning("%s: %s: stopped recording batches; training goes on", self.path, error.strerror)
        self.close()

    def close(self) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            os.close(fd)

    def end(self) -> None:
        self.flush()
        self.close()


class BatchLog:
    """Appends to the file of one rank. Holds lines for a second, and until the training loop has the batch. Writes
    them also at the end of an epoch, at exit, and when the log is garbage-collected. A full disk ends the log with a
    warning. Raises OSError if the path cannot be opened."""

    def __init__(self, path: str, rank: int, world_size: int) -> None:
        self.ranks = rank, world_size
        self._lines = _Lines(path_of(path, rank, world_size))
        self._finalizer = weakref.finalize(self, self._lines.end)

    def add(self, entry, wait_ns: int) -> Line:
        """entry: the pool.Entry to hand out now, with its samples and its cost. wait_ns: how long the training loop
        waited for it, without its own work on the batch."""
        cost = entry.cost
        rank, world_size = self.ranks
        line = {"epoch": entry.epoch, "batch": entry.index, "rank": rank, "world_size": world_size, "time": round(time.time(), 6),
                "samples": entry.samples, "wait_ns": wait_ns, "by": cost.by if cost else "daemon"}
        if cost:
            line.update(pid=cost.pid, cpu_ns=cost.cpu_ns, wall_ns=cost.wall_ns, sample_ns=cost.sample_ns)
        made = Line(json.dumps(line, separators=(",", ":")) + "\n")
        self._lines.add(made)
        return made

    def flush_if_due(self) -> None:
        if self._lines.is_due():
            self._lines.flush()

    def flush(self) -> None:
        self._lines.flush()

    def is_of(self, rank: int, world_size: int) -> bool:
        """Returns True in the process that made the log, for the same rank."""
        return self.ranks == (rank, world_size) and self._lines.pid == os.getpid()
