# SPDX-License-Identifier: Apache-2.0
"""Processes that read shards, each one shard at a time, and hand over batches of rows."""
from __future__ import annotations

import multiprocessing
import signal
from typing import TYPE_CHECKING, Any

from .base import Refused, Shard, Source, one_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

BATCH_BYTES, BATCH_ROWS = 4 << 20, 512  # of a message


def bytes_of(row: Any) -> int:
    """Returns the bytes of memory of a row, about."""
    if isinstance(row, dict):
        return 64 + sum(64 + bytes_of(value) for value in row.values())
    if isinstance(row, (list, tuple)):
        return 64 + sum(map(bytes_of, row))
    if isinstance(row, (bytes, str)):
        return len(row)
    if hasattr(row, "getbands"):  # an image of PIL
        return int(row.width * row.height * len(row.getbands()))
    return int(getattr(row, "nbytes", 8))


def batches(source: Source, shard: Shard) -> Iterator[list[Any]]:
    """Yields the rows of a shard in lists that have a few MiB."""
    batch: list[Any] = []
    size = 0
    for row in _rows(source, shard):
        batch.append(row)
        size += bytes_of(row)
        if size >= BATCH_BYTES or len(batch) >= BATCH_ROWS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _rows(source: Source, shard: Shard) -> Iterator[Any]:
    """Yields rows. Any error of a format's own package becomes Refused, with the file."""
    try:
        yield from source.rows(shard)
    except (Refused, MemoryError):
        raise
    except Exception as error:
        raise Refused(f"{shard.file}: {type(error).__name__}: {one_line(error)}") from None


def _serve(source: Source, end: Connection) -> None:
    """Runs in a reader process: answers each shard with its batches, then None. An error is sent as its text."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        while True:
            shard = end.recv()
            try:
                for batch in batches(source, shard):
                    end.send(batch)
                end.send(None)
            except (ConnectionError, EOFError):
                raise
            except Refused as error:
                end.send(str(error))
            except MemoryError:
                end.send(f"{shard.file}: out of memory; try fewer --threads")
    except (ConnectionError, EOFError):  # the import has ended
        return


class Readers:
    """Reads shards with several processes. The order of rows depends on the shards and the number of processes only."""

    def __init__(self, source: Source, n: int) -> None:
        self._source = source
        self._ends: list[Connection] = []
        context = multiprocessing.get_context("spawn")  # a fork would copy threads' locks of the formats' packages
        self._processes: list[Any] = []
        for _ in range(n if n > 1 else 0):
            mine, other = context.Pipe()
            process = context.Process(target=_serve, args=(source, other), daemon=True)
            process.start()
            other.close()
            self._ends.append(mine)
            self._processes.append(process)

    def read(self, shards: list[Shard]) -> Iterator[tuple[Shard, int, list[Any]]]:
        """Yields (shard, number of the first row, rows)."""
        if not self._ends:
            for shard in shards:
                yield from _numbered(shard, batches(self._source, shard))
            return
        waiting = list(reversed(shards))
        active: list[tuple[Connection, Shard, int]] = []
        for end in self._ends[:len(shards)]:
            active.append((end, waiting.pop(), 0))
            end.send(active[-1][1])
        while active:
            following: list[tuple[Connection, Shard, int]] = []
            for end, shard, row in active:
                batch = self._receive(end, shard)
                if batch is not None:
                    yield shard, row, batch
                    following.append((end, shard, row + len(batch)))
                elif waiting:
                    following.append((end, waiting.pop(), 0))
                    end.send(following[-1][1])
            active = following

    def _receive(self, end: Connection, shard: Shard) -> Any:
        try:
            got = end.recv()
        except (EOFError, ConnectionError):
            process = self._processes[self._ends.index(end)]
            process.join(5)
            raise Refused(f"{shard.file}: the process that reads it died (exit status {process.exitcode}), out of memory or of damaged data; "
                          "try fewer --threads, or leave the file out") from None
        if isinstance(got, str):
            raise Refused(got)
        return got

    def close(self) -> None:
        for end in self._ends:
            end.close()
        for process in self._processes:
            process.join(2)
            if process.is_alive():
                process.terminate()


def _numbered(shard: Shard, parts: Iterator[list[Any]]) -> Iterator[tuple[Shard, int, list[Any]]]:
    row = 0
    for batch in parts:
        yield shard, row, batch
        row += len(batch)
