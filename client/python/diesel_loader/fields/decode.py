# SPDX-License-Identifier: Apache-2.0
"""Finds fields in the bytes of samples, and makes Python values of them."""
from __future__ import annotations

import ctypes
import errno
import json
import os
import struct
from ctypes import byref

from .. import native
from ..errors import DamagedData
from ..native import lib
from . import npy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

PLAIN, TAR = native.LAYOUT_PLAIN, native.LAYOUT_TAR
LAYOUTS = ("plain", "fields", "tar", "mds", "litdata")
COLUMNS = (native.LAYOUT_MDS, native.LAYOUT_LITDATA)
KEY, LABEL, ID = "__key__", "__label__", "__id__"  # path, class and number of a sample, as if they were fields
SPECIAL = (KEY, LABEL, ID)
N_LISTED = 64
NOWHERE = 1  # address of a sample of no bytes: libdiesel takes 0 as a wish for the columns


class Form:
    """The layout of samples and its columns, by which libdiesel finds fields."""

    def __init__(self, layout: int, columns: bytes = b"") -> None:
        self.layout, self._columns = layout, columns
        self._memory = ctypes.create_string_buffer(columns, len(columns))
        self.info = native.DatasetInfo(layout=layout, columns=ctypes.addressof(self._memory), columns_bytes=len(columns))

    def __reduce__(self) -> tuple[type[Form], tuple[int, bytes]]:
        return Form, (self.layout, self._columns)


def _fields(form: Form, address: int | None, size: int) -> list[native.Field]:
    n_max, n = N_LISTED, native.c_uint32()
    while True:
        fields = (native.Field * n_max)()
        if lib.diesel_fields_list(byref(form.info), address, size, fields, n_max, byref(n)) < 0:
            raise ValueError("its fields are damaged")
        if n.value <= n_max:
            break
        n_max = n.value
    return fields[:n.value]


def _name(field: native.Field) -> str:
    return os.fsdecode(ctypes.string_at(field.name, field.name_length))


def listed(form: Form, address: int, size: int) -> list[tuple[str, int, int, int]]:
    """Returns the fields of a sample in memory, as (name, kind, address, bytes). Raises ValueError: it is damaged."""
    return [(_name(f), f.kind, f.data or 0, f.bytes) for f in _fields(form, address or NOWHERE, size)]


def encodings_of(form: Form) -> dict[str, tuple[int, str]]:
    """Returns (kind, encoding) of each column by its name. Raises ValueError: they are damaged."""
    return {_name(f): (f.kind, os.fsdecode(ctypes.string_at(f.encoding, f.encoding_length))) for f in _fields(form, None, 0)}


def items_of(pieces: Sequence[bytearray]) -> Any:
    """Returns samples in memory as an array of native.Item, which keeps the memory."""
    items = (native.Item * len(pieces))()
    items.pieces = pieces  # type: ignore[attr-defined]
    for item, piece in zip(items, pieces):
        item.data, item.bytes = native.address_of(piece) or None, len(piece)
    return items


def items_at(address: int, sizes: Sequence[int]) -> Any:
    """Returns samples that lie one after another in memory as an array of native.Item."""
    items = (native.Item * len(sizes))()
    for item, size in zip(items, sizes):
        item.data, item.bytes = address or None, size
        address += size
    return items


class Found:
    """Fields of several samples, in columns: value i of column k is at addresses[k * n + i]. order: the names of all fields that
    samples have in batches, with those that are not stored values."""

    def __init__(self, names: Sequence[str], n: int, order: Sequence[str]) -> None:
        self.names, self.order, self.n, n_values = names, order, n, n * len(names)
        self.addresses = (native.c_uint64 * n_values)()
        self.sizes = (native.c_uint32 * n_values)()
        self._kinds = (native.c_uint8 * n_values)()
        self.counts = (native.c_uint32 * n)()
        self.kinds = b""

    def search(self, form: Form, items: Any) -> int | None:
        """Finds the fields. Returns the index of a damaged sample; None: there is none."""
        texts, k, wrong = [os.fsencode(name) for name in self.names], len(self.names), native.c_uint32()
        result = lib.diesel_fields_find(byref(form.info), items, self.n, (ctypes.c_char_p * k)(*texts), (ctypes.c_size_t * k)(*map(len, texts)), k,
                                        self.addresses, self.sizes, self._kinds, self.counts, byref(wrong))
        self.kinds = bytes(self._kinds)
        return wrong.value if result < 0 else None

    def gather(self, k: int, skip: int, size: int) -> bytearray | None:
        """Returns the values of a column one after another, without the first `skip` bytes of each; None: they differ in
        length, or in these bytes."""
        out, at = bytearray(self.n * size), k * self.n
        result = lib.diesel_fields_gather(ctypes.addressof(self.addresses) + 8 * at, byref(self.sizes, 4 * at), self.n, skip, size,
                                          native.address_of(out))
        return out if result == 0 else None


class Reader:
    """Reads the chosen fields of a dataset's samples. names: None for all fields, else the chosen ones, in order. native_field: a field
    that dieseld has decoded; None stands for its value."""

    columns: tuple[str, ...] | None = None  # names of all that can be read; None: each sample has its own

    def __init__(self, form: Form, names: Iterable[str] | None, path: str, native_field: str | None = None) -> None:
        self.form, self.layout, self.path, self._native = form, form.layout, path, native_field
        self.names = None if names is None else checked(names)
        self._stored = tuple(name for name in self.names or () if name not in SPECIAL and name != native_field)
        self.finds = self.names is None or bool(self._stored)  # False: only facts about samples are chosen

    def with_native(self, native_field: str) -> Reader:
        """Returns a reader of the same fields, of which dieseld has decoded this one."""
        return type(self)(self.form, self.names, self.path, native_field)

    def has(self, name: str) -> bool:
        """True if samples are read with this special name."""
        return self.names is not None and name in self.names

    def find(self, items: Any, n: int, named: Callable[[int], str]) -> Found | None:
        """Returns the stored fields of n samples. None: with names=None, samples have different fields. named(i): names
        sample i in errors. Raises DamagedData, KeyError."""
        stored = self._stored
        order = self.names
        if order is None:
            order = tuple(dict.fromkeys(name for name, *_ in self._list(items[0], named, 0)))
            stored = tuple(name for name in order if name != self._native)
        found = Found(stored, n, order)
        wrong = found.search(self.form, items)
        if wrong is not None:
            raise damaged(f"the fields of {named(wrong)} are damaged")
        if native.FIELD_MISSING in found.kinds:
            if self.names is None:
                return None
            at = found.kinds.index(native.FIELD_MISSING)
            self._missing(stored[at // n], items[at % n], named, at % n)
        if self.names is None and any(count != found.counts[0] for count in found.counts):
            return None
        return found

    def listed(self, address: int, size: int) -> list[tuple[str, int, int, int]]:
        """Returns the fields of a sample in memory, as listed()."""
        return listed(self.form, address, size)

    def _list(self, item: Any, named: Callable[[int], str], i: int) -> list[tuple[str, int, int, int]]:
        try:
            return self.listed(item.data or 0, item.bytes)
        except ValueError:
            raise damaged(f"the fields of {named(i)} are damaged") from None

    def _missing(self, name: str, item: Any, named: Callable[[int], str], i: int) -> None:
        there = ", ".join(sorted({other for other, *_ in self._list(item, named, i)}))
        raise KeyError(f"{named(i)} has no field {name!r}, but {there or 'none'}")

    def samples(self, items: Any, n: int, paths: Callable[[int], str], labels: Sequence[int], numbers: Sequence[int],
                named: Callable[[int], str]) -> list[tuple[dict[str, Any], frozenset[str]]]:
        """Returns (dict, names of the fields that are images) for each of n samples. paths(i), named(i): path of sample i, and
        its name for errors."""
        found = self.find(items, n, named) if self.finds else None
        if found is None and self.names is None:
            return [self._each(items[i], named, i) for i in range(n)]
        columns: dict[str, Any] = {}
        stored = found.names if found else ()
        for name in found.order if found else self.names or ():
            if name == self._native:
                columns[name] = [None] * n
            elif name in SPECIAL:
                columns[name] = [paths(i) for i in range(n)] if name == KEY else list(labels if name == LABEL else numbers)
            else:
                columns[name] = self.column(found, stored.index(name), named)
        kinds = [found.kinds[i::n] for i in range(n)] if found else [b""] * n
        images = {one: frozenset(name for name, kind in zip(stored, one) if kind == native.FIELD_IMAGE) for one in set(kinds)}
        return [(dict(zip(columns, values)), images[one]) for values, one in zip(zip(*columns.values()), kinds)]

    def _each(self, item: Any, named: Callable[[int], str], i: int) -> tuple[dict[str, Any], frozenset[str]]:
        made: dict[str, Any] = {}
        images = set()
        for name, kind, address, size in self._list(item, named, i):
            if name == self._native:
                made[name] = None
            elif name not in made:
                made[name] = self.value(name, kind, address, size, named, i)
                if kind == native.FIELD_IMAGE:
                    images.add(name)
        return made, frozenset(images)

    def column(self, found: Any, k: int, named: Callable[[int], str]) -> list[Any]:
        """Returns the values of one field."""
        n, name = found.n, found.names[k]
        begin, end = k * n, (k + 1) * n
        addresses, sizes, kinds = found.addresses[begin:end], found.sizes[begin:end], found.kinds[begin:end]
        if kinds.count(native.FIELD_BYTES) + kinds.count(native.FIELD_IMAGE) == n:
            return [ctypes.string_at(address, size) for address, size in zip(addresses, sizes)]
        return [self.value(name, *one, named, i) for i, one in enumerate(zip(kinds, addresses, sizes))]

    def value(self, name: str, kind: int, address: int, size: int, named: Callable[[int], str], i: int) -> Any:
        """Returns the Python value of a field."""
        data = ctypes.string_at(address, size)
        try:
            if kind == native.FIELD_INT and self.layout == TAR:
                return int(data)
            if kind == native.FIELD_JSON and name.lower().endswith("jsonl"):
                return [json.loads(line) for line in data.splitlines() if line.strip()]
            return VALUES[kind](data)
        except (ValueError, RecursionError, MemoryError) as error:
            raise damaged(f"field {name!r} of {named(i)} is damaged: {' '.join(str(error).split())[:200]}") from None


def damaged(text: str) -> DamagedData:
    return DamagedData(errno.EBADMSG, text)


def _bytes(data: bytes) -> bytes:
    return data


def _none(data: bytes) -> None:
    return None


VALUES: dict[int, Callable[[bytes], Any]] = {
    native.FIELD_BYTES: _bytes, native.FIELD_IMAGE: _bytes, native.FIELD_TEXT: lambda data: str(data, "utf-8"),
    native.FIELD_JSON: json.loads, native.FIELD_ARRAY: npy.decode, native.FIELD_INT: lambda data: struct.unpack("<q", data)[0],
    native.FIELD_FLOAT: lambda data: struct.unpack("<d", data)[0], native.FIELD_BOOL: lambda data: data != b"\0", native.FIELD_NONE: _none}


def checked(names: Iterable[str]) -> tuple[str, ...]:
    """Returns the argument `fields` after checking it. Raises TypeError, ValueError."""
    chosen = (names,) if isinstance(names, str) else tuple(names)
    if not all(isinstance(name, str) for name in chosen):
        raise TypeError(f"fields must be names, not {chosen!r}")
    if not chosen or len(set(chosen)) < len(chosen):
        raise ValueError(f"fields must be at least one name, and each once, not {chosen!r}")
    return chosen
