# SPDX-License-Identifier: Apache-2.0
"""libdiesel through ctypes: the library of this package's version, the declarations that the build makes of its headers
(_abi.py, by client/python/make_abi.py), and memory that goes back to it.

An installed package has its version in the file `version` next to this one. The source tree has no such file: there,
__version__ is the version of the library. Every call releases the GIL while it runs.
"""
from __future__ import annotations

import ctypes
import errno
import functools
import os
import weakref
from ctypes import byref, c_int, c_int64, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p

from . import __path__ as folders
from . import errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LIBRARY = "libdiesel.so"
SYSTEM_LIBRARY = "libdiesel.so.0"


# In the source tree, the declarations that the build makes from the headers (_abi.py) lie next to the library. That
# folder is searched last: an installed package has its own _abi.py.
if os.environ.get("DIESEL_LIB"):
    folders.append(os.environ["DIESEL_LIB"])


def open_library() -> tuple[ctypes.CDLL, str]:
    """Returns (library, its version). Raises ImportError with one line: the problem, the file, and the fix."""
    found, remedy = _find()
    try:
        library = ctypes.CDLL(found)
    except OSError as error:
        if found == SYSTEM_LIBRARY:
            raise ImportError(f"{LIBRARY} not found ({error}): install diesel_loader's wheel with pip, or the system's package "
                              "diesel, or set DIESEL_LIB to the folder of the library") from None
        raise ImportError(f"cannot load {found} ({error}): {remedy}; {_what_fits()}") from None
    if not hasattr(library, "diesel_version"):
        raise ImportError(f"{found} is not libdiesel: {remedy}")
    version = _version_of(library)
    wanted = _installed_version()
    if wanted not in (None, version):
        raise ImportError(f"{_file_of(library)} is libdiesel {version}, but {os.path.dirname(__file__)} is "
                          f"diesel_loader {wanted}: {remedy}")
    if _bundled("_abi.py") is None:
        raise ImportError(f"{os.path.dirname(__file__)} is a source tree that is not built: build it with `./dev build`, and set DIESEL_LIB to its "
                          f"build/release/lib")
    return library, version


def declare(library: ctypes.CDLL, functions: dict[str, tuple[Any, list[Any]]]) -> None:
    """Sets the types of the functions of the library. Raises ImportError, as above, if a function is missing."""
    for name, (result, arguments) in functions.items():
        function = getattr(library, name, None)
        if function is None:
            raise ImportError(f"{_file_of(library)} is libdiesel {_version_of(library)} and lacks {name}(), which diesel_loader in "
                              f"{os.path.dirname(__file__)} calls: {_find()[1]}")
        function.restype, function.argtypes = result, arguments


def _find() -> tuple[str, str]:
    """Returns (the library for the linker, advice if it is the wrong one): in DIESEL_LIB (a folder, as ./dev sets it),
    else next to this package, as in a wheel, else the system's."""
    folder = os.environ.get("DIESEL_LIB")
    if folder:
        path = os.path.join(folder, LIBRARY)
        if not os.path.exists(path):
            raise ImportError(f"DIESEL_LIB is {folder}, which has no {LIBRARY}: unset DIESEL_LIB, or set it to the folder of the library")
        return path, "unset DIESEL_LIB, or set it to the folder of the matching library"
    bundled = _bundled(LIBRARY)
    if bundled:
        return bundled, "reinstall diesel-loader (pip install --force-reinstall diesel-loader)"
    return SYSTEM_LIBRARY, "install the same version of libdiesel and diesel_loader"


def _what_fits() -> str:
    """Returns a text on the libraries that this Python can load: from a wheel, or built on this machine."""
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION")
    except ValueError:
        libc = None
    return (f"this Python runs on {os.uname().machine} with {libc or 'a C library that is not glibc'}, but the wheels need x86_64 with glibc "
            f"2.28 or newer: to build it here, install a C compiler and libxxhash, and run pip install --no-binary diesel-loader diesel-loader")


def _version_of(library: ctypes.CDLL) -> str:
    library.diesel_version.restype = ctypes.c_char_p
    return os.fsdecode(library.diesel_version())


def _installed_version() -> str | None:
    path = _bundled("version")
    if path is None:
        return None
    with open(path, encoding="ascii") as file:
        return file.read().strip()


def _bundled(name: str) -> str | None:
    """Returns the path of a file that is installed with the package, or None. An editable installation has two folders."""
    for folder in folders:
        path = os.path.join(folder, name)
        if os.path.exists(path):
            return path
    return None


def _file_of(library: ctypes.CDLL) -> str:
    """Returns the path of the file that was loaded as libdiesel."""
    address = ctypes.cast(library.diesel_version, ctypes.c_void_p).value or 0
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            place, *_, path = line.rstrip("\n").split(maxsplit=5)
            first, end = (int(number, 16) for number in place.split("-"))
            if first <= address < end:
                return path
    return SYSTEM_LIBRARY


lib, VERSION = open_library()

from ._abi import *  # noqa: E402, F403
from ._abi import FUNCTIONS  # noqa: E402

declare(lib, FUNCTIONS)
libc_free = ctypes.CDLL(None).free
libc_free.restype, libc_free.argtypes = None, [c_void_p]


def borrowed_text(function: Any, handle: c_void_p, path: str, index: int) -> str:
    """Calls a function of the form (handle, index, *ret_text, *ret_length) and returns the borrowed text as str.
    path: path of the dataset, for errors."""
    text, length = c_void_p(), c_size_t()
    result = function(handle, index, byref(text), byref(length))
    if -result == errno.ERANGE:
        raise IndexError(index)
    if result < 0:
        raise errors.of_look_up(result, path, os.strerror(-result))
    return os.fsdecode(ctypes.string_at(text, length.value))


def array_at(address: int, count: int, ctype: Any = c_uint8) -> Any:
    """Returns `count` elements of shared memory as a buffer. It owns nothing: keep the lease as long as the buffer."""
    return (ctype * count).from_address(address)


def address_of(memory: bytearray) -> int:
    """Returns the address of its bytes; 0 if it is empty. Valid while the bytearray lives and keeps its length."""
    return ctypes.addressof(ctypes.c_char.from_buffer(memory)) if memory else 0


_new_bytearray = ctypes.pythonapi.PyByteArray_FromStringAndSize
_new_bytearray.restype, _new_bytearray.argtypes = ctypes.py_object, [ctypes.c_char_p, ctypes.c_ssize_t]


def new_bytearray(size: int) -> bytearray:
    """Returns a bytearray whose contents are undefined: zeroing them would take as long as a copy."""
    made: bytearray = _new_bytearray(None, size)
    return made


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4  # of mallopt()
MMAP_THRESHOLD_MAX = 32 << 20  # old versions of glibc refuse more
RETAINED_MAX = 1 << 30
_retained = 0


def retain_freed(size: int) -> None:
    """Lets the process keep freed memory for its next batches of this size, instead of returning it to the system each time: page
    faults in new memory take several times as long as a copy. It keeps at most two batches (64 MiB if these are smaller, 1 GiB if
    larger) at the end of the heap. With RETAINED_MAX, large arrays lie there, too. Does not change another malloc, or settings of
    malloc in the environment."""
    global _retained
    wanted = min(max(2 * size, 2 * MMAP_THRESHOLD_MAX), RETAINED_MAX)
    if wanted <= _retained:
        return
    _retained = wanted
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    if mallopt is None or any(f"MALLOC_{name.upper()}_" in os.environ or f"glibc.malloc.{name}=" in tunables
                              for name in ("mmap_threshold", "mmap_max", "trim_threshold", "top_pad")):
        return
    mallopt(M_TRIM_THRESHOLD, wanted)
    if size < RETAINED_MAX:
        mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD_MAX)
    elif not mallopt(M_MMAP_THRESHOLD, RETAINED_MAX):
        mallopt(M_MMAP_MAX, 0)


MANY = 4096  # more than are lent at a time, so most of the entries are for freed memory


class _Ref(weakref.ref):  # type: ignore[type-arg]
    _as_parameter_ = None  # ctypes passes the reference itself as the last argument, which the function ignores


_refs: dict[Any, Any] = {}  # _Ref of each (function, address); an address is lent once at a time


def when_gone(thing: Any, give_back: Any, address: Any, *more: Any) -> None:
    """Calls give_back, a function of libdiesel, with the address and the further arguments when the object is gone.

    __del__ would be a Python function, so Ctrl-C could interrupt its first instruction. Python would then report the
    KeyboardInterrupt as ignored, nothing would have been given back, and the program would go on. A weak reference calls
    libdiesel with no Python function in between."""
    if len(_refs) >= MANY:
        for key in [key for key, ref in list(_refs.items()) if ref() is None]:
            _refs.pop(key, None)
    _refs[id(give_back), address] = _Ref(thing, functools.partial(give_back, address, *more))


class Mapped:
    """Memory that a function of libdiesel unmaps when nothing refers to this object any more."""

    __slots__ = ("__weakref__", "address", "size")

    def __init__(self, address: int, size: int, unmap: Any) -> None:
        self.address, self.size = address, size
        when_gone(self, unmap, address, size)


# A forked child returns nothing: all of this memory belongs to the parent.
os.register_at_fork(after_in_child=_refs.clear)
