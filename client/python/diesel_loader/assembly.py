# SPDX-License-Identifier: Apache-2.0
"""Turns a batch in shared memory into the batch that the user gets, in the trainer or in a worker process."""
from __future__ import annotations

import io
import time

from . import errors, native
from .fields.encode import is_image

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import numpy
    import PIL.Image
    import torch

IMAGE_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def pil_loader(data: torch.Tensor | numpy.ndarray[Any, Any]) -> PIL.Image.Image:
    """Decodes an image (1-D uint8 tensor or array) to an RGB PIL image, as torchvision's ImageFolder does."""
    from PIL import Image
    array: Any = data
    with Image.open(io.BytesIO(memoryview(array.numpy() if hasattr(array, "numpy") else array))) as image:
        return image.convert("RGB")


def sample_numbers(batch):
    """Returns the numbers in the whole dataset of the samples of a native.Batch, as a list."""
    return [item.sample for item in batch.items[:batch.n_items]]


def assembly_of(arrays, dataset, *arguments, **options):
    """Returns the Assembly for samples of the dataset."""
    if not dataset.reader:
        return Assembly(arrays, dataset, *arguments, **options)
    from .fields.assembly import FieldAssembly
    return FieldAssembly(arrays, dataset, *arguments, **options)


class Assembly:
    """Python work on the samples of a batch. Copied to worker processes with all objects it refers to.

    arrays: what samples are: Tensors (tensors.py) or Arrays (arrays.py). return_ids: samples are (sample, label, index),
    batches [data, labels, indices]. measures: record in sample_ns how long each sample of the last batch took. decoded: a
    recipe.plan.Decoded, if dieseld decodes; dieseld then does the work of loader and transform."""

    def __init__(self, arrays, dataset, loader, transform, target_transform, collate_fn, seeding, return_ids=False,
                 measures=False, decoded=None):
        self.arrays, self.dataset, self.seeding = arrays, dataset, seeding
        self.loader, self.transform, self.target_transform = loader, transform, target_transform
        self.collate_fn, self.return_ids = collate_fn, return_ids
        self.measures, self.sample_ns = measures, []
        self.decoded = decoded
        self.has_work = any((loader, transform, target_transform, collate_fn))
        if decoded:
            self.has_work = bool(decoded.rest or decoded.kind == "pil" or target_transform or collate_fn)

    def batch(self, lease, epoch, index, copies=False, allocate=None):
        """Returns [data, labels], or the result of collate_fn.

        lease: an object that has the native batch as `.batch`, and keeps the batch's memory as long as it lives.
        copies: data must not hold the lease. allocate(shape, dtype): memory for the collated array."""
        batch, arrays = lease.batch, self.arrays
        labels = self.dataset.numbered(native.array_at(batch.labels, batch.n_items, native.c_int64))
        data = self._packed(lease, batch) if batch.packed else self._views(lease, batch)
        if copies and batch.packed:
            data = arrays.copy(data)
        if not self.has_work:
            if not batch.packed:
                data = [arrays.copy(view) for view in data]
            ids = [arrays.numbers((native.c_int64 * batch.n_items)(*self.dataset.indices_of(sample_numbers(batch))))] if self.return_ids else []
            return [data, arrays.numbers(labels), *ids]
        samples = self._samples(data, labels[:], batch, epoch, index)
        try:
            with arrays.collating():
                return self.collate_fn(samples) if self.collate_fn else arrays.collate(samples, allocate or arrays.empty)
        except Exception as error:
            errors.name(error, f"batch {index} of epoch {epoch}, which begins with {self._named(batch.items[0].sample)}")
            raise

    def _packed(self, lease, batch):
        shape, dtype = (batch.n_items, batch.item_bytes), self.arrays.byte
        if self.decoded:
            shape, dtype = (batch.n_items, *self.decoded.recipe.dimensions), self.arrays.dtype(self.decoded.recipe.dtype)
        if batch.item_bytes:
            buffer = native.array_at(batch.packed, batch.n_items * batch.item_bytes)
            buffer.lease = lease  # a view keeps the buffer, and the buffer keeps the lease
            data = self.arrays.of(buffer, dtype, shape)
        else:
            data = self.arrays.empty(shape, dtype)
        return data.permute(0, 3, 1, 2) if self.decoded and self.decoded.channels_last else data

    def _views(self, lease, batch):
        views = []
        for item in batch.items[:batch.n_items]:
            buffer = native.array_at(item.data, item.bytes) if item.bytes else None
            if buffer is not None:
                buffer.lease = lease
            views.append(self.arrays.view(buffer))
        return views

    def _samples(self, data, labels, batch, epoch, index):
        """Returns [(sample, label)] after loader and transforms, or [(sample, label, index)]."""
        samples, self.sample_ns = [], []
        self.seeding.begin_batch(epoch, index)
        for i, (item, label) in enumerate(zip(data, labels)):
            number = batch.items[i].sample
            self.seeding.begin_sample(epoch, number)
            begin = time.perf_counter_ns() if self.measures else 0
            samples.append(self.sample(item, number, label, not batch.packed))
            if self.measures:
                self.sample_ns.append(time.perf_counter_ns() - begin)
        return samples

    def sample(self, data, number, label, is_view=False):
        """Returns (sample, label) after loader and transforms, or (sample, label, index). is_view: data must not be written to. An
        exception from these functions names the sample."""
        called = "loader"
        try:
            sample = self.decoded.finish(data) if self.decoded else self._load(data, number, is_view)
            if self.transform and not self.decoded:
                called = "transform"
                sample = self.transform(sample)
            if self.target_transform:
                called = "target_transform"
                label = self.target_transform(label)
        except Exception as error:
            errors.name(error, self._named(number) + self._hint(called, error, data, number))
            raise
        return (sample, label, self.dataset.indices_of([number])[0]) if self.return_ids else (sample, label)

    def _hint(self, called, error, data, number):
        """Returns what may explain an error of a function of the user's: it got the stored bytes, as an array."""
        if called == "loader" and self.loader and isinstance(error, TypeError) and "bytes" in str(error):
            return ", whose bytes the loader gets as an array of uint8" + ("; call data.numpy() for an object like bytes" if self.arrays.of_torch else "")
        if called != "transform" or self.loader or self.decoded or self._is_image(number) or not is_image(bytes(data[:12].tolist())):
            return ""
        return ", of which the transform gets the stored bytes: decode images with decode=Decode(loader=pil_loader)"

    def _is_image(self, number):
        return self.dataset.path_of(number).lower().endswith(IMAGE_EXTENSIONS)

    def _named(self, number):
        try:
            return f"sample {number}, {self.dataset.path_of(number)} of {self.dataset.path}"
        except Exception:  # the dataset cannot be opened here
            return f"sample {number} of {self.dataset.path}"

    def _load(self, data, sample, is_view):
        """Samples lie in read-only memory of dieseld: writing there would end the process with SIGSEGV. So functions
        and the user get copies."""
        if (not self.loader and self.transform and self._is_image(sample)) or self.loader is pil_loader:
            return pil_loader(data)
        if is_view:
            data = self.arrays.copy(data)
        return self.loader(data) if self.loader else data
