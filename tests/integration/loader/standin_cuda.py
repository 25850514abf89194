# SPDX-License-Identifier: Apache-2.0
"""A stand-in for CUDA, for machines without a GPU: the functions that diesel_loader.device calls (device/cuda.py), on
the CPU.

Tensors "on the device" are in ordinary memory. A copy to them is only queued, with the address of its source. The copy
happens as late as the real one may: after several queries of its event, when a caller waits, or at
synchronize(). So a slot or a buffer that is released too early shows as wrong bytes. Calls that CUDA would refuse or
could not survive are recorded in `faults`. The stand-in shows neither the speed of a real device nor whether copies
overlap."""
import collections
import contextlib
import ctypes
from unittest import mock

import torch

from diesel_loader.device import cuda

NOT_YET = 0xEE  # bytes of a tensor "on the device" before its copy is done
NAMES = ("n_devices", "current_device", "register", "unregister", "side_stream", "pinned", "copy", "copy_now", "record", "is_done",
         "wait", "hand_over")


class Event:
    def __init__(self, n, late):
        self.n, self.asked_for, self.late = n, 0, late  # done when the first n copies of all are


class Copy:
    """in_place: from registered memory, which must stay registered until the copy is done."""

    def __init__(self, target, address, size, keep, in_place):
        self.target, self.address, self.size, self.keep, self.in_place = target, address, size, keep, in_place


def mapping_of(address):
    """Returns (first address, end, permissions) of the mapping that has an address, from the kernel, or None."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            place, permissions = line.split(maxsplit=2)[:2]
            first, end = (int(number, 16) for number in place.split("-"))
            if first <= address < end:
                return first, end, permissions
    return None


class StandInCuda:
    """late: number of queries of an event before it is done. refuses: error of register(), for all or (a tuple) for read-only and for other
    memory. no_memory: pinned() fails."""

    def __init__(self, late=3, refuses=None, no_memory=False, devices=2):
        self.late, self.devices, self.no_memory = late, devices, no_memory
        self.refuses = refuses if isinstance(refuses, tuple) else (refuses, refuses)
        self.current = 0
        self.registered, self.allocated = {}, {}
        self.queue, self.done = collections.deque(), 0
        self.n_registered = self.in_place = self.staged = self.pageable = self.now = 0
        self.faults, self.handed_over = [], []
        self.strike = None  # called before each call, with its name

    @contextlib.contextmanager
    def installed(self):
        def of(name):
            def call(*arguments):
                if self.strike:
                    self.strike(name)
                return getattr(self, name)(*arguments)
            return call

        with mock.patch.multiple(cuda, **{name: of(name) for name in NAMES}):
            yield self

    # Functions of cuda.py

    def n_devices(self):
        return self.devices

    def current_device(self):
        return self.current

    def register(self, device, address, size, read_only):
        refused = self.refuses[0 if read_only else 1]
        if refused:
            return refused
        self.look_at_mappings()
        found = mapping_of(address)
        if found is None or address + size > found[1]:
            self.faults.append("registered what is not mapped")
        elif "p" in found[2]:
            self.faults.append("registered a private mapping: its pages would become copies")
        elif "w" not in found[2] and not read_only:
            self.faults.append("registered what is mapped for reading only, without the flag")
        if address in self.registered:
            self.faults.append("registered twice")
        self.registered[address] = size
        self.n_registered += 1
        return None

    def unregister(self, address):
        self.look_at_mappings()
        if any(self.registered_at(copy.address) == address for copy in self.queue):
            self.faults.append("unregistered under a copy")
        self.registered.pop(address, None)

    def side_stream(self, device):
        return device

    def pinned(self, tensor):
        if self.no_memory:
            raise RuntimeError("CUDA error: out of memory\nmore lines")
        copy = tensor.clone()
        self.allocated[copy.data_ptr()] = copy
        self.staged += 1
        return copy

    def copy(self, tensor, device, stream):
        target = torch.empty_like(tensor)
        size = tensor.numel() * tensor.element_size()
        if not size:
            return target
        ctypes.memset(target.data_ptr(), NOT_YET, size)
        keep = self.allocated.pop(tensor.data_ptr(), None)  # torch's allocator waits for its copies by itself
        in_place = self.registered_at(tensor.data_ptr()) is not None
        self.queue.append(Copy(target, tensor.data_ptr(), size, keep, in_place))
        if in_place:
            self.in_place += 1
        elif keep is None:  # CUDA reads unpinned memory before it returns
            self.pageable += 1
            self.run(self.done + len(self.queue))
        return target

    def copy_now(self, thing, device):
        self.now += 1
        return thing

    def record(self, stream):
        return Event(self.done + len(self.queue), self.late)

    def is_done(self, event):
        event.asked_for += 1
        if event.asked_for > self.late:
            self.run(event.n)
        return self.done >= event.n

    def wait(self, event):
        self.run(event.n)

    def hand_over(self, tensors, event, device):
        self.handed_over.append((len(tensors), device))

    # Functions for the tests

    def registered_at(self, address):
        return next((first for first, size in self.registered.items() if first <= address < first + size), None)

    def run(self, n):
        while self.done < n:
            copy = self.queue.popleft()
            self.done += 1
            if copy.in_place and self.registered_at(copy.address) is None:
                self.faults.append("copied from what is not registered any more")
                continue
            ctypes.memmove(copy.target.data_ptr(), copy.address, copy.size)

    def synchronize(self):
        self.run(self.done + len(self.queue))

    def look_at_mappings(self):
        """Checks that registered memory is mapped."""
        for address in self.registered:
            if mapping_of(address) is None:
                self.faults.append("unmapped what was registered")
