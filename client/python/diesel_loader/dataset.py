# SPDX-License-Identifier: Apache-2.0
"""What dieseld serves: datasets with their size, classes and paths; and what it is doing."""
from __future__ import annotations

import collections.abc
import ctypes
import json
import operator
import os

from . import errors, native
from .native import byref, lib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any  # whose import takes a fifth of this package's


class _Connection:
    """libdiesel's dataset, in the process that opened it and, to read, in those that are forked from it."""

    def __init__(self, path: str, socket: str | None) -> None:
        self.path, self.socket = path, socket
        self._pid: int | None = None
        self._handle: Any = None

    @property
    def handle(self) -> Any:
        """For all calls; opened anew in each process."""
        if self._pid != os.getpid():  # not close(): after a fork the connection is the parent's
            handle, text = ctypes.c_void_p(), ctypes.create_string_buffer(native.ERROR_BYTES)
            socket = os.fsencode(self.socket) if self.socket else None
            result = lib.diesel_dataset_open(os.fsencode(self.path), socket, byref(handle), text, len(text))
            if result < 0:
                raise errors.from_result(result, os.fsdecode(text.value))
            self._handle, self._pid = handle, os.getpid()
        return self._handle

    @property
    def reader(self) -> Any:
        """For calls that ask for samples by number: a parent's will do."""
        return self._handle or self.handle

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pid": None, "_handle": None}

    def __del__(self) -> None:
        if getattr(self, "_pid", None) == os.getpid():
            lib.diesel_dataset_close(self._handle)


class Samples(collections.abc.Sequence["tuple[str, int]"]):
    """[(path inside the dataset, label)], made one by one: a list of ten million would take gigabytes."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self[k] for k in range(*i.indices(len(self)))]
        i = self._dataset.number(i)
        return self._dataset.sample_path(i), self._dataset.label(i)


class Dataset:
    """A packed dataset directory, opened through the node's daemon.

    path: the directory that `dieselctl pack` made.
    socket: the daemon's socket; default $DIESEL_SOCKET, else /run/diesel/dieseld.sock.

    len(dataset) samples, numbered in the order of storage. dataset[i] is (bytes, label); it is read from the files of
    the dataset with the caller's own rights, and checked: the daemon serves whole epochs (diesel_loader.torch), not
    single samples.

    The connection belongs to a process: after a fork, and when the object is unpickled, it is opened anew
    at first use. Raises FileNotFoundError, PermissionError, DamagedData, ConnectionError.
    """

    version: int
    n_bytes: int
    equal_bytes: int | None  # the length of every sample; None: they differ
    classes: list[str]
    class_to_idx: dict[str, int]
    _n_samples: int
    _targets: list[int] | None

    def __init__(self, path: str | os.PathLike[str], socket: str | None = None) -> None:
        self._connection = _Connection(os.path.abspath(os.fspath(path)), socket)
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
        self._targets = None

    @property
    def path(self) -> str:
        return self._connection.path

    @property
    def socket(self) -> str | None:
        return self._connection.socket

    @property
    def handle(self) -> ctypes.c_void_p:
        """libdiesel's object in this process."""
        return self._connection.handle

    def __len__(self) -> int:
        return self._n_samples

    def number(self, i: Any) -> int:
        """The number of a sample, from an index as lists have them: an int or anything like it, negative from the
        end. Raises IndexError, TypeError."""
        number = operator.index(i)
        if number < 0:
            number += self._n_samples
        if not 0 <= number < self._n_samples:
            raise IndexError(f"{self.path} has {self._n_samples} samples, and none of number {i}")
        return number

    def sample_path(self, sample: int) -> str:
        """Path of a sample inside the dataset, by its number."""
        return native.borrowed_text(lib.diesel_dataset_path, self._connection.reader, sample)

    def label(self, sample: int) -> int:
        """Its class, as ImageFolder numbers classes; -1: it lies in no class folder."""
        return self._info(sample).label

    def sample_bytes(self, sample: int) -> int:
        """Its length."""
        return self._info(sample).bytes

    def _info(self, sample: int) -> native.SampleInfo:
        info = native.SampleInfo()
        result = lib.diesel_dataset_sample(self._connection.reader, sample, byref(info))
        if result < 0:
            raise errors.from_result(result, f"{self.path} has no sample {sample}")
        return info

    def read(self, sample: int) -> bytearray:
        """The bytes of a sample, by its number, as a bytearray."""
        size = self._info(sample).bytes
        data, text = bytearray(size), ctypes.create_string_buffer(native.ERROR_BYTES)
        address = (ctypes.c_char * size).from_buffer(data) if size else None
        result = lib.diesel_dataset_read(self._connection.reader, sample, address, size, text, len(text))
        if result < 0:
            raise errors.from_result(result, os.fsdecode(text.value))
        return data

    def __getitem__(self, i: Any) -> Any:
        number = self.number(i)
        return self.read(number), self.label(number)

    @property
    def targets(self) -> list[int]:
        """The labels of all samples, in a list."""
        if self._targets is None:
            labels = (native.c_int64 * self._n_samples)()
            result = lib.diesel_dataset_labels(self._connection.reader, labels)
            if result < 0:
                raise errors.from_result(result, f"{self.path}: its snapshot is damaged")
            self._targets = list(labels)
        return self._targets

    @property
    def samples(self) -> Samples:
        """(path inside the dataset, label) of each sample."""
        return Samples(self)

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
