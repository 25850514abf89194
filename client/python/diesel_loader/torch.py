# SPDX-License-Identifier: Apache-2.0
"""A PyTorch DataLoader over a dataset that dieseld serves."""
import array
import copy
import hashlib
import itertools
import operator
import os
import types
import warnings
import weakref

import torch
import torch.utils.data
from torch.utils.data.distributed import DistributedSampler

from . import dataset as served
from . import bucketing, frameworks, seeding
from .assembly import assembly_of, pil_loader
from .device import SLOTS, DeviceStream, chosen
from .fields.assembly import Collate
from .loader import AUTO, Loader, check_methods, not_packed
from .mixture import Mixture
from .options import Batches, Decode, Job, Order, check_groups, check_names
from .ranks import agreement
from .samplers import ChunkBatchSampler, ChunkShuffleSampler
from .subset import Subset
from .tensors import Tensors, list_collate, pad_collate

FUNCTIONS = ("loader", "transform", "target_transform")

__all__ = ["Batches", "ChunkShuffleSampler", "DataLoader", "Dataset", "Decode", "Job", "Mixture", "Order", "list_collate", "pad_collate",
           "pil_loader"]


class Dataset(served.Dataset, torch.utils.data.Dataset):
    """A packed dataset as a map-style dataset, like torchvision's ImageFolder.

    path, socket, daemon, version, fields: as of diesel_loader.Dataset. transform, target_transform, loader: as for DataLoader and Decode; a
    DataLoader uses them unless it has its own.

    dataset[i] is (sample, label). Without transform and loader, a sample is a 1-D uint8 tensor of the stored bytes. If samples have
    fields, dataset[i] is a dict of them, or what the transform makes of it."""

    return_ids = False
    _listed = None  # numbers of the samples, if they are not in storage order; else None
    _places = None  # number: index in _listed; made when it is needed
    # Dataset[...] may stand in annotations, as PyTorch's may.
    __class_getitem__ = classmethod(types.GenericAlias)  # type: ignore[var-annotated]

    def __init__(self, path, transform=None, target_transform=None, loader=None, socket=None, daemon=served.AUTO, version=None,
                 fields=None):
        super().__init__(path, socket, daemon, version, fields)
        self.transform, self.target_transform, self.loader = transform, target_transform, loader

    @classmethod
    def of(cls, dataset):
        """Returns the same dataset as an object of this class, over the same connection."""
        if isinstance(dataset, cls):
            return copy.copy(dataset)
        made = cls.__new__(cls)
        made.__dict__.update(dataset.__dict__, transform=None, target_transform=None, loader=None)
        return made

    def _assembly(self):
        return assembly_of(Tensors(), self, self.loader, self.transform, self.target_transform, None,
                        seeding.Seeding(None, 0, 0, 1, 1), self.return_ids)

    @classmethod
    def of_torch_subset(cls, subset):
        """Returns a Dataset with the samples of a torch Subset, in the Subset's order. ValueError: an index occurs twice."""
        whole = _ours(subset.dataset)
        numbers = [whole.number(i) for i in subset.indices]
        made = whole._with(Subset.select(whole._connection.reader, whole.path, None, numbers))
        made._listed = None if all(map(operator.lt, numbers, numbers[1:])) else array.array("Q", numbers)
        return _AsTheirs.around(subset, made) if _has_methods(subset) else made

    @property
    def is_in_order(self):
        """True if the samples are in storage order."""
        return self._listed is None

    def _number_at(self, index):
        return super()._number_at(index) if self.is_in_order else self._listed[index]

    def indices_of(self, numbers):
        if self.is_in_order:
            return super().indices_of(numbers)
        if self._places is None:
            self._places = {number: i for i, number in enumerate(self._listed)}
        try:
            return [self._places[number] for number in numbers]
        except KeyError as error:
            raise IndexError(f"sample {error} is not in the subset") from None

    @property
    def targets(self):
        return super().targets if self.is_in_order else [self.label(i) for i in range(len(self))]

    def _of(self, subset):
        if not self.is_in_order:
            raise ValueError("this dataset is a torch Subset, with its own order: select parts of the dataset before making the Subset")
        return super()._of(subset)

    def __getitem__(self, i):
        if isinstance(i, (slice, str)):
            return super().__getitem__(i)
        number = self.number(i)
        data, label = self._read_number(number), self.label_of(number)
        if self.reader:
            return self._finished(self._dicts([number], [data], [label]), [number], [label])[0]
        return self._assembly().sample(_tensor(data), number, label)

    def __getitems__(self, indices):
        chosen = self._numbers_of(indices)
        infos = self._infos(chosen)
        if self.reader:
            return self._finished(self._many_dicts(chosen, infos), chosen, self._labels(infos))
        sample = self._assembly().sample
        return [sample(_tensor(data), number, label)
                for data, number, label in zip(self._read_as(chosen, infos), chosen, self._labels(infos))]

    def _finished(self, dicts, numbers, labels):
        """Returns samples with fields after loader and transforms. dicts: as decoded() returns them."""
        finish = self._assembly().finish
        return [finish(*one, number, label) for one, number, label in zip(dicts, numbers, labels)]


def _tensor(data):
    """Returns the bytes of a sample as a tensor over the same memory."""
    return torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)


class _AsTheirs(Dataset):
    """A Dataset for a torch Subset whose class, or whose dataset's class, overrides methods: these return the samples."""

    @classmethod
    def around(cls, theirs, ours):
        made = cls.__new__(cls)
        made.__dict__.update(ours.__dict__, _theirs=theirs)
        return made

    def __getitem__(self, i):
        return self._theirs[i]

    def __getitems__(self, indices):
        several = getattr(self._theirs, "__getitems__", None)
        return several(indices) if several else [self._theirs[i] for i in indices]


class DataLoader(Loader, torch.utils.data.DataLoader):
    """Iterates a packed dataset in batches: a torch.utils.data.DataLoader whose batches come from dieseld.

    The arguments have the names, order and meaning of PyTorch's, except for the differences below. Additional keyword
    arguments: seed, transform, order, decode, batches and job.

    batch_size=None: single samples, which PyTorch reads one by one (below). seed: if it is not given, it is drawn from
    generator, a torch.Generator, or else from torch's own, which torch.manual_seed() sets. Rank 0 of a process group
    draws it for all; 0 if there are ranks without a group. collate_fn: default torch's default_collate. timeout: also
    for a batch from a worker, then RuntimeError as in PyTorch; 0: no limit for a worker. pin_memory: copy batches into
    page-locked memory; without effect with Batches(device=...).
    in_order: batches always come in order. torch.utils.data.get_worker_info() knows no num_workers.

    sampler, batch_sampler: your own order. Loading then works as in PyTorch: its workers read the samples by number, and the
    sampler is responsible for ranks, `seed`, lanes, random_state and state_dict(). Exceptions are
    torch's own RandomSampler, SequentialSampler and a DistributedSampler that shuffles, over the whole dataset: the daemon
    serves them as shuffle=True, False, and by rank (with no sample twice, where
    DistributedSampler pads).

    Workers return results by pickle, but tensors and arrays in shared memory.
    """

    __doc__ = f"{__doc__}\n{Loader.__doc__}"

    # DataLoader[...] may stand in annotations, as PyTorch's may.
    __class_getitem__ = classmethod(types.GenericAlias)  # type: ignore[var-annotated]

    @check_names
    def __init__(self, dataset, batch_size=1, shuffle=None, sampler=None, batch_sampler=None, num_workers=AUTO,
                 collate_fn=None, pin_memory=False, drop_last=False, timeout=0, worker_init_fn=None,
                 multiprocessing_context=None, generator=None, *, prefetch_factor=None, persistent_workers=None,
                 pin_memory_device="", in_order=True, seed=None, transform=None, order=Order(), decode=Decode(), batches=Batches(), job=Job()):
        check_groups(order=order, decode=decode, batches=batches, job=job)
        self.device, memory_format = chosen(batches.device), batches.memory_format
        functions = decode.loader, transform, decode.target_transform
        given, dataset = dataset, _with_functions(dataset, *functions)
        has_methods = isinstance(dataset, Dataset) and _has_methods(dataset)
        if batches.return_ids and isinstance(dataset, _AsTheirs):
            raise ValueError(f"{type(given).__name__} returns samples by its own methods: return the sample numbers "
                             "there, too, and leave out return_ids")
        # The user's own object; ours may be a copy. Attributes set on it count, unless an argument overrides them.
        self._asked_for = given
        self._source, self._parts = _source_of(given)
        self._of_source = {name: getattr(self._source, name) for name, told in zip(FUNCTIONS, functions)
                           if isinstance(self._source, Dataset) and not told}
        if batches.return_ids:
            dataset = copy.copy(dataset)
            dataset.return_ids = True
        if shuffle and (sampler is not None or batch_sampler is not None):
            name = "batch_sampler" if sampler is None else "sampler"
            raise ValueError(f"{name} option is mutually exclusive with shuffle")
        if seed is not None and generator is not None:
            raise ValueError("give seed or generator, not both: the seed is drawn from the generator")
        if sampler is None and batch_sampler is None and not shuffle and not dataset.is_in_order:
            sampler = torch.utils.data.SequentialSampler(dataset)
        understood = _Understood.of(sampler, dataset) if batch_sampler is None and not has_methods else None
        is_served = (batch_size is not None and batch_sampler is None and (sampler is None or understood is not None)
                     and not has_methods)
        if persistent_workers is None:  # PyTorch's workers see changes of the dataset only if they start after them
            persistent_workers = is_served
        if self.device is not None and not is_served:
            raise ValueError("device applies only to batches that dieseld serves: leave out sampler, batch_sampler and batch_size=None")
        if memory_format not in (None, torch.contiguous_format, torch.channels_last):
            raise ValueError(f"memory_format must be torch.contiguous_format or torch.channels_last, not {memory_format!r}")
        if memory_format == torch.channels_last and (collate_fn is not None or not is_served):
            raise ValueError("memory_format applies only to batches that dieseld serves and the loader collates: leave out collate_fn, "
                             "sampler, "
                             "batch_sampler and batch_size=None")
        self._theirs = understood  # a PyTorch sampler that determines the daemon's order
        self._draw_from = understood.generator if understood else generator
        self._draws = seed is None and not (understood and understood.seed is not None)  # True: the seed is drawn, as in PyTorch
        self._is_drawn, self._drawn_of = False, None
        self._accelerate = None
        Loader.__init__(
            self, Tensors(memory_format == torch.channels_last), dataset, (dataset.loader, dataset.transform, dataset.target_transform, collate_fn),
            {"order": order, "decode": decode, "batches": batches, "job": job}, batch_size=batch_size,
            shuffle=understood.shuffle if understood else shuffle, seed=seed, num_workers=num_workers, drop_last=drop_last, timeout=timeout,
            worker_init_fn=worker_init_fn, multiprocessing_context=multiprocessing_context, prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers, served=is_served)
        self._init_torch(sampler, batch_sampler, collate_fn=collate_fn, pin_memory=pin_memory, drop_last=drop_last,
                         timeout=timeout, worker_init_fn=worker_init_fn, generator=generator,
                         pin_memory_device=pin_memory_device, in_order=in_order)

    def _init_torch(self, sampler, batch_sampler, pin_memory_device, in_order, **options):
        """Initialises PyTorch's DataLoader: its attributes, which other libraries read, and loading by number."""
        dataset, batch_size, workers = self.dataset, self.batch_size, self.num_workers
        if workers:
            options.update(multiprocessing_context=self._worker_options["context"],
                           prefetch_factor=self._worker_options["depth"],
                           persistent_workers=self._worker_options["persistent"])
        if pin_memory_device:
            options["pin_memory_device"] = pin_memory_device
        if not in_order and "in_order" in torch.utils.data.DataLoader.__init__.__kwdefaults__:
            options["in_order"] = in_order
        own = self._own = _OwnSampler(self)
        if sampler is None and batch_sampler is None:
            sampler = own
        if not options["collate_fn"] and dataset.reader and (batch_size is not None or batch_sampler is not None):
            options["collate_fn"] = Collate(self._arrays)
        elif not options["collate_fn"] and not dataset.equal_bytes and not (dataset.loader or dataset.transform or _has_methods(dataset)):
            options["collate_fn"] = list_collate if batch_size is not None or batch_sampler is not None else None
        with warnings.catch_warnings():
            if self._auto:  # the number of workers is not the user's choice
                warnings.filterwarnings("ignore", "This DataLoader will create")
            torch.utils.data.DataLoader.__init__(self, dataset, batch_size, False, sampler, batch_sampler, workers,
                                                 **options)
        if self._served or (self.sampler is own and batch_size is not None):  # bypasses PyTorch's guard against changes of attributes
            object.__setattr__(self, "batch_sampler", ChunkBatchSampler(own, self.batch_size, self.drop_last))
        self._collate_made = self.collate_fn  # PyTorch's default, if none was given
        self._heeded = self._settings()

    @property
    def seed(self):
        """Returns the seed of the shuffle."""
        if self._theirs and self._theirs.seed is not None:
            return self._theirs.seed
        if self._draws and not self._is_drawn:
            self._draw()
        return self._seed

    def _generator(self):
        return torch.default_generator if self._draw_from is None else self._draw_from

    def _draw(self):
        """Draws the seed from the given generator, or from torch's own, which torch.manual_seed() sets. All ranks use rank 0's draw."""
        generator = self._generator()
        state, self._drawn_of = _digest(generator), generator.initial_seed()
        drawn = _number_of(generator)
        ranks = (0, 1) if self._told_ranks() else self._find_ranks()
        if ranks[1] > 1 and (store := frameworks.store(ranks)) is not None:
            drawn = agreement.seed(store, f"{self._key()}/seed", ranks[0], drawn)
        elif (self._told_ranks() or ranks)[1] > 1 and self._draw_from is None:
            drawn = 0  # no process group: the draws of other ranks are unknown
        self._seed, self._is_drawn = drawn, True
        self._began_with[state] = drawn, 0

    def _heed_generator(self):
        """Draws the number that PyTorch would draw for an iterator, so that a generator with a restored seed or state gives the same
        epoch again."""
        self._state = None
        if not self._draws or not self._served or self._resumed or self.world_size > 1:
            return
        generator, was = self._generator(), self._seed if self._is_drawn else None
        state = _digest(generator)
        known = self._began_with.get(state)
        _number_of(generator)
        if known:
            self._seed = known[0]
            _number_of(generator)
        elif was is None or generator.initial_seed() != self._drawn_of:
            self._draw()
            self._began_with.setdefault(state, (self._seed, 0))
        else:
            _number_of(generator)
        self._drawn_of, self._state = generator.initial_seed(), state
        if was not in (None, self._seed):
            self._generation += 1
            if not self._is_told:
                self._begin_with(0)

    def _told_ranks(self):
        return self._given or (self._theirs.ranks if self._theirs else None)

    def _told_epoch(self):
        return self._theirs.epoch if self._theirs else None

    def __len__(self):
        """Returns the number of batches per epoch, which is the same on every rank."""
        return super().__len__() if self._served else torch.utils.data.DataLoader.__len__(self)

    def close(self):
        super().close()
        self._own.hold(None)

    def __iter__(self):
        self._own.hold(self)
        self._heed_source()
        self._heed_generator()
        return super().__iter__() if self._served else torch.utils.data.DataLoader.__iter__(self)

    def _heed_source(self):
        if self._parts and _source_of(self._asked_for)[1] != self._parts:
            raise RuntimeError("indices of the Subset have changed since the loader was made: make another loader")
        for name, was in self._of_source.items():
            now = getattr(self._source, name)
            if now is not was:
                self._of_source[name] = now
                setattr(self.dataset, name, now)

    def _functions_now(self):
        collate_fn = self._asked[0][3] if self.collate_fn is self._collate_made else self.collate_fn
        return (*(getattr(self.dataset, name) for name in FUNCTIONS), collate_fn)

    def set_epoch(self, epoch):
        """Sets the epoch of the next iteration. Without this call, every iteration is the next epoch. An iterator from which no batch was
        taken yet counts as the next iteration. If load_state_dict() has moved to the middle of this epoch, the iteration continues
        there."""
        if self._served:
            super().set_epoch(epoch)
            if self._theirs:
                self._theirs.set_epoch(epoch)
        elif hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)

    def _adopt(self, state):
        if self._draws and isinstance(state.get("seed"), int) and state["seed"] != (self._seed if self._is_drawn else None):
            self._seed, self._is_drawn = state["seed"], True  # the resumed order already had a seed
            self._drawn_of = self._generator().initial_seed()
            self._generation += 1
        super()._adopt(state)

    def _make_stream(self, ranks, dealt):
        stream = super()._make_stream(ranks, dealt)
        return stream if self.device is None else DeviceStream(stream, self.device)

    def _slots(self):
        """Returns the number of slots, with extra ones for batches that are being copied to the device."""
        return super()._slots() or (SLOTS if self.device is not None else 0)

    def _begin_epoch(self):
        if self._accelerate:
            self._accelerate.begin()

    def _end_epoch(self):
        if self._accelerate:
            self._accelerate.end()

    def _hand_out(self, batch, is_last):
        if self.pin_memory and self.device is None and torch.cuda.is_available():
            batch = torch.utils.data._utils.pin_memory.pin_memory(batch)
        return self._accelerate.hand_out(batch, is_last) if self._accelerate else batch

    @property
    def _is_accelerate_prepared(self):
        """True: Accelerate's prepare() keeps this loader, because its batches are divided among the ranks already. prepare() then
        sets this attribute on all loaders that it was given. Raises ValueError if Accelerate would divide the batches again."""
        for sampler in () if self._served else (self.sampler, getattr(self.batch_sampler, "sampler", None)):
            if isinstance(sampler, DistributedSampler) and sampler.num_replicas > 1:
                raise ValueError(f"this loader already reads only the share of rank {sampler.rank}, and Accelerate "
                                 "would divide that share again: leave out the sampler, or make it for rank 0 of 1")
        return self._served

    @_is_accelerate_prepared.setter
    def _is_accelerate_prepared(self, prepared):
        self._accelerate = frameworks.Accelerate(self) if prepared and self._served else None

    @property
    def use_stateful_dataloader(self):
        """Accelerate's save_state() and load_state() check this for each prepared loader: if True, they keep its state."""
        return self._accelerate is not None

    def __getstate__(self):
        return {**super().__getstate__(), "_accelerate": None, "_iterator": None}


def _digest(generator):
    return hashlib.blake2b(generator.get_state().numpy().tobytes(), digest_size=16).digest()


def _number_of(generator):
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator))


class _OwnSampler(ChunkShuffleSampler):
    """The order of a DataLoader, for code that reads its sampler."""

    def __init__(self, loader):
        self._weak = weakref.ref(loader)
        self.hold(loader)

    def hold(self, loader):
        """Keeps the loader alive, for code that keeps only its sampler; not after close(), or the two would keep the dataset open until garbage
        collection."""
        self._held = loader

    @property
    def _loader(self):
        loader = self._weak() if self._held is None else self._held
        if loader is None:
            raise RuntimeError("the loader of this sampler was closed, and nothing holds it any more")
        return loader

    def __getstate__(self):
        return self._loader

    def __setstate__(self, loader):
        self.__init__(loader)

    dataset = property(lambda self: self._loader.dataset)
    batch_size = property(lambda self: self._loader.batch_size or 1)
    seed = property(lambda self: self._loader.seed)
    shuffle = property(lambda self: self._loader.shuffle)
    drop_last = False  # batches drop samples, not this sampler
    epoch = property(lambda self: self._loader._next_epoch)

    window_chunks = property(lambda self: self._loader.window_chunks)

    def _dealt(self):
        return self._loader._lanes_of(self.epoch, self._loader.world_size)

    def _ranks(self):
        return self._loader._find_ranks()

    def set_epoch(self, epoch):
        self._loader._go_to(epoch)
        if self._loader._theirs:
            self._loader._theirs.set_epoch(epoch)

    def batches(self, batch_size=None, drop_last=None):
        if not self._loader._served and self._loader.shuffle and self._loader._draws and self._loader.world_size == 1:
            self._loader._draw()  # PyTorch's sampler also draws each time
            self._loader._next_epoch = 0
        epoch, n, order = self.epoch, self._loader.bucket_by_length, self._order(batch_size, drop_last)
        if self._loader._resumed or self._loader._accelerate:  # Accelerate's skip_first_batches() reads by number on behalf of the loader
            self._loader._resumed = False
            self._loader._go_to(epoch + 1)
        if not self._loader._served:  # PyTorch takes the numbers of this epoch; the next iteration is the next epoch
            self._loader._next_epoch += 1
        numbers = (order.batch(k) for k in range(len(order)))
        yield from bucketing.regroup_all(numbers, n, self._bytes_of, self.seed, epoch) if n else numbers

    def _bytes_of(self, i):
        return self.dataset.sample_bytes(i)

    def state_dict(self):
        return self._loader.state_dict()

    def load_state_dict(self, state):
        self._loader.load_state_dict(state)

    def __iter__(self):
        yield from itertools.chain.from_iterable(self.batches())


class _Understood:
    """A PyTorch sampler's order, described by the daemon's options."""

    def __init__(self, shuffle, generator=None, distributed=None):
        self.shuffle, self.generator, self._distributed = shuffle, generator, distributed

    @classmethod
    def of(cls, sampler, dataset):
        """Returns the description of a sampler. None: the daemon has no such order."""
        data = torch.utils.data
        if (type(sampler) is data.SequentialSampler and len(sampler.data_source) == len(dataset)
                and dataset.is_in_order):
            return cls(False)
        if (type(sampler) is data.RandomSampler and len(sampler.data_source) == len(dataset) and not sampler.replacement
                and sampler.num_samples == len(dataset)):
            return cls(True, sampler.generator)
        if (type(sampler) is DistributedSampler and len(sampler.dataset) == len(dataset)
                and (sampler.shuffle or dataset.is_in_order and sampler.num_replicas == 1)
                and not (sampler.drop_last and len(dataset) % sampler.num_replicas)):
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
        """Epoch that was set on a DistributedSampler; None: each iter() begins the next epoch."""
        return self._distributed.epoch if self._distributed else None

    def set_epoch(self, epoch):
        if self._distributed:
            self._distributed.set_epoch(epoch)


def _source_of(dataset):
    """Returns (the dataset below all torch Subsets, the indices of each Subset)."""
    parts = []
    while isinstance(dataset, torch.utils.data.Subset):
        indices = dataset.indices
        parts.append(indices.tolist() if hasattr(indices, "tolist") else list(indices))  # a tensor's items are views, and could change
        dataset = dataset.dataset
    return dataset, parts


def _ours(dataset):
    """Returns the dataset as a Dataset of this module that may be changed."""
    if isinstance(dataset, served.Dataset):
        _has_methods(dataset)
        return Dataset.of(dataset)
    if isinstance(dataset, (str, os.PathLike)):
        return Dataset(dataset)
    if isinstance(dataset, torch.utils.data.Subset):
        return Dataset.of_torch_subset(dataset)
    raise TypeError(not_packed(dataset))


def _has_methods(dataset):
    """Returns True if a subclass of the user overrides the methods that return samples. Raises TypeError if the loader cannot support
    that."""
    kind = type(dataset)
    if isinstance(dataset, torch.utils.data.Subset):
        base, names = torch.utils.data.Subset, ("__getitem__", "__getitems__")
    elif isinstance(dataset, Dataset):
        base, names = Dataset, ("__getitem__", "__getitems__", "number", "read", "label", "sample_path")
    else:
        base, names = served.Dataset, ()
        check_methods(dataset)
    if kind.__len__ is not base.__len__:
        raise TypeError(f"{kind.__name__} has its own __len__(), but the loader delivers exactly the packed samples: "
                        "to change which samples come, or how many, use select(), or a sampler")
    if any(getattr(kind, name, None) is not getattr(base, name, None) for name in names):
        return True
    return base is torch.utils.data.Subset and _has_methods(dataset.dataset)


def _with_functions(dataset, loader, transform, target_transform):
    """Returns a Dataset of this module with these functions, or its own functions where none are given. Without any, returns the given
    object itself, as PyTorch does."""
    given, dataset = dataset, _ours(dataset)
    if isinstance(given, Dataset) and not (loader or transform or target_transform):
        return given
    if isinstance(dataset, _AsTheirs) and (loader or transform or target_transform):
        raise ValueError(f"{type(given).__name__} returns samples by its own methods: apply loader, transform and "
                         "target_transform there, or pass a Subset without such methods")
    dataset.loader = loader or dataset.loader
    dataset.transform = transform or dataset.transform
    dataset.target_transform = target_transform or dataset.target_transform
    return dataset
