# SPDX-License-Identifier: Apache-2.0
"""Datasets that dieseld serves, with their size, classes and paths, and its status."""
from __future__ import annotations

import array
import collections
import collections.abc
import contextlib
import copy
import ctypes
import errno
import functools
import itertools
import json
import math
import numbers
import operator
import os
import threading

from . import errors, native
from .fields import decode
from .fields.columns import reader_of
from .native import byref, lib
from .subset import Subset

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any, NamedTuple  # importing typing takes a fifth of this package's import time

    from typing_extensions import Self

    class SampleStat(NamedTuple):
        sample: int
        bytes: int
        label: int
        mode: int
        mtime_ns: int
else:
    SampleStat = collections.namedtuple("SampleStat", ("sample", "bytes", "label", "mode", "mtime_ns"))
    SampleStat.__doc__ = """A sample: its index, its length in bytes, its class (-1: none), and the mode (st_mode) and
modification time (ns since 1970) of the packed file."""


AUTO, NEVER = "auto", "never"
VERSION_MAX = (1 << 63) - 1
COPIED_BYTES = 1 << 20  # samples that are shorter together are copied once more: this costs less than the address of each


def version_number(version: Any) -> int | None:
    """Returns the argument `version` after checking it. Raises ValueError."""
    if version is None:
        return None
    if isinstance(version, bool) or not hasattr(version, "__index__") or not 0 < operator.index(version) <= VERSION_MAX:
        raise ValueError(f"version must be an integer from 1, as `dieselctl log` lists them, not {version!r}")
    return operator.index(version)


BUCKET = "s3://"


def info_of(handle: Any) -> native.DatasetInfo:
    info = native.DatasetInfo()
    lib.diesel_dataset_info(handle, byref(info))
    return info


def place_of(path: str | os.PathLike[str]) -> str:
    """Returns the dataset's name, independent of the working directory."""
    text = os.fspath(path)
    return text if text.startswith(BUCKET) else os.path.abspath(text)


class _Connection:
    """libdiesel's dataset, for the process that opened it and, for reading only, for its forked children."""

    def __init__(self, path: str, socket: str | None, daemon: str, version: int | None = None) -> None:
        if daemon not in (AUTO, NEVER):
            raise ValueError(f'daemon must be "{AUTO}" or "{NEVER}", not {daemon!r}')
        self.path, self.socket, self.daemon = path, socket, daemon
        self.own: str | None = None  # socket of the user's own daemon, if that one serves
        self.version = version  # requested version, or the one opened first; sample numbers belong to it
        self._pid: int | None = None
        self._handle: Any = None

    @property
    def handle(self) -> Any:
        """The handle for all calls; each process opens its own."""
        if self._pid != os.getpid():  # not close(): after a fork the connection is the parent's
            self._handle, self.own = self._connect()
            self._pid = os.getpid()
        return self._handle

    def reopen(self) -> None:
        """Connects to any daemon that runs now. Earlier handles stay open, because sessions and orders use them."""
        self._handle, self.own = self._connect()

    def _connect(self) -> tuple[Any, str | None]:
        try:
            return self._open(self.socket), None
        except (ConnectionRefusedError, PermissionError) as error:
            if self.daemon == NEVER or self.socket or os.environ.get("DIESEL_SOCKET"):
                raise
            refusal = error.with_traceback(None)  # the traceback's frames would keep this object alive
        from . import on_demand  # on_demand imports as much as all other modules together
        try:
            return on_demand.connect(self._open, refusal)
        finally:
            del refusal  # see Session._failed()

    def _open(self, socket: str | None) -> Any:
        if lib.diesel_dataset_needs_dieselctl(os.fsencode(self.path)):
            from . import on_demand
            on_demand.find_dieselctl()
        handle, text = ctypes.c_void_p(), ctypes.create_string_buffer(native.ERROR_BYTES)
        place = os.fsencode(socket) if socket else None
        result = -errno.EINTR
        while result == -errno.EINTR:  # a signal arrived; its Python handler has run
            result = lib.diesel_dataset_open_version(os.fsencode(self.path), self.version or 0, place, byref(handle), text, len(text))
        if result < 0:
            raise errors.from_result(result, os.fsdecode(text.value), self.path)
        self.version = info_of(handle).version
        return handle

    def revive(self) -> bool:
        """Restarts the user's own daemon if it has exited. Returns True if it was restarted."""
        from . import on_demand
        return bool(self.own) and on_demand.ensure(self.own)[1]

    @property
    def reader(self) -> Any:
        """The handle for reading samples by number; a forked child may use its parent's."""
        return self._handle or self.handle

    @functools.cached_property
    def is_fair(self) -> bool:
        """Whether chunks of this version are fair samples of the dataset. Looked up once, because loader states need it."""
        result: int = lib.diesel_dataset_is_fair(self.reader)
        if result < 0:
            raise errors.of_look_up(result, self.path, os.strerror(-result))
        return result == 1

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "own": None, "_pid": None, "_handle": None}

    def __del__(self) -> None:
        if getattr(self, "_pid", None) == os.getpid():
            lib.diesel_dataset_close(self._handle)


def part_sizes(lengths: Sequence[float], total: int) -> list[int]:
    """Returns sizes that add up to total, from such sizes or from fractions that add up to 1, like
    torch.utils.data.random_split(): samples left over by rounding go to the first parts, one each."""
    parts = list(lengths)
    if not parts or any(isinstance(p, bool) or p < 0 for p in parts):
        raise ValueError(f"lengths must be sample counts or fractions, none negative, not {lengths!r}")
    if all(isinstance(p, numbers.Integral) for p in parts) and sum(parts) == total:
        return [int(p) for p in parts]
    if not math.isclose(sum(parts), 1):
        raise ValueError(f"lengths must add up to {total} (the number of samples) or to 1: {lengths!r}")
    sizes = [math.floor(total * p) for p in parts]
    for i in range(total - sum(sizes)):
        sizes[i % len(sizes)] += 1
    return sizes


_of_thread = threading.local()  # scratch: memory of COPIED_BYTES that samples are copied through


@contextlib.contextmanager
def _scratch(size: int) -> Iterator[bytearray]:
    """Memory of at least this size for a while, with any contents."""
    if size > COPIED_BYTES:
        native.retain_freed(size)
        yield native.new_bytearray(size)
        return
    memory = vars(_of_thread).pop("scratch", None) or bytearray(COPIED_BYTES)  # taken away: a signal's handler may read, too
    try:
        yield memory
    finally:
        _of_thread.scratch = memory


def _words(values: Sequence[int]) -> array.array[int]:
    """Returns 64-bit words for libdiesel, in a tenth of the time that an array of ctypes takes."""
    return array.array("Q", values)


def _sizes(infos: Any) -> list[int]:
    """Returns the lengths of samples, from an array of native.SampleInfo, which is not empty."""
    sizes: list[int] = (native.c_uint32 * (2 * len(infos))).from_buffer(infos)[::2]
    return sizes


def _space(numpy: Any, out: Any, size: int) -> Any:
    """Returns an array of `size` bytes, in the memory of `out` unless that is None. Raises ValueError."""
    if out is None:
        if size > COPIED_BYTES:
            native.retain_freed(size)
        return numpy.empty(size, dtype=numpy.uint8)
    if not isinstance(out, numpy.ndarray) or out.dtype != numpy.uint8 or not out.flags.c_contiguous or not out.flags.writeable:
        raise ValueError("out must be a writable, contiguous NumPy array of uint8")
    if out.nbytes < size:
        raise ValueError(f"out has {out.nbytes} bytes, but these samples need {size}")
    return out.reshape(-1)[:size]


def _no_integers(kind: str) -> TypeError:
    return TypeError(f"indices of samples are integers, not {kind}" + ("; numpy.flatnonzero() makes them of a mask" if "bool" in kind else ""))


def _integers(indices: Any) -> list[int]:
    """Returns a list of int, of any integers. Raises TypeError, also for a mask: True is no index."""
    kind = getattr(indices, "dtype", None)
    if kind is not None and hasattr(indices, "tolist"):  # of NumPy, torch, JAX
        if len(indices) and "int" not in str(kind):
            raise _no_integers(str(kind))
        indices = indices.tolist()
    chosen = list(indices)
    if set(map(type, chosen)) <= {int}:
        return chosen
    for i in chosen:
        kind = str(getattr(i, "dtype", type(i).__name__))
        if "bool" in kind or not hasattr(i, "__index__"):
            raise _no_integers(kind)
    return list(map(operator.index, chosen))


def _joined(folder: str, name: str) -> str:
    return f"{folder.rstrip('/')}/{name}" if folder.rstrip("/") else name


class Samples(collections.abc.Sequence["tuple[str, int]"]):
    """[(path inside the dataset, label)], made one by one: a list of ten million would take gigabytes."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self[k] for k in range(*i.indices(len(self)))]
        number = self._dataset.number(i)
        return self._dataset.path_of(number), self._dataset.label_of(number)


class Dataset:
    """A packed dataset directory, opened through the node's daemon.

    path: the directory that `dieselctl pack` made, or s3://BUCKET/PREFIX, which is read with the credentials of this
    process (docs/how-to/python-datasets.md).
    socket: the daemon's socket; default $DIESEL_SOCKET, else /run/diesel/dieseld.sock.
    daemon: "auto": a daemon of the user's own serves if neither socket nor $DIESEL_SOCKET is given, and the node has no
        daemon. It is started if need be, from $DIESEL_DAEMON or the program `dieseld` next to this Python or in PATH,
        and ends when idle. "never": no daemon is started.
    version: of the dataset, as `dieselctl log` lists them, of which the snapshot is still kept (`dieselctl stat`); default the
        newest. It stays that one, whatever is published meanwhile, in all processes and after unpickling.
    fields: the names of the fields to take, in this order; others are neither copied nor decoded. "__key__" stands for a sample's
        path, "__label__" for its class number, and "__id__" for its index in this Dataset. Default: all fields. ValueError for a
        dataset without fields.

    len(dataset) samples, numbered in the order of storage. dataset[i] is (bytes, label), read from the files of a folder
    with the caller's own rights, and checked. dieseld serves read_many() and __getitems__(), which read several, from its
    cache, with few requests. If its cache cannot hold the dataset, or dieseld is gone, they read the files, too.

    If samples have fields (docs/how-to/several-fields.md), `fields` has the names of the first one's, and dataset[i] is a dict of them.
    read(), read_many() and dataset["a/1"] still return a sample's stored bytes.

    By paths inside the dataset: dataset["cat/1.jpg"] is its bytes. Likewise: "cat/1.jpg" in dataset, listdir(), walk(),
    stat(), find().

    dataset[a:b:step], select(), filter(), random_split() and train_test_split() give Datasets with some of the
    samples: the daemon serves such a Dataset by itself, shuffled chunk-wise. Indices count these samples in all of its methods, so
    that read_many([0]) and [0] are the same sample. number(i) is the number in the whole dataset. Its classes stay those of the whole.

    The connection belongs to a process: after a fork, and when the object is unpickled, it is opened again at first
    use. Raises FileNotFoundError, PermissionError, DamagedData, ConnectionError.
    """

    version: int
    is_pinned: bool  # True if the user gave the version, so that it must not change
    equal_bytes: int | None  # length of every sample, in bytes; None: lengths differ
    subset: Subset | None  # None: all samples
    _n_samples: int        # number of samples of the whole dataset
    _n_bytes: int | None
    _n_classes: int
    _classes: list[str] | None
    _class_to_idx: dict[str, int] | None
    _targets: list[int] | None
    _as_classes: list[str] | None = None  # class names that number the classes, instead of the dataset's own
    reader: decode.Reader | None  # of fields; None: samples have none
    _numbers: list[int] | None = None  # index of each own class in _as_classes; the last item is -1, for no class

    def __init__(self, path: str | os.PathLike[str], socket: str | None = None, daemon: str = AUTO,
                 version: int | None = None, fields: Iterable[str] | None = None) -> None:
        self._connection = _Connection(place_of(path), socket, daemon, version_number(version))
        self._asked_fields = None if fields is None else decode.checked(fields)
        self.is_pinned = version is not None
        self._describe()

    def go_to_version(self, version: int) -> None:
        """Switches to another version of the dataset. Raises FileNotFoundError if its snapshot is no longer kept, and
        ValueError for a subset, which belongs to its version. Both change nothing."""
        if self.subset is not None:
            raise ValueError(f"cannot move this subset of {self.path} away from version {self.version}: open version {version}, and take the subset there")
        old = self._connection
        self._connection = _Connection(old.path, old.socket, old.daemon, version)
        try:
            self._describe()
        except BaseException:
            self._connection = old
            raise

    def _describe(self) -> None:
        info = info_of(self.handle)
        self.version = info.version
        self.subset = None
        self._n_bytes = info.total_bytes
        self.equal_bytes = info.equal_bytes or None
        self._n_samples = info.n_samples
        self._n_classes = info.n_classes
        self._classes = self._class_to_idx = self._targets = None
        columns = ctypes.string_at(info.columns, info.columns_bytes) if info.columns_bytes else b""
        self.reader = reader_of(self.path, info.layout, columns, self._asked_fields)
        self._number_classes()

    @property
    def layout(self) -> str:
        """How the bytes of a sample hold its fields: "plain" (no fields), "fields", "tar", "mds" or "litdata"."""
        return decode.LAYOUTS[self.reader.layout if self.reader else native.LAYOUT_PLAIN]

    @property
    def fields(self) -> tuple[str, ...] | None:
        """The names of the first sample's fields, in the order of storage; None: samples have no fields."""
        if self.reader is None:
            return None
        if self.reader.columns is not None:
            return self.reader.columns
        if not len(self):
            return ()
        number = self._number_at(0)
        data = self._read_number(number)
        try:
            found = self.reader.listed(native.address_of(data), len(data))
        except ValueError:
            raise decode.damaged(f"the fields of {self.named(number)} are damaged") from None
        return tuple(dict.fromkeys(name for name, *_ in found))

    @property
    def field_names(self) -> tuple[str, ...] | None:
        """The names given as fields=, or of all columns; None: all fields that a sample has."""
        return self.reader.names if self.reader else None

    def named(self, number: int) -> str:
        """The name of a sample in messages, by its number in the whole dataset."""
        return f"sample {number}, {self.path_of(number)} of {self.path}"

    def decoded(self, items: Any, n: int, labels: Sequence[int], numbers: Sequence[int], reader: decode.Reader | None = None) -> list[Any]:
        """Returns (dict of fields, names of those that are images) for n samples in memory, an array of native.Item. numbers: in the
        whole dataset. reader: None for the dataset's own."""
        reader = reader or self.reader
        assert reader is not None
        return reader.samples(items, n, lambda i: self.path_of(numbers[i]), labels,
                              self.indices_of(numbers) if reader.has(decode.ID) else numbers, lambda i: self.named(numbers[i]))

    def _dicts(self, numbers: list[int], pieces: list[bytearray], labels: list[int]) -> list[Any]:
        return self.decoded(decode.items_of(pieces), len(numbers), labels, numbers) if numbers else []

    def _many_dicts(self, chosen: list[int], infos: Any) -> list[Any]:
        """Returns what decoded() does for several samples. Only the chosen fields become objects of their own."""
        if not chosen:
            return []
        labels = self._labels(infos)
        if self.reader and not self.reader.finds:
            return self._dicts(chosen, [bytearray()] * len(chosen), labels)
        sizes = _sizes(infos)
        with _scratch(sum(sizes)) as memory:
            address = self._pack_list(chosen, memory)
            return self.decoded(decode.items_at(address, sizes), len(chosen), labels, chosen)

    def with_classes(self, classes: Iterable[str]) -> Self:
        """Returns the dataset with its classes numbered as in this list, such as the `classes` of another dataset.
        Then a split that lacks a class has the same labels as a complete one. Raises ValueError if the list lacks a
        class of the dataset."""
        made = copy.copy(self)
        made._as_classes = list(classes)
        made._classes = made._class_to_idx = made._targets = None
        made._number_classes()
        return made

    def _own_classes(self) -> list[str]:
        return [native.borrowed_text(lib.diesel_dataset_class, self._connection.reader, self.path, i) for i in range(self._n_classes)]

    def _number_classes(self) -> None:
        if self._as_classes is None:
            return
        numbers = {name: i for i, name in enumerate(self._as_classes)}
        own = self._own_classes()
        other = next((name for name in own if name not in numbers), None)
        if other is not None:
            raise ValueError(f"{self.path} has class {other!r}, which the given classes lack")
        self._classes, self._numbers = self._as_classes, [*(numbers[name] for name in own), -1]

    def numbered(self, labels: Any) -> Any:
        """Converts the daemon's labels to the numbers of with_classes()."""
        if self._numbers is None:
            return labels
        return (native.c_int64 * len(labels))(*[self._numbers[label] for label in labels])

    @property
    def path(self) -> str:
        return self._connection.path

    @property
    def socket(self) -> str | None:
        """The given socket, or that of the user's own daemon; None: $DIESEL_SOCKET, or the node's daemon."""
        return self._connection.socket or self._connection.own

    @property
    def has_own_daemon(self) -> bool:
        """True if the user's own daemon serves; only this package restarts it."""
        return self._connection.own is not None

    def revive(self) -> bool:
        """Restarts the user's own daemon if it has exited. Returns True if it was restarted."""
        return self._connection.revive()

    def reopen(self) -> None:
        """Connects again after the user's own daemon has exited, perhaps to a daemon at another socket."""
        self._connection.reopen()

    @property
    def handle(self) -> ctypes.c_void_p:
        """libdiesel's object in this process."""
        return self._connection.handle

    @property
    def classes(self) -> list[str]:
        """The names of the classes, sorted."""
        if self._classes is None:
            self._classes = self._own_classes()
        return self._classes

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The number of each class."""
        if self._class_to_idx is None:
            self._class_to_idx = {name: i for i, name in enumerate(self.classes)}
        return self._class_to_idx

    @property
    def n_bytes(self) -> int:
        """The bytes of all samples."""
        if self._n_bytes is None:
            assert self.subset is not None
            self._n_bytes = self.subset.n_bytes(self._connection.reader, self.path)
        return self._n_bytes

    @property
    def mean_bytes(self) -> int:
        """The mean length of a stored sample of the whole dataset, rounded down."""
        info = info_of(self._connection.reader)
        return int(info.total_bytes // max(info.n_samples, 1))

    def __len__(self) -> int:
        return self._n_samples if self.subset is None else len(self.subset)

    def _index(self, i: Any) -> int:
        """Converts an index as lists have them (any integer type, negative from the end) to one counted from the start.
        Raises IndexError, TypeError."""
        index = operator.index(i)
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            part = "" if self.subset is None else "this subset of "
            raise IndexError(f"{part}{self.path} has {len(self)} samples; index {i} is out of range")
        return index

    def number(self, i: Any) -> int:
        """Returns the number in the whole dataset of the sample with this index. Raises IndexError, TypeError."""
        return self._number_at(self._index(i))

    def _number_at(self, index: int) -> int:
        return index if self.subset is None else self.subset.sample(index)

    @property
    def _counts_all(self) -> bool:
        """Whether an index is the number in the whole dataset."""
        return self.subset is None and type(self).number is Dataset.number

    def _numbers_of(self, indices: Iterable[Any]) -> list[int]:
        """Returns [self.number(i) for i in indices]."""
        chosen = _integers(indices)
        if self._counts_all and chosen and 0 <= min(chosen) and max(chosen) < self._n_samples:
            return chosen
        return [self.number(i) for i in chosen]

    def indices_of(self, numbers: Sequence[int]) -> list[int]:
        """Returns the indices of samples, by their numbers in the whole dataset. Raises IndexError: a sample is not in the subset."""
        if self.subset is None:
            return list(numbers)
        n = len(numbers)
        found = (native.c_uint64 * n)(*numbers)
        self.subset.to_indices(found, n)
        return list(found)

    def path_of(self, number: int) -> str:
        """Path of a sample, by its number in the whole dataset, as batches have it."""
        return native.borrowed_text(lib.diesel_dataset_path, self._connection.reader, self.path, number)

    def sample_path(self, i: int) -> str:
        """Path of sample i inside the dataset."""
        return self.path_of(self.number(i))

    def label(self, i: int) -> int:
        """Its class, as ImageFolder numbers classes; -1: it lies in no class folder."""
        return self.label_of(self.number(i))

    def label_of(self, number: int) -> int:
        """The label of a sample, by its number in the whole dataset."""
        label = self._info(number).label
        return label if self._numbers is None else self._numbers[label]

    def _labels(self, infos: Any) -> list[int]:
        """Returns the labels of several native.SampleInfo, as label() does."""
        labels = (native.c_int32 * (2 * len(infos))).from_buffer(infos)[1::2] if len(infos) else []
        return labels if self._numbers is None else [self._numbers[label] for label in labels]

    def sample_bytes(self, i: int) -> int:
        """Its length."""
        return self._info(self.number(i)).bytes

    def _info(self, sample: int) -> native.SampleInfo:
        info = native.SampleInfo()
        result = lib.diesel_dataset_sample(self._connection.reader, sample, byref(info))
        if result < 0:
            raise errors.of_look_up(result, self.path, f"{self.path} has no sample {sample}")
        return info

    def _first_stranger(self, kind: int) -> str | None:
        number = Subset.stranger(*self._origin, kind)
        return None if number is None else self.path_of(number)

    def no_image(self) -> str | None:
        """The path of a sample whose name is not that of a JPEG, PNG or WebP file; None: there is none."""
        return self._first_stranger(native.NO_IMAGE)

    def no_class(self) -> str | None:
        """The path of a sample in no class folder, if other samples are in some; None: there is none."""
        return self._first_stranger(native.NO_CLASS)

    def read(self, i: int) -> bytearray:
        """Returns the bytes of sample i, as a bytearray.

        A sample of a folder is read from its files, which costs less than asking dieseld for one sample."""
        return self._read_number(self.number(i))

    def _read_number(self, number: int) -> bytearray:
        if self.path.startswith(BUCKET):
            return self._read_as([number], self._infos([number]))[0]
        data = bytearray(self._info(number).bytes)
        self._read_files([number], [native.address_of(data)], [len(data)])
        return data

    def read_many(self, indices: Iterable[int]) -> list[bytearray]:
        """Returns the bytes of samples, by their indices, each as a bytearray.

        dieseld serves them from its cache: those in memory are copied from there, others come many per request. If its cache
        cannot hold the dataset, or dieseld is gone, they are read from storage. Any thread may call it. Raises
        IndexError, and OSError for a damaged sample."""
        chosen = self._numbers_of(indices)
        return self._read_as(chosen, self._infos(chosen))

    def read_packed(self, indices: Any, out: Any = None) -> Any:
        """Returns the bytes of samples, by their indices (a list or an array), in one NumPy array: several times as fast as
        read_many(), because no object is made for each.

        If all samples of the dataset have the same length (equal_bytes), returns an array of uint8, [n, equal_bytes]. Otherwise
        returns (data, offsets): sample i is data[offsets[i]:offsets[i + 1]]. out: an array of uint8, contiguous and large
        enough, whose memory the result uses; reusing one saves the time of new memory. Otherwise as read_many(). Needs NumPy.
        Raises ValueError: out is too small or of another kind. TypeError: indices are no integers."""
        import numpy
        numbers = self._array_of_numbers(numpy, indices)
        n = len(numbers)
        if self.equal_bytes:
            data = _space(numpy, out, n * self.equal_bytes)
            self._pack(numbers.ctypes.data, n, data.ctypes.data, data.nbytes)
            return data.reshape(n, self.equal_bytes)
        offsets = self._measure(numbers.ctypes.data, n)
        data = _space(numpy, out, offsets[n])
        self._pack(numbers.ctypes.data, n, data.ctypes.data, data.nbytes)
        return data, numpy.frombuffer(offsets, dtype=numpy.uint64)

    def _array_of_numbers(self, numpy: Any, indices: Any) -> Any:
        """Returns an array of uint64: [self.number(i) for i in indices]."""
        if not isinstance(indices, numpy.ndarray) or not self._counts_all:
            given = indices.ravel() if isinstance(indices, numpy.ndarray) else indices
            return numpy.array(self._numbers_of(given), dtype=numpy.uint64)
        if indices.size and indices.dtype.kind not in "iu":
            raise _no_integers(str(indices.dtype))
        given = indices.ravel()
        if given.size and not 0 <= given.min() <= given.max() < self._n_samples:
            given = numpy.array([self._index(i) for i in given.tolist()])
        return numpy.ascontiguousarray(given, dtype=numpy.uint64)

    def _read_as(self, chosen: list[int], infos: Any) -> list[bytearray]:
        """Returns the bytes of samples whose native.SampleInfo are known."""
        if not chosen:
            return []
        sizes = _sizes(infos)
        ends = list(itertools.accumulate(sizes))
        if ends[-1] > COPIED_BYTES:
            native.retain_freed(ends[-1])
            pieces = [native.new_bytearray(size) for size in sizes]
            self._fill(chosen, [native.address_of(piece) for piece in pieces], sizes)
            return pieces
        with _scratch(ends[-1]) as memory:
            self._pack_list(chosen, memory)
            return [memory[end - size:end] for end, size in zip(ends, sizes)]

    def _pack_list(self, chosen: list[int], memory: bytearray) -> int:
        """Reads samples one after another into memory. Returns its address."""
        numbers, address = _words(chosen), native.address_of(memory)
        self._pack(numbers.buffer_info()[0], len(chosen), address, len(memory))
        return address

    def _infos(self, chosen: list[int]) -> Any:
        """Returns an array of native.SampleInfo. Raises OSError: no such sample."""
        n = len(chosen)
        infos, numbers = (native.SampleInfo * n)(), _words(chosen)
        result = lib.diesel_dataset_samples(self._connection.reader, numbers.buffer_info()[0], n, infos)
        if result < 0:
            for sample in chosen:
                self._info(sample)  # raises for the first that is wrong
        return infos

    def _handle_here(self) -> Any:
        """The handle that this process may read with through dieseld; None: it has only its parent's files."""
        try:
            return self._connection.handle
        except OSError:
            return None

    def _measure(self, numbers: int, n: int) -> Any:
        """Returns an array of n + 1: where each of the samples begins in packed data, and the end. numbers: an address."""
        offsets, text = (native.c_uint64 * (n + 1))(), ctypes.create_string_buffer(native.ERROR_BYTES)
        result = lib.diesel_dataset_read_packed(self._connection.reader, numbers, n, None, 0, offsets, text, len(text)) if n else 0
        if result < 0 and result != -errno.ENOBUFS:
            raise errors.from_result(result, os.fsdecode(text.value), self.path)
        return offsets

    def _pack(self, numbers: int, n: int, address: int, size: int) -> None:
        """Reads samples one after another into memory. numbers: an address."""
        if n == 0:
            return
        handle = self._handle_here()
        if handle is None:
            chosen = (native.c_uint64 * n).from_address(numbers)[:]
            sizes = [info.bytes for info in self._infos(chosen)]
            self._read_files(chosen, [address + end - one for end, one in zip(itertools.accumulate(sizes), sizes)], sizes)
            return
        text, result = ctypes.create_string_buffer(native.ERROR_BYTES), -errno.EINTR
        while result == -errno.EINTR:  # a signal, whose Python handler has run by then
            result = lib.diesel_dataset_read_packed(handle, numbers, n, address, size, None, text, len(text))
        if result < 0:
            raise errors.from_result(result, os.fsdecode(text.value), self.path)

    def _fill(self, chosen: list[int], addresses: list[int], sizes: list[int]) -> None:
        """Reads samples into memory at these addresses."""
        handle = self._handle_here()
        if handle is None:
            self._read_files(chosen, addresses, sizes)
            return
        text, result = ctypes.create_string_buffer(native.ERROR_BYTES), -errno.EINTR
        arguments = _words(chosen), _words(addresses), _words(sizes)
        at, to, lengths = (words.buffer_info()[0] for words in arguments)
        while result == -errno.EINTR:  # a signal, whose Python handler has run by then
            result = lib.diesel_dataset_read_many(handle, at, len(chosen), to, lengths, text, len(text))
        if result < 0:
            raise errors.from_result(result, os.fsdecode(text.value), self.path)

    def _read_files(self, chosen: list[int], addresses: list[int], sizes: list[int]) -> None:
        """Reads samples from the dataset's files into memory at these addresses."""
        text = ctypes.create_string_buffer(native.ERROR_BYTES)
        for sample, address, size in zip(chosen, addresses, sizes):
            result = lib.diesel_dataset_read(self._connection.reader, sample, address, size, text, len(text))
            if result < 0:
                raise errors.from_result(result, os.fsdecode(text.value), self.path)

    def find(self, path: str) -> int:
        """Returns the index of the sample with this path inside the dataset. Raises KeyError, also if the subset lacks the sample."""
        return self._index_of(self._find_number(path), path)

    def _index_of(self, number: int, path: str) -> int:
        try:
            return self.indices_of([number])[0]
        except IndexError:
            raise KeyError(path) from None

    def _find_number(self, path: str) -> int:
        text, number = os.fsencode(path), native.c_uint64()
        result = lib.diesel_dataset_find(self._connection.reader, text, len(text), byref(number))
        if result == -errno.ENOENT:
            raise KeyError(path)
        if result < 0:
            raise errors.of_look_up(result, self.path, os.strerror(-result))
        return number.value

    def find_many(self, paths: Iterable[str]) -> list[int]:
        """Calls find() for each path, in a fraction of the time."""
        names = list(paths)
        texts, n = [os.fsencode(name) for name in names], len(names)
        numbers = (native.c_uint64 * n)()
        result = lib.diesel_dataset_find_many(self._connection.reader, (ctypes.c_char_p * n)(*texts),
                                              (ctypes.c_size_t * n)(*map(len, texts)), n, numbers)
        if result == -errno.ENOENT:
            raise KeyError(names[list(numbers).index(native.NOT_FOUND)])
        if result < 0:
            raise errors.of_look_up(result, self.path, os.strerror(-result))
        try:
            return self.indices_of(numbers[:])
        except IndexError:
            raise KeyError(next(name for name in names if name not in self)) from None

    def __contains__(self, path: object) -> bool:
        """Whether there is a sample of this path."""
        try:
            return isinstance(path, str) and self.find(path) >= 0
        except KeyError:
            return False

    def listdir(self, path: str = "") -> list[str]:
        """Returns the names in a folder ("": the root), like os.listdir(): files, sorted, then folders. A subset lists what it has.
        Raises FileNotFoundError, NotADirectoryError."""
        files, folders = self._list(path)
        return files + folders

    def walk(self, top: str = "") -> Iterator[tuple[str, list[str], list[str]]]:
        """Yields (path of a folder, names of its folders, names of its files), for this one and all folders below, as
        os.walk() does from the top down. A subset lists what it has. A folder that is removed from the second list is left
        out. Raises FileNotFoundError, NotADirectoryError."""
        files, folders = self._list(top)
        yield top, folders, files
        for name in folders:
            yield from self.walk(_joined(top, name))

    def _list(self, path: str) -> tuple[list[str], list[str]]:
        """The names of a folder's files, and of its folders."""
        files, folders = self._list_all(path)
        if self.subset is None:
            return files, folders
        files = [name for name in files if _joined(path, name) in self]
        folders = [name for name in folders if self._has_some(_joined(path, name))]
        if path.rstrip("/") and not files and not folders:
            raise OSError(errno.ENOENT, f"this subset of {self.path} has no folder", path)
        return files, folders

    def _has_some(self, folder: str) -> bool:
        """Whether samples of the subset are in a folder. The first one found is enough."""
        files, folders = self._list_all(folder)
        return any(_joined(folder, name) in self for name in files) or any(self._has_some(_joined(folder, name)) for name in folders)

    def _list_all(self, path: str) -> tuple[list[str], list[str]]:
        """The names of a folder's files, and of its folders, in the whole dataset."""
        text, cursor, entry = os.fsencode(path).rstrip(b"/"), native.c_uint64(), native.Entry()
        names: tuple[list[str], list[str]] = ([], [])
        reader = self._connection.reader
        while (result := lib.diesel_dataset_list(reader, text, len(text), byref(cursor), byref(entry))) == 0:
            names[bool(entry.is_directory)].append(os.fsdecode(ctypes.string_at(entry.name, entry.name_length)))
        if result != -errno.ENOENT:
            raise errors.of_look_up(result, self.path, os.strerror(-result))
        if text and not any(names):
            number = native.c_uint64()
            found = lib.diesel_dataset_find(reader, text, len(text), byref(number)) == 0
            raise OSError(errno.ENOTDIR if found else errno.ENOENT, f"{self.path} has no folder", path)
        return names

    def stat(self, path: str) -> SampleStat:
        """Returns facts about the sample with this path. Raises KeyError."""
        number, found = self._find_number(path), native.Stat()
        i = self._index_of(number, path)
        result = lib.diesel_dataset_stat(self._connection.reader, number, byref(found))
        if result < 0:
            raise errors.of_look_up(result, self.path, os.strerror(-result))
        label = found.label if self._numbers is None else self._numbers[found.label]
        return SampleStat(i, found.bytes, label, found.mode, found.mtime_ns)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return self._slice(i)
        if isinstance(i, str):
            return bytes(self.read(self.find(i)))
        number = self.number(i)
        data, label = self._read_number(number), self.label_of(number)
        return self._dicts([number], [data], [label])[0][0] if self.reader else (data, label)

    def __getitems__(self, indices: Iterable[Any]) -> list[Any]:
        """Returns [self[i] for i in indices], with few requests. PyTorch's DataLoader calls it for a batch."""
        chosen = self._numbers_of(indices)
        infos = self._infos(chosen)
        if self.reader:
            return [sample for sample, _ in self._many_dicts(chosen, infos)]
        return list(zip(self._read_as(chosen, infos), self._labels(infos)))

    def _getitems(self, indices: Iterable[Any]) -> list[Any]:
        """Does the same for Grain, whose RandomAccessDataSource a dataset is."""
        return self.__getitems__(indices)

    def _with(self, subset: Subset) -> Self:
        made = copy.copy(self)
        made.subset, made._n_bytes, made._targets = subset, None, None
        return made

    def _of(self, subset: Subset) -> Self:
        """Returns the dataset with only some of its samples."""
        return self._with(subset)

    @property
    def _origin(self) -> tuple[Any, str, Subset | None]:
        return self._connection.reader, self.path, self.subset

    def _slice(self, chosen: slice) -> Self:
        indices = range(*chosen.indices(len(self)))
        if indices.step < 0:
            raise ValueError("the step of a dataset slice must be positive: slices keep the order")
        return self._of(Subset.slice(*self._origin, indices))

    def select(self, indices: Iterable[int]) -> Self:
        """Returns the dataset with the samples of these indices, in the order of storage. Raises IndexError, TypeError, or
        ValueError if an index occurs twice."""
        return self._of(Subset.select(*self._origin, list(map(self._index, _integers(indices)))))

    def filter(self, classes: str | int | Iterable[str | int] | None = None, paths: str | None = None) -> Self:
        """The dataset with the samples of certain classes, by their names or indices (-1: those in no class
        folder), and with those whose path inside the dataset matches a pattern as in fnmatch(3), where * matches
        slashes too: filter(paths="val/*"). Raises KeyError, IndexError where there is no such class."""
        flags = None if classes is None else self._class_flags([classes] if isinstance(classes, (str, int)) else classes)
        return self._of(Subset.filter(*self._origin, flags, paths))

    def _class_flags(self, classes: Iterable[str | int]) -> bytes:
        flags, numbers = bytearray(self._n_classes + 1), self.class_to_idx
        for c in classes:
            number = numbers[c] if isinstance(c, str) else operator.index(c)
            if not -1 <= number < len(self.classes):
                raise IndexError(f"{self.path} has {len(self.classes)} classes; class number {number} is out of range")
            if self._numbers is None:
                flags[number] = 1  # the last flag is for label -1
            elif number in self._numbers:
                flags[self._numbers.index(number)] = 1
        return bytes(flags)

    def random_split(self, lengths: Sequence[float], seed: int = 0, by_class: bool = False) -> list[Self]:
        """Datasets with parts of the samples, at random: a pure function of the seed, on any machine. lengths: sizes, or
        fractions that add up to 1. by_class: each class is divided in these proportions (stratified)."""
        if not hasattr(seed, "__index__"):
            raise TypeError(f"seed must be an integer, not {seed!r}")
        sizes = part_sizes(lengths, len(self))
        return [self._of(part) for part in Subset.split(*self._origin, sizes, seed, by_class)]

    def train_test_split(self, test_size: float = 0.25, seed: int = 0, by_class: bool = False) -> tuple[Self, Self]:
        """(train, test): random_split() in two. test_size: how many samples, or a fraction."""
        size = math.ceil(len(self) * test_size) if isinstance(test_size, float) else operator.index(test_size)
        if not 0 <= size <= len(self):
            raise ValueError(f"test_size must be a fraction from 0 to 1, or a number of samples up to {len(self)}, not {test_size!r}")
        train, test = self.random_split([len(self) - size, size], seed, by_class)
        return train, test

    @property
    def targets(self) -> list[int]:
        """The labels of all samples, in a list."""
        if self._targets is None:
            labels = (native.c_int64 * self._n_samples)()
            result = lib.diesel_dataset_labels(self._connection.reader, labels)
            if result < 0:
                raise errors.of_look_up(result, self.path, os.strerror(-result))
            labels = self.numbered(labels)
            self._targets = list(labels) if self.subset is None else [labels[i] for i in self.subset.samples()]
        return self._targets

    @property
    def is_fair(self) -> bool:
        """True if chunks are fair samples of the dataset, as `dieselctl pack` makes them; False if they hold samples
        that were neighbours, as with --order source."""
        return self._connection.is_fair

    @property
    def samples(self) -> Samples:
        """(path inside the dataset, label) of each sample."""
        return Samples(self)

    @property
    def imgs(self) -> Samples:
        """Same as samples: ImageFolder has both names."""
        return self.samples

    def __setattr__(self, name: str, value: Any) -> None:
        of_class = getattr(type(self), name, None)
        if isinstance(of_class, property) and of_class.fset is None:
            raise AttributeError(f"{name} of {self.path} cannot be set, because it comes from the packed files. To change samples, use "
                                 f"select() or filter(); "
                                 "to change labels, with_classes() or a loader's target_transform=")
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        part = "" if self.subset is None else f" of {self._n_samples}"
        return (f"{type(self).__name__}({self.path!r}: {len(self)}{part} samples, {self._n_classes} classes, "
                f"version {self.version})")


def open(path: str | os.PathLike[str], socket: str | None = None, daemon: str = AUTO,  # noqa: A001
         version: int | None = None, fields: Iterable[str] | None = None) -> Dataset:
    """Returns Dataset(path, socket, daemon, version, fields); modules of other formats also name this open()."""
    return Dataset(path, socket, daemon, version, fields)


def status(socket: str | None = None) -> dict[str, Any]:
    """Status of the daemon, as a dict: knobs, cache, datasets, sessions (docs/reference/protocol.md). Without a
    socket: the node's daemon or, if it cannot be reached, the user's own, if it runs."""
    answer, text = ctypes.c_void_p(), ctypes.create_string_buffer(native.ERROR_BYTES)
    result = lib.diesel_status(os.fsencode(socket) if socket else None, byref(answer), text, len(text))
    if result < 0:
        raise errors.from_result(result, os.fsdecode(text.value))
    try:
        return json.loads(ctypes.string_at(answer))
    finally:
        native.libc_free(answer)
