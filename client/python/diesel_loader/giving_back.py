# SPDX-License-Identifier: Apache-2.0
"""Gives memory back when the object that stood for it is gone.

Not by __del__: that is a Python function, so Ctrl-C can strike at its first instruction. Python would then report the
KeyboardInterrupt as ignored, nothing would have been given back, and the program would go on. A weak reference calls
libdiesel with no Python function in between.
"""
import functools
import os
import weakref

MANY = 4096  # more than are lent at a time: most are of memory that is gone


class _Ref(weakref.ref):
    _as_parameter_ = None  # ctypes is called with the reference as its last argument, which nobody looks at


_refs: dict = {}  # (function, address): _Ref; what lies there is lent once at a time


def when_gone(thing, give_back, address, *more):
    """Then calls give_back, a function of libdiesel, with the address and what more there is."""
    if len(_refs) >= MANY:
        for key in [key for key, ref in list(_refs.items()) if ref() is None]:
            _refs.pop(key, None)
    _refs[id(give_back), address] = _Ref(thing, functools.partial(give_back, address, *more))


# In a child that was forked, all of that is the parent's to give back.
os.register_at_fork(after_in_child=_refs.clear)
