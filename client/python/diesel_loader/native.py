# SPDX-License-Identifier: Apache-2.0
"""libdiesel through ctypes: the structs and calls of client/diesel.h, and memory that goes back to it.

Every call releases the GIL while it runs.
"""
from __future__ import annotations

import ctypes
import errno
import functools
import os
import weakref
from ctypes import POINTER, Structure, byref, c_char_p, c_int, c_int32, c_int64, c_size_t
from ctypes import c_uint8, c_uint32, c_uint64, c_void_p

from . import errors
from .library import open_library

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SHUFFLE = 1 << 0
DROP_LAST = 1 << 1
VIEWS = 1 << 3
PINNABLE = 1 << 4
NO_IMAGE, NO_CLASS = 0, 1  # enum diesel_stranger
APPEND = 1 << 0      # enum diesel_writer_flag
DIGESTS = 1 << 1
BATCH_MAX = 1 << 20  # WIRE_BATCH_MAX
GROUP_MAX = 31       # bytes, WIRE_GROUP_BYTES - 1
CLUSTER_MAX = 63     # bytes, WIRE_CLUSTER_BYTES - 1

NO_WISH = 0xffffffff  # RING_NO_WISH
POLICY_NONE, POLICY_FIXED, POLICY_AUTO = 0, 1, 2  # enum ring_work_policy

# enum diesel_mark_kind, enum diesel_mark_cause
MARK_NEXT_BEGIN = 1
MARK_NEXT_END = 2
MARK_WAIT_BEGIN = 3
MARK_WAIT_END = 4
CAUSE_PREP = 2

ERROR_BYTES = 512
NOT_FOUND = (1 << 64) - 1


class DatasetInfo(Structure):
    _fields_ = [("version", c_uint64), ("n_samples", c_uint64), ("n_chunks", c_uint64),
                ("total_bytes", c_uint64), ("n_classes", c_uint32), ("equal_bytes", c_uint32),
                ("max_bytes", c_uint32), ("reserved", c_uint32)]


class SessionOptions(Structure):
    _fields_ = [("seed", c_uint64), ("epoch", c_uint64), ("first_batch", c_uint64), ("flags", c_uint32),
                ("rank", c_uint32), ("world", c_uint32), ("batch", c_uint32), ("stride", c_uint32),
                ("offset", c_uint32), ("window_chunks", c_uint32), ("reconnect_ms", c_uint32),
                ("slots", c_uint32), ("nodes", c_uint32), ("subset", c_void_p), ("recipe", c_void_p),
                ("group", c_char_p), ("cluster", c_char_p), ("start", c_uint64),
                ("lanes", c_uint32), ("drift", c_uint32)]


class SampleInfo(Structure):
    _fields_ = [("bytes", c_uint32), ("label", c_int32)]


class Entry(Structure):
    _fields_ = [("name", c_void_p), ("name_length", c_size_t), ("sample", c_uint64), ("is_directory", c_uint32),
                ("reserved", c_uint32)]


class Stat(Structure):
    _fields_ = [("mtime_ns", c_uint64), ("mode", c_uint32), ("bytes", c_uint32), ("label", c_int32),
                ("reserved", c_uint32)]


class WriterOptions(Structure):
    _fields_ = [("chunk_bytes", c_uint64), ("flags", c_uint32), ("zstd_level", c_uint32), ("meta_url", c_char_p)]


class Item(Structure):
    _fields_ = [("data", c_void_p), ("sample", c_uint64), ("bytes", c_uint32), ("label", c_int32)]


class Batch(Structure):
    _fields_ = [("epoch", c_uint64), ("index", c_uint64), ("n_items", c_uint32), ("item_bytes", c_uint32),
                ("packed", c_void_p), ("items", POINTER(Item)), ("labels", c_void_p), ("lease", c_void_p),
                ("n_damaged", c_uint32), ("reserved", c_uint32)]


class Memory(Structure):
    _fields_ = [("life", c_uint64), ("n_frames", c_uint32), ("batch", c_uint32), ("item_bytes", c_uint32),
                ("reserved", c_uint32)]


class Pinnable(Structure):
    _fields_ = [("life", c_uint64), ("data", c_void_p), ("bytes", c_uint64), ("frames", c_void_p)]


class Work(Structure):
    _fields_ = [(name, c_uint64) for name in (
        "n_batches", "n_samples", "next_ns", "wait_ns", "n_waits", "inline_ns", "handoff_ns",
        "worker_handoff_ns", "n_handoffs", "cpu_ns", "busy_ns", "n_worked", "result_bytes", "worker_bytes")]
    _fields_ += [("n_workers", c_uint32), ("n_deaths", c_uint32), ("policy", c_uint32), ("reserved", c_uint32)]


def _load() -> tuple[ctypes.CDLL, str]:
    calls = {
        "diesel_dieselctl": (c_int, [c_char_p]),
        "diesel_dataset_open_version": (c_int, [c_char_p, c_uint64, c_char_p, POINTER(c_void_p), c_char_p, c_size_t]),
        "diesel_dataset_close": (None, [c_void_p]),
        "diesel_dataset_info": (c_int, [c_void_p, POINTER(DatasetInfo)]),
        "diesel_dataset_class": (c_int, [c_void_p, c_uint32, POINTER(c_void_p), POINTER(c_size_t)]),
        "diesel_dataset_path": (c_int, [c_void_p, c_uint64, POINTER(c_void_p), POINTER(c_size_t)]),
        "diesel_dataset_find": (c_int, [c_void_p, c_char_p, c_size_t, POINTER(c_uint64)]),
        "diesel_dataset_find_many": (c_int, [c_void_p, c_void_p, c_void_p, c_uint64, c_void_p]),
        "diesel_dataset_list": (c_int, [c_void_p, c_char_p, c_size_t, POINTER(c_uint64), POINTER(Entry)]),
        "diesel_dataset_stat": (c_int, [c_void_p, c_uint64, POINTER(Stat)]),
        "diesel_dataset_sample": (c_int, [c_void_p, c_uint64, POINTER(SampleInfo)]),
        "diesel_dataset_labels": (c_int, [c_void_p, c_void_p]),
        "diesel_dataset_is_fair": (c_int, [c_void_p]),
        "diesel_dataset_read": (c_int, [c_void_p, c_uint64, c_void_p, c_size_t, c_char_p, c_size_t]),
        "diesel_writer_open": (c_int, [c_char_p, POINTER(WriterOptions), POINTER(c_void_p), c_char_p, c_size_t]),
        "diesel_writer_put": (c_int, [c_void_p, c_char_p, c_size_t, c_void_p, c_size_t, POINTER(Stat), c_char_p, c_size_t]),
        "diesel_writer_commit": (c_int, [c_void_p, POINTER(c_uint64), c_char_p, c_size_t]),
        "diesel_writer_free": (None, [c_void_p]),
        "diesel_subset_load": (c_int, [c_uint64, c_char_p, POINTER(c_void_p)]),
        "diesel_subset_select": (c_int, [c_void_p, c_void_p, c_void_p, c_uint64, POINTER(c_void_p)]),
        "diesel_subset_slice": (c_int, [c_void_p, c_void_p, c_uint64, c_uint64, c_uint64, POINTER(c_void_p)]),
        "diesel_subset_filter": (c_int, [c_void_p, c_void_p, c_char_p, c_char_p, POINTER(c_void_p)]),
        "diesel_subset_split": (c_int, [c_void_p, c_void_p, c_void_p, c_uint32, c_uint64, c_int, POINTER(c_void_p)]),
        "diesel_subset_free": (None, [c_void_p]),
        "diesel_subset_count": (c_uint64, [c_void_p]),
        "diesel_subset_sample": (c_int, [c_void_p, c_uint64, POINTER(c_uint64)]),
        "diesel_subset_samples": (None, [c_void_p, c_void_p]),
        "diesel_subset_indices": (c_int, [c_void_p, c_void_p, c_uint64]),
        "diesel_subset_stranger": (c_int, [c_void_p, c_void_p, c_int, POINTER(c_uint64)]),
        "diesel_subset_bytes": (c_int, [c_void_p, c_void_p, POINTER(c_uint64)]),
        "diesel_subset_words": (POINTER(c_uint64), [c_void_p, POINTER(c_uint64)]),
        "diesel_codec_output": (c_int, [c_void_p, c_void_p, POINTER(c_uint32), c_char_p, c_size_t]),
        "diesel_order_new": (c_int, [c_void_p, POINTER(SessionOptions), POINTER(c_void_p), c_char_p, c_size_t]),
        "diesel_order_free": (None, [c_void_p]),
        "diesel_order_n_batches": (c_uint64, [c_void_p]),
        "diesel_order_max_batch": (c_uint32, [c_void_p]),
        "diesel_order_batch": (c_int, [c_void_p, c_uint64, c_void_p, POINTER(c_uint32)]),
        "diesel_session_open": (c_int, [c_void_p, POINTER(SessionOptions), POINTER(c_void_p), c_char_p, c_size_t]),
        "diesel_session_close": (None, [c_void_p]),
        "diesel_session_n_batches": (c_uint64, [c_void_p]),
        "diesel_n_batches": (c_uint64, [c_uint64, c_uint32, c_uint32, c_uint32]),
        "diesel_first_batch": (c_int, [c_uint64, c_uint64, c_uint32, c_uint32, c_uint32, POINTER(c_uint64)]),
        "diesel_position": (c_uint64, [c_uint64, c_uint64, c_uint32, c_uint32, c_uint32, c_uint64]),
        "diesel_session_next": (c_int, [c_void_p, POINTER(Batch)]),
        "diesel_session_seek": (c_int, [c_void_p, c_uint64, c_uint64]),
        "diesel_session_window_chunks": (c_uint32, [c_void_p]),
        "diesel_session_n_held": (c_uint32, [c_void_p]),
        "diesel_session_max_held": (c_uint32, [c_void_p]),
        "diesel_session_wanted_workers": (c_uint32, [c_void_p]),
        "diesel_session_ready": (c_uint32, [c_void_p]),
        "diesel_session_report": (None, [c_void_p, POINTER(Work)]),
        "diesel_session_memory": (c_int, [c_void_p, POINTER(Memory), POINTER(c_int)]),
        "diesel_session_map_pinnable": (c_int, [c_void_p, POINTER(Pinnable)]),
        "diesel_pinnable_unmap": (None, [c_void_p, c_uint64]),
        "diesel_session_segment": (c_int, [c_void_p, c_uint32, POINTER(c_int), POINTER(c_uint64)]),
        "diesel_session_forget": (None, [c_void_p]),
        "diesel_batch_life": (c_uint64, [c_void_p]),
        "diesel_batch_frame": (c_uint32, [c_void_p]),
        "diesel_batch_segments": (c_uint32, [POINTER(Batch), POINTER(c_uint32)]),
        "diesel_mirror_open": (c_int, [POINTER(Memory), c_int, POINTER(c_void_p)]),
        "diesel_mirror_close": (None, [c_void_p]),
        "diesel_mirror_segment": (c_int, [c_void_p, c_uint32, c_int, c_uint64]),
        "diesel_mirror_batch": (c_int, [c_void_p, c_uint32, c_uint32, POINTER(Batch)]),
        "diesel_mirror_release": (None, [c_void_p, c_uint32]),
        "diesel_result_new": (c_int, [c_uint64, POINTER(c_void_p), POINTER(c_int)]),
        "diesel_result_map": (c_int, [c_int, c_uint64, POINTER(c_void_p)]),
        "diesel_result_unmap": (None, [c_void_p, c_uint64]),
        "diesel_result_lend": (None, [c_void_p]),
        "diesel_result_free": (None, [c_void_p]),
        "diesel_result_is_free": (c_int, [c_void_p]),
        "diesel_session_error": (c_char_p, [c_void_p]),
        "diesel_session_notice": (c_char_p, [c_void_p]),
        "diesel_batch_release": (None, [c_void_p]),
        "diesel_status": (c_int, [c_char_p, POINTER(c_void_p), c_char_p, c_size_t]),
        "diesel_mark": (None, [c_uint32, c_uint64]),
    }
    library, version = open_library(calls)
    for name, (result, arguments) in calls.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library, version


lib, VERSION = _load()
libc_free = ctypes.CDLL(None).free
libc_free.restype, libc_free.argtypes = None, [c_void_p]


def borrowed_text(function: Any, handle: c_void_p, path: str, index: int) -> str:
    """The text that a call of the form (handle, index, *ret_text, *ret_length) lends us, as str. path: the dataset's."""
    text, length = c_void_p(), c_size_t()
    result = function(handle, index, byref(text), byref(length))
    if -result == errno.ERANGE:
        raise IndexError(index)
    if result < 0:
        raise errors.of_look_up(result, path, os.strerror(-result))
    return os.fsdecode(ctypes.string_at(text, length.value))


def array_at(address: int, count: int, ctype: Any = c_uint8) -> Any:
    """`count` elements of shared memory as a buffer; it owns nothing: keep the lease beside it."""
    return (ctype * count).from_address(address)


MANY = 4096  # more than are lent at a time: most are of memory that is gone


class _Ref(weakref.ref):  # type: ignore[type-arg]
    _as_parameter_ = None  # ctypes is called with the reference as its last argument, which nobody looks at


_refs: dict[Any, Any] = {}  # (function, address): _Ref; what lies there is lent once at a time


def when_gone(thing: Any, give_back: Any, address: Any, *more: Any) -> None:
    """Then calls give_back, a function of libdiesel, with the address and what more there is.

    Not by __del__: that is a Python function, so Ctrl-C can strike at its first instruction. Python would then report the
    KeyboardInterrupt as ignored, nothing would have been given back, and the program would go on. A weak reference calls
    libdiesel with no Python function in between."""
    if len(_refs) >= MANY:
        for key in [key for key, ref in list(_refs.items()) if ref() is None]:
            _refs.pop(key, None)
    _refs[id(give_back), address] = _Ref(thing, functools.partial(give_back, address, *more))


class Mapped:
    """Memory that is unmapped, by a function of libdiesel, when nothing refers to this any more."""

    __slots__ = ("__weakref__", "address", "size")

    def __init__(self, address: int, size: int, unmap: Any) -> None:
        self.address, self.size = address, size
        when_gone(self, unmap, address, size)


# In a child that was forked, all of that is the parent's to give back.
os.register_at_fork(after_in_child=_refs.clear)
