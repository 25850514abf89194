# SPDX-License-Identifier: Apache-2.0
"""A PyTorch DataLoader over a dataset that dieseld serves."""
import functools
import os

import torch
import torch.utils.data

from . import membership, native, seeding
from .assembly import Assembly, pil_loader
from .dataset import Dataset
from .native import lib
from .session import Session
from .stream import Stream, usable_cores
from .worker import Setup

__all__ = ["DataLoader", "Dataset", "pil_loader"]

STATE_VERSION = 1
DEFAULT_RECONNECT_S = 60
AUTO = "auto"
SPARE_SLOTS = 3
MAX_SLOTS = 64        # RING_MAX_SLOTS
MAX_CORES_HELD = 16   # slots take memory, and on a large machine the daemon may want few workers


class DataLoader:
    """Iterates a packed dataset in batches, as torch.utils.data.DataLoader does.

    dataset: a Dataset or the path of one.
    batch_size: samples per batch.
    shuffle: chunk-wise shuffle, another order every epoch; False: the order of storage, always the same.
    seed: of the shuffle. The order is a pure function of (dataset version, seed, epoch, world size x
        batch size): the same on any machine, whatever the daemon's settings.
    transform: called with each sample as ImageFolder would hand it over: an RGB PIL image where the path
        has an image's extension, else a 1-D uint8 tensor. `loader` replaces that first step: called with the
        1-D uint8 tensor of the stored bytes.
    num_workers: processes that run loader, transform and collate_fn. "auto" (or None, the default): as many as
        the daemon says, at every batch anew; 0 is among its choices, and means that the trainer does it, because
        on cheap samples the hand-off would cost more than it gives. While the daemon has no wish, as many as
        there are usable cores. An integer means exactly that, for ever. Without any of these functions there
        is no Python work, and no process: batches come ready from shared memory.
    random_state: how Python's, NumPy's and torch's global generators are seeded for the functions above.
        "batch" (default): once a batch, from (seed, epoch, rank, world_size, batch_size, batch); "sample":
        before each sample, from (seed, epoch, sample), so that batch size and ranks do not matter either, at
        some 15 us a sample; None: not at all, as in PyTorch. With the first two, random augmentation is the same
        with any number of workers, even if it changes, and the trainer's own generators are left alone.
        Generators that the functions own are theirs to seed.
    drop_last: leave out the last batch where it is not full.
    collate_fn: called with a list of (sample, label); default torch's default_collate.
    rank, world_size: this process's share. Default: torch.distributed, else the launcher's variables ($RANK and
        $WORLD_SIZE, or $LOCAL_RANK and $NODE_RANK as Lightning sets them; see membership.py), else the whole; found
        anew at every iter(), so that a loader may be made before its ranks exist. ValueError where they contradict
        each other. Every rank has the same number of batches, every sample is delivered once an epoch.
    pin_memory: copy batches into page-locked memory.
    window_chunks: chunks whose samples are shuffled together; 0: the daemon's default.
    timeout: seconds to wait for a daemon that went away; then TimeoutError.
    multiprocessing_context, prefetch_factor, worker_init_fn: as in PyTorch; worker_init_fn gets the lowest
        number that no other worker has, torch.utils.data.get_worker_info() knows no num_workers.
    persistent_workers: whether workers, and with them their copies of the functions, stay from epoch to epoch;
        the default is True, other than in PyTorch.

    A batch is (data, labels): labels int64 [B], numbered as ImageFolder numbers class folders (-1 without).
    Without loader, transform and collate_fn, data is one uint8 tensor [B, n] when all samples of the
    dataset have the same length, else a list of B 1-D uint8 tensors. These view shared memory that goes
    back to the daemon when the last reference is gone; a caller that keeps many batches gets copies
    instead. [B, n] tensors may be written to; the 1-D views must not be (clone() them).

    What a worker gives back is pickled, its tensors and arrays by shared memory; they may be written to and kept.
    An exception of a function is raised here with the worker's traceback as its text; the next next() goes on
    with the following batch. A worker that dies is replaced, and its batch done again; if that kills another one,
    RuntimeError names the batch. One iterator at a time: an older one raises RuntimeError after a later iter().
    """

    def __init__(self, dataset, batch_size=1, shuffle=False, *, seed=0, transform=None, loader=None,
                 target_transform=None, num_workers=AUTO, drop_last=False, collate_fn=None, rank=None,
                 world_size=None, pin_memory=False, window_chunks=0, timeout=DEFAULT_RECONNECT_S,
                 multiprocessing_context=None, prefetch_factor=2, persistent_workers=True,
                 worker_init_fn=None, random_state=seeding.BATCH):
        self.dataset = dataset if isinstance(dataset, Dataset) else Dataset(dataset)
        if (rank is None) != (world_size is None):
            raise ValueError("give both rank and world_size, or neither")
        self._given = None if rank is None else (rank, world_size)
        if self._given:
            self._check_ranks(self._given)
        num_workers = None if num_workers == AUTO else num_workers
        _check("batch_size", batch_size, 1)
        if batch_size > native.BATCH_MAX:
            raise ValueError(f"batch_size must be at most {native.BATCH_MAX}, not {batch_size}")
        _check("prefetch_factor", prefetch_factor, 1)
        if num_workers is not None:
            _check("num_workers", num_workers, 0, f', or "{AUTO}"')
        if random_state not in (None, seeding.BATCH, seeding.SAMPLE):
            raise ValueError(f'random_state must be "{seeding.BATCH}", "{seeding.SAMPLE}" or None, not {random_state!r}')
        self.batch_size, self.shuffle, self.seed, self.drop_last = batch_size, shuffle, seed, drop_last
        self.pin_memory, self.window_chunks, self.timeout = pin_memory, window_chunks, timeout
        self._functions, self._init_fn = (loader, transform, target_transform, collate_fn), worker_init_fn
        self._random_state = random_state
        self.num_workers = 0 if not any(self._functions) else AUTO if num_workers is None else num_workers
        self._worker_options = {"context": multiprocessing_context, "depth": prefetch_factor,
                                "persistent": persistent_workers}
        self._next_epoch = 0      # what the next iter() starts with
        self._next_batch = 0
        self._position = (0, 0)   # epoch, batches delivered of it
        self._stream = None
        self._ranks = None        # (rank, world size) of the stream

    @property
    def rank(self):
        """This process's number among the ranks, as it is known now."""
        return self._find_ranks()[0]

    @property
    def world_size(self):
        """How many ranks share the dataset, as it is known now."""
        return self._given[1] if self._given else membership.world_size(os.environ, _group())

    def _find_ranks(self):
        return self._given or membership.find(os.environ, _group())

    def _check_ranks(self, ranks):
        rank, world_size = ranks
        if not 0 <= rank < world_size:
            raise ValueError(f"rank {rank} is not within world size {world_size}")
        if len(self.dataset) < world_size:
            raise ValueError(f"{self.dataset.path} has {len(self.dataset)} samples, fewer than the "
                             f"{world_size} ranks that share it")

    def __len__(self):
        """Batches per epoch of this rank: the same number on every rank."""
        return self._n_batches(self.world_size)

    def _n_batches(self, world_size):
        return lib.diesel_n_batches(len(self.dataset), world_size, self.batch_size,
                                    native.DROP_LAST if self.drop_last else 0)

    def set_epoch(self, epoch):
        """The next iteration is this epoch's; without it every iteration is the following epoch's."""
        self._next_epoch, self._next_batch = epoch, 0

    def state_dict(self):
        """Where the iteration stands, for load_state_dict(): small, JSON-safe, the same on every rank.

        Valid for any number of ranks with the same world size x batch size."""
        epoch, batch = self._position
        return {"version": STATE_VERSION, "epoch": epoch, "batch": batch, **self._order()}

    def load_state_dict(self, state):
        """The next iteration goes on behind the last batch that was delivered when `state` was taken.

        Raises ValueError when the order would not be the same: another dataset version, seed, ..."""
        if state.get("version") != STATE_VERSION:
            raise ValueError(f"state of version {state.get('version')}, this loader knows {STATE_VERSION}")
        self._adopt_window(state.get("window_chunks"))
        for name, value in self._order().items():
            if state.get(name) != value:
                raise ValueError(f"cannot resume: {name} was {state.get(name)}, now it is {value}")
        if not 0 <= state["batch"] <= len(self):
            raise ValueError(f"cannot resume: batch {state['batch']} of {len(self)}")
        self._next_epoch, self._next_batch = state["epoch"], state["batch"]
        self._position = (state["epoch"], state["batch"])

    def _order(self):
        return {"dataset_version": self.dataset.version, "n_samples": len(self.dataset), "seed": self.seed,
                "shuffle": self.shuffle, "global_batch_size": self.batch_size * self.world_size,
                "drop_last": self.drop_last, "window_chunks": self._window()}

    def _window(self):
        """The window in force, asked of the daemon once: its default may change, our order must not."""
        if not self.window_chunks and self.shuffle:
            ours = self._stream.session if self._stream and self._stream.pid == os.getpid() else None
            self.window_chunks = (ours or self._open_session(self._find_ranks(), 0, 0)).window_chunks
        return self.window_chunks

    def _adopt_window(self, window_chunks):
        """Resuming, a loader that was given no window takes the one of the order it resumes."""
        if self.window_chunks or not isinstance(window_chunks, int) or window_chunks < 0:
            return
        self.window_chunks = window_chunks
        self.close()  # what is open has the daemon's

    def __iter__(self):
        epoch, first = self._next_epoch, self._next_batch
        ranks = self._find_ranks()
        self._check_ranks(ranks)
        self._position = (epoch, first)
        if self._stream is not None and (self._stream.pid != os.getpid() or self._ranks != ranks):
            self.close()
        if self._stream is None:
            self._stream, self._ranks = self._make_stream(ranks), ranks
        return _Iterator(self, self._stream, epoch, first, self._n_batches(ranks[1]))

    def _make_stream(self, ranks):
        how = seeding.Seeding(self._random_state, self.seed, *ranks, self.batch_size)
        assembly = Assembly(self.dataset, *self._functions, how)
        setup = Setup(assembly, self._init_fn, seeding.derive(self.seed, *ranks))
        number = None if self.num_workers == AUTO else self.num_workers
        return Stream(assembly, functools.partial(self._open_session, ranks), number, setup, **self._worker_options)

    def _begun(self, epoch, first):
        """Something was asked of this epoch: the next iter() is the following one's, if nobody said otherwise."""
        if (self._next_epoch, self._next_batch) == (epoch, first):
            self._next_epoch, self._next_batch = epoch + 1, 0

    @property
    def workers(self):
        """Worker processes at work just now."""
        return self._stream.n_workers if self._stream else 0

    def close(self):
        """Ends the worker processes; batches stay valid, and iterating starts new ones. Also done when the loader
        is garbage, and at exit."""
        if self._stream:
            self._stream.close()
        self._stream = None

    def _open_session(self, ranks, epoch, first):
        flags = (native.SHUFFLE if self.shuffle else 0) | (native.DROP_LAST if self.drop_last else 0)
        return Session(self.dataset, seed=self.seed, epoch=epoch, first_batch=first, flags=flags, rank=ranks[0],
                       world=ranks[1], batch=self.batch_size, stride=1, offset=0,
                       window_chunks=self.window_chunks, slots=self._slots(), reconnect_ms=int(self.timeout * 1000))

    def _slots(self):
        """Batches that workers hold at a time, with some for the daemon to work ahead; 0 without workers."""
        n = min(usable_cores(), MAX_CORES_HELD) if self.num_workers == AUTO else self.num_workers
        return min(n * self._worker_options["depth"] + SPARE_SLOTS, MAX_SLOTS) if n else 0

    def __getstate__(self):
        return {**self.__dict__, "_stream": None}


class _Iterator:
    """One epoch. Marks where next() begins and ends, for diesel-analyze."""

    def __init__(self, loader, stream, epoch, first, n_batches):
        self._loader, self._stream, self._place = loader, stream, (epoch, first)
        self._token = stream.begin(epoch, first)
        self._left = n_batches - first
        self._begun = self._ended = False

    def __iter__(self):
        return self

    def __len__(self):
        return self._left

    def __next__(self):
        lib.diesel_mark(native.MARK_NEXT_BEGIN, 0)
        try:
            return self._next()
        finally:
            lib.diesel_mark(native.MARK_NEXT_END, 0)

    def _next(self):
        if self._ended:
            raise StopIteration
        if self._stream.token is not self._token:
            raise RuntimeError("a later iter() of the same loader has taken over: for two at a time, make two loaders")
        if not self._begun:  # an iterator that is never asked takes no epoch: frameworks make some to see whether they can
            self._begun = True
            self._loader._begun(*self._place)
        delivered = self._stream.next()
        if delivered is None:
            self._ended = True
            raise StopIteration
        batch, position = delivered
        if self._loader.pin_memory and torch.cuda.is_available():
            batch = torch.utils.data._utils.pin_memory.pin_memory(batch)
        self._left -= 1
        self._loader._position = position
        return batch


def _check(name, value, least, more=""):
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}{more}, not {value!r}")


def _group():
    """(rank, world size) of torch.distributed's default group; None while there is none."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return None
