# SPDX-License-Identifier: Apache-2.0
"""Shared memory that batches lie in, registered with CUDA: once for each mapping, not once for each batch.

Two kinds come again and again: the buffers of worker processes, and the slots of a session. Chunk segments do not: a
chunk passes through, and registering takes longer than copying it.
"""
from __future__ import annotations

import bisect
import logging
import os
import weakref

from .. import native
from ..native import byref, lib
from . import cuda

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import torch

log = logging.getLogger("diesel_loader")


class _Range:
    """Memory that is registered. owner: a weak reference to who stands for the mapping; the memory itself stays until it is
    no longer registered."""

    __slots__ = ("memory", "owner")

    def __init__(self, memory: native.Mapped, owner: Any) -> None:
        self.memory, self.owner = memory, weakref.ref(owner)


class Memory:
    """Memory that is registered for one stream of batches. One thread."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._ranges: dict[int, _Range] = {}
        self._starts: list[int] = []        # their addresses, ascending
        self._refused: set[bool] = set()    # kinds of memory that CUDA does not take: read-only or not

    def add(self, device: torch.device, owner: Any, memory: native.Mapped, read_only: bool = False) -> bool:
        """Registers what is mapped; False, with one warning for each kind, if that cannot be."""
        if read_only in self._refused:
            return False
        # Entered first: what is not registered may be unregistered, but what is must be.
        self._ranges[memory.address] = _Range(memory, owner)
        why = cuda.register(device, memory.address, memory.size, read_only)
        if why is not None:
            del self._ranges[memory.address]
            self._refused.add(read_only)
            log.warning("CUDA cannot lock %s of %.1f MiB in place (%s), so each batch is first copied to page-locked memory of torch; check "
                        "`ulimit -l`, or the container's memlock limit", "the daemon's slots" if read_only else
                        "a worker's buffer", memory.size / 2**20, why)
        self._starts = sorted(self._ranges)
        return why is None

    def covers(self, address: int, size: int) -> bool:
        """True if these bytes are registered, by a mapping that still stands."""
        k = bisect.bisect_right(self._starts, address) - 1
        if k < 0:
            return False
        found = self._ranges.get(self._starts[k])
        return found is not None and address + size <= found.memory.address + found.memory.size \
            and found.owner() is not None

    def sweep(self) -> None:
        """Unregisters what nobody has any more. Not by the mapping's own end: that may come in the middle of anything, and
        Ctrl-C in a function that Python calls then is lost. Copies hold the mapping: none is under way."""
        gone = [found.memory for found in self._ranges.values() if found.owner() is None]
        if gone:
            self._drop(gone)

    def clear(self) -> None:
        """Unregisters all. No copy may be under way."""
        self._drop([found.memory for found in self._ranges.values()])

    def _drop(self, memories: list[native.Mapped]) -> None:
        if self._pid == os.getpid():  # a child that was forked has neither CUDA nor locked pages
            for memory in memories:
                cuda.unregister(memory.address)  # before it is unmapped, which our reference prevents
        for memory in memories:
            self._ranges.pop(memory.address, None)
        self._starts = sorted(self._ranges)


class _Slots:
    """Stands for the mapping of a session's slots that a device reads from (client/share.h: diesel_pinnable)."""

    __slots__ = ("__weakref__", "life", "memory", "offset")

    def __init__(self, session: Any) -> None:
        found = native.Pinnable()
        result = lib.diesel_session_map_pinnable(session.handle, byref(found))
        if result < 0:
            raise OSError(-result, os.strerror(-result))
        self.memory = native.Mapped(found.data, found.bytes, lib.diesel_pinnable_unmap)
        self.life, self.offset = found.life, found.data - found.buffers


class _Lease:
    """A lease whose batch lies in the slots that are registered, which it keeps."""

    __slots__ = ("_lease", "_slots", "batch")

    def __init__(self, lease: Any, slots: _Slots) -> None:
        self._lease, self._slots, self.batch = lease, slots, lease.batch
        self.batch.packed += slots.offset


class PinnedSession:
    """A session.Session whose packed batches lie where the device reads them: in a mapping for reading only, so for batches
    that no function sees before the device does. Same calls, same errors."""

    def __init__(self, session: Any, memory: Memory, device: torch.device) -> None:
        self._session, self._memory, self._device = session, memory, device
        self._slots: _Slots | None = None
        self._life = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def next_batch(self) -> Any:
        """As of Session."""
        lease = self._session.next_batch()
        if lease is None or not lease.batch.packed:
            return lease
        if self._life != lease.life:  # the first batch, or the daemon is another one
            self._life, self._slots = lease.life, None
            try:
                slots = _Slots(self._session)
            except OSError:  # lost again, or no space to map it: the batch is as good where it is
                return lease
            if slots.life == lease.life and self._memory.add(self._device, slots, slots.memory, read_only=True):
                self._slots = slots
        return lease if self._slots is None else _Lease(lease, self._slots)


def pinned_session(open_session: Any, memory: Memory, device: torch.device, epoch: int, first: int) -> PinnedSession:
    """Returns the session of open_session() as a PinnedSession."""
    return PinnedSession(open_session(epoch, first, pinnable=True), memory, device)


