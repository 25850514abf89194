# SPDX-License-Identifier: Apache-2.0
"""Base of the DataLoaders, whatever their batches are made of: options of the session, streams, epochs, ranks,
resuming.

torch.py and numpy.py have the classes that users see.
"""
from __future__ import annotations

import copy
import ctypes
import functools
import logging
import operator
import os
import shlex
import threading
import warnings
import weakref

from . import bucketing, errors, fingerprint, frameworks, native, order, seeding
from .assembly import assembly_of, pil_loader
from .batch_log import BatchLog
from .fields.assembly import check_named
from .fields.decode import LABEL, SPECIAL, listed
from .native import lib
from .options import GROUPS, integer
from .ranks import agreement, dealing, membership
from .recipe.codec import begins_with_codec, check_no_codec, codec_plan
from .recipe.damage import Damage
from .recipe.plan import Decoded, Plan, flatten, in_fields, make_plan, whole_in_python
from .recipe.recipe import DAMAGE, NotUnderstood
from .session import Session
from .stream import Stream, usable_cores
from .worker import Setup

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

log = logging.getLogger("diesel_loader")
STATE_VERSION = 2
LOOKED_AT = 8  # samples in which a field is looked for
IMAGES = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")
BEFORE_IT_WAS_KNOWN = {"bucket_by_length": 0, "subset": None, **dealing.BEFORE_THEY_WERE}  # values for older states without these keys
DEFAULT_RECONNECT_S = 60
AUTO = "auto"
DEFAULT_DEPTH = 2     # prefetch_factor
SPARE_SLOTS = 3
MAX_CORES_HELD = 16   # slots take memory, and on a large machine the daemon may request few workers


_choosing = threading.RLock()  # guards the choice of a stream for an iterator


def _choose_alone():
    """Replaces the lock in a forked child, which lacks the thread that may have held it."""
    global _choosing
    _choosing = threading.RLock()


os.register_at_fork(after_in_child=_choose_alone)


class Loader:
    """Common part of both DataLoaders.

    dataset: the path of one, or a Dataset. Any other type raises TypeError with the command that packs it.
    batch_size: samples per batch.
    shuffle: chunk-wise shuffle, another order every epoch; False: the order of storage, always the same.
    seed: of the shuffle, an integer of at least 0. The order is a pure function of (dataset version, seed, epoch, lanes, drift,
        world size x batch size): the same on any machine, whatever the daemon's settings, and with torch and without.
    transform: transforms that dieseld runs (diesel_loader.transforms, docs/how-to/transforms.md; print(loader.plan())),
        and callables after them; or only a callable. It is called with each sample: an RGB PIL image if the path has an
        image's extension, else the stored bytes, 1-D uint8.
    order, decode, batches, job: an Order, Decode, Batches or Job of this module, for less common options.
    num_workers: processes that run the functions: transform, collate_fn, and those of `decode`. "auto" (default) or
        None: as many as the daemon requests, at every batch. It may request 0: then the trainer does the work,
        because for cheap samples the hand-off would cost more than it saves. Without a request, as many as there are
        usable cores. An integer sets the exact number. Without functions, or with list, tuple or list_collate as the only
        one, there is no Python work and no process: batches come from shared memory.
    collate_fn: called with a list of (sample, label). list_collate leaves the samples in a list.
    drop_last: leave out the last batch if it is not full.
    timeout: seconds to wait for a daemon that went away; then TimeoutError. 0: 60 s.
    prefetch_factor, worker_init_fn, multiprocessing_context: as in PyTorch; worker_init_fn gets the lowest number that no other
        worker has. With "spawn" or "forkserver", the first worker is started so, and all others by that one.
    persistent_workers: whether workers, with their copies of the functions, stay from epoch to epoch while nothing is
        changed: True by default, unlike in PyTorch.

    A batch is [data, labels]: labels int64 [B], numbered like dataset.classes (-1: no class). Without functions, data
    is one uint8 array or tensor [B, n] when all samples of the dataset have the same length, else a list of B 1-D ones.
    With transforms that dieseld runs, and no function after them, it is one [B, ...] of their output shape and type.
    Arrays of a whole batch view shared memory that goes back to the daemon when the last reference is gone. A caller
    that keeps many batches gets copies instead. All may be written to, and results of workers may be kept.

    If samples have fields (docs/how-to/several-fields.md), a batch is a dict {field: values}. Then transform is called with the dict of
    each sample, or is a dict {field: transforms}, of which dieseld runs those of one field. collate_fn is called with a list of
    dicts.

    An exception of a function is raised here with the worker's traceback as its text; the following next() continues
    with the next batch. A worker that dies is replaced, and its batch done again; if that kills another one, RuntimeError
    names the batch. Each running iterator has its own workers; state_dict() describes the iterator used last.

    Raises FileNotFoundError, PermissionError, DamagedData, ConnectionError, TimeoutError and ValueError. Raises TypeError
    for an unknown argument, with the name to write instead.
    """

    dataset: Any  # each subclass declares its type
    batch_size: Any
    drop_last: Any

    def __init__(self, arrays: Any, dataset: Any, functions: tuple[Any, ...], groups: dict[str, Any], *, batch_size: Any, shuffle: Any,
                 seed: Any, num_workers: Any, drop_last: Any, timeout: Any, worker_init_fn: Any, multiprocessing_context: Any,
                 prefetch_factor: Any, persistent_workers: Any, served: bool = True) -> None:
        # arrays: as in Assembly. functions: loader, transform, target_transform and collate_fn, each a callable or None. groups:
        # the option groups of options.py, by name. served: False if the subclass gives the order instead of dieseld.
        how, decode, batches, job = (groups[name] for name in GROUPS)
        for name, value in (("record", batches.record), ("bucket_by_length", how.bucket_by_length)):
            if value and not served:
                raise ValueError(f"{name} applies only to batches that dieseld serves: leave out sampler, batch_sampler and batch_size=None")
        if (job.rank is None) != (job.world_size is None):
            raise ValueError("rank and world_size must be given together")
        if decode.random_state not in (None, seeding.BATCH, seeding.SAMPLE):
            raise ValueError(f'random_state must be "{seeding.BATCH}", "{seeding.SAMPLE}" or None, not {decode.random_state!r}')
        self._given = None if job.rank is None else (integer("rank", job.rank, 0), integer("world_size", job.world_size, 1))
        self._seed = 0 if seed is None else integer("seed", seed, 0)
        self._served = served
        self.shuffle = bool(shuffle)
        self.window_chunks = integer("window_chunks", how.window_chunks, 0)
        self.lanes, self.drift = how.lanes, how.drift
        auto = num_workers is None or num_workers == AUTO
        workers = None if auto else integer("num_workers", num_workers, 0, f', or "{AUTO}"')
        if batch_size is not None:
            batch_size = integer("batch_size", batch_size, 1)
            if batch_size > native.BATCH_MAX:
                raise ValueError(f"batch_size must be at most {native.BATCH_MAX}, not {batch_size}")
        depth = DEFAULT_DEPTH if prefetch_factor is None else integer("prefetch_factor", prefetch_factor, 1)
        if timeout < 0:
            raise ValueError(f"timeout must be at least 0, not {timeout!r}")
        self.dataset, self.batch_size, self.drop_last = dataset, batch_size, drop_last
        self.timeout, self.worker_init_fn = timeout, worker_init_fn
        self._arrays, self._random_state = arrays, decode.random_state
        self._asked = (functions, workers, how.bucket_by_length, decode.native, decode.damaged)
        self._fit()
        self._return_ids = bool(batches.return_ids)
        self._record = None if batches.record is None else os.path.abspath(os.fspath(batches.record))
        self._batch_log: BatchLog | None = None
        self._worker_options = {"context": multiprocessing_context, "depth": depth, "persistent": persistent_workers,
                                "timeout": timeout}
        self._group = _group_name(job.group)
        self._cluster = _cluster_name(job.cluster)
        self._next_epoch = 0      # epoch that the next iter() starts with
        self._next_batch = self._next_samples = 0  # samples: over all ranks
        self._start: tuple[int, int] | None = None  # (epoch, samples of it that were consumed before, in other steps)
        self._kept: Any = None    # (resumed epoch, the (lanes, drift) with which it began)
        self._grid: Any = None    # arguments of order.position(), for _position
        self._dealt: Any = None   # (lanes, drift) of _position
        self._is_told = False     # set_epoch() or load_state_dict() was called since the last iteration began
        self._state: Any = None   # state of the next iterator's generator; None: without a generator
        self._began_with: dict[Any, tuple[int, int]] = {}  # seed and epoch for each generator state
        self._resumed = False     # True after load_state_dict(): set_epoch() with the same epoch keeps the batch
        self._position: Any = None  # (epoch, batches delivered of it); None: no epoch is under way
        self._stream: Any = None  # stream of the newest iterator
        self._streams: list[Any] = []
        self._ranks = None        # (rank, world size) of the streams
        self._has_said = self._has_said_unfair = False
        self._number: str | None = None
        self._has_agreed = False  # the ranks have agreed on everything except the place
        self._n_agreed = 0        # number of iterations that the ranks have compared
        self._is_alone = False    # the other ranks did not take part
        self._generation = 0      # number of the settings with which streams are made
        self._heeded: Any         # _settings() of the last iteration; subclasses set it at the end of __init__
        if self._given:
            self._check_ranks(self._given, len(dataset), dataset.path)

    def _fit(self):
        """Derives the other attributes from the arguments and the dataset, which may have changed its version."""
        functions, workers, bucket_by_length, native_transform, damaged = self._asked
        arrays, dataset = self._arrays, self.dataset
        self._plan = self._make_plan(arrays, dataset, functions, self._served, bool(bucket_by_length), native_transform, damaged)
        self._decoded = Decoded(self._plan) if self._plan.recipe else None
        is_list = self._served and not self._decoded and functions == (None, None, None, arrays.list_collate) and not dataset.reader
        # Fields are found and copied where the daemon has them.
        self._views = is_list or self._served and dataset.reader is not None and not self._decoded
        if is_list:
            functions = (None, None, None, None)
        loader, transform, target_transform, collate_fn = functions
        has_work = assembly_of(arrays, dataset, loader, transform, target_transform, collate_fn, None, decoded=self._decoded).has_work
        auto = workers is None
        only_lists = not (loader or transform or target_transform) and any(collate_fn is one for one in (list, tuple, arrays.list_collate))
        if self._served and (only_lists or not has_work):
            auto, workers = False, 0  # passing a worker's copies on takes several times as long as copying here
            if self._decoded and arrays.of_torch and arrays.channels_last:
                self._decoded.make_channels_last()
        self.num_workers = usable_cores() if workers is None else workers
        self._functions, self._auto = functions, auto
        self.bucket_by_length = _bucket_batches(bucket_by_length) if not dataset.equal_bytes else 0
        self.lanes, self.drift = dealing.check(self.lanes, self.drift, len(dataset), dataset.path)
        self._damage = Damage(dataset, damaged == "skip")
        uses_labels = not target_transform and (not dataset.reader or dataset.reader.has(LABEL))
        if uses_labels and (outside := dataset.no_class()):
            warnings.warn(f"{dataset.path}: {outside} is in no class folder, and has label -1, which losses reject or read as the last "
                          f"class: use dataset.filter(classes=dataset.classes) to keep only samples with a class", stacklevel=3)

    @staticmethod
    def _make_plan(arrays, dataset, functions, served, bucketed, native_transform, damaged):
        """Decides which of the transforms dieseld runs. Raises ValueError if the options require more than it supports."""
        loader, transform = functions[:2]
        if native_transform not in (None, True, False, "require"):
            raise ValueError(f'native must be None, False or "require", not {native_transform!r}')
        if damaged not in DAMAGE:
            raise ValueError(f'damaged must be "error", "skip" or "zero", not {damaged!r}')

        def plan_of(transform, loader, samples, why):
            """Returns the plan of a transform of stored samples. why: why dieseld cannot run any of it, or None."""
            by_codec = begins_with_codec(transform)
            made = make_plan(transform, samples.first) if transform and not by_codec else Plan([])
            if native_transform is False:
                why = "native=False"
            elif not arrays.of_torch and not made.is_ours and not by_codec:
                why = "for NumPy arrays, dieseld runs only transforms of diesel_loader.transforms"
            elif loader is not None and loader is not pil_loader:
                why = "a Python function loads the samples"
            elif not served:
                why = "a sampler or batch_size=None makes PyTorch read the samples by number"
            elif bucketed and not dataset.equal_bytes:
                why = "bucket_by_length needs samples as stored, to sort them by length"
            elif made.recipe and made.recipe.kind == native.RECIPE_IMAGE and not why:
                why = samples.no_image()
            if by_codec:
                made = codec_plan(transform, dataset, why)
            elif transform:
                check_no_codec(flatten(transform))
            if why:
                made = whole_in_python(transform, why) if transform else made
            made.check_ours()
            return made

        if not dataset.reader:
            made = plan_of(transform, loader, _Samples(dataset), None)
        elif isinstance(transform, dict):
            check_named(dataset, loader, transform)
            made = in_fields(transform, lambda name, why: plan_of(
                transform[name], loader.get(name) if isinstance(loader, dict) else loader, _Field(dataset, name),
                "it is no stored field" if name in SPECIAL else why))
            if made.recipe and damaged == "zero":
                raise ValueError('damaged="zero" applies only to samples without fields: damaged="skip" leaves out samples with a damaged field')
        else:
            made = whole_in_python(transform, "samples have fields: give transform={FIELD: ...}") if transform else Plan([])
            made.check_ours()
        if native_transform == "require" and (made.recipe is None or made.rest):
            raise ValueError(f'native="require", but dieseld cannot run the whole transform:\n{made}')
        if made.recipe:
            arrays.dtype(made.recipe.dtype)
            made.recipe.damage = DAMAGE[damaged]
        elif damaged != "error":
            raise ValueError(f'damaged="{damaged}" applies only to samples that dieseld decodes, but this loader has none:\n'
                             f'{made if made.steps else "it has no transform= that dieseld could run, so omit damaged="}')
        return made

    # Methods that a subclass may override

    def _told_ranks(self):
        """Returns (rank, world size) as the user set them; None: not set, so they must be detected."""
        return self._given

    def _told_epoch(self):
        """Returns the epoch with which the next iter() must begin; None: the following one."""
        return None

    def _begin_epoch(self):
        """Called when the first batch of an iterator is requested."""

    def _end_epoch(self):
        """Called when another batch is requested after the last one of an iterator."""

    def _hand_out(self, batch, is_last):
        """Returns the batch in the form that the user gets."""
        return batch

    # Settings that users may change, also in place

    def _functions_now(self):
        """Returns loader, transform, target_transform and collate_fn for use from now on."""
        return self._asked[0]

    def _settings(self) -> tuple[list[Any], bytes | None, dict[str, Any]]:
        """Returns the settings of streams: functions, a fingerprint of their state, and values."""
        functions = self._functions_now()
        state = fingerprint.of(*functions) if any(functions) else b""
        return [*functions, self.worker_init_fn, self.dataset], state, self._values()

    def _values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("num_workers", "batch_size", "drop_last", "shuffle", "window_chunks",
                                                       "lanes", "drift", "bucket_by_length", "timeout")}

    def _heed(self):
        """Applies changes made since the last iteration, like PyTorch, whose workers live for one epoch."""
        things, state, values = self._settings()
        was_things, was_state, was_values = self._heeded
        if state is not None and (state, values) == (was_state, was_values) and all(map(operator.is_, things, was_things)):
            return
        _, workers, bucket_by_length, *more = self._asked
        if self.num_workers != was_values["num_workers"]:
            workers = integer("num_workers", self.num_workers, 0)
        if self.bucket_by_length != was_values["bucket_by_length"]:
            bucket_by_length = self.bucket_by_length
        self._asked = (tuple(things[:4]), workers, bucket_by_length, *more)
        self._fit()
        self._generation += 1  # running iterators continue with their old settings
        self._heeded = things, state, self._values()

    # Methods for users

    def plan(self) -> Plan:
        """Where each of the transforms runs, and why: print the result."""
        return self._plan

    @property
    def n_damaged(self) -> int:
        """Number of samples that could not be decoded: batches lack them (damaged="skip") or have zeros for them ("zero")."""
        return self._damage.n

    @property
    def seed(self) -> int:
        """The seed of the shuffle."""
        return self._seed

    @property
    def rank(self) -> int:
        """This process's rank, as far as known now."""
        return self._find_ranks()[0]

    @property
    def world_size(self) -> int:
        """Number of ranks that share the dataset, as far as known now."""
        told = self._told_ranks()
        return told[1] if told else membership.world_size(os.environ, frameworks.group())

    def _find_ranks(self):
        return self._told_ranks() or membership.find(os.environ, frameworks.group())

    @staticmethod
    def _check_ranks(ranks, n_samples, path):
        rank, world_size = ranks
        if not 0 <= rank < world_size:
            raise ValueError(f"rank {rank} must be below world_size ({world_size})")
        if n_samples < world_size:
            raise ValueError(f"{path} has {n_samples} samples, fewer than the {world_size} ranks that share it")

    def __len__(self) -> int:
        """Batches per epoch of this rank: the same number on every rank."""
        return self._n_batches(self.world_size)

    def _n_batches(self, world_size):
        return order.n_batches(len(self.dataset), world_size, self.batch_size, self.drop_last)

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration run this epoch; without this call, each iteration runs the following epoch. The
        next iteration may be an iterator that was asked for no batch yet. After load_state_dict() to the middle of
        the same epoch, the iteration continues there."""
        self._go_to(integer("epoch", epoch, 0))

    @property
    def epoch(self) -> int:
        """The epoch of the iteration under way, or else of the next one, so that a resumed loop is
        `for epoch in range(loader.epoch, 90)`."""
        return self._position[0] if self._position else self._next_place()[0]

    def _go_to(self, epoch):
        self._is_told = True
        if self._resumed and not self._next_samples and epoch == self._next_epoch - 1:
            order.say_repeated(epoch)
        if not (self._resumed and epoch == self._next_epoch):
            self._begin_with(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Returns the position of the iteration, for load_state_dict(): small, JSON-safe, the same on every rank.

        Valid for any number of ranks and any batch size: it counts the samples that all ranks together consumed, and
        the ranks continue with the rest. With bucket_by_length=n, the number of ranks may change only after n batches,
        because each rank regroups its own."""
        self._needs_order("state_dict")
        if self._position:
            epoch, batch = self._position
            samples, (_, _, world_size, batch_size, _), dealt = order.position(*(*self._grid, batch)), self._grid, self._dealt
        else:
            epoch, batch = self._next_place()
            samples, world_size, batch_size = self._next_samples, self.world_size, self.batch_size
            dealt = self._lanes_of(epoch, world_size)
        grouped = {"batch": batch, "batch_size": batch_size, "global_batch_size": batch_size * world_size} if self.bucket_by_length else {}
        return {"version": STATE_VERSION, "epoch": epoch, "samples": samples, **grouped, **self._order(dealt)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Makes the next iteration continue after the last batch that was delivered when `state` was taken, in the
        version of the dataset that was read then. That version is opened again, unless the dataset was opened with a version of
        its own.

        Raises ValueError when the order would not be the same (another seed, another subset, ...), or when fewer
        samples are left than ranks. Raises FileNotFoundError if the snapshot of that version is no longer kept."""
        self._needs_order("load_state_dict")
        if state.get("version") != STATE_VERSION:
            raise ValueError(f"cannot resume: the state has format version {state.get('version')}, but this loader supports only {STATE_VERSION}")
        self._go_to_version(state.get("dataset_version"))
        self._adopt(state)
        dealt = dealing.resumed(state, self.lanes, self.drift, len(self.dataset), self.dataset.path)
        for name, value in self._order(dealt).items():
            was = state.get(name, BEFORE_IT_WAS_KNOWN.get(name))
            if was != value:
                raise ValueError(f"cannot resume: {name} was {was}, now it is {value}")
        if not 0 <= state["samples"] <= len(self.dataset):
            raise ValueError(f"cannot resume: the state is at sample {state['samples']}, but the dataset has {len(self.dataset)}")
        self._check_groups(state)
        self._next_epoch, self._next_samples = state["epoch"], state["samples"]
        self._kept = (state["epoch"], dealt) if state["samples"] else None
        self._settle(self.world_size)
        self._position = None
        self._resumed = self._is_told = True

    def _go_to_version(self, version):
        """Switches to the version of a resumed state, unless the dataset was opened with a certain version."""
        if version == self.dataset.version or not isinstance(version, int):
            return
        if self.dataset.is_pinned:
            raise ValueError(f"cannot resume: the state is from version {version} of {self.dataset.path}, but the dataset was opened with "
                             f"version={self.dataset.version}: open it with the state's version, or without version=")
        dataset = copy.copy(self.dataset)  # self.dataset may be the user's own object
        try:
            dataset.go_to_version(version)
        except (OSError, ValueError) as error:
            raise type(error)(*error.args[:-1], f"cannot resume: {error.args[-1]}") from None
        self.__dict__["dataset"] = dataset  # bypasses PyTorch's guard against changing this attribute
        self.close()
        self._fit()

    def _check_groups(self, state):
        """Raises ValueError if the state is within batches that each rank has regrouped, and the ranks or batches have changed."""
        if not self.bucket_by_length or not 0 < state["samples"] < len(self.dataset):
            return
        was, now = state["global_batch_size"], self.batch_size * self.world_size
        if was != now:
            raise ValueError(f"cannot resume: global_batch_size was {was}, now it is {now}; bucket_by_length needs the same size within an epoch")
        if state["batch"] % self.bucket_by_length and state["batch_size"] != self.batch_size:
            raise ValueError(f"cannot resume: batch {state['batch']} is within a group of {self.bucket_by_length} batches that each rank "
                             "sorts together (bucket_by_length), so the number of ranks must stay the same")

    def _settle(self, world_size):
        """Finds the batch with which world_size ranks continue."""
        n, done, cut = len(self.dataset), self._next_samples, (world_size, self.batch_size, self.drop_last)
        batch = order.first_batch(n, done, *cut)
        if batch is None:
            raise ValueError(f"cannot resume: {n - done} samples are left in epoch {self._next_epoch} of {self.dataset.path}, too few for "
                             f"{world_size} ranks: continue with fewer ranks, or go to the next epoch with set_epoch({self._next_epoch + 1})")
        start = None if order.position(n, 0, *cut, batch) == done else (self._next_epoch, done)
        if start and self.bucket_by_length:
            raise ValueError(f"cannot resume: {done} samples are not a whole number of steps of {world_size} ranks with batches of "
                             f"{self.batch_size}, which bucket_by_length requires")
        self._next_batch = batch
        self._start_at(start)

    def _start_at(self, start):
        """Sets the position within an epoch at which streams start, if no batch of whole epochs begins there."""
        if start != self._start:
            self._start = start
            self._generation += 1

    def _begin_with(self, epoch):
        """Makes the next iteration run this whole epoch."""
        self._next_epoch, self._next_batch, self._next_samples = epoch, 0, 0
        if self._start and self._start[0] == epoch:
            self._start_at(None)
        if self._kept and self._kept[0] == epoch:
            self._kept = None

    def _start_of(self, epoch):
        return self._start[1] if self._start and self._start[0] == epoch else 0

    def _needs_order(self, call):
        if not self._served:
            raise TypeError(f"{call}() applies only to the order that dieseld serves: with your own sampler, save the state of the sampler instead")

    def _lanes_of(self, epoch, world_size):
        """Returns (lanes, drift) of an epoch."""
        if self._kept and self._kept[0] == epoch:
            return self._kept[1]
        return dealing.in_force(self.lanes, self.drift, world_size, self.shuffle)

    def _order(self, dealt):
        subset = self.dataset.subset
        return {"dataset_version": self.dataset.version, "n_samples": len(self.dataset),
                "subset": None if subset is None else subset.digest(), "seed": self.seed,
                "shuffle": self.shuffle, "drop_last": self.drop_last, "window_chunks": self._window(dealt),
                "bucket_by_length": self.bucket_by_length, "lanes": dealt[0], "drift": dealt[1]}

    def _window(self, dealt):
        """Returns the window in force. Ignores the daemon's default, which depends on its cache and options: our order must not."""
        return dealing.window(self.window_chunks, dealt[0], self.dataset) if self.shuffle or self.window_chunks else 0

    def _adopt(self, state):
        """Takes the window of the resumed order if the user gave none."""
        window_chunks = state.get("window_chunks")
        if self.window_chunks or not isinstance(window_chunks, int) or window_chunks < 0:
            return
        self.window_chunks = window_chunks
        self.close()  # open sessions have another window

    def __iter__(self) -> Iterator[Any]:
        ranks = self._find_ranks()
        self._check_ranks(ranks, len(self.dataset), self.dataset.path)
        self._say_whose_share(ranks)
        self._say_unfair(ranks)
        if any(stream.is_of_this_thread() for stream in self._streams):
            raise RuntimeError("iter(loader) was called inside next() of the same loader, by one of its functions or by a "
                               "signal handler: use a second loader there")
        self._heed()
        if self._next_samples:  # the ranks may have become known after load_state_dict()
            self._settle(ranks[1])
        iterator = _Iterator(self, ranks)
        iterator.begin()
        return iterator

    def _say_whose_share(self, ranks):
        """Warns if only the launcher's variables name the ranks: then nothing shows whether the other ranks iterate too."""
        if ranks[1] == 1 or self._told_ranks() or frameworks.group() or self._has_said or frameworks.store(ranks):
            return
        self._has_said = True
        log.warning("%s: rank %d of %d, by the launcher's variables and without a process group, has its share of the %d samples: to have "
                    "all "
                    "of them, as where one rank validates alone, give job=Job(rank=0, world_size=1)", self.dataset.path, *ranks, len(self.dataset))

    def _say_unfair(self, ranks):
        if ranks[0] or not self.shuffle or self.window_chunks or self._has_said_unfair or self.dataset.is_fair:
            return
        self._has_said_unfair = True
        log.warning("%s: its chunks hold neighbouring samples, such as those of one class, so each step has few classes, which slows "
                    "learning: pack it again with `dieselctl pack --order random`, or set order=Order(window_chunks=32), which keeps "
                    "32 chunks in memory", self.dataset.path)

    def _agree(self, ranks, dealt, place):
        """Raises ValueError if the ranks would get parts of different orders. place: None before the first batch of an iterator."""
        if ranks[1] == 1 or (place is None and (self._has_agreed or self._is_alone)) or (store := frameworks.store(ranks)) is None:
            return
        agreed = {**self._order(dealt), "global_batch_size": self.batch_size * ranks[1]}
        if place is None:
            self._has_agreed = agreement.check(store, self._key(), "first", ranks, agreed, self.dataset.path, agreement.SOON_S)
        elif agreement.check(store, self._key(), self._n_agreed, ranks,
                             {**agreed, "epoch": place[0], "batch": place[1], "start": self._start_of(place[0])},
                             self.dataset.path, agreement.SOON_S if self._is_alone else agreement.WAIT_S):
            self._n_agreed += 1
            self._is_alone = False
        elif not self._is_alone:
            self._is_alone = True
            log.warning("%s: rank %d has its share of the samples of epoch %s, and not all of the %d ranks have begun it for %d s: a rank "
                        "that is "
                        "to have all samples is given job=Job(rank=0, world_size=1)", self.dataset.path, ranks[0], place[0], ranks[1], agreement.WAIT_S)

    def _key(self):
        """Returns the name of this loader in the store: the same on all ranks if all start their loaders in the same order."""
        if self._number is None:
            name = f"diesel_loader/{os.path.basename(self.dataset.path)}/{self.shuffle}"
            self._number = f"{name}/{agreement.number(name)}"
        return self._number

    def _lend_stream(self, iterator, ranks):
        """Lends a new iterator a stream of its own. Returns the stream, and the place where it would begin now."""
        with _choosing:
            if not any(stream.is_used() for stream in self._streams):
                self._position = None
            place = self._next_place()
            self._stream, idle = self._idle_stream(ranks, self._lanes_of(place[0], ranks[1]))
            self._stream.guard().user = weakref.ref(iterator)
            chosen = self._stream
        for stream in idle:
            stream.close()
        return chosen, place

    def _next_place(self):
        """Returns (epoch, batch) at which the next iteration begins."""
        told = self._told_epoch()
        if told is not None and not self._resumed:
            self._begin_with(told)
        return self._next_epoch, self._next_batch

    def _place_of(self, state):
        """Like _next_place(), for an iterator that was made with the generator in this state."""
        if state in self._began_with and not self._is_told:
            self._begin_with(self._began_with[state][1])
        place = self._next_place()
        if state is not None and not self._next_samples:
            self._began_with[state] = self.seed, place[0]
        return place

    def _idle_stream(self, ranks, dealt):
        """Returns a stream that no iterator uses any more, or a new one, and other idle streams, which the caller ends."""
        if self._streams and (self._streams[0].pid != os.getpid() or self._ranks != ranks):
            self.close()
        idle = [stream for stream in self._streams if not stream.is_used()]
        fresh = [stream for stream in idle if (stream.generation, stream.dealt) == (self._generation, dealt)]
        chosen = self._stream if self._stream in fresh else fresh[0] if fresh else None
        if chosen is None:
            chosen, self._ranks = self._make_stream(ranks, dealt), ranks
            chosen.generation, chosen.dealt = self._generation, dealt
            self._streams.append(chosen)
        others = [stream for stream in idle if stream is not chosen]
        self._streams = [stream for stream in self._streams if stream not in others]
        return chosen, others

    def _make_stream(self, ranks, dealt):
        how = seeding.Seeding(self._random_state, self.seed, *ranks, self.batch_size)
        assembly = assembly_of(self._arrays, self.dataset, *self._functions, how, self._return_ids, self._record is not None,
                            self._decoded)
        number = None if self._auto else self.num_workers
        setup = Setup(assembly, self.worker_init_fn, seeding.derive(self.seed, *ranks), number)
        options = dict(self._worker_options)
        if options["context"] is None or isinstance(options["context"], str):
            options["context"] = self._arrays.multiprocessing.get_context(options["context"])
        open_session = functools.partial(copy.copy(self)._open_session, ranks, dealt)  # a copy, because later settings are for other streams
        if self.bucket_by_length:
            open_session = functools.partial(bucketing.Bucketed, open_session, self.bucket_by_length, self.seed)
        return Stream(assembly, open_session, number, setup,
                      batch_log=self._log_of(ranks), damage=self._damage, is_alone=ranks[1] == 1, **options)

    def _log_of(self, ranks):
        """Returns the batch log of a rank in this process; None: no log was requested."""
        if self._record is not None and not (self._batch_log and self._batch_log.is_of(*ranks)):
            self._batch_log = BatchLog(self._record, *ranks)
        return self._batch_log

    def _count(self, epoch, first):
        """Records that this epoch has begun: the next iteration runs the following one, unless the user sets another."""
        if (self._next_epoch, self._next_batch) == (epoch, first):
            self._begin_with(epoch + 1)

    @property
    def workers(self) -> int:
        """Number of worker processes at work now."""
        return self._stream.n_workers if self._stream else 0

    def close(self) -> None:
        """Ends the worker processes, and returns memory to dieseld. Batches stay valid, and a new iteration starts
        again. Also called when the loader is garbage-collected, and at exit."""
        for stream in self._streams:
            stream.close()
        self._stream, self._streams = None, []
        if self._batch_log:
            self._batch_log.flush()

    def _open_session(self, ranks, dealt, epoch, first, pinnable=False):
        native.retain_freed(self.batch_size * self.dataset.mean_bytes)
        flags = order.flags(self.shuffle, self.drop_last) | (native.PINNABLE if pinnable else 0) | (native.VIEWS if self._views else 0)
        return Session(self.dataset, seed=self.seed, epoch=epoch, start=self._start_of(epoch), first_batch=first, flags=flags, rank=ranks[0],
                       world=ranks[1], batch=self.batch_size, stride=1, offset=0,
                       window_chunks=self._window(dealt), slots=self._slots(), lanes=dealt[0], drift=dealt[1],
                       recipe=ctypes.addressof(self._decoded.recipe) if self._decoded else None, group=self._group,
                       field=os.fsencode(self._decoded.field) if self._decoded and self._decoded.field is not None else None,
                       cluster=self._cluster, reconnect_ms=int((self.timeout or DEFAULT_RECONNECT_S) * 1000))

    def _slots(self):
        """Returns the number of slots: batches that workers hold at a time or that are regrouped, and some for the
        daemon to work ahead. Returns 0 without workers and regrouping."""
        n = min(self.num_workers, MAX_CORES_HELD) if self._auto else self.num_workers
        n = n * self._worker_options["depth"] + 3 * self.bucket_by_length
        return min(n + SPARE_SLOTS, native.SLOTS_MAX) if n else 0

    def __getstate__(self):
        return {**self.__dict__, "_stream": None, "_streams": [], "_batch_log": None}


class _Iterator:
    """One epoch: the current one of the loader when the first batch is requested. Frameworks set it after iter(), and
    also make iterators only as a test. Marks where next() begins and ends, for diesel-analyze."""

    def __init__(self, loader, ranks):
        self._loader, self._ranks = loader, ranks
        self._state = loader._state
        self._taken = None  # place where the first next() began
        self._begun = self._goes_on = self._ended = False  # _goes_on: was asked for a second batch

    def begin(self):
        """Gets a stream, and starts preparing the batches that will probably be requested."""
        self._stream, self._place = self._loader._lend_stream(self, self._ranks)
        self._guard = self._stream.guard()
        loader = self._loader
        self._n_batches = loader._n_batches(self._ranks[1])
        self._cut = self._ranks[1], loader.batch_size, loader.drop_last
        self._left = self._n_batches - self._place[1]
        guard, me = self._guard, object()
        try:
            guard.enter(me)
            self._stream.begin(*self._place)
        except BaseException:
            guard.user = None
            raise
        finally:
            if guard.inside == {"by": me}:
                guard.inside = {}

    def __iter__(self):
        return self

    def __len__(self):
        return self._left

    def __next__(self):
        if self._ended:  # its stream may be another iterator's
            raise StopIteration
        if not self._begun:
            epoch, _ = self._loader._place_of(self._state)  # this may change the settings of streams
            if self._is_stale(epoch):
                self.begin()
        stream, guard, me = self._stream, self._guard, object()
        try:
            guard.enter(me)
            lib.diesel_mark(native.MARK_NEXT_BEGIN, 0)
            try:
                batch, position = self._next()
            finally:
                lib.diesel_mark(native.MARK_NEXT_END, 0)
            # No call from here on: Ctrl-C comes either before, and this batch is the next one again, or when the caller has the batch.
            self._loader.__dict__["_grid"], self._loader.__dict__["_dealt"] = self._grid, stream.dealt
            stream.position = self._loader.__dict__["_position"] = position
            stream.broken = False
            if stream.line is not None:
                stream.line.given = True
            self._left = self._n_batches - position[1]
            return batch
        finally:
            if guard.inside == {"by": me}:
                guard.inside = {}

    def _next(self):
        if self._ended:  # ended meanwhile, in another thread
            raise StopIteration
        loader = self._loader
        if not self._begun:
            self._take_place()
            loader._agree(self._ranks, self._stream.dealt, None)
            loader._begin_epoch()
            self._begun = True
        elif not self._goes_on:
            loader._count(*self._taken)
            loader._agree(self._ranks, self._stream.dealt, self._taken)
            self._goes_on = True
        # If Ctrl-C came just after the end, the stream is at the next epoch, which this iterator must not deliver.
        delivered = self._stream.next() if self._stream.position[0] == self._place[0] else None
        if delivered is None:
            self._ended = True
            self._guard.user = None
            loader._position = None
            loader._end_epoch()
            raise StopIteration
        batch, position = delivered
        return loader._hand_out(batch, position[1] == self._n_batches), position

    def _is_stale(self, epoch):
        """Returns True if load_state_dict() or a setting has changed the settings of streams, or the lanes of the epoch."""
        loader, stream = self._loader, self._stream
        return (stream not in loader._streams or stream.generation != loader._generation
                or stream.dealt != loader._lanes_of(epoch, self._ranks[1])) and stream.pid == os.getpid()

    def _take_place(self):
        """Begins at the current place of the loader. May be called again after Ctrl-C."""
        with _choosing:
            if self._taken is None:
                self._taken = self._loader._place_of(self._state)
            self._loader._resumed = self._loader._is_told = False
            if self._ranks[1] == 1:  # a single rank of several may look at one batch
                self._loader._count(*self._taken)
        self._grid = len(self._loader.dataset), self._loader._start_of(self._taken[0]), *self._cut
        self._loader._grid, self._loader._dealt, self._loader._position = self._grid, self._stream.dealt, self._taken
        if self._taken != self._place:
            self._stream.begin(*self._taken)
            self._left = self._n_batches - self._taken[1]
            self._place = self._taken


class _Samples:
    """The samples of a dataset, for the choice of what dieseld runs."""

    def __init__(self, dataset):
        self._dataset = dataset

    def first(self):
        """Returns (path, bytes) of the first sample."""
        return self._dataset.sample_path(0), self._dataset.read(0)

    def no_image(self):
        """Returns why dieseld cannot decode them as images, or None."""
        other = self._dataset.no_image()
        return other and f"the names of some samples are not those of JPEG, PNG or WebP files, such as {other}"


class _Field(_Samples):
    """One field of them, as in the first sample that has it. Looking at all samples would read the whole dataset."""

    def __init__(self, dataset, name):
        super().__init__(dataset)
        self._name = name

    def first(self):
        """Raises NotUnderstood if the first few samples have no such field."""
        whys = []
        for i in range(min(len(self._dataset), LOOKED_AT)):
            try:
                return self._of(i)
            except (NotUnderstood, errors.DamagedData) as error:
                whys.append(str(error))
        raise NotUnderstood(whys[0] if whys else "the dataset has no samples")

    def _of(self, i):
        path, data = self._dataset.sample_path(i), self._dataset.read(i)
        try:
            fields = {name: rest for name, *rest in reversed(self._dataset.reader.listed(native.address_of(data), len(data)))}
        except ValueError as error:
            raise NotUnderstood(f"the first sample, {path}, cannot be read: {error}") from None
        if self._name not in fields:
            raise NotUnderstood(f"the first sample, {path}, has no field {self._name!r}, but {', '.join(sorted(fields))}")
        _, address, size = fields[self._name]
        return f"field {self._name!r} of {path}", ctypes.string_at(address, size)

    def no_image(self):
        try:
            name, data = self.first()
        except NotUnderstood as error:
            return str(error)
        if data.startswith(IMAGES) or (data[:4] == b"RIFF" and data[8:12] == b"WEBP"):
            return None
        return f"the first one, {name}, is no JPEG, PNG or WebP image"


def _group_name(group: Any) -> bytes | None:
    if group is None:
        return None
    name = group.encode("utf-8", "surrogateescape") if isinstance(group, str) else b""
    if not 0 < len(name) <= native.GROUP_MAX or b"\0" in name:
        raise ValueError(f"group must be a name of 1 to {native.GROUP_MAX} bytes without NUL, not {group!r}")
    return name


def _cluster_name(cluster: Any) -> bytes | None:
    """None: libdiesel uses the launcher's variables; empty: the job shares with no other node."""
    if cluster is None:
        return None
    name = cluster.encode("utf-8", "replace") if isinstance(cluster, str) else None
    if name is None or len(name) > native.CLUSTER_MAX or name.decode() != cluster or any(ord(c) < 32 or 127 <= ord(c) < 160 for c in cluster):
        raise ValueError(f"cluster must be the job's name, of at most {native.CLUSTER_MAX} bytes and without control characters, "
                         f"not {cluster!r}")
    return name


def _bucket_batches(value):
    """Returns the number of batches that are regrouped at a time; 0: none."""
    if value is None or isinstance(value, bool):
        return bucketing.DEFAULT_BATCHES if value else 0
    n = integer("bucket_by_length", value, 0)
    if n > bucketing.MAX_BATCHES:
        raise ValueError(f"bucket_by_length must be at most {bucketing.MAX_BATCHES}, not {n}")
    return n


def check_methods(dataset: Any) -> None:
    """Raises TypeError if a subclass of Dataset overrides methods that give samples: the daemon serves the samples
    without calling these methods."""
    for name in ("__getitem__", "__len__", "number", "read", "label", "sample_path"):
        if getattr(type(dataset), name).__module__.partition(".")[0] != __package__:
            raise TypeError(f"{type(dataset).__name__} overrides {name}(), which dieseld does not call: pass loader, transform, "
                            "target_transform or collate_fn, or derive from diesel_loader.torch.Dataset")


def not_packed(dataset):
    """Returns advice instead of DataLoader(ImageFolder(root, transform))."""
    root = getattr(dataset, "root", None)
    if not isinstance(root, (str, os.PathLike)):
        return errors.runnable(f"dataset is a {type(dataset).__name__}, but dieseld serves packed folders: write its samples as files, "
                               "run `dieselctl pack FOLDER FOLDER.diesel`, and pass FOLDER.diesel to the loader. Or keep torch's "
                               "DataLoader for it")
    root = os.path.normpath(os.fspath(root))
    line = f'DataLoader("{root}.diesel"' + (", transform=..." if getattr(dataset, "transform", None) else "") + ", ...)"
    return errors.runnable(f"dataset is a {type(dataset).__name__} of {root}, but dieseld serves packed folders: "
                           f"run `dieselctl pack {shlex.quote(root)} {shlex.quote(root + '.diesel')}`, then {line}")
