# SPDX-License-Identifier: Apache-2.0
"""Shared memory that holds a snapshot, and the copy into it."""
from __future__ import annotations

import concurrent.futures
import contextlib
import ctypes
import fcntl
import mmap
import os

from . import control_group
from .persist import SIGNS

PIECE = 8 << 20
SMALL = 256 << 10
N_THREADS = 8   # more do not copy faster
_HUGE = 2 << 20
_MADV_POPULATE_WRITE = 23
# The numbers are Linux's; the modules have the names only since Python 3.10 and 3.8.
_ADD_SEALS, _SEALS = 1033, 0x1 | 0x2 | 0x4   # sealing, shrinking, growing


class Memory:
    """Memory without a name, which only this process and those it sends the descriptor to can open."""

    def __init__(self, size: int) -> None:
        n_bytes = -(-(size + SIGNS.size) // _HUGE) * _HUGE
        self.size = n_bytes - SIGNS.size
        _check_free(n_bytes)
        self.fd = os.memfd_create("diesel-checkpoint", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)   # OSError: too many are open
        try:
            os.fchmod(self.fd, 0o600)
            os.ftruncate(self.fd, n_bytes)
            fcntl.fcntl(self.fd, _ADD_SEALS, _SEALS)
            self._map = mmap.mmap(self.fd, n_bytes)
        except OSError as error:
            os.close(self.fd)
            raise MemoryError(f"a snapshot needs {n_bytes >> 20} MiB of shared memory, and the kernel refuses them ({error.strerror}): save "
                              f"less state, or raise the job's limit of address space (ulimit -v)") from None
        try:
            self._map.madvise(mmap.MADV_HUGEPAGE)
        except (AttributeError, OSError):
            pass   # a kernel without them
        self.view = memoryview(self._map)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))

    def populate(self) -> None:
        """Takes the pages from the kernel, so that the first snapshot need not. It may run in another thread."""
        madvise = ctypes.CDLL(None).madvise   # mmap.madvise() would hold the GIL meanwhile
        for at in range(0, self.size, PIECE):   # in pieces, because each one delays other mappings of this process
            madvise(ctypes.c_void_p(self.address + at), ctypes.c_size_t(min(PIECE, self.size - at)), _MADV_POPULATE_WRITE)

    def beat(self) -> int:
        """Returns a number that the process which writes changes as it gets on."""
        number: int = SIGNS.unpack_from(self._map, self.size)[0]
        return number

    def waits(self) -> ctypes.c_uint64:
        """Returns the word that tells that process whether the job waits for data."""
        return ctypes.c_uint64.from_buffer(self._map, self.size + SIGNS.size // 2)

    def close(self) -> None:
        """Gives the descriptor back, and the memory with the last view of it."""
        os.close(self.fd)


def _check_free(size):
    free = control_group.free_bytes()
    with open("/proc/meminfo", encoding="ascii") as file:
        free = min([free, *(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable:"))])
    if size > free:
        raise MemoryError(f"a snapshot needs {size >> 20} MiB of shared memory, and {int(free) >> 20} MiB are free for this job: save less state, or "
                          f"give the job more memory")


def copy(memory: Memory, parts: list[tuple[int, int, int]]) -> None:
    """Copies parts (offset, address, bytes) in parallel and without the GIL."""
    pieces = []
    for offset, address, n_bytes in parts:
        if n_bytes <= SMALL:
            ctypes.memmove(memory.address + offset, address, n_bytes)
            continue
        pieces += [(memory.address + offset + at, address + at, min(PIECE, n_bytes - at)) for at in range(0, n_bytes, PIECE)]
    n = min(N_THREADS, len(os.sched_getaffinity(0)), len(pieces))
    if n <= 1:
        _move(pieces)
        return
    with concurrent.futures.ThreadPoolExecutor(n - 1) as threads:
        others, rest = [], pieces
        with contextlib.suppress(RuntimeError):   # no thread can be started: this one copies what is left
            for i in range(1, n):
                others.append(threads.submit(_move, pieces[i::n]))
                rest = [piece for j in (0, *range(i + 1, n)) for piece in pieces[j::n]]
        _move(rest)
        for other in others:
            other.result()


def _move(pieces):
    for piece in pieces:
        ctypes.memmove(*piece)
