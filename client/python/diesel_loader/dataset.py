# SPDX-License-Identifier: Apache-2.0
"""What dieseld serves: datasets with their size, classes and paths; and what it is doing."""
from __future__ import annotations

import ctypes
import json
import os

from . import errors, native
from .native import byref, lib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any  # whose import takes a fifth of this package's


class Dataset:
    """A packed dataset directory, opened through the node's daemon.

    path: the directory that `dieselctl pack` made.
    socket: the daemon's socket; default $DIESEL_SOCKET, else /run/diesel/dieseld.sock.

    The connection belongs to a process: after a fork, and when the object is unpickled, it is opened anew
    at first use. Raises FileNotFoundError, PermissionError, DamagedData, ConnectionError.
    """

    path: str
    socket: str | None
    version: int
    n_bytes: int
    equal_bytes: int | None  # the length of every sample; None: they differ
    classes: list[str]
    class_to_idx: dict[str, int]
    _pid: int | None
    _handle: Any
    _shared: Any
    _n_samples: int

    def __init__(self, path: str | os.PathLike[str], socket: str | None = None) -> None:
        self.path = os.path.abspath(os.fspath(path))
        self.socket = socket
        self._pid = self._handle = self._shared = None
        self._describe()

    def _describe(self) -> None:
        info = native.DatasetInfo()
        lib.diesel_dataset_info(self.handle, byref(info))
        self.version = info.version
        self.n_bytes = info.total_bytes
        self.equal_bytes = info.equal_bytes or None
        self._n_samples = info.n_samples
        self.classes = [native.borrowed_text(lib.diesel_dataset_class, self.handle, i)
                        for i in range(info.n_classes)]
        self.class_to_idx = {name: i for i, name in enumerate(self.classes)}

    @property
    def handle(self) -> ctypes.c_void_p:
        """libdiesel's object in this process."""
        if self._pid != os.getpid():  # not close(): after a fork the connection is the parent's
            handle, text = ctypes.c_void_p(), ctypes.create_string_buffer(native.ERROR_BYTES)
            socket = os.fsencode(self.socket) if self.socket else None
            result = lib.diesel_dataset_open(os.fsencode(self.path), socket, byref(handle), text, len(text))
            if result < 0:
                raise errors.from_result(result, os.fsdecode(text.value))
            self._handle, self._pid = handle, os.getpid()
        return self._handle

    def __len__(self) -> int:
        return self._n_samples

    def sample_path(self, sample: int) -> str:
        """Path of a sample inside the dataset, by its number."""
        return native.borrowed_text(lib.diesel_dataset_path, self._shared or self.handle, sample)

    def adopt(self) -> None:
        """To be called before a fork whose children ask only for paths: those lie in memory that a child may read too."""
        self._shared = self.handle

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pid": None, "_handle": None, "_shared": None}

    def __del__(self) -> None:
        if getattr(self, "_pid", None) == os.getpid():
            lib.diesel_dataset_close(self._handle)

    def __repr__(self) -> str:
        return (f"{type(self).__name__}({self.path!r}: {len(self)} samples, {len(self.classes)} classes, "
                f"version {self.version})")


def status(socket: str | None = None) -> dict[str, Any]:
    """What the daemon is doing, as a dict: knobs, cache, datasets, sessions (docs/protocol.md)."""
    answer, text = ctypes.c_void_p(), ctypes.create_string_buffer(native.ERROR_BYTES)
    result = lib.diesel_status(os.fsencode(socket) if socket else None, byref(answer), text, len(text))
    if result < 0:
        raise errors.from_result(result, os.fsdecode(text.value))
    try:
        return json.loads(ctypes.string_at(answer))
    finally:
        native.libc_free(answer)
