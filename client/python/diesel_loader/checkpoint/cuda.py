# SPDX-License-Identifier: Apache-2.0
"""Snapshots of memory on accelerators.

CUDA copies into the snapshot's memory, which is page-locked, while the job goes on. Parameters and the optimizer's state
change only in optimizer.step(): they are copied on a stream of their own, during the next forward and backward pass. The
calls that may update them next wait for it on the device: optimizer.step(), GradScaler.step(), which may skip it, and the
replay of a CUDA graph, in which no hook is called. Anything else, such as the running means of a BatchNorm, is copied on the
job's own stream, in its order.
"""
from __future__ import annotations

import functools
import logging
import weakref
from typing import Any

import torch

from .memory import Memory

log = logging.getLogger("diesel_loader")


def _bytes_of(storage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def is_cuda(storage) -> bool:
    return bool(storage.device.type == "cuda")


_devices: weakref.WeakSet[Device] = weakref.WeakSet()


def _let_wait(owner: type, name: str) -> None:
    """Makes calls of a method of torch wait for copies, on the device and only while there are some."""
    call = owner.__dict__.get(name)
    if call is None or hasattr(call, "waits_for_copies"):
        return

    @functools.wraps(call)
    def waiting(*args: Any, **options: Any) -> Any:
        for device in list(_devices):
            device.before_update()
        return call(*args, **options)
    waiting.waits_for_copies = True   # type: ignore[attr-defined]
    setattr(owner, name, waiting)


def _updaters() -> list[tuple[type, str]]:
    """Returns the methods that may change weights without the hook of an optimizer."""
    found: list[tuple[Any, str]] = [(getattr(torch.cuda, "CUDAGraph", None), "replay")]
    for module in (getattr(torch, "amp", None), torch.cuda.amp):
        found.append((getattr(module, "GradScaler", None), "step"))
    return [(owner, name) for owner, name in found if isinstance(owner, type)]


class Device:
    """The copies of one snapshot's memory. Not for several snapshots at a time."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._host = torch.frombuffer(memory.view, dtype=torch.uint8)
        self._pinned = False
        self._streams: dict[Any, Any] = {}
        self._copied: list[Any] = []     # events of all parts
        self._beside: list[Any] = []     # events that the next optimizer.step() waits for
        self._hook: Any = None
        self._is_watched = True          # False after an update that no hook has announced
        self._is_guarded = True          # nothing can have changed what is being copied

    def copy(self, parts: list[tuple[int, Any, int]], optimized: set[int] | frozenset[int]) -> None:
        """Begins the copies. parts: (offset, storage, bytes). optimized: addresses of storages that only the optimizer changes."""
        self._copied, self._beside, self._is_guarded = [], [], True
        if not self._pinned:
            self._pin()
        beside: dict[Any, list] = {}
        ordered = []
        for part in parts:
            storage = part[1]
            if not is_cuda(storage):
                self._move(part, False)
            elif storage.data_ptr() in optimized and self._watches():
                beside.setdefault(storage.device, []).append(part)
            else:
                ordered.append(part)
        for device, its_parts in beside.items():
            self._copy_beside(device, its_parts)
        for part in ordered:
            self._move(part, True)
        for device in {part[1].device for part in ordered}:
            self._copied.append(torch.cuda.current_stream(device).record_event())
        self._is_guarded = not self._beside

    def _copy_beside(self, device, parts):
        stream = self._streams.get(device) or self._streams.setdefault(device, torch.cuda.Stream(device))
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            for part in parts:
                self._move(part, True).record_stream(stream)   # its memory is not reused before
        event = stream.record_event()
        self._copied.append(event)
        self._beside.append((device, event))

    def _move(self, part, non_blocking):
        offset, storage, n = part
        source = _bytes_of(storage)
        self._host[offset:offset + n].copy_(source, non_blocking=non_blocking)
        return source

    def _pin(self):
        """Without page-locked memory the copies are slower, and each one stops the job."""
        self._pinned = True
        if torch.cuda.is_available() and int(torch.cuda.cudart().cudaHostRegister(self._memory.address, self._memory.size, 0)) != 0:
            log.warning("memory for checkpoints cannot be page-locked: snapshots stop the job for longer")

    def _watches(self):
        if self._is_watched and self._hook is None:
            try:
                from torch.optim.optimizer import register_optimizer_step_pre_hook
            except ImportError:   # PyTorch 1
                self._is_watched = False
            else:
                self._hook = register_optimizer_step_pre_hook(self.before_update)
                for owner, name in _updaters():
                    _let_wait(owner, name)
                _devices.add(self)
        return self._is_watched

    def before_update(self, *_: object) -> None:
        """Makes the device's later work wait for the copies. A step that a CUDA graph captures changes nothing yet."""
        if not self._beside or (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()):
            return
        for device, event in self._beside:
            torch.cuda.current_stream(device).wait_event(event)
        self._is_guarded = True

    def is_done(self, wait: bool) -> bool:
        """Returns True if the snapshot is complete. wait: returns when it is."""
        if wait:
            for event in self._copied:
                event.synchronize()
        return wait or all(event.query() for event in self._copied)

    def is_torn(self) -> bool:
        """Ask after the job's next step: True if nothing has made the device wait for the copy, so that an update of a kind
        unknown here may have reached it. All later ones are copied on the job's own stream."""
        if self._is_guarded:
            return False
        self._is_watched, self._beside = False, []
        return True

    def release(self) -> None:
        self.is_done(wait=True)
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
        _devices.discard(self)
        if self._pinned and torch.cuda.is_available():
            torch.cuda.cudart().cudaHostUnregister(self._memory.address)
