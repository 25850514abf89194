# SPDX-License-Identifier: Apache-2.0
"""From a batch in shared memory to what the user sees: in the trainer, or in a worker process."""
from __future__ import annotations

import contextlib
import io

import torch
import torch.utils.data

from . import native
from .results import is_plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    import PIL.Image

IMAGE_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def pil_loader(data: torch.Tensor) -> PIL.Image.Image:
    """Decodes an image (1-D uint8 tensor) to an RGB PIL image, as torchvision's ImageFolder does."""
    from PIL import Image
    with Image.open(io.BytesIO(memoryview(data.numpy()))) as image:
        return image.convert("RGB")


class Assembly:
    """Python work on the samples of a batch. It is copied to worker processes with everything it refers to."""

    def __init__(self, dataset, loader, transform, target_transform, collate_fn, seeding):
        self.dataset, self.seeding = dataset, seeding
        self.loader, self.transform, self.target_transform = loader, transform, target_transform
        self.collate_fn = collate_fn
        self.around_collate = contextlib.nullcontext
        self.has_work = any((loader, transform, target_transform, collate_fn))

    def batch(self, lease, epoch, index, copies=False, allocate=torch.empty):
        """[data, labels], or what collate_fn makes of them.

        lease: an object that has the native batch as `.batch`, and keeps the batch's memory as long as it lives.
        copies: data must not keep the lease. allocate(shape, dtype=...): memory for the collated tensor."""
        batch = lease.batch
        labels = torch.frombuffer(native.array_at(batch.labels, batch.n_items, native.c_int64),
                                  dtype=torch.int64).clone()
        data = self._packed(lease, batch) if batch.packed else self._views(lease, batch)
        if copies:
            data = data.clone() if batch.packed else [view.clone() for view in data]
        if not self.has_work:
            return [data, labels]
        samples = self._samples(data, labels.tolist(), batch, epoch, index)
        with self.around_collate():
            return self.collate_fn(samples) if self.collate_fn else self._collate(samples, allocate)

    @staticmethod
    def _packed(lease, batch):
        if not batch.item_bytes:
            return torch.empty((batch.n_items, 0), dtype=torch.uint8)
        buffer = native.array_at(batch.packed, batch.n_items * batch.item_bytes)
        buffer.lease = lease  # the tensor keeps the buffer, the buffer keeps the lease
        return torch.frombuffer(buffer, dtype=torch.uint8).view(batch.n_items, batch.item_bytes)

    @staticmethod
    def _views(lease, batch):
        views = []
        for item in batch.items[:batch.n_items]:
            if not item.bytes:
                views.append(torch.empty(0, dtype=torch.uint8))
                continue
            buffer = native.array_at(item.data, item.bytes)
            buffer.lease = lease
            views.append(torch.frombuffer(buffer, dtype=torch.uint8))
        return views

    def _samples(self, data, labels, batch, epoch, index):
        """[(sample, label)] after loader and transforms."""
        samples = []
        self.seeding.begin_batch(epoch, index)
        for i, (item, label) in enumerate(zip(data, labels)):
            number = batch.items[i].sample
            self.seeding.begin_sample(epoch, number)
            samples.append(self.sample(item, number, label))
        return samples

    def sample(self, data, number, label):
        """(sample, label) after loader and transforms."""
        sample = self._load(data, number)
        if self.transform:
            sample = self.transform(sample)
        if self.target_transform:
            label = self.target_transform(label)
        return sample, label

    def _load(self, data, sample):
        if self.loader:
            return self.loader(data)
        if self.transform and self.dataset.sample_path(sample).lower().endswith(IMAGE_EXTENSIONS):
            return pil_loader(data)
        return data

    @staticmethod
    def _collate(samples, allocate):
        """default_collate, but plain tensors of one shape are stacked in memory from allocate()."""
        first = samples[0][0]
        tensors = [sample for sample, _ in samples]
        if not all(type(t) is torch.Tensor and t.shape == first.shape and t.dtype == first.dtype and is_plain(t)
                   for t in tensors):
            return torch.utils.data.default_collate(samples)
        out = torch.stack(tensors, out=allocate((len(tensors), *first.shape), dtype=first.dtype))
        return [out, torch.utils.data.default_collate([label for _, label in samples])]
