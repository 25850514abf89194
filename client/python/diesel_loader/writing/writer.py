# SPDX-License-Identifier: Apache-2.0
"""Writing datasets: samples from memory, then one commit."""
from __future__ import annotations

import collections.abc
import ctypes
import errno
import operator
import os
import threading
import time
import warnings

from .. import errors, native, on_demand
from ..dataset import place_of
from ..fields.encode import fields_of
from ..native import byref, lib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Any

    from typing_extensions import Buffer, Self

SHA256 = "sha256"
NS_PER_S = 1_000_000_000


class Writer:
    """Writer of a dataset, returned by create(). As a context manager it commits at the end of the block,
    or, if the block raises, changes nothing.

    Any thread may call put(), but several threads are not faster than one. A writer can be used only in the process that made it.
    """

    path: str
    version: int | None  # the dataset's version after the commit; None before

    def __init__(self, path: str | os.PathLike[str], append: bool = False, chunk_bytes: int = 0, digest: str | None = None,
                 meta: str | None = None, zstd: int | None = None, shared: bool = False) -> None:
        self._handle: Any = None
        if digest not in (None, SHA256):
            raise ValueError(f'digest must be "{SHA256}" or None, not {digest!r}')
        if zstd is not None and zstd not in range(1, 20):
            raise ValueError(f"zstd must be a level from 1 to 19, or None, not {zstd!r}")
        if shared and not append:
            raise ValueError("shared=True needs append=True: several writers at once only append")
        self.path, self.version = place_of(path), None
        self._lock = threading.RLock()
        self._text = ctypes.create_string_buffer(native.ERROR_BYTES)  # error text of the current call
        on_demand.find_dieselctl()
        flags = (native.WRITER_APPEND if append else 0) | (native.WRITER_DIGESTS if digest else 0) | (native.WRITER_SHARED if shared else 0)
        if operator.index(chunk_bytes) < 0:
            raise ValueError(f"chunk_bytes must be a size from 4 MiB to 64 MiB, or 0 for the default, not {chunk_bytes}")
        options = native.WriterOptions(chunk_bytes, flags, zstd or 0, None if meta is None else os.fsencode(meta))
        handle = ctypes.c_void_p()
        try:
            self._call(lib.diesel_writer_open, os.fsencode(self.path), byref(options), byref(handle))
        except FileExistsError as error:
            error.strerror = str(error.strerror).replace("add --append to add to it and to replace changed files", "pass append=True to add to it")
            raise
        self._handle = handle

    def _call(self, function: Any, *arguments: Any) -> None:
        result = -errno.EINTR
        while result == -errno.EINTR:  # interrupted by a signal; its Python handler has run
            result = function(*arguments, self._text, native.ERROR_BYTES)
        if result < 0:
            raise errors.from_result(result, os.fsdecode(self._text.value), self.path)

    def _open_handle(self) -> Any:
        if self._handle is None:
            raise ValueError(f"{self.path}: the writer is closed")
        return self._handle

    def put(self, path: str | os.PathLike[str], data: Buffer | Mapping[str, Any], *, mode: int = 0o644, mtime: float | None = None) -> None:
        """Adds a sample, whose bytes are copied.

        path: inside the dataset, such as "cats/1.jpg"; its first folder is the sample's class. data: bytes, or any object with a buffer,
        such as an array (its memory unchanged), or a dict of fields. mode, mtime: as for a file; mtime in seconds since 1970; None: now.

        A dict has 1 to 1024 fields, with names of 1 to 255 bytes (docs/how-to/several-fields.md). A value is bytes, str, int of 64 bits,
        float, bool, None, an array, a tensor, or a PIL image, which is stored as PNG. Lists and dicts are stored as JSON. Bytes that
        begin as a JPEG, PNG, WebP, GIF, BMP or TIFF file are an image. All samples of a dataset are bytes, or all are dicts.

        Raises ValueError for an invalid path or field, or for bytes among dicts, and TypeError for a value of another type. Raises
        FileExistsError for a path that this writer has put before, or that is a folder of another sample or needs one where a sample is,
        OSError (EFBIG) above 1 GiB. In these cases the sample is refused,
        and the writer stays usable. Any other OSError, such as a full disk, may concern an earlier sample, and ends the writer.
        """
        name = os.fsencode(path)
        fields = fields_of(data, os.fsdecode(name)) if isinstance(data, collections.abc.Mapping) else None
        memory, size = _memory_of(b"" if isinstance(data, collections.abc.Mapping) else data)
        mtime_ns = time.time_ns() if mtime is None else int(mtime // 1) * NS_PER_S + round(mtime % 1 * NS_PER_S)
        if mtime_ns < 0:
            raise ValueError(f"mtime must be at least 0, not {mtime!r}")
        stat = native.Stat(mtime_ns, mode, 0, 0, 0)
        sample = native.Sample(ctypes.cast(ctypes.c_char_p(name), ctypes.c_void_p), len(name), ctypes.cast(memory, ctypes.c_void_p), size, ctypes.pointer(stat))
        with self._lock:
            if fields:
                self._call(lib.diesel_writer_put_fields, self._open_handle(), byref(sample), *fields[:2])
            else:
                self._call(lib.diesel_writer_put, self._open_handle(), byref(sample))

    def commit(self) -> int:
        """Makes all samples durable and visible, closes the writer, and returns the dataset's version. On OSError nothing has changed,
        unless the error's text says that the samples are committed."""
        version = native.c_uint64()
        with self._lock:
            self._call(lib.diesel_writer_commit, self._open_handle(), byref(version))
            self.version = version.value
            self.close()
        return version.value

    def close(self) -> None:
        """Ends writing. Samples that were not committed are removed."""
        with self._lock:
            handle, self._handle = self._handle, None
            lib.diesel_writer_free(handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        try:
            if kind is None and self._handle is not None:
                self.commit()
        finally:
            self.close()

    def __del__(self) -> None:
        if self._handle is not None:
            warnings.warn(f"{self.path}: a writer was dropped without commit(), and its samples are removed", ResourceWarning,
                          stacklevel=2, source=self)
            lib.diesel_writer_free(self._handle)

    def __repr__(self) -> str:
        state = "open" if self._handle is not None else f"version {self.version}" if self.version else "closed"
        return f"{type(self).__name__}({self.path!r}: {state})"


def _memory_of(data: Buffer) -> tuple[Any, int]:
    """Returns (an object that ctypes passes as the address, the length in bytes)."""
    if isinstance(data, bytes):
        return data, len(data)
    view = memoryview(data)
    if view.readonly or not view.c_contiguous or not view.nbytes:  # cannot get the address
        return view.tobytes(), view.nbytes
    return (ctypes.c_char * view.nbytes).from_buffer(data), view.nbytes


def create(path: str | os.PathLike[str], *, append: bool = False, chunk_bytes: int = 0, digest: str | None = None,
           meta: str | None = None, zstd: int | None = None, shared: bool = False) -> Writer:
    """Writes a dataset from samples in memory, with one commit at the end of a `with` block. Until then, and if the block raises or
    the process dies, readers see the version before, or no dataset.

        with diesel_loader.create("photos.diesel") as w:
            w.put("cats/1.jpg", data)

        with diesel_loader.create("pairs.diesel") as w:
            w.put("00001", {"image": jpeg, "caption": "a cat", "score": 0.7})

    path: a folder, which is made if it is missing, or s3://BUCKET/PREFIX, written with this process's credentials.
    append: add to the dataset's samples, and replace those with the same path; without it, the dataset must be empty or new.
    chunk_bytes: size of a chunk, 4 MiB to 64 MiB (default: 8 MiB). digest: "sha256", for datasets that users share.
    meta: keep the metadata on a Redis server, "redis://HOST[:PORT]/PREFIX". zstd: compression level, 1 (fast) to 19 (small), used where
    it saves space; jobs get samples as they were put.
    shared: with append, several processes write to one folder at the same time: each commits a version of its own, and waits only for the
    commits of others. A bucket needs no such argument.

    Samples lie in the order in which they are put, and jobs shuffle within windows of some chunks: so put them in random order if
    neighbours are alike. No daemon takes part: the process `dieselctl put` (package diesel-tools) writes.

    Raises FileExistsError, PermissionError, OSError (EBUSY) if the dataset has another writer, FileNotFoundError without
    dieselctl, ValueError, OSError; each message is one line.
    """
    return Writer(path, append, chunk_bytes, digest, meta, zstd, shared)
