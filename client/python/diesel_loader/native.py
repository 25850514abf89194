# SPDX-License-Identifier: Apache-2.0
"""libdiesel through ctypes: what the build makes of its headers (_abi.py, by client/python/make_abi.py), and memory that goes back to it.

Every call releases the GIL while it runs.
"""
from __future__ import annotations

import ctypes
import errno
import functools
import os
import weakref
from ctypes import byref, c_int, c_int64, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p

from . import errors, library

lib, VERSION = library.open_library()

from ._abi import *  # noqa: E402, F403
from ._abi import FUNCTIONS  # noqa: E402

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

library.declare(lib, FUNCTIONS)
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
