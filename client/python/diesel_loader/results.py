# SPDX-License-Identifier: Apache-2.0
"""Results of worker processes: pickled, with tensors and arrays in shared memory that is used again.

A worker makes a buffer, the trainer maps it once, and returns it when nothing refers to the result any more; then the worker writes the
next result there. So a batch costs one copy (none if it is collated in place), pages are not allocated and freed for each batch, and no
descriptor stays open. Buffers have no name in the file system, so they end with the processes.
"""
import collections
import ctypes
import functools
import io
import os
import pickle
import struct

from . import errors, native
from .native import byref, lib

HEADER = 64          # DIESEL_RESULT_HEADER
ALIGN = 64
SPARE = 1 << 14      # spare bytes for the pickle, in a buffer in which a tensor is collated
MAX_FREE = 3         # maximum number of free buffers kept for the next results
_TABLE = struct.Struct("<QQQ")  # offset and length of the pickle, number of pieces
_PIECE = struct.Struct("<QQ")   # offset, length

Failure = collections.namedtuple("Failure", "exception text")  # exception: the pickled class of the exception, or None
Measured = collections.namedtuple("Measured", "result sample_ns")  # a result, with the time that each sample took


def _align(n):
    return (n + ALIGN - 1) // ALIGN * ALIGN


class _Pickler(pickle.Pickler):
    """A pickler that leaves the bytes of tensors and arrays out, and lists them in `pieces`, as (address, bytes, owner)."""

    def __init__(self, file, arrays):
        self.pieces, self._placed, self._arrays = [], {}, arrays
        # Not a method: a pickler that refers to itself would keep the batch until garbage is collected.
        super().__init__(file, protocol=5, buffer_callback=functools.partial(_take, self.pieces, self._placed))

    def reducer_override(self, obj):
        found = self._arrays.out_of_band(obj)
        if found is None:
            return NotImplemented
        address, size, owner, function, arguments = found
        view = pickle.PickleBuffer(native.array_at(address, size) if size else b"")
        self._placed[id(view)] = address, size, (owner, view)
        return function, (view, *arguments)


def _take(pieces, placed, view):
    piece = placed.get(id(view))
    if piece is None:
        raw = view.raw()
        piece = (raw, raw.nbytes, view)
    pieces.append(piece)


class Buffer:
    """The worker's side of one buffer."""

    def __init__(self, number, size):
        address, fd = ctypes.c_void_p(), ctypes.c_int()
        result = lib.diesel_result_new(size, byref(address), byref(fd))
        if result < 0:
            raise errors.from_result(result, f"cannot make {size} bytes of shared memory for a batch: "
                                             f"{os.strerror(-result)}")
        self.number, self.size, self.address, self.fd = number, size, address.value, fd.value
        self.view = memoryview(native.array_at(self.address, size)).cast("B")

    def unmap(self):
        self.close_fd()
        self.view.release()
        lib.diesel_result_unmap(self.address, self.size)

    def close_fd(self):
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Writer:
    """A worker's buffers. Call allocate() and write() for each batch, then trim() after the message to the trainer.

    arrays: as in Assembly."""

    def __init__(self, arrays):
        self._arrays = arrays
        self._buffers, self._next, self._current, self._used = [], 0, None, HEADER

    def allocate(self, shape, dtype):
        """Allocates an uninitialised array in the buffer of the next result."""
        size = self._arrays.element_bytes(dtype)
        for n in shape:
            size *= n
        if not size or self._current is not None:
            return self._arrays.empty(shape, dtype)
        self._current = self._free_buffer(HEADER + _align(size) + SPARE)
        self._used = HEADER + _align(size)
        return self._arrays.of(self._current.view[HEADER:HEADER + size], dtype, shape)

    def write(self, result):
        """Writes the result into a buffer; returns (buffer, offset of the table)."""
        file = io.BytesIO()
        pickler = _Pickler(file, self._arrays)
        pickler.dump(result)
        body = file.getbuffer()
        need = _align(body.nbytes) + _TABLE.size + len(pickler.pieces) * _PIECE.size
        need += sum(_align(size) for address, size, _ in pickler.pieces if self._inside(address) is None)
        buffer = self._current
        if buffer is None or self._used + need > buffer.size:  # arrays in the smaller buffer are then copied
            need += self._used
            buffer, self._used = self._free_buffer(need + HEADER, but=buffer), HEADER
        placed = [self._place(buffer, *piece[:2]) for piece in pickler.pieces]
        at, _ = self._place(buffer, body, body.nbytes)
        end = self._used
        _TABLE.pack_into(buffer.view, end, at, body.nbytes, len(placed))
        for k, piece in enumerate(placed):
            _PIECE.pack_into(buffer.view, end + _TABLE.size + k * _PIECE.size, *piece)
        self._current, self._used = None, HEADER
        return buffer, end

    def forget(self):
        """Drops what was allocated for a result that failed."""
        self._current, self._used = None, HEADER

    def trim(self):
        """Unmaps free buffers beyond MAX_FREE; returns their numbers."""
        free = [b for b in self._buffers if lib.diesel_result_is_free(b.address)]
        gone = sorted(free, key=lambda b: b.size)[:max(0, len(free) - MAX_FREE)]
        for buffer in gone:
            self._buffers.remove(buffer)
            buffer.unmap()
        return [buffer.number for buffer in gone]

    def _inside(self, address):
        """Offset of an address in the current buffer, or None."""
        buffer = self._current
        if buffer is None or not isinstance(address, int):
            return None
        offset = address - buffer.address
        return offset if HEADER <= offset < buffer.size else None

    def _place(self, buffer, source, size):
        if buffer is self._current and (offset := self._inside(source)) is not None:
            return offset, size
        at = self._used
        if isinstance(source, int):
            if size:
                ctypes.memmove(buffer.address + at, source, size)
        else:
            buffer.view[at:at + size] = source
        self._used = at + _align(size)
        return at, size

    def _free_buffer(self, size, but=None):
        fitting = [b for b in self._buffers if b is not but and b.size >= size and lib.diesel_result_is_free(b.address)]
        if fitting:
            buffer = min(fitting, key=lambda b: b.size)
        else:
            buffer = Buffer(self._next, -(-size * 9 // 8 // 4096) * 4096)  # an eighth more, because batches differ a little in size
            self._next += 1
            self._buffers.append(buffer)
        lib.diesel_result_borrow(buffer.address)
        if but is not None:
            lib.diesel_result_free(but.address)
        return buffer


class _Mapping:
    """The trainer's side of one buffer, mapped while the worker or a result uses it."""

    def __init__(self, fd, size):
        address = ctypes.c_void_p()
        result = lib.diesel_result_map(fd, size, byref(address))
        if result < 0:
            raise errors.from_result(result, f"cannot map {size} bytes of a batch: {os.strerror(-result)}")
        self.address, self.size = address.value, size
        self.memory = native.Mapped(self.address, size, lib.diesel_result_unmap)  # shared with device registrations


class _Loan:
    """Reference of a result to its buffer."""

    __slots__ = ("_mapping", "__weakref__")

    def __init__(self, mapping):
        self._mapping = mapping
        native.when_gone(self, lib.diesel_result_free, mapping.address)


class Reader:
    """The trainer's view of one worker's buffers."""

    def __init__(self):
        self._mappings = {}

    def add(self, number, fd, size):
        self._mappings[number] = _Mapping(fd, size)

    def drop(self, number):
        self._mappings.pop(number, None)

    def mapping_at(self, address):
        """Returns the mapping of the buffer that contains the address, or None."""
        for mapping in self._mappings.values():
            if 0 <= address - mapping.address < mapping.size:
                return mapping
        return None

    def release(self, number):
        """Releases a result that nobody needs."""
        lib.diesel_result_free(self._mappings[number].address)

    def read(self, number, table):
        """Returns the result. Its tensors view the buffer, which returns to the worker when the last of them is gone."""
        mapping = self._mappings[number]
        array = native.array_at(mapping.address, mapping.size)
        array.loan = _Loan(mapping)
        view = memoryview(array).cast("B")
        at, size, n = _TABLE.unpack_from(view, table)
        pieces = [_PIECE.unpack_from(view, table + _TABLE.size + k * _PIECE.size) for k in range(n)]
        return pickle.loads(view[at:at + size], buffers=[view[a:a + length] for a, length in pieces])
