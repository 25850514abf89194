# SPDX-License-Identifier: Apache-2.0
"""A PyTorch DataLoader over a dataset that dieseld serves."""
import io
import itertools
import os

import torch
import torch.utils.data

from . import native
from .dataset import Dataset
from .native import lib
from .session import Session

__all__ = ["DataLoader", "Dataset", "pil_loader"]

STATE_VERSION = 1
DEFAULT_RECONNECT_S = 60
IMAGE_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def pil_loader(data):
    """An RGB PIL image of an encoded one (1-D uint8 tensor): what torchvision's ImageFolder gives."""
    from PIL import Image
    with Image.open(io.BytesIO(memoryview(data.numpy()))) as image:
        return image.convert("RGB")


class DataLoader:
    """Iterates a packed dataset in batches, as torch.utils.data.DataLoader does.

    dataset: a Dataset or the path of one.
    batch_size: samples a batch.
    shuffle: chunk-wise shuffle, another order every epoch; False: the order of storage, always the same.
    seed: of the shuffle. The order is a pure function of (dataset version, seed, epoch, world size x
        batch size): the same on any machine, whatever the daemon's settings.
    transform: called with each sample as ImageFolder would hand it over: an RGB PIL image where the path
        ends as an image's, else a 1-D uint8 tensor. `loader` replaces that first step: called with the
        1-D uint8 tensor of the stored bytes.
    num_workers: processes that run loader, transform and collate_fn. Without any of these there is no
        Python work a sample, and none is started: batches come ready from shared memory.
    drop_last: leave out the last batch where it is not full.
    collate_fn: called with a list of (sample, label); default torch's default_collate.
    rank, world_size: this process's share; default torch.distributed, else $RANK and $WORLD_SIZE, else
        the whole. Every rank has the same number of batches, every sample is delivered once an epoch.
    pin_memory: copy batches into page-locked memory.
    window_chunks: chunks whose samples are shuffled together; 0: the daemon's default.
    timeout: seconds to wait for a daemon that went away; then TimeoutError.
    multiprocessing_context, prefetch_factor, persistent_workers, worker_init_fn: as in PyTorch.

    A batch is (data, labels): labels int64 [B], numbered as ImageFolder numbers class folders (-1 without).
    Without loader, transform and collate_fn, data is one uint8 tensor [B, n] when all samples of the
    dataset have the same length, else a list of B 1-D uint8 tensors. These view shared memory that goes
    back to the daemon when the last reference is gone; a caller that keeps many batches gets copies
    instead. [B, n] tensors may be written to; the 1-D views must not be (clone() them).
    """

    def __init__(self, dataset, batch_size=1, shuffle=False, *, seed=0, transform=None, loader=None,
                 target_transform=None, num_workers=0, drop_last=False, collate_fn=None, rank=None,
                 world_size=None, pin_memory=False, window_chunks=0, timeout=DEFAULT_RECONNECT_S,
                 multiprocessing_context=None, prefetch_factor=2, persistent_workers=False,
                 worker_init_fn=None):
        self.dataset = dataset if isinstance(dataset, Dataset) else Dataset(dataset)
        self.rank, self.world_size = _membership(rank, world_size)
        for name, value, least in (("batch_size", batch_size, 1), ("num_workers", num_workers, 0)):
            if not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be an integer of at least {least}, not {value!r}")
        if len(self.dataset) < self.world_size:
            raise ValueError(f"{self.dataset.path} has {len(self.dataset)} samples, fewer than the "
                             f"{self.world_size} ranks that share it")
        self.batch_size, self.shuffle, self.seed, self.drop_last = batch_size, shuffle, seed, drop_last
        self.pin_memory, self.window_chunks, self.timeout = pin_memory, window_chunks, timeout
        self._make = _Assembly(loader, transform, target_transform, collate_fn)
        self.num_workers = num_workers if self._make.has_work else 0
        self._worker_options = {"multiprocessing_context": multiprocessing_context,
                                "persistent_workers": persistent_workers, "worker_init_fn": worker_init_fn,
                                "prefetch_factor": prefetch_factor}
        self._next_epoch = 0      # what the next iter() starts with
        self._next_batch = 0
        self._position = (0, 0)   # epoch, batches delivered of it
        self._session = self._workers = self._pid = None
        self._session_at = None   # (epoch, batch) the session stands at, None inside an epoch

    def __len__(self):
        """Batches an epoch of this rank: the same number on every rank."""
        full, rest = divmod(len(self.dataset), self.batch_size * self.world_size)
        return full + (1 if rest and not self.drop_last else 0)

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
            ours = self._session if self._pid == os.getpid() else None
            self.window_chunks = (ours or Session(self.dataset, **self.session_options(0, 0))).window_chunks
        return self.window_chunks

    def _adopt_window(self, window_chunks):
        """Resuming, a loader that was given no window takes the one of the order it resumes."""
        if self.window_chunks or not isinstance(window_chunks, int) or window_chunks < 0:
            return
        self.window_chunks = window_chunks
        self._session = self._workers = None  # they have the daemon's

    def __iter__(self):
        epoch, first = self._next_epoch, self._next_batch
        self._next_epoch, self._next_batch = epoch + 1, 0
        self._position = (epoch, first)
        batches = self._from_workers(epoch, first) if self.num_workers else self._from_session(epoch, first)
        return _Iterator(self, epoch, first, batches)

    def session_options(self, epoch, first, stride=1, offset=0):
        flags = (native.SHUFFLE if self.shuffle else 0) | (native.DROP_LAST if self.drop_last else 0)
        return {"seed": self.seed, "epoch": epoch, "first_batch": first, "flags": flags, "rank": self.rank,
                "world": self.world_size, "batch": self.batch_size, "stride": stride, "offset": offset,
                "window_chunks": self.window_chunks, "reconnect_ms": int(self.timeout * 1000)}

    def _from_session(self, epoch, first):
        if self._session is None or self._pid != os.getpid():
            self._session = Session(self.dataset, **self.session_options(epoch, first))
            self._pid = os.getpid()
        elif self._session_at != (epoch, first):
            self._session.seek(epoch, first)
        self._session_at = None  # unknown until the epoch is drained
        while True:
            lease = self._session.next_batch()
            if lease is None:
                break
            yield self._make.batch(lease, self._session, self.dataset)
        self._session_at = (epoch + 1, 0)

    def _from_workers(self, epoch, first):
        if self._workers is None or self._pid != os.getpid():
            stream = _WorkerStream(self)
            self._workers = torch.utils.data.DataLoader(stream, batch_size=None,
                                                        num_workers=self.num_workers, **self._worker_options)
            self._pid = os.getpid()
        self._workers.dataset.start(epoch, first)
        return iter(self._workers)

    def __getstate__(self):
        return {**self.__dict__, "_session": None, "_workers": None, "_pid": None}


class _Iterator:
    """One epoch. Marks where next() begins and ends, for diesel-analyze."""

    def __init__(self, loader, epoch, first, batches):
        self._loader, self._epoch, self._batches = loader, epoch, batches
        self._count = itertools.count(first + 1)
        self._left = len(loader) - first

    def __iter__(self):
        return self

    def __len__(self):
        return self._left

    def __next__(self):
        lib.diesel_mark(native.MARK_NEXT_BEGIN, 0)
        try:
            batch = next(self._batches)
            if self._loader.pin_memory and torch.cuda.is_available():
                batch = torch.utils.data._utils.pin_memory.pin_memory(batch)
            self._left -= 1
            self._loader._position = (self._epoch, next(self._count))
            return batch
        finally:
            lib.diesel_mark(native.MARK_NEXT_END, 0)


class _Assembly:
    """From a batch in shared memory to what the user sees."""

    def __init__(self, loader, transform, target_transform, collate_fn):
        self.loader, self.transform, self.target_transform = loader, transform, target_transform
        self.collate_fn = collate_fn
        self.has_work = any((loader, transform, target_transform, collate_fn))

    def batch(self, lease, session, dataset):
        batch = lease.batch
        labels = torch.frombuffer(native.array_at(batch.labels, batch.n_items, native.c_int64),
                                  dtype=torch.int64).clone()
        data = self._packed(lease, batch) if batch.packed else self._views(lease, batch)
        if session.crowded:  # the caller keeps batches: its own copy, so that the daemon can work ahead
            data = data.clone() if batch.packed else [view.clone() for view in data]
        return self._work(data, labels.tolist(), batch, dataset) if self.has_work else (data, labels)

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

    def _work(self, data, labels, batch, dataset):
        samples = []
        for i, (item, label) in enumerate(zip(data, labels)):
            sample = self._load(item, batch.items[i].sample, dataset)
            if self.transform:
                sample = self.transform(sample)
            if self.target_transform:
                label = self.target_transform(label)
            samples.append((sample, label))
        if self.collate_fn:
            return self.collate_fn(samples)
        return tuple(torch.utils.data.default_collate(samples))

    def _load(self, data, sample, dataset):
        if self.loader:
            return self.loader(data)
        if self.transform and dataset.sample_path(sample).lower().endswith(IMAGE_EXTENSIONS):
            return pil_loader(data)
        return data


class _WorkerStream(torch.utils.data.IterableDataset):
    """What each worker process iterates: every num_workers-th batch of the epoch, through its own session.

    PyTorch's DataLoader asks its workers in turn, so the batches come out in the session's order."""

    def __init__(self, loader):
        self._loader = loader
        self._begin = torch.zeros(2, dtype=torch.int64).share_memory_()  # epoch, first batch
        self._session = None

    def start(self, epoch, first):
        """Tells the workers, persistent ones too, what to iterate next."""
        self._begin[0], self._begin[1] = epoch, first

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        epoch, first = self._begin.tolist()
        loader = self._loader
        options = loader.session_options(epoch, first + worker.id, worker.num_workers,
                                         (first + worker.id) % worker.num_workers)
        if first + worker.id >= len(loader):
            return  # fewer batches left than workers
        session = Session(loader.dataset, **options)
        while (lease := session.next_batch()) is not None:
            yield loader._make.batch(lease, session, loader.dataset)


def _membership(rank, world_size):
    """(rank, world size): as given, from torch.distributed, from the environment, or (0, 1)."""
    if (rank is None) != (world_size is None):
        raise ValueError("give both rank and world_size, or neither")
    if rank is None:
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            rank, world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()
        else:
            rank, world_size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if not 0 <= rank < world_size:
        raise ValueError(f"rank {rank} is not within world size {world_size}")
    return rank, world_size
