# SPDX-License-Identifier: Apache-2.0
"""A PyTorch DataLoader over a dataset that dieseld serves."""
import copy
import functools
import operator
import os
import warnings
import weakref

import torch
import torch.utils.data
from torch.utils.data.distributed import DistributedSampler

from . import dataset as served
from . import frameworks, membership, native, seeding
from .assembly import Assembly, pil_loader
from .native import lib
from .samplers import DEFAULT_WINDOW_CHUNKS, ChunkBatchSampler, ChunkShuffleSampler, group
from .session import Session
from .stream import Stream, usable_cores
from .worker import Setup

__all__ = ["ChunkShuffleSampler", "DataLoader", "Dataset", "pil_loader"]

STATE_VERSION = 1
DEFAULT_RECONNECT_S = 60
AUTO = "auto"
DEFAULT_DEPTH = 2     # prefetch_factor
SPARE_SLOTS = 3
MAX_SLOTS = 64        # RING_MAX_SLOTS
MAX_CORES_HELD = 16   # slots take memory, and on a large machine the daemon may want few workers


class Dataset(served.Dataset, torch.utils.data.Dataset):
    """A packed dataset as a map-style dataset, as torchvision's ImageFolder is one.

    path, socket, daemon: as of diesel_loader.Dataset. transform, target_transform, loader: as of DataLoader, which uses them
    if it is given none of its own.

    dataset[i] is (sample, label). Without transform and loader, a sample is a 1-D uint8 tensor of the stored bytes."""

    def __init__(self, path, transform=None, target_transform=None, loader=None, socket=None, daemon=served.AUTO):
        super().__init__(path, socket, daemon)
        self.transform, self.target_transform, self.loader = transform, target_transform, loader

    @classmethod
    def of(cls, dataset):
        """The same dataset, over the same connection."""
        if isinstance(dataset, cls):
            return copy.copy(dataset)
        made = cls.__new__(cls)
        made.__dict__.update(dataset.__dict__, transform=None, target_transform=None, loader=None)
        return made

    def _assembly(self):
        return Assembly(self, self.loader, self.transform, self.target_transform, None, seeding.Seeding(None, 0, 0, 1, 1))

    def __getitem__(self, i):
        number = self.number(i)
        data = self.read(number)
        tensor = torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
        return self._assembly().sample(tensor, number, self.label(number))

    def __getitems__(self, indices):
        return [self[i] for i in indices]


class DataLoader(torch.utils.data.DataLoader):
    """Iterates a packed dataset in batches: a torch.utils.data.DataLoader in all that it is asked, fed by dieseld.

    dataset: the path of one, or a Dataset. Any other dataset is TypeError, with the command that packs it.
    batch_size: samples per batch. None: single samples, which PyTorch reads one by one (below).
    shuffle: chunk-wise shuffle, another order every epoch; False: the order of storage, always the same.
    seed: of the shuffle. The order is a pure function of (dataset version, seed, epoch, world size x
        batch size): the same on any machine, whatever the daemon's settings. generator: a torch.Generator that the
        seed is drawn from instead, once.
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
    timeout: seconds to wait for a daemon that went away; then TimeoutError. 0: 60 s.
    daemon: of a dataset that is given as a path, as of diesel_loader.Dataset: "auto" starts one if need be, "never" does not.
    multiprocessing_context, prefetch_factor, worker_init_fn: as in PyTorch; worker_init_fn gets the lowest
        number that no other worker has, torch.utils.data.get_worker_info() knows no num_workers.
    persistent_workers: whether workers, and with them their copies of the functions, stay from epoch to epoch;
        the default is True, other than in PyTorch. in_order: batches always come in order.

    sampler, batch_sampler: an order of one's own, and with it PyTorch's way of loading: its workers read the samples
    by number, past the daemon's cache. Ranks, `seed`, `random_state` and state_dict() are then the sampler's affair.
    torch's own RandomSampler, SequentialSampler and DistributedSampler over the whole dataset are understood, and
    served by the daemon as shuffle=True, False, and by rank (with no sample twice, where DistributedSampler pads).

    A batch is [data, labels]: labels int64 [B], numbered as ImageFolder numbers class folders (-1 without).
    Without loader, transform and collate_fn, data is one uint8 tensor [B, n] when all samples of the
    dataset have the same length, else a list of B 1-D uint8 tensors. These view shared memory that goes
    back to the daemon when the last reference is gone; a caller that keeps many batches gets copies
    instead. [B, n] tensors may be written to; the 1-D views must not be (clone() them).

    What a worker gives back is pickled, its tensors and arrays by shared memory; they may be written to and kept.
    An exception of a function is raised here with the worker's traceback as its text; the next next() goes on
    with the following batch. A worker that dies is replaced, and its batch done again; if that kills another one,
    RuntimeError names the batch. Each iterator that is under way has workers of its own; state_dict() is of the
    one that was asked last.
    """

    def __init__(self, dataset, batch_size=1, shuffle=None, sampler=None, batch_sampler=None, num_workers=AUTO,
                 collate_fn=None, pin_memory=False, drop_last=False, timeout=0, worker_init_fn=None,
                 multiprocessing_context=None, generator=None, *, prefetch_factor=None, persistent_workers=True,
                 pin_memory_device="", in_order=True, seed=None, transform=None, loader=None, target_transform=None,
                 rank=None, world_size=None, window_chunks=0, random_state=seeding.BATCH, daemon=served.AUTO):
        dataset = _with_functions(dataset, loader, transform, target_transform, daemon)
        if (rank is None) != (world_size is None):
            raise ValueError("give both rank and world_size, or neither")
        if random_state not in (None, seeding.BATCH, seeding.SAMPLE):
            raise ValueError(f'random_state must be "{seeding.BATCH}", "{seeding.SAMPLE}" or None, not {random_state!r}')
        if shuffle and (sampler is not None or batch_sampler is not None):
            raise ValueError("sampler and batch_sampler are mutually exclusive with shuffle")
        if seed is not None and generator is not None:
            raise ValueError("give seed or generator, not both: the seed is drawn from the generator")
        understood = _Understood.of(sampler, dataset) if batch_sampler is None else None
        self._served = batch_size is not None and batch_sampler is None and (sampler is None or understood is not None)
        self._given = None if rank is None else (_integer("rank", rank, 0), _integer("world_size", world_size, 1))
        self._theirs = understood  # a sampler of PyTorch's that says how the daemon's order is to be
        self._seed = 0 if seed is None else _integer("seed", seed, 0)
        self._draw_from = understood.generator if understood else generator
        self.shuffle = understood.shuffle if understood else bool(shuffle)
        self.window_chunks = _integer("window_chunks", window_chunks, 0)
        self._auto = num_workers is None or num_workers == AUTO
        workers = None if self._auto else _integer("num_workers", num_workers, 0, f', or "{AUTO}"')
        if batch_size is not None:
            batch_size = _integer("batch_size", batch_size, 1)
            if batch_size > native.BATCH_MAX:
                raise ValueError(f"batch_size must be at most {native.BATCH_MAX}, not {batch_size}")
        depth = DEFAULT_DEPTH if prefetch_factor is None else _integer("prefetch_factor", prefetch_factor, 1)
        self._functions = (dataset.loader, dataset.transform, dataset.target_transform, collate_fn)
        if self._served and not any(self._functions):
            workers = 0
            self._auto = False
        self._random_state = random_state
        self._worker_options = {"context": multiprocessing_context, "depth": depth, "persistent": persistent_workers}
        self._next_epoch = 0      # what the next iter() starts with
        self._next_batch = 0
        self._resumed = False     # by load_state_dict(): set_epoch() of the same epoch keeps the batch
        self._position = (0, 0)   # epoch, batches delivered of it
        self._stream = None       # of the newest iterator
        self._streams = []
        self._ranks = None        # (rank, world size) of the streams
        self._accelerate = None
        if self._given:
            self._check_ranks(self._given, len(dataset), dataset.path)
        self._init_torch(dataset, batch_size, sampler, batch_sampler, usable_cores() if workers is None else workers,
                         collate_fn=collate_fn, pin_memory=pin_memory, drop_last=drop_last, timeout=timeout,
                         worker_init_fn=worker_init_fn, generator=generator, pin_memory_device=pin_memory_device,
                         in_order=in_order)

    def _init_torch(self, dataset, batch_size, sampler, batch_sampler, workers, pin_memory_device, in_order, **options):
        """PyTorch's own part: attributes that others look at, and loading by number."""
        if workers:
            options.update(multiprocessing_context=self._worker_options["context"],
                           prefetch_factor=self._worker_options["depth"],
                           persistent_workers=self._worker_options["persistent"])
        if pin_memory_device:
            options["pin_memory_device"] = pin_memory_device
        if not in_order and "in_order" in torch.utils.data.DataLoader.__init__.__kwdefaults__:
            options["in_order"] = in_order
        own = _OwnSampler(dataset, self)
        if sampler is None and batch_sampler is None:
            sampler = own
        if not options["collate_fn"] and not dataset.equal_bytes and not (dataset.loader or dataset.transform):
            options["collate_fn"] = _collate_ragged if batch_size is not None or batch_sampler is not None else None
        with warnings.catch_warnings():
            if self._auto:  # how many there are is not the user's doing
                warnings.filterwarnings("ignore", "This DataLoader will create")
            super().__init__(dataset, batch_size, False, sampler, batch_sampler, workers, **options)
        if self._served:  # past the guard of attributes that must not change
            object.__setattr__(self, "batch_sampler", ChunkBatchSampler(own))

    @property
    def seed(self):
        """Of the shuffle."""
        if self._theirs and self._theirs.seed is not None:
            return self._theirs.seed
        if self._draw_from is not None:
            self._seed = int(torch.empty((), dtype=torch.int64).random_(generator=self._draw_from))
            self._draw_from = None
        return self._seed

    @property
    def rank(self):
        """This process's number among the ranks, as it is known now."""
        return self._find_ranks()[0]

    @property
    def world_size(self):
        """How many ranks share the dataset, as it is known now."""
        told = self._told_ranks()
        return told[1] if told else membership.world_size(os.environ, group())

    def _told_ranks(self):
        """By argument or by the sampler; None: they are to be found."""
        return self._given or (self._theirs.ranks if self._theirs else None)

    def _find_ranks(self):
        return self._told_ranks() or membership.find(os.environ, group())

    @staticmethod
    def _check_ranks(ranks, n_samples, path):
        rank, world_size = ranks
        if not 0 <= rank < world_size:
            raise ValueError(f"rank {rank} is not within world size {world_size}")
        if n_samples < world_size:
            raise ValueError(f"{path} has {n_samples} samples, fewer than the {world_size} ranks that share it")

    def __len__(self):
        """Batches per epoch of this rank: the same number on every rank."""
        return self._n_batches(self.world_size) if self._served else super().__len__()

    def _n_batches(self, world_size):
        return lib.diesel_n_batches(len(self.dataset), world_size, self.batch_size,
                                    native.DROP_LAST if self.drop_last else 0)

    def set_epoch(self, epoch):
        """The next iteration is this epoch's; without it every iteration is the following epoch's. Where
        load_state_dict() has gone to the middle of this very epoch, it goes on there."""
        if not self._served:
            if hasattr(self.sampler, "set_epoch"):
                self.sampler.set_epoch(epoch)
        else:
            self._go_to(_integer("epoch", epoch, 0))

    def _go_to(self, epoch):
        if not (self._resumed and epoch == self._next_epoch):
            self._next_epoch, self._next_batch = epoch, 0

    def state_dict(self):
        """Where the iteration stands, for load_state_dict(): small, JSON-safe, the same on every rank.

        Valid for any number of ranks with the same world size x batch size."""
        self._needs_order("state_dict")
        epoch, batch = self._position
        return {"version": STATE_VERSION, "epoch": epoch, "batch": batch, **self._order()}

    def load_state_dict(self, state):
        """The next iteration goes on behind the last batch that was delivered when `state` was taken.

        Raises ValueError when the order would not be the same: another dataset version, seed, ..."""
        self._needs_order("load_state_dict")
        if state.get("version") != STATE_VERSION:
            raise ValueError(f"state of version {state.get('version')}, this loader knows {STATE_VERSION}")
        if self._draw_from is not None:  # the order that is resumed had a seed already
            self._seed, self._draw_from = state.get("seed"), None
        self._adopt_window(state.get("window_chunks"))
        for name, value in self._order().items():
            if state.get(name) != value:
                raise ValueError(f"cannot resume: {name} was {state.get(name)}, now it is {value}")
        if not 0 <= state["batch"] <= len(self):
            raise ValueError(f"cannot resume: batch {state['batch']} of {len(self)}")
        self._next_epoch, self._next_batch = state["epoch"], state["batch"]
        self._position = (state["epoch"], state["batch"])
        self._resumed = True

    def _needs_order(self, call):
        if not self._served:
            raise TypeError(f"{call}() is of the order that dieseld serves: with a sampler of your own, keep its state")

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
        if not self._served:
            return super().__iter__()
        if self._theirs and self._theirs.epoch is not None and not self._resumed:
            self._next_epoch, self._next_batch = self._theirs.epoch, 0
        epoch, first = self._next_epoch, self._next_batch
        ranks = self._find_ranks()
        self._check_ranks(ranks, len(self.dataset), self.dataset.path)
        self._position = (epoch, first)
        self._stream = self._idle_stream(ranks)
        iterator = _Iterator(self, self._stream, epoch, first, self._n_batches(ranks[1]))
        self._stream.user = weakref.ref(iterator)
        return iterator

    def _idle_stream(self, ranks):
        """A stream that no iterator uses any more, or a new one. Others that are idle end."""
        if self._streams and (self._streams[0].pid != os.getpid() or self._ranks != ranks):
            self.close()
        idle = [stream for stream in self._streams if not stream.is_used()]
        chosen = self._stream if self._stream in idle else idle[0] if idle else None
        for stream in idle:
            if stream is not chosen:
                self._streams.remove(stream)
                stream.close()
        if chosen is None:
            chosen, self._ranks = self._make_stream(ranks), ranks
            self._streams.append(chosen)
        return chosen

    def _make_stream(self, ranks):
        how = seeding.Seeding(self._random_state, self.seed, *ranks, self.batch_size)
        assembly = Assembly(self.dataset, *self._functions, how)
        setup = Setup(assembly, self.worker_init_fn, seeding.derive(self.seed, *ranks))
        number = None if self._auto else self.num_workers
        return Stream(assembly, functools.partial(self._open_session, ranks), number, setup,
                      **self._worker_options)

    def _begun(self, epoch, first):
        """Something was asked of this epoch: the next iter() is the following one's, if nobody said otherwise."""
        self._resumed = False
        if (self._next_epoch, self._next_batch) == (epoch, first):
            self._next_epoch, self._next_batch = epoch + 1, 0

    @property
    def workers(self):
        """Worker processes at work just now."""
        return self._stream.n_workers if self._stream else 0

    def close(self):
        """Ends the worker processes; batches stay valid, and iterating starts new ones. Also done when the loader
        is garbage, and at exit."""
        for stream in self._streams:
            stream.close()
        self._stream, self._streams = None, []

    def _open_session(self, ranks, epoch, first):
        flags = (native.SHUFFLE if self.shuffle else 0) | (native.DROP_LAST if self.drop_last else 0)
        return Session(self.dataset, seed=self.seed, epoch=epoch, first_batch=first, flags=flags, rank=ranks[0],
                       world=ranks[1], batch=self.batch_size, stride=1, offset=0,
                       window_chunks=self.window_chunks, slots=self._slots(),
                       reconnect_ms=int((self.timeout or DEFAULT_RECONNECT_S) * 1000))

    def _slots(self):
        """Batches that workers hold at a time, with some for the daemon to work ahead; 0 without workers."""
        n = min(self.num_workers, MAX_CORES_HELD) if self._auto else self.num_workers
        return min(n * self._worker_options["depth"] + SPARE_SLOTS, MAX_SLOTS) if n else 0

    @property
    def _is_accelerate_prepared(self):
        """Accelerate's prepare() asks, and makes no other loader out of this one: its batches are shared out by rank
        already. Then it sets this for all that it was given."""
        return self._served

    @_is_accelerate_prepared.setter
    def _is_accelerate_prepared(self, prepared):
        self._accelerate = frameworks.Accelerate(self) if prepared and self._served else None

    def __getstate__(self):
        return {**self.__dict__, "_stream": None, "_streams": [], "_accelerate": None, "_iterator": None}


class _Iterator:
    """One epoch. Marks where next() begins and ends, for diesel-analyze."""

    def __init__(self, loader, stream, epoch, first, n_batches):
        self._loader, self._stream, self._place = loader, stream, (epoch, first)
        stream.begin(epoch, first)
        self._left = n_batches - first
        self._begun = self._ended = False

    def __iter__(self):
        return self

    def __len__(self):
        return self._left

    def __next__(self):
        lib.diesel_mark(native.MARK_NEXT_BEGIN, 0)
        try:
            batch, position = self._next()
        finally:
            lib.diesel_mark(native.MARK_NEXT_END, 0)
        # No call from here on: Ctrl-C strikes before, and then this batch is the next one again, or when it is the caller's.
        stream = self._stream
        stream.position = self._loader.__dict__["_position"] = position
        stream.broken = False
        self._left -= 1
        return batch

    def _next(self):
        if self._ended:
            raise StopIteration
        loader = self._loader
        if not self._begun:  # an iterator that is never asked takes no epoch: frameworks make some to see whether they can
            loader._begun(*self._place)
            self._begun = True
            if loader._accelerate:
                loader._accelerate.begin()
        delivered = self._stream.next()
        if delivered is None:
            self._ended = True
            self._stream.user = None
            if loader._accelerate:
                loader._accelerate.end()
            raise StopIteration
        batch, position = delivered
        if loader.pin_memory and torch.cuda.is_available():
            batch = torch.utils.data._utils.pin_memory.pin_memory(batch)
        return (loader._accelerate.hand_out(batch, self._left == 1) if loader._accelerate else batch), position


class _OwnSampler(ChunkShuffleSampler):
    """The order of a DataLoader, for whoever looks at its sampler."""

    def __init__(self, dataset, loader):
        self.dataset, self._loader = dataset, loader

    batch_size = property(lambda self: self._loader.batch_size or 1)
    seed = property(lambda self: self._loader.seed)
    shuffle = property(lambda self: self._loader.shuffle)
    drop_last = property(lambda self: self._loader.drop_last)
    epoch = property(lambda self: self._loader._next_epoch)

    @property
    def window_chunks(self):
        return (self._loader._window() if self._loader._served else self._loader.window_chunks) or DEFAULT_WINDOW_CHUNKS

    def _ranks(self):
        return self._loader._find_ranks()

    def set_epoch(self, epoch):
        self._loader._go_to(epoch)

    def __iter__(self):
        numbers = super().__iter__()
        if not self._loader._served:  # PyTorch asks for the numbers of this epoch; the next ones are the next epoch's
            self._loader._next_epoch += 1
        return numbers


class _Understood:
    """What a sampler of PyTorch's asks for, in the daemon's terms."""

    def __init__(self, shuffle, generator=None, distributed=None):
        self.shuffle, self.generator, self._distributed = shuffle, generator, distributed

    @classmethod
    def of(cls, sampler, dataset):
        """None: the order is the sampler's own."""
        data = torch.utils.data
        if type(sampler) is data.SequentialSampler and len(sampler.data_source) == len(dataset):
            return cls(False)
        if (type(sampler) is data.RandomSampler and len(sampler.data_source) == len(dataset) and not sampler.replacement
                and sampler.num_samples == len(dataset)):
            return cls(True, sampler.generator)
        if type(sampler) is DistributedSampler and len(sampler.dataset) == len(dataset):
            return cls(sampler.shuffle, distributed=sampler)
        return None

    @property
    def ranks(self):
        return (self._distributed.rank, self._distributed.num_replicas) if self._distributed else None

    @property
    def seed(self):
        return self._distributed.seed if self._distributed else None

    @property
    def epoch(self):
        """DistributedSampler has to be told; None: each iter() begins the next one."""
        return self._distributed.epoch if self._distributed else None


def _with_functions(dataset, loader, transform, target_transform, daemon):
    """A Dataset of ours with these functions, or its own ones where there are none."""
    if isinstance(dataset, served.Dataset):
        dataset = Dataset.of(dataset)
    elif isinstance(dataset, (str, os.PathLike)):
        dataset = Dataset(dataset, daemon=daemon)
    else:
        raise TypeError(_not_packed(dataset))
    dataset.loader = loader or dataset.loader
    dataset.transform = transform or dataset.transform
    dataset.target_transform = target_transform or dataset.target_transform
    return dataset


def _not_packed(dataset):
    """What to write instead of DataLoader(ImageFolder(root, transform))."""
    root = getattr(dataset, "root", None)
    if not isinstance(root, (str, os.PathLike)):
        return (f"dataset is a {type(dataset).__name__}, and dieseld serves packed folders: write its samples as files, then "
                "`dieselctl pack FOLDER FOLDER.diesel`, and give the path of that; or keep torch's own DataLoader for it")
    root = os.path.normpath(os.fspath(root))
    line = f'DataLoader("{root}.diesel"' + (", transform=..." if getattr(dataset, "transform", None) else "") + ", ...)"
    return (f"dataset is a {type(dataset).__name__} of {root}, and dieseld serves packed folders: "
            f"`dieselctl pack {root} {root}.diesel`, then {line}")


def _collate_ragged(samples):
    """[samples, labels]: samples of different lengths cannot be one tensor."""
    return [[data for data, _ in samples], torch.utils.data.default_collate([label for _, label in samples])]


def _integer(name, value, least, more=""):
    """The value as an int: also NumPy's."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or number < least:
        raise ValueError(f"{name} must be an integer of at least {least}{more}, not {value!r}")
    return number
