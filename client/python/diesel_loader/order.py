# SPDX-License-Identifier: Apache-2.0
"""Computes the order of an epoch's samples, as sample numbers, without opening a session."""
import ctypes
import os
import warnings

from . import errors, native
from .native import byref, lib



def say_repeated(epoch: int) -> None:
    """Warns the caller of set_epoch()."""
    warnings.warn(f"set_epoch({epoch}) repeats epoch {epoch}: the restored state is from its end, and goes on with epoch {epoch + 1}. "
                  "To go on there: for epoch in range(loader.epoch, n_epochs)", RuntimeWarning, stacklevel=4)


def flags(shuffle, drop_last):
    """Returns the flags of native.SessionOptions."""
    return (native.SHUFFLE if shuffle else 0) | (native.DROP_LAST if drop_last else 0)


def n_batches(n_samples, world_size, batch_size, drop_last):
    """Returns the number of batches that each rank has in an epoch."""
    return lib.diesel_n_batches(n_samples, world_size, batch_size, flags(False, drop_last))


def first_batch(n_samples, start, world_size, batch_size, drop_last):
    """Returns the batch at which each rank continues after `start` samples of an epoch; None: fewer samples are left
    than ranks."""
    found = ctypes.c_uint64()
    if lib.diesel_first_batch(n_samples, start, world_size, batch_size, flags(False, drop_last), byref(found)) < 0:
        return None
    return found.value


def position(n_samples, start, world_size, batch_size, drop_last, batch):
    """Returns how many samples of the epoch all ranks together had before that batch."""
    return lib.diesel_position(n_samples, start, world_size, batch_size, flags(False, drop_last), batch)


class EpochOrder:
    """Batches of one rank, as dataset indices. options: fields of native.SessionOptions; window_chunks must be at least
    1."""

    def __init__(self, dataset, **options):
        self._dataset = dataset  # keeps the dataset's chunk table alive
        self._subset = dataset.subset  # likewise
        self._handle, text = ctypes.c_void_p(), ctypes.create_string_buffer(native.ERROR_BYTES)
        options["subset"] = None if self._subset is None else self._subset.handle
        result = lib.diesel_order_new(dataset.handle, byref(native.SessionOptions(**options)), byref(self._handle), text,
                                      len(text))
        if result < 0:
            raise errors.from_result(result, os.fsdecode(text.value), dataset.path)
        self._numbers = (native.c_uint64 * lib.diesel_order_max_batch(self._handle))()

    def __len__(self):
        return lib.diesel_order_n_batches(self._handle)

    def batch(self, k):
        """Returns the sample indices of batch k, as a list."""
        count = native.c_uint32()
        result = lib.diesel_order_batch(self._handle, k, self._numbers, byref(count))
        if result < 0:
            raise errors.from_result(result, f"no batch {k} of {len(self)}: {os.strerror(-result)}")
        if self._subset is not None:
            self._subset.to_indices(self._numbers, count.value)
        return self._numbers[:count.value]

    def __del__(self):
        lib.diesel_order_free(self._handle)
