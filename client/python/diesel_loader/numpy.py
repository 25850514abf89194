# SPDX-License-Identifier: Apache-2.0
"""A DataLoader over a dataset that dieseld serves, without torch: batches are NumPy arrays, which JAX also accepts."""
from __future__ import annotations

import copy
import os

from . import dataset as served
from .arrays import Arrays, collate, list_collate, pad_collate
from .assembly import pil_loader
from .loader import AUTO, Loader, check_methods, not_packed
from .mixture import Mixture
from .options import Batches, Decode, Job, Order, check_groups, check_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    import multiprocessing.context
    from collections.abc import Callable
    from typing import Any

__all__ = ["Batches", "DataLoader", "Decode", "Job", "Mixture", "Order", "collate", "list_collate", "pad_collate", "pil_loader"]


class DataLoader(Loader):
    """Iterates a packed dataset in batches of NumPy arrays. torch is not imported.

    Ranks also come from jax.distributed. multiprocessing_context: "spawn" or "forkserver" where the trainer has threads that must
    not be forked, such as JAX's. collate_fn: default `collate` of this module, which stacks arrays of one shape, and numbers, and
    leaves anything else in a list.
    """

    __doc__ = f"{__doc__}\n{Loader.__doc__}"

    dataset: served.Dataset
    batch_size: int
    drop_last: bool

    @check_names
    def __init__(self, dataset: str | os.PathLike[str] | served.Dataset, batch_size: int = 1, shuffle: bool = False, *,
                 num_workers: int | str | None = AUTO, collate_fn: Callable[[list[Any]], Any] | None = None, drop_last: bool = False,
                 timeout: float = 0, worker_init_fn: Callable[[int], Any] | None = None,
                 multiprocessing_context: str | multiprocessing.context.BaseContext | None = None,
                 prefetch_factor: int | None = None, persistent_workers: bool = True,
                 seed: int = 0, transform: Callable[[Any], Any] | dict[str, Callable[[Any], Any]] | None = None,
                 order: Order = Order(), decode: Decode = Decode(), batches: Batches = Batches(), job: Job = Job()) -> None:
        check_groups(order=order, decode=decode, batches=batches, job=job)
        for name in ("device", "memory_format"):
            if getattr(batches, name) is not None:
                raise ValueError(f"{name} applies only to torch tensors: use diesel_loader.torch.DataLoader")
        if isinstance(dataset, (str, os.PathLike)):
            dataset = served.Dataset(dataset)
        elif isinstance(dataset, served.Dataset):
            check_methods(dataset)
            dataset = copy.copy(dataset)
        else:
            raise TypeError(not_packed(dataset))
        if batch_size is None:
            raise ValueError("batch_size must be an integer of at least 1, not None")
        super().__init__(
            Arrays(), dataset, (decode.loader, transform, decode.target_transform, collate_fn),
            {"order": order, "decode": decode, "batches": batches, "job": job}, batch_size=batch_size, shuffle=shuffle, seed=seed,
            num_workers=num_workers, drop_last=drop_last, timeout=timeout, worker_init_fn=worker_init_fn,
            multiprocessing_context=multiprocessing_context, prefetch_factor=prefetch_factor, persistent_workers=persistent_workers)
        self._heeded = self._settings()
