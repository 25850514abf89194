# SPDX-License-Identifier: Apache-2.0
"""Copies of whole batches to a device, on a stream of their own.

Nobody may write to the source of a copy before the copy is done. But the daemon writes to a slot once it is given back,
and a worker to its buffer. So the host's tensors, which hold slot and buffer, are retained until an event shows that
the device has read them. torch's own allocator does that only for its own memory.
"""
from __future__ import annotations

import collections
import collections.abc
import copy
import logging

import torch

from ..tensors import is_by_rows, is_plain
from . import cuda
from .memory import Memory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MAX_UNDER_WAY = 2  # in batches: the one handed out last, and the next one
log = logging.getLogger("diesel_loader")


def chosen(device: Any) -> torch.device | None:
    """Converts DataLoader's argument to a device; None: batches stay in host memory. Raises ValueError if it is no
    GPU or a missing one, and RuntimeError if the machine has no GPU."""
    if device is None:
        return None
    is_number = isinstance(device, int) and not isinstance(device, bool)
    try:
        found = torch.device("cuda", device) if is_number else torch.device(device)
    except (RuntimeError, TypeError, ValueError):
        found = None
    if found is not None and found.type == "cpu":
        return None
    if found is None or found.type != "cuda" or (found.index or 0) < 0:
        raise ValueError(f'device must be None, "cpu", "cuda", "cuda:N", N or an equivalent torch.device, not {device!r}')
    n = cuda.n_devices()
    if not n:
        raise RuntimeError(f"device={device!r}, but torch {torch.__version__} finds no GPU (torch.cuda.is_available() is False): "
                           "omit device=, or check the driver and the torch build")
    if found.index is not None and found.index >= n:
        raise ValueError(f"device={device!r}, but torch finds only {n} GPU{'s' if n > 1 else ''} (numbers start at 0)")
    return found


class Copies:
    """The copies of one batch, on a stream. sources: tensors that they read; made: tensors that they write."""

    __slots__ = ("_event", "_stream", "made", "sources")

    def __init__(self, stream: Any) -> None:
        self.sources: list[torch.Tensor] = []
        self.made: list[torch.Tensor] = []
        self._stream, self._event = stream, None

    def end(self) -> Any:
        """Returns the event of their end, or a later event if the caller that began them was interrupted. An event
        that is too early, because a signal handler called close(), is also fine: later copies read no registered
        memory."""
        if self._event is None:
            self._event = cuda.record(self._stream)
        return self._event


class Transfer:
    """Copies of one iterator's batches to a device.

    memory: the registered memory. found: a function that returns the results.Mapping of an address, or None.
    under_way: Copies that may not be done yet, oldest first; wait for them before dropping the list."""

    def __init__(self, device: torch.device, memory: Memory, found: Callable[[int], Any],
                 under_way: collections.deque[Copies]) -> None:
        self.device, self._memory, self._found, self._under_way = device, memory, found, under_way
        self._stream = cuda.side_stream(device)
        self._seen: set[int] = set()  # addresses of mappings that held one batch so far
        self._refused = False         # torch could not lock memory either

    def begin(self, batch: Any) -> tuple[Any, Copies]:
        """Begins to copy a batch. The result may be used after hand_over()."""
        while len(self._under_way) >= MAX_UNDER_WAY:
            cuda.wait(self._under_way[0].end())
            self._under_way.popleft()
        copies = Copies(self._stream)
        self._under_way.append(copies)  # first, so that memory being read is held even if an exception follows
        moved = self._moved(batch, copies, {})
        copies.end()
        return moved, copies

    def hand_over(self, copies: Copies) -> None:
        """Makes the batch usable on the caller's current stream."""
        cuda.hand_over(copies.made, copies.end(), self.device)
        copies.made = []

    def release(self) -> None:
        """Releases tensors that the device has read."""
        while self._under_way and cuda.is_done(self._under_way[0].end()):
            self._under_way.popleft()
        self._memory.sweep()

    def _moved(self, thing: Any, copies: Copies, known: dict[int, Any]) -> Any:
        """Returns a batch of any structure with its tensors on the device. A tensor that occurs twice is copied once."""
        if isinstance(thing, torch.Tensor):
            if id(thing) not in known:
                known[id(thing)] = self._copy(thing, copies)
            return known[id(thing)]
        if isinstance(thing, (str, bytes, bytearray)):
            return thing
        if isinstance(thing, collections.abc.Mapping):
            moved = {key: self._moved(value, copies, known) for key, value in thing.items()}
            if type(thing) is dict:
                return moved
            try:  # like torch with pin_memory
                if isinstance(thing, collections.abc.MutableMapping):
                    made = copy.copy(thing)
                    made.update(moved)
                    return made
                return type(thing)(moved)  # type: ignore[call-arg]
            except TypeError:
                return moved
        if callable(getattr(thing, "to", None)):  # torch's PackedSequence and the like know which of their tensors to move
            return cuda.copy_now(thing, self.device)
        if isinstance(thing, (list, tuple)):
            items = [self._moved(item, copies, known) for item in thing]
            if hasattr(thing, "_fields"):
                return type(thing)(*items)
            try:
                return type(thing)(items)
            except TypeError:
                return items
        return thing

    def _copy(self, tensor: torch.Tensor, copies: Copies) -> torch.Tensor:
        if not is_plain(tensor):  # sparse, of a subclass, or already on the device
            return cuda.copy_now(tensor, self.device)
        if self._is_registered(tensor):
            copies.sources.append(tensor)
        elif not self._refused:
            try:
                tensor = cuda.pinned(tensor)
            except RuntimeError as error:
                self._refused = True
                log.warning("torch cannot allocate page-locked memory (%s): the trainer waits while batches are copied to the device", str(error).splitlines()[0])
        made = cuda.copy(tensor, self.device, self._stream)
        copies.made.append(made)
        return made

    def _is_registered(self, tensor: torch.Tensor) -> bool:
        if not tensor.numel() or not (tensor.is_contiguous() or is_by_rows(tensor)):
            return False
        address, size = tensor.data_ptr(), tensor.numel() * tensor.element_size()
        if self._memory.covers(address, size):
            return True
        mapping = self._found(address)
        if mapping is None:
            return False
        if mapping.address not in self._seen:  # registered only when seen again, because registering takes as long as many copies
            self._seen.add(mapping.address)
            return False
        return self._memory.add(self.device, mapping, mapping.memory)


def drain(under_way: collections.deque[Copies]) -> None:
    """Waits for all copies, and releases the tensors that they read."""
    while under_way:
        cuda.wait(under_way[0].end())
        under_way.popleft()
