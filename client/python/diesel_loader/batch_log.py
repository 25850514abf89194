# SPDX-License-Identifier: Apache-2.0
"""The batch log: a line of JSON for each batch that was handed out (docs/formats.md)."""
from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import time
import weakref

log = logging.getLogger("diesel_loader")

FLUSH_BYTES = 1 << 16
FLUSH_S = 1.0  # at the next batch; a loader that waits for nobody writes nothing


def path_of(path: str, rank: int, world_size: int) -> str:
    """The file of a rank: `path` itself where it is the only one, else with .rankN before the extension."""
    if world_size == 1:
        return path
    root, extension = os.path.splitext(path)
    return f"{root}.rank{rank}{extension}"


class _Lines:
    """What is to be written, and where: apart from BatchLog, so that it can be written when that is garbage."""

    def __init__(self, path: str) -> None:
        self.path, self.pid = path, os.getpid()
        self._fd: int | None = None
        self._lines: list[str] = []
        self._n_bytes, self._at = 0, time.monotonic()
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            size = os.fstat(self._fd).st_size
            if size and os.pread(self._fd, 1, size - 1) != b"\n":  # whoever wrote it last was killed
                self._lines.append("\n")
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self._give_up(error)

    def add(self, line: str) -> None:
        if self._fd is None:
            return
        self._lines.append(line + "\n")
        self._n_bytes += len(line)
        if self._n_bytes >= FLUSH_BYTES or time.monotonic() - self._at >= FLUSH_S:
            self.flush()

    def flush(self) -> None:
        lines, self._lines = self._lines, []
        self._n_bytes, self._at = 0, time.monotonic()
        if self._fd is None or self.pid != os.getpid() or not lines:  # after a fork they are the parent's to write
            return
        data = memoryview("".join(lines).encode())
        before = os.fstat(self._fd).st_size
        try:
            while data:
                data = data[os.write(self._fd, data):]
        except OSError as error:
            with contextlib.suppress(OSError):  # what has whole lines only is of more use
                os.ftruncate(self._fd, before)
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        log.warning("%s: %s: batches are no longer recorded; training goes on", self.path, error.strerror)
        self.close()

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def end(self) -> None:
        self.flush()
        self.close()


class BatchLog:
    """Appends to the file of one rank. Lines are kept for a second, and written at the end of an epoch, at exit, and when
    this is garbage. A disk that is full ends it, with a warning; a path that cannot be opened is OSError."""

    def __init__(self, path: str, rank: int, world_size: int) -> None:
        self.ranks = rank, world_size
        self._lines = _Lines(path_of(path, rank, world_size))
        self._finalizer = weakref.finalize(self, self._lines.end)

    def add(self, entry, wait_ns: int) -> None:
        """entry: a pool.Entry that is handed out now, with its samples and its cost. wait_ns: how long the training loop
        waited for it, its own work on it left out."""
        cost = entry.cost
        rank, world_size = self.ranks
        line = {"epoch": entry.epoch, "batch": entry.index, "rank": rank, "world_size": world_size, "time": round(time.time(), 6),
                "samples": entry.samples, "wait_ns": wait_ns, "by": cost.by if cost else "daemon"}
        if cost:
            line.update(pid=cost.pid, cpu_ns=cost.cpu_ns, wall_ns=cost.wall_ns, sample_ns=cost.sample_ns)
        self._lines.add(json.dumps(line, separators=(",", ":")))

    def flush(self) -> None:
        self._lines.flush()

    def is_of(self, rank: int, world_size: int) -> bool:
        """True in the process of that rank which made it."""
        return self.ranks == (rank, world_size) and self._lines.pid == os.getpid()
