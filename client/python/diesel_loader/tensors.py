# SPDX-License-Identifier: Apache-2.0
"""Samples and batches as torch tensors. arrays.py does the same for NumPy."""
from __future__ import annotations

import contextlib
import functools

import torch
import torch.multiprocessing
import torch.utils.data

from .fields import check_rows, dtype_of, pad_fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def tensor_of(buffer, dtype, shape):
    """Returns the tensor in a buffer. The tensor keeps the buffer alive."""
    if not memoryview(buffer).nbytes:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(buffer, dtype=dtype).view(shape)


def by_rows(tensor):
    """Returns a [B, H, W, C] tensor as a [B, C, H, W] view of the same memory, that is, in torch.channels_last."""
    return tensor.permute(0, 3, 1, 2)


def tensor_of_rows(buffer, dtype, shape):
    """Returns by_rows() of the tensor in a buffer. The tensor keeps the buffer alive."""
    return by_rows(tensor_of(buffer, dtype, shape))


def is_by_rows(tensor):
    """Returns True if the tensor is in torch.channels_last and not also in the default order."""
    return tensor.dim() == 4 and not tensor.is_contiguous() and tensor.is_contiguous(memory_format=torch.channels_last)


def is_plain(tensor):
    """Returns True if bytes, dtype and shape describe the tensor completely."""
    return (type(tensor) is torch.Tensor and tensor.layout is torch.strided and tensor.device.type == "cpu"
            and not tensor.requires_grad and not tensor.is_quantized and not tensor.is_conj()
            and not tensor.is_neg())


WIDER = {"uint16": "int32", "uint32": "int64"}  # for versions of torch without these


def _as_tensor(value):
    """Returns a tensor, or an array as a tensor; None: it is neither, or torch has no such dtype."""
    if isinstance(value, torch.Tensor):
        return value
    if not hasattr(value, "__array_interface__") or type(value).__module__ != "numpy":
        return None
    name = value.dtype.name if hasattr(torch, value.dtype.name) else WIDER.get(value.dtype.name)
    if name is None or not isinstance(getattr(torch, name, None), torch.dtype):
        return None
    value = value.astype(name, order="C", copy=not (value.flags.writeable and value.dtype.isnative))
    return torch.as_tensor(value)


def pad_collate(samples: list[Any], value: float = 0, multiple: int = 1) -> Any:
    """A collate_fn: samples of different lengths in one tensor, padded at the end.

    samples: (sample, label) or (sample, label, number); samples are tensors [L] or [L, ...] that differ only in L.
    Returns [data, labels, lengths] or [data, labels, ids, lengths]: data [B, longest L, ...], filled up with `value`,
    lengths int64 [B]. multiple: the padded length is a multiple of this. To change an argument: functools.partial(pad_collate,
    value=-1).

    If samples have fields, pads each field of 1-D tensors or arrays, and adds its lengths as FIELD_lengths."""
    if isinstance(samples[0], dict):
        return pad_fields(Tensors(), samples, lambda values: _padded([_as_tensor(one) for one in values], value, multiple))
    data, lengths = _padded([sample[0] for sample in samples], value, multiple)
    return [data, *torch.utils.data.default_collate([sample[1:] for sample in samples]), lengths]


def _padded(tensors, value, multiple):
    """Returns (tensors of different lengths in one, their lengths). The dtype is one that holds the values of all."""
    longest = max(len(tensor) for tensor in tensors)
    check_rows(tensors)
    dtype = functools.reduce(torch.promote_types, {tensor.dtype for tensor in tensors})
    data = tensors[0].new_full((len(tensors), -(-longest // multiple) * multiple, *tensors[0].shape[1:]), value, dtype=dtype)
    for row, tensor in zip(data, tensors):
        row[:len(tensor)] = tensor
    return data, torch.tensor([len(tensor) for tensor in tensors])


def list_collate(samples: list[Any]) -> list[Any]:
    """A collate_fn: samples stay as they are, in a list: [list of B samples, labels] or [list, labels, ids]. Dicts of fields stay
    a list of dicts.

    If there is also no loader and no transform, dieseld does not gather batches: each sample is copied once, from the chunk in its
    cache."""
    if isinstance(samples[0], dict):
        return samples
    return [[sample[0] for sample in samples], *torch.utils.data.default_collate([sample[1:] for sample in samples])]


class Tensors:
    """The functions on tensors that Assembly, results and workers need. channels_last: memory order of image batches."""

    multiprocessing = torch.multiprocessing
    byte = torch.uint8
    list_collate = staticmethod(list_collate)
    of_torch = True

    def __init__(self, channels_last=False):
        self.channels_last = channels_last

    def of(self, buffer, dtype, shape):
        """Returns a tensor that views a buffer and keeps it alive."""
        return tensor_of(buffer, dtype, shape)

    def of_bytes(self, data, name, shape):
        """Returns the tensor in a bytearray of numbers of NumPy's dtype of this name; None: torch has no such dtype."""
        dtype = getattr(torch, name, None)
        if isinstance(dtype, torch.dtype):
            return self._formatted(tensor_of(data, dtype, shape))
        if name not in WIDER:
            return None
        import numpy
        return self._formatted(torch.from_numpy(numpy.frombuffer(data, name).astype(WIDER[name]).reshape(shape)))

    def view(self, buffer):
        """Returns the bytes of a sample as a 1-D tensor, which must not be written to."""
        return torch.empty(0, dtype=torch.uint8) if buffer is None else torch.frombuffer(buffer, dtype=torch.uint8)

    def numbers(self, buffer):
        """Returns a copy of a buffer's 64-bit integers, as a 1-D int64 tensor."""
        return torch.frombuffer(buffer, dtype=torch.int64).clone()

    def copy(self, tensor):
        return tensor.clone()

    def empty(self, shape, dtype):
        return torch.empty(shape, dtype=dtype)

    def dtype(self, name):
        dtype = getattr(torch, name, None)
        if dtype is None:
            raise ValueError(f"torch {torch.__version__} has no {name}: give it another type, as by ToDtype")
        return dtype

    def element_bytes(self, dtype):
        return torch.empty((), dtype=dtype).element_size()

    def collate(self, samples, allocate):
        """Like default_collate, but stacks plain tensors of one shape in memory from allocate(shape, dtype)."""
        tensors = [sample[0] for sample in samples]
        first = tensors[0]
        if not all(type(t) is torch.Tensor and t.shape == first.shape and t.dtype == first.dtype and is_plain(t)
                   for t in tensors):
            data, *rest = torch.utils.data.default_collate(samples)
            return [self._formatted(data), *rest]
        return [self._stack(tensors, allocate), *torch.utils.data.default_collate([sample[1:] for sample in samples])]

    def _stack(self, tensors, allocate):
        shape, dtype = (len(tensors), *tensors[0].shape), tensors[0].dtype
        if self.channels_last and len(shape) == 4:
            out = by_rows(allocate((shape[0], shape[2], shape[3], shape[1]), dtype))
        else:
            out = allocate(shape, dtype)
        return torch.stack(tensors, out=out)

    def _formatted(self, data):
        is_of_images = self.channels_last and isinstance(data, torch.Tensor) and data.dim() == 4
        return data.contiguous(memory_format=torch.channels_last) if is_of_images else data

    def column(self, values, allocate):
        """Returns the values of one field as a tensor: numbers, or tensors or arrays of one shape and dtype. Else the list itself."""
        if dtype := dtype_of(values):
            return torch.tensor(values, dtype=getattr(torch, dtype))
        tensors = [_as_tensor(value) for value in values]
        first = tensors[0]
        if first is None or not all(t is not None and t.shape == first.shape and t.dtype == first.dtype for t in tensors):
            return values
        if not allocate or not all(type(t) is torch.Tensor and is_plain(t) for t in tensors):
            return self._formatted(torch.stack(tensors))
        return self._stack(tensors, allocate)

    def out_of_band(self, obj):
        """Returns (address, bytes, owner, function that makes the object from a buffer, its further arguments) if the object's bytes can
        stay out of the pickle; else None."""
        if not isinstance(obj, torch.Tensor) or not is_plain(obj):
            return None
        make, shape = tensor_of, tuple(obj.shape)
        if is_by_rows(obj):
            make, shape = tensor_of_rows, (shape[0], shape[2], shape[3], shape[1])
        else:
            obj = obj.contiguous()
        return obj.data_ptr(), obj.numel() * obj.element_size(), obj, make, (obj.dtype, shape)

    def begin_worker(self, number, n_workers, seed, dataset):
        """Called in a worker process. Sets torch.utils.data.get_worker_info() for the user's code. n_workers: None if it can change."""
        torch.set_num_threads(1)
        info = torch.utils.data._utils.worker
        info._worker_info = info.WorkerInfo(id=number, num_workers=n_workers, seed=seed, dataset=dataset)

    @contextlib.contextmanager
    def collating(self):
        """Hides from default_collate that this is a worker: it would needlessly put every tensor into a file in /dev/shm."""
        info = torch.utils.data._utils.worker
        told, info._worker_info = info._worker_info, None
        try:
            yield
        finally:
            info._worker_info = told


def _touch():
    """Runs the torch functions that each batch needs once, on a few bytes. The first time, torch reads its code for it from a file, which
    takes 30 ms if the file is not in memory. That happens here as part of the import, and not while a job waits for its
    first batch."""
    arrays, few = Tensors(), bytearray(64)
    for made in (arrays.of(few, torch.uint8, (2, 32)), arrays.view(few), arrays.numbers(few)):
        arrays.copy(made)


_touch()
