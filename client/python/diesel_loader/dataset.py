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


AUTO, NEVER = "auto", "never"


class _Connection:
    """libdiesel's dataset, in the process that opened it and, to read, in those that are forked from it."""

    def __init__(self, path: str, socket: str | None, daemon: str) -> None:
        if daemon not in (AUTO, NEVER):
            raise ValueError(f'daemon must be "{AUTO}" or "{NEVER}", not {daemon!r}')
        self.path, self.socket, self.daemon = path, socket, daemon
        self.own: str | None = None  # the socket, where the daemon is the user's own
        self._pid: int | None = None
        self._handle: Any = None

    @property
    def handle(self) -> Any:
        """For all calls; opened anew in each process."""
        if self._pid != os.getpid():  # not close(): after a fork the connection is the parent's
            self._handle, self.own = self._connect()
            self._pid = os.getpid()
        return self._handle

    def reopen(self) -> None:
        """Connects anew, wherever there is a daemon now. What was opened stays: sessions and orders use it."""
        self._handle, self.own = self._connect()

    def _connect(self) -> tuple[Any, str | None]:
        try:
            return self._open(self.socket), None
        except (ConnectionRefusedError, PermissionError) as error:
            if self.daemon == NEVER or self.socket or os.environ.get("DIESEL_SOCKET"):
                raise
            refusal = error.with_traceback(None)  # whose frames would keep us alive
        from . import on_demand  # whose imports take as long as all others together
        return on_demand.connect(self._open, refusal)

    def _open(self, socket: str | None) -> Any:
        handle, text = ctypes.c_void_p(), ctypes.create_string_buffer(native.ERROR_BYTES)
        place = os.fsencode(socket) if socket else None
        result = lib.diesel_dataset_open(os.fsencode(self.path), place, byref(handle), text, len(text))
        if result < 0:
            raise errors.from_result(result, os.fsdecode(text.value))
        return handle

    def revive(self) -> bool:
        """Has the user's own daemon started again, if it has ended; says whether that was so."""
        from . import on_demand
        return bool(self.own) and on_demand.ensure(self.own)[1]

    @property
    def reader(self) -> Any:
        """For calls that ask for samples by number: a parent's will do."""
        return self._handle or self.handle

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "own": None, "_pid": None, "_handle": None}

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
    daemon: "auto": where neither socket nor $DIESEL_SOCKET is given, and the node has no daemon, one of the user's own
        serves; it is started if need be, from $DIESEL_DAEMON or the program `dieseld` beside this Python or in PATH, and
        ends when idle. "never": no daemon is started.

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

    def __init__(self, path: str | os.PathLike[str], socket: str | None = None, daemon: str = AUTO) -> None:
        self._connection = _Connection(os.path.abspath(os.fspath(path)), socket, daemon)
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
        """The daemon's socket, as given, or of the user's own daemon; None: $DIESEL_SOCKET, or the node's."""
        return self._connection.socket or self._connection.own

    @property
    def has_own_daemon(self) -> bool:
        """True if it is the user's own that serves: nobody but us starts it again."""
        return self._connection.own is not None

    def revive(self) -> bool:
        """Has the user's own daemon started again, if it has ended; says whether that was so."""
        return self._connection.revive()

    def reopen(self) -> None:
        """Connects anew, after the user's own daemon has ended, perhaps to one in another place."""
        self._connection.reopen()

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
    """What the daemon is doing, as a dict: knobs, cache, datasets, sessions (docs/protocol.md). Without a socket: the node's
    daemon or, where none is to be reached, the user's own, if it runs."""
    try:
        return _status(socket)
    except (ConnectionRefusedError, PermissionError):
        from . import on_demand
        own = None if socket or os.environ.get("DIESEL_SOCKET") else on_demand.running()
        if not own:
            raise
        return _status(own)


def _status(socket: str | None) -> dict[str, Any]:
    answer, text = ctypes.c_void_p(), ctypes.create_string_buffer(native.ERROR_BYTES)
    result = lib.diesel_status(os.fsencode(socket) if socket else None, byref(answer), text, len(text))
    if result < 0:
        raise errors.from_result(result, os.fsdecode(text.value))
    try:
        return json.loads(ctypes.string_at(answer))
    finally:
        native.libc_free(answer)
