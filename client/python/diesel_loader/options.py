# SPDX-License-Identifier: Apache-2.0
"""Options of a DataLoader beyond PyTorch's arguments, in four groups. A DataLoader raises ValueError for an
invalid value, and TypeError for an object that is no such group."""
from __future__ import annotations

import difflib
import functools
import inspect
import operator
from dataclasses import dataclass, fields

from . import seeding

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from typing import Any, TypeVar

    import torch

    Init = TypeVar("Init", bound=Callable[..., None])


@dataclass(frozen=True)
class Order:
    """The order of samples, beyond shuffle, seed, ranks and batch size: DataLoader(..., order=Order(lanes=4)).

    window_chunks: chunks whose samples are shuffled together; 0 (default): 2 for each lane, and 8 where there is one, whatever the
        daemon's settings.
    lanes: number of parts that the dataset is cut into, 1 to 65536 and at most the samples. Each lane is shuffled
        separately, and each step has equally many samples of each, so that a node reads and keeps the lanes of its ranks
        only (docs/explanation/cluster.md). None (default): the number of ranks, and 1 without shuffle. A resumed epoch
        ends with its own lanes.
    drift: m of 1/m, the share of the chunks that is dealt to lanes again in each epoch, 0 to 65536. None (default), 0: no chunk.
    bucket_by_length: samples of similar length in bytes come in one batch, so that padding is little. This number of
        consecutive batches, 0 to 24, are sorted and cut again (True: 8; default: none). Each sample still comes once an
        epoch, the order is still reproducible, and all ranks have their long batches at the same steps. pad_collate
        pads.
    """

    window_chunks: int = 0
    lanes: int | None = None
    drift: int | None = None
    bucket_by_length: bool | int = False


@dataclass(frozen=True)
class Decode:
    """Options for turning stored bytes into samples and labels, in addition to `transform`: DataLoader(...,
    decode=Decode(damaged="skip")).

    loader: called with the stored bytes, a 1-D uint8 tensor or array; gives what `transform` is called with. None (default): an
        RGB PIL image where the path has an image's extension, else the bytes. If samples have fields: called with the bytes of each
        image. It may also be a dict {field: function}.
    target_transform: called with each label. None (default): labels stay numbers.
    native: which of the transforms dieseld runs (docs/how-to/transforms.md; print(loader.plan())). None (default): the
        longest beginning that it supports; False: none, which raises ValueError for transforms of
        diesel_loader.transforms; "require": ValueError unless it runs all of them, or, if samples have fields, all of one field.
    damaged: handling of an image that dieseld cannot decode. "error" (default): its batch raises DamagedData, which
        names it; "skip": its batch lacks it; "zero": it is all zeros (not for samples
        with fields). The latter two are named in the log, and counted in n_damaged.
    random_state: how Python's, NumPy's and torch's global generators are seeded for the functions. "batch" (default): once a batch,
        from (seed, epoch, rank, world size, batch size, batch); "sample": before each sample, from (seed, epoch, sample), so
        that batch size and ranks do not matter either, at about 15 us per sample; None: not at all, as in PyTorch. With the
        first two, random augmentation is the same with any number of workers, and the trainer's own generators are left
        alone. Functions must seed their own generators.
    """

    loader: Callable[[Any], Any] | dict[str, Callable[[Any], Any]] | None = None
    target_transform: Callable[[int], Any] | None = None
    native: bool | str | None = None
    damaged: str = "error"
    random_state: str | None = seeding.BATCH


@dataclass(frozen=True)
class Batches:
    """Contents of a batch that is handed out, and its place: DataLoader(..., batches=Batches(device="cuda")).

    device: "cuda", "cuda:1", 1 or a torch.device: where the tensors are when a batch is handed out. They are copied on a stream of
        their own, out of memory that is page-locked once, and the next batch's copy begins before this one is handed out
        (docs/how-to/batches.md). None (default) or "cpu": in host memory. ValueError for any other, with an order of one's own, and
        without torch; RuntimeError where torch finds no GPU.
    memory_format: torch.channels_last: batches [B, C, H, W] lie in memory as [B, H, W, C] does, which is how the daemon writes them
        where it runs the whole transform; else workers put them so. None (default): as they come. ValueError with
        collate_fn, with an order of one's own, and without torch.
    return_ids: True: samples are (sample, label, index), also for collate_fn, and batches [data, labels, ids]. ids,
        int64 [B], are the indices of the samples in the loader's dataset, as in dataset[i] and dataset.sample_path(i). In a
        subset, dataset.number(i) is the number that `dieselctl ls` shows. Default: False.
    record: path of a batch log, to which a line of JSON is appended for each batch that is handed out. The line has its
        samples, the wait for it, and the cost of the functions, sample by sample (docs/reference/formats.md). With
        several ranks "batches.jsonl" is batches.rank0.jsonl, .... OSError at iter() if it cannot be opened; a full disk
        is one warning. None (default): no log.
    """

    device: str | int | torch.device | None = None
    memory_format: torch.memory_format | None = None
    return_ids: bool = False
    record: str | os.PathLike[str] | None = None


@dataclass(frozen=True)
class Job:
    """The job that this process is a part of: DataLoader(..., job=Job(rank=0, world_size=1)).

    rank, world_size: this process's share. None (default): from torch.distributed or jax.distributed if one is
        initialised, else from the launcher's variables, else the whole dataset. These variables are $RANK and
        $WORLD_SIZE, or $LOCAL_RANK and $NODE_RANK as Lightning sets them (see ranks/membership.py). The ranks are found
        again at every iter(), so a loader may be made before its ranks exist. ValueError where they contradict each
        other. Every rank has the same number of batches, and every sample is delivered once an epoch.
    cluster: name of the job on all of its nodes: their daemons then read each chunk from storage once together
        (docs/explanation/cluster.md). Up to 63 bytes. None (default): $TORCHELASTIC_RUN_ID (torchrun --rdzv_id), else
        $SLURM_JOB_ID.$SLURM_STEP_ID; "": this node reads for itself.
    group: display name in the daemon's status for this job and those that get the same batches (docs/how-to/several-ranks.md, "Several jobs, one
        transform"). 1 to 31 bytes; it does not affect which jobs share. None (default): no name.
    """

    rank: int | None = None
    world_size: int | None = None
    cluster: str | None = None
    group: str | None = None


GROUPS = {"order": Order, "decode": Decode, "batches": Batches, "job": Job}
GROUP_OF = {field.name: group for group, kind in GROUPS.items() for field in fields(kind)}
OF_DATASET = ("daemon", "socket", "version", "fields")


def check_groups(**given: Any) -> None:
    """Raises TypeError for an object of another type."""
    for name, value in given.items():
        if not isinstance(value, GROUPS[name]):
            raise TypeError(f"{name} must be {GROUPS[name].__name__}(...), not {value!r}")


def check_names(init: Init) -> Init:
    """Returns an __init__ that raises TypeError for unknown arguments, with the code to write instead."""
    known = list(inspect.signature(init).parameters)

    @functools.wraps(init)
    def checked(self: Any, *arguments: Any, **options: Any) -> None:
        for name, value in options.items():
            if name not in known:
                raise TypeError(_instead(name, value, known))
        init(self, *arguments, **options)
    return checked  # type: ignore[return-value]


def _instead(name: str, value: Any, known: list[str]) -> str:
    if name in GROUP_OF:
        return f"DataLoader takes {name} in a group of options: write {_in_group(name, repr(value))}"
    if name in OF_DATASET:
        return f"{name} is an option of the dataset: write DataLoader(diesel_loader.Dataset(PATH, {name}={value!r}), ...)"
    near = difflib.get_close_matches(name, [*known, *GROUP_OF], 1)
    if not near:
        return f"DataLoader has no argument {name}: help(DataLoader) lists its arguments"
    return f"DataLoader has no argument {name}: did you mean {_in_group(near[0], '...') if near[0] in GROUP_OF else near[0] + '=...'}?"


def _in_group(name: str, value: str) -> str:
    return f"{GROUP_OF[name]}={GROUPS[GROUP_OF[name]].__name__}({name}={value})"


def integer(name: str, value: Any, least: int, more: str = "") -> int:
    """Returns the value as an int; accepts NumPy's integers. Raises ValueError for other types or below `least`."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or number < least:
        raise ValueError(f"{name} must be an integer of at least {least}{more}, not {value!r}")
    return number
