# SPDX-License-Identifier: Apache-2.0
"""A Stream whose batches are on a device. The copy of the next batch begins before the current one is handed out, if
the next one is ready; nothing waits for it.
"""
from __future__ import annotations

import collections
import contextlib
import functools
import os
import weakref

import torch

from . import cuda
from .memory import Memory, pinned_session
from .transfer import Copies, Transfer, drain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..stream import Stream

AHEAD = 1  # batches on their way to the device in addition to the one that is asked for


class _Step:
    """Result of a step of the stream: a batch on its way to the device, an error, or (neither) the end of the epoch.
    position: position of the stream after this step; None if the step has no result and is repeated. line: its line
    of the batch log."""

    __slots__ = ("batch", "copies", "error", "line", "position")

    def __init__(self, position: Any, batch: Any = None, copies: Copies | None = None, error: Exception | None = None,
                 line: Any = None) -> None:
        self.position, self.batch, self.copies, self.error, self.line = position, batch, copies, error, line


class DeviceStream:
    """A Stream for a Loader, with the same attributes, methods and errors as stream.Stream.

    stream: source of the batches, for this object only. device: "cuda" is the current device at begin()."""

    def __init__(self, stream: Stream, device: torch.device) -> None:
        self._stream, self._told = stream, device
        self._ahead: collections.deque[_Step] = collections.deque()
        self._memory = Memory()
        self._under_way: collections.deque[Copies] = collections.deque()
        self._transfer: Any = None
        self.position = (0, 0)
        self.broken = False
        self.line: Any = None  # line of the batch log, for the batch that is handed out next or was last
        self._open_session = stream._open_session
        self._finalizer = weakref.finalize(self, _end, stream.pid, self._under_way, self._memory)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def begin(self, epoch: int, first: int) -> None:
        """Same as Stream.begin()."""
        self.broken = True  # until all steps below are done
        self._forget()
        device = self._told if self._told.index is not None else torch.device("cuda", cuda.current_device())
        if self._transfer is None or self._transfer.device != device:
            drain(self._under_way)
            self._transfer = Transfer(device, self._memory, self._stream.mapping_at, self._under_way)
        if not self._stream.has_work:  # without work, batches lie in the session's slots, and only the device reads them
            self._stream._open_session = functools.partial(pinned_session, self._open_session, self._memory, device)
        self._stream.begin(epoch, first)
        self.position = (epoch, first)
        self.broken = False

    def next(self) -> Any:
        """Same as Stream.next(): returns (the user's batch, position after it), or None."""
        if self.broken:
            self._go_back()
        self.broken = True
        self._transfer.release()
        if not self._ahead:
            self._pull()
        if self._ahead[0].copies is not None and len(self._ahead) <= AHEAD and self._stream.has_next():
            self._pull()
        self.line = self._ahead[0].line
        step = self._ahead.popleft()
        if step.error is not None:
            error = step.error
            if step.position is not None:
                self.position, self.broken = step.position, False
            del step
            try:
                raise error
            finally:
                del error  # else the error would refer to itself through this frame
        if step.copies is None:
            if self._stream._batch_log:
                self._stream._batch_log.flush()
            return None  # stays broken, so that a caller interrupted before it sees the end returns here, not to the next epoch
        self._transfer.hand_over(step.copies)
        return step.batch, step.position

    def _pull(self) -> None:
        """Takes the stream's next batch, and begins to copy it. An error is raised when its turn comes."""
        stream = self._stream
        try:
            delivered = stream.next()
        except Exception as error:
            self._ahead.append(_Step(stream.position, error=error))
            return
        if delivered is None:
            self._ahead.append(_Step(stream.position))
            return
        position = delivered[1]
        try:
            batch, copies = self._transfer.begin(delivered[0])
        except Exception as error:  # no memory on the device, ...
            self._ahead.append(_Step(None, error=error))
            return
        self._ahead.append(_Step(position, batch, copies, line=stream.line))
        stream.position, stream.broken = position, False

    def _forget(self) -> None:
        """Marks the log lines of prepared batches, which will not be handed out."""
        for line in (self.line, *(step.line for step in self._ahead)):
            if line is not None and not line.given:
                line.given = False
        self._ahead.clear()

    def _go_back(self) -> None:
        """Returns to the position after the last batch handed out: the stream is ahead of it, or its position is unknown."""
        self._forget()
        self._stream.position, self._stream.broken = self.position, True

    def close(self) -> None:
        """Same as in Stream; prepared batches stay."""
        if self.pid != os.getpid():
            self._stream.close()
            self._under_way.clear()
            return
        stream, me = self._stream, object()
        try:
            if not stream.is_of_this_thread():
                stream.enter(me)
            stream.close()
            _end(self.pid, self._under_way, self._memory)
        finally:
            if stream.inside == {"by": me}:
                stream.inside = {}


def _end(pid: int, under_way: collections.deque[Copies], memory: Memory) -> None:
    """Waits for the copies and unregisters the memory; also at exit, and when the stream is garbage."""
    if pid != os.getpid():
        under_way.clear()
        return
    with contextlib.suppress(RuntimeError):  # a failed device has been reported elsewhere
        drain(under_way)
    under_way.clear()
    memory.clear()
