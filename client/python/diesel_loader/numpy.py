# SPDX-License-Identifier: Apache-2.0
"""A DataLoader over a dataset that dieseld serves, without torch: batches are NumPy arrays, as JAX takes them, too."""
from __future__ import annotations

import copy
import os

from . import dataset as served
from . import seeding
from .arrays import Arrays, collate, list_collate, pad_collate
from .assembly import pil_loader
from .loader import AUTO, Loader, check_methods, check_version, not_packed
from .mixture import Mixture

TYPE_CHECKING = False
if TYPE_CHECKING:
    import multiprocessing.context
    from collections.abc import Callable
    from typing import Any

__all__ = ["DataLoader", "Mixture", "collate", "list_collate", "pad_collate", "pil_loader"]


class DataLoader(Loader):
    """Iterates a packed dataset in batches of NumPy arrays. torch is not imported.

    dataset: the path of one, or a diesel_loader.Dataset. Any other is TypeError, with the command that packs it.
    batch_size: samples per batch.
    shuffle: chunk-wise shuffle, another order every epoch; False: the order of storage, always the same.
    seed: of the shuffle. The order is that of diesel_loader.torch.DataLoader with the same arguments.
    transform: what dieseld runs (diesel_loader.transforms, docs/loader.md; print(loader.plan())), and callables behind it; or a
        callable alone, called with each sample: an RGB PIL image where the path has an image's extension, else the stored bytes,
        a 1-D uint8 array. `loader` replaces that first step, and is called with that array. target_transform: called
        with each label.
    collate_fn: called with a list of (sample, label). Default: `collate` of this module, which stacks arrays of one
        shape, and numbers, and leaves anything else in a list.
    native: None; "require": ValueError unless dieseld runs all of the transform; False: nothing, which is a ValueError where the
        transform is of diesel_loader.transforms.
    damaged: what becomes of an image that dieseld cannot decode: "error": its batch is DamagedData, which names it; "skip":
        its batch goes without it; "zero": it is all zeros. The latter two are named in the log, and counted in n_damaged.
    group: what the daemon's status calls this job and those that get the same batches (docs/loader.md, "Several jobs, one transform"). A
        name, of up to 31 bytes: who shares with whom does not depend on it.
    cluster: what the job is called on all of its nodes: their daemons then read each chunk from storage once together
        (docs/cluster.md). Default: $TORCHELASTIC_RUN_ID (torchrun --rdzv_id), else $SLURM_JOB_ID.$SLURM_STEP_ID; "": this
        node reads for itself.
    num_workers: processes that run these functions. "auto" or None: as many as the daemon says, 0 (the trainer) included;
        an integer means exactly that. multiprocessing_context: "spawn" or "forkserver" where the trainer has threads that
        must not be forked, such as JAX's: the first worker is started with it, all others by that one.
    random_state: "batch" (default), "sample" or None: how Python's and NumPy's global generators (and torch's, if the
        functions import it) are seeded for the functions, as with diesel_loader.torch.DataLoader.
    drop_last: leave out the last batch where it is not full.
    return_ids: samples are (sample, label, number), also for collate_fn, and batches [data, labels, ids]: ids int64 [B],
        the numbers of the samples in the dataset, as dataset[number] and `dieselctl ls` have them.
    record: path of a batch log, to which a line of JSON is appended for each batch that is handed out: its samples, how
        long it was waited for, what the functions cost, sample by sample (docs/formats.md). With several ranks
        "batches.jsonl" is batches.rank0.jsonl, .... OSError at iter() if it cannot be opened; a full disk is one warning.
    rank, world_size: this process's share. Default: jax.distributed or torch.distributed where one is initialised, else
        the launcher's variables ($RANK and $WORLD_SIZE, ...; see ranks/membership.py), else the whole; found again at every
        iter(). ValueError where they contradict each other. Every rank has the same number of batches, every sample is
        delivered once an epoch.
    window_chunks: chunks whose samples are shuffled together; 0: 2 for each lane, and 8 where there is one, whatever the
        daemon's settings.
    lanes: number of parts that the dataset is cut into, 1 to 65536 and at most the samples. Each lane is shuffled by itself, and
        each step has equally many samples of each, so that a node reads and keeps the lanes of its ranks only (docs/cluster.md).
        None: world_size, and 1 without shuffle. A resumed epoch ends with its own lanes.
    drift: m of 1/m, the share of the chunks that is dealt to lanes again in each epoch, 0 to 65536. None, 0: no chunk.
    bucket_by_length: samples of similar length in bytes come in one batch: so many consecutive batches, at most 24, are
        sorted and cut again (True: 8). Each sample still comes once an epoch; the order is still a function of the above;
        all ranks have their long batches at the same steps. pad_collate pads.
    timeout: seconds to wait for a daemon that went away; then TimeoutError. 0: 60 s.
    daemon: of a dataset that is given as a path, as of diesel_loader.Dataset.
    version: of the dataset (diesel_loader.Dataset). Without it the newest; load_state_dict() then opens the one that was read.
    prefetch_factor, persistent_workers, worker_init_fn: as of diesel_loader.torch.DataLoader.

    A batch is [data, labels]: labels int64 [B], numbered as dataset.classes are (-1 without). Without functions, data is
    one uint8 array [B, n] when all samples of the dataset have the same length, else a list of B 1-D uint8
    arrays. With transforms that dieseld runs, and none behind them, it is one array [B, ...] of the shape and type that they
    give. Arrays of a whole batch view shared memory that goes back to the daemon when the last reference is gone; a caller that
    keeps many batches gets copies instead. All may be written to, and what workers give back may be kept.

    Exceptions of the functions, and workers that die: as with diesel_loader.torch.DataLoader. Raises
    FileNotFoundError, PermissionError, DamagedData, ConnectionError, TimeoutError.
    """

    dataset: served.Dataset
    batch_size: int
    drop_last: bool

    def __init__(self, dataset: str | os.PathLike[str] | served.Dataset, batch_size: int = 1, shuffle: bool = False, *,
                 seed: int = 0, transform: Callable[[Any], Any] | None = None,
                 loader: Callable[[Any], Any] | None = None, target_transform: Callable[[int], Any] | None = None,
                 collate_fn: Callable[[list[Any]], Any] | None = None, num_workers: int | str | None = AUTO,
                 drop_last: bool = False, timeout: float = 0, worker_init_fn: Callable[[int], Any] | None = None,
                 multiprocessing_context: str | multiprocessing.context.BaseContext | None = None,
                 prefetch_factor: int | None = None, persistent_workers: bool = True,
                 rank: int | None = None, world_size: int | None = None, window_chunks: int = 0,
                 lanes: int | None = None, drift: int | None = None,
                 random_state: str | None = seeding.BATCH, return_ids: bool = False,
                 record: str | os.PathLike[str] | None = None, bucket_by_length: bool | int = False,
                 daemon: str = served.AUTO, native: bool | str | None = None, damaged: str = "error",
                 group: str | None = None, cluster: str | None = None, version: int | None = None) -> None:
        if isinstance(dataset, (str, os.PathLike)):
            dataset = served.Dataset(dataset, daemon=daemon, version=version)
        elif isinstance(dataset, served.Dataset):
            check_methods(dataset)
            dataset = copy.copy(dataset)
        else:
            raise TypeError(not_packed(dataset))
        check_version(dataset, version)
        if batch_size is None:
            raise ValueError("batch_size must be an integer of at least 1, not None")
        super().__init__(
            Arrays(), dataset, (loader, transform, target_transform, collate_fn), batch_size=batch_size, shuffle=shuffle,
            seed=seed, num_workers=num_workers, drop_last=drop_last, timeout=timeout, worker_init_fn=worker_init_fn,
            multiprocessing_context=multiprocessing_context, prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers, rank=rank, world_size=world_size, window_chunks=window_chunks,
            lanes=lanes, drift=drift, random_state=random_state, return_ids=return_ids, record=record, bucket_by_length=bucket_by_length,
            native_transform=native, damaged=damaged, group=group, cluster=cluster, version=version)
        self._heeded = self._settings()
