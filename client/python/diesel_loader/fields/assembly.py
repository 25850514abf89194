# SPDX-License-Identifier: Apache-2.0
"""Batches of samples with fields: the counterpart of ../assembly.py."""
from __future__ import annotations

import ctypes
import time

from .. import assembly, errors, native
from . import check_same, npy
from .decode import ID, KEY, LABEL, SPECIAL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def collate(arrays: Any, samples: list[Any], allocate: Any = None) -> Any:
    """Combines samples into a batch. Dicts give a dict of batches. Numbers, and arrays of one shape, are stacked, and anything
    else stays a list. allocate: as in Assembly.batch()."""
    first = samples[0]
    if not isinstance(first, dict):
        return arrays.column(samples, allocate)
    check_same(samples)
    return {name: arrays.column([sample[name] for sample in samples], allocate) for name in first}


class Collate:
    """A collate_fn for loaders that read by number."""

    def __init__(self, arrays: Any) -> None:
        self._arrays = arrays

    def __call__(self, samples: list[Any]) -> Any:
        return collate(self._arrays, samples)


def check_named(dataset: Any, loader: Any, transform: Any) -> list[str]:
    """Returns the fields for which there is a function. Raises ValueError if one of them is not chosen."""
    chosen = dataset.field_names
    named = [*(transform if isinstance(transform, dict) else ()), *(loader if isinstance(loader, dict) else ())]
    if special := [name for name in named if name in SPECIAL]:
        raise ValueError(f"{special[0]} is no field: target_transform= changes labels, and a function of the whole sample the others")
    if chosen is not None and (unknown := [name for name in named if name not in chosen]):
        raise ValueError(f"there is a function for field {unknown[0]!r}, which is not in fields={chosen!r}")
    return named


class FieldAssembly(assembly.Assembly):
    """Makes dicts of samples. loader: a function of the bytes of each image, or a dict {field: function}. transform: a function of
    the dict of a sample, or a dict {field: function}. With `decoded`, dieseld does the work of one of these fields."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        named = check_named(self.dataset, self.loader, self.transform)
        chosen, self._reader, self._native = self.dataset.field_names, self.dataset.reader, None
        self._by_field = dict(self.transform) if isinstance(self.transform, dict) else {}
        if self.decoded:
            self._native = self.decoded.field
            self._reader = self._reader.with_native(self._native)
            del self._by_field[self._native]
            self.has_work = self.has_work or bool(self._by_field or self.loader)
        self._unseen = set(named) - {self._native} if chosen is None else set()  # fields with a function, of which no sample was seen
        if self.target_transform and not (chosen and LABEL in chosen):
            raise ValueError(f'target_transform applies to labels: add "{LABEL}" to fields= of the dataset, or leave it out')

    def batch(self, lease: Any, epoch: int, index: int, copies: bool = False, allocate: Any = None) -> Any:
        batch = lease.batch
        if not batch.items:
            raise RuntimeError("the batch has no items")
        if not self.has_work:
            return self._columns(lease, copies)
        samples = self._field_samples(lease, copies, epoch, index)
        try:
            with self.arrays.collating():
                return self.collate_fn(samples) if self.collate_fn else collate(self.arrays, samples, allocate)
        except Exception as error:
            errors.name(error, f"batch {index} of epoch {epoch}, which begins with {self._named(batch.items[0].sample)}")
            raise

    def _labels(self, batch: Any) -> Any:
        return self.dataset.numbered(native.array_at(batch.labels, batch.n_items, native.c_int64))

    def _column_of_native(self, lease: Any, copies: bool) -> Any:
        data = self._packed(lease, lease.batch)
        return self.arrays.copy(data) if copies else data

    def _columns(self, lease: Any, copies: bool) -> dict[str, Any]:
        """Returns the collated batch. Stored values are copied once, from the daemon's cache."""
        batch = lease.batch
        reader, items, n = self._reader, batch.items, batch.n_items

        def named(i: int) -> str:
            return self._named(items[i].sample)
        found = reader.find(items, n, named) if reader.finds else None
        if found is None and reader.names is None:  # this raises the error that names the fields
            return collate(self.arrays, self._field_samples(lease, copies, 0, 0))
        made: dict[str, Any] = {}
        stored = found.names if found else ()
        for name in found.order if found else reader.names:
            if name == self._native:
                made[name] = self._column_of_native(lease, copies)
            else:
                made[name] = self._special(name, batch) if name in SPECIAL else self._column(reader, found, stored.index(name), named)
        if self.return_ids:
            made[ID] = self._special(ID, batch)
        return made

    def _special(self, name: str, batch: Any) -> Any:
        if name == LABEL:
            return self.arrays.numbers((native.c_int64 * batch.n_items)(*self._labels(batch)))
        numbers = assembly.sample_numbers(batch)
        if name == KEY:
            return [self.dataset.path_of(number) for number in numbers]
        return self.arrays.numbers((native.c_int64 * len(numbers))(*self.dataset.indices_of(numbers)))

    def _column(self, reader: Any, found: Any, k: int, named: Any) -> Any:
        kind, n = found.kinds[k * found.n], found.n
        if found.kinds.count(kind, k * n, (k + 1) * n) == n:
            made = None
            if kind == native.FIELD_INT and reader.layout != native.LAYOUT_TAR:
                made = self._stacked(found, k, 0, (), "int64", 8)
            elif kind == native.FIELD_FLOAT:
                made = self._stacked(found, k, 0, (), "float64", 8)
            elif kind == native.FIELD_ARRAY:
                made = self._arrays(found, k)
            if made is not None:
                return made
        return self.arrays.column(reader.column(found, k, named), None)

    def _stacked(self, found: Any, k: int, skip: int, shape: tuple[int, ...], dtype: str, size: int) -> Any:
        data = found.gather(k, skip, size)
        return None if data is None else self.arrays.of_bytes(data, dtype, (found.n, *shape))

    def _arrays(self, found: Any, k: int) -> Any:
        """Returns the .npy files of a column as one array, if all have one header. None: they have not, or are damaged."""
        at = k * found.n
        try:
            start = ctypes.string_at(found.addresses[at], min(found.sizes[at], 12))
            begin = min(npy.header_bytes(start), found.sizes[at])
            shape, is_fortran, dtype = npy.parse_header(ctypes.string_at(found.addresses[at], begin))
            size = npy.data_bytes(shape, dtype)
            if size != found.sizes[at] - begin or not size or is_fortran or not dtype.isnative or dtype.kind not in "biuf":
                return None
            return self._stacked(found, k, begin, shape, dtype.name, size)
        except ValueError:  # reader.column() says why
            return None

    def _field_samples(self, lease: Any, copies: bool, epoch: int, index: int) -> list[Any]:
        batch = lease.batch
        n, labels, numbers = batch.n_items, list(self._labels(batch)), assembly.sample_numbers(batch)
        decoded = self.dataset.decoded(batch.items, n, labels, numbers, self._reader)
        if self._unseen:
            self._look_for_unseen([sample for sample, _ in decoded])
        by_dieseld = self._column_of_native(lease, copies) if self.decoded else [None] * n
        made, self.sample_ns = [], []
        self.seeding.begin_batch(epoch, index)
        for (sample, images), data, label, number in zip(decoded, by_dieseld, labels, numbers):
            self.seeding.begin_sample(epoch, number)
            begin = time.perf_counter_ns() if self.measures else 0
            made.append(self.finish(sample, images, number, label, data))
            if self.measures:
                self.sample_ns.append(time.perf_counter_ns() - begin)
        return made

    def _look_for_unseen(self, samples: list[dict[str, Any]]) -> None:
        """Raises ValueError for a function whose field is neither in the first batch nor in the dataset's first sample."""
        there = {name for sample in samples for name in sample}
        if unknown := sorted(self._unseen - there - set(self.dataset.fields or ())):
            raise ValueError(f"there is a function for field {unknown[0]!r}, which the samples lack; they have {', '.join(sorted(there))}")
        self._unseen.clear()

    def finish(self, sample: dict[str, Any], images: Any, number: int, label: int, data: Any = None) -> Any:
        """Returns the sample after loader and transforms. images: the names of its fields that are images. data: the field that dieseld
        has decoded. An exception from these functions names the sample."""
        of_all = False
        try:
            if self.target_transform:
                sample[LABEL] = self.target_transform(label)
            if self.return_ids:
                sample[ID] = self.dataset.indices_of([number])[0]
            for name, value in sample.items():
                if name == self._native:
                    sample[name] = self.decoded.finish(data)
                elif name not in SPECIAL:
                    sample[name] = self._value(name, value, name in images)
            of_all = self.transform is not None and not isinstance(self.transform, dict)
            return self.transform(sample) if of_all else sample
        except Exception as error:
            hint = f", of which the transform gets all fields as a dict: for one field, use transform={{{(sorted(images) or list(sample))[0]!r}: ...}}"
            errors.name(error, self._named(number) + (hint if of_all and isinstance(error, (AttributeError, TypeError)) else ""))
            raise

    def _value(self, name: str, value: Any, is_image: bool) -> Any:
        load = self.loader.get(name) if isinstance(self.loader, dict) else self.loader if is_image else None
        if load is None and is_image and name in self._by_field:
            load = assembly.pil_loader
        if load is not None:
            value = load(value)
        return self._by_field[name](value) if name in self._by_field else value
