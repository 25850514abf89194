# SPDX-License-Identifier: Apache-2.0
"""Shared memory that batches lie in, registered with CUDA: once for each mapping, not once for each batch.

Two kinds are reused: the buffers of worker processes, and the slots of a session. Chunk segments are not, and
registering one takes longer than copying it.
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
    """A registered range of memory. owner: a weak reference to the object that represents the mapping. The mapping
    itself stays until it is unregistered."""

    __slots__ = ("memory", "owner")

    def __init__(self, memory: native.Mapped, owner: Any) -> None:
        self.memory, self.owner = memory, weakref.ref(owner)


class Memory:
    """All memory registered for one stream of batches. Used by one thread."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._ranges: dict[int, _Range] = {}
        self._starts: list[int] = []        # addresses of the ranges, ascending
        self._refused: set[bool] = set()    # kinds of memory that CUDA refused to lock: read-only (True) or not (False)

    def add(self, device: torch.device, owner: Any, memory: native.Mapped, read_only: bool = False) -> bool:
        """Registers a mapping. Returns False if CUDA refuses, with one warning for each kind of memory."""
        if read_only in self._refused:
            return False
        # Entered before registering: unregistering too much is harmless, but registered memory must be unregistered.
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
        """Returns True if these bytes are registered and their mapping still exists."""
        k = bisect.bisect_right(self._starts, address) - 1
        if k < 0:
            return False
        found = self._ranges.get(self._starts[k])
        return found is not None and address + size <= found.memory.address + found.memory.size \
            and found.owner() is not None

    def sweep(self) -> None:
        """Unregisters ranges whose owner is gone. The owner's finalizer does not do this, because it may run at any
        point, and Ctrl-C in a finalizer is lost. No copy is in progress, because copies hold the mapping."""
        gone = [found.memory for found in self._ranges.values() if found.owner() is None]
        if gone:
            self._drop(gone)

    def clear(self) -> None:
        """Unregisters all ranges. No copy may be in progress."""
        self._drop([found.memory for found in self._ranges.values()])

    def _drop(self, memories: list[native.Mapped]) -> None:
        if self._pid == os.getpid():  # a forked child has neither CUDA nor locked pages
            for memory in memories:
                cuda.unregister(memory.address)  # before the memory is unmapped: our reference prevents that
        for memory in memories:
            self._ranges.pop(memory.address, None)
        self._starts = sorted(self._ranges)


class _Slots:
    """Represents the mapping of a session's slots that a device reads from (client/share.h: diesel_pinnable)."""

    __slots__ = ("__weakref__", "life", "memory", "offset")

    def __init__(self, session: Any) -> None:
        found = native.Pinnable()
        result = lib.diesel_session_map_pinnable(session.handle, byref(found))
        if result < 0:
            raise OSError(-result, os.strerror(-result))
        self.memory = native.Mapped(found.data, found.bytes, lib.diesel_pinnable_unmap)
        self.life, self.offset = found.life, found.data - found.buffers


class _Lease:
    """A lease whose batch lies in registered slots. Keeps their mapping."""

    __slots__ = ("_lease", "_slots", "batch")

    def __init__(self, lease: Any, slots: _Slots) -> None:
        self._lease, self._slots, self.batch = lease, slots, lease.batch
        self.batch.packed += slots.offset


class PinnedSession:
    """A session.Session whose packed batches lie in a read-only mapping that the device reads directly, for batches
    that no Python function changes first. Has the same methods and errors."""

    def __init__(self, session: Any, memory: Memory, device: torch.device) -> None:
        self._session, self._memory, self._device = session, memory, device
        self._slots: _Slots | None = None
        self._life = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def next_batch(self) -> Any:
        """Same as Session.next_batch()."""
        lease = self._session.next_batch()
        if lease is None or not lease.batch.packed:
            return lease
        if self._life != lease.life:  # the first batch, or the first one of another daemon
            self._life, self._slots = lease.life, None
            try:
                slots = _Slots(self._session)
            except OSError:  # the daemon is lost again, or mapping failed: the batch is used from the other mapping
                return lease
            if slots.life == lease.life and self._memory.add(self._device, slots, slots.memory, read_only=True):
                self._slots = slots
        return lease if self._slots is None else _Lease(lease, self._slots)


def pinned_session(open_session: Any, memory: Memory, device: torch.device, epoch: int, first: int) -> PinnedSession:
    """Returns the session of open_session() as a PinnedSession."""
    return PinnedSession(open_session(epoch, first, pinnable=True), memory, device)


