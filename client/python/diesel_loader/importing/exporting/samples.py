# SPDX-License-Identifier: Apache-2.0
"""Samples of a dataset as they are stored, in the order of storage, and the types of their fields."""
from __future__ import annotations

import contextlib
import ctypes
import json
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from ... import native
from ...dataset import Dataset
from ...fields.encode import encoded
from ..base import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator

BATCH_BYTES, BATCH_SAMPLES = 8 << 20, 256
SCANNED = 1000  # samples that give the columns of a table


class Field(NamedTuple):
    name: str
    kind: int    # native.FIELD_*
    data: bytes  # as it is stored


class Sample(NamedTuple):
    number: int
    path: str
    data: Any            # stored bytes
    fields: list[Field]  # empty: the dataset has none


def read(dataset: Dataset, numbers: Any) -> Iterator[Sample]:
    """Yields samples by number; memory is bounded by BATCH_BYTES, or one sample."""
    batch: list[int] = []
    size = 0
    for number in numbers:
        batch.append(number)
        size += dataset.sample_bytes(number)
        if size >= BATCH_BYTES or len(batch) >= BATCH_SAMPLES:
            yield from _read(dataset, batch)
            batch, size = [], 0
    yield from _read(dataset, batch)


def _read(dataset: Dataset, numbers: list[int]) -> Iterator[Sample]:
    for number, data in zip(numbers, dataset.read_many(numbers)):
        yield Sample(number, dataset.sample_path(number), data, _fields(dataset, number, data))


def _fields(dataset: Dataset, number: int, data: bytearray) -> list[Field]:
    if dataset.reader is None:
        return []
    try:
        found = dataset.reader.listed(native.address_of(data), len(data))
    except ValueError:
        raise Refused(f"{dataset.path}: the fields of {dataset.sample_path(number)} are damaged; run: dieselctl verify {dataset.path}") from None
    return [_field(dataset, number, *one) for one in found]


def _field(dataset: Dataset, number: int, name: str, kind: int, address: int, size: int) -> Field:
    """Values of an encoding become those that create() would store. If it stores no such values, they stay bytes, and so do those that may
    be pickles, which nobody runs."""
    if kind == native.FIELD_ENCODED and name in (dataset.fields or ()):
        assert dataset.reader is not None
        value = dataset.reader.value(name, kind, address, size, lambda _: dataset.named(number), 0)
        with contextlib.suppress(TypeError, ValueError):
            return Field(name, *encoded(value))
    return Field(name, native.FIELD_BYTES if kind == native.FIELD_ENCODED else kind, ctypes.string_at(address, size))


def value(field: Field) -> Any:
    """Returns the value of a number, text or JSON; bytes of all others."""
    if field.kind == native.FIELD_INT:
        return struct.unpack("<q", field.data)[0] if len(field.data) == 8 and not field.data.strip().isdigit() else int(field.data)
    if field.kind == native.FIELD_FLOAT:
        return struct.unpack("<d", field.data)[0]
    if field.kind == native.FIELD_BOOL:
        return field.data != b"\0"
    if field.kind == native.FIELD_NONE:
        return None
    if field.kind == native.FIELD_TEXT:
        return field.data.decode()
    return json.loads(field.data) if field.kind == native.FIELD_JSON else field.data


def kinds(dataset: Dataset) -> dict[str, set[int]]:
    """Returns the kinds of each field, from samples spread over the dataset. A field that a sample lacks is of kind FIELD_NONE, too."""
    found: dict[str, set[int]] = {}
    n, step = 0, max(1, len(dataset) // SCANNED)
    for sample in read(dataset, range(0, len(dataset), step)):
        for field in sample.fields:
            found.setdefault(field.name, {native.FIELD_NONE} if n else set()).add(field.kind)
        have = {field.name for field in sample.fields}
        for name in found.keys() - have:
            found[name].add(native.FIELD_NONE)
        n += 1
    return found
