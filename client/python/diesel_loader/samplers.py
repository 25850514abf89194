# SPDX-License-Identifier: Apache-2.0
"""Samplers for torch.utils.data that use dieseld's order."""
import os

import torch.utils.data
import torch.utils.data.distributed

from .frameworks import group
from .order import EpochOrder, first_batch, flags, n_batches, position
from .ranks import dealing, membership

STATE_VERSION = 2
BEGIN = (0, 0, 0, None)


class ChunkShuffleSampler(torch.utils.data.distributed.DistributedSampler):
    """Sample numbers in the order in which dieseld serves them, for DataLoaders that read by number.

    Samples that are close in storage are delivered close together, but every epoch has a new order: chunks are shuffled, and so
    are the samples within each window of `window_chunks` chunks. Every sample comes once per epoch, on one of the ranks.
    No sample comes twice (torch's DistributedSampler repeats some as padding), and all ranks get equally many batches.

    dataset: a diesel_loader Dataset. batch_size: the loader's; it matters only with several ranks or lanes. rank, world_size, lanes,
    drift: as for diesel_loader.torch.DataLoader. shuffle=False: storage order. Call set_epoch() before each epoch, as always.

    state_dict() and load_state_dict() resume in the middle of an epoch, as torchdata's StatefulDataLoader does, without
    drawing the same numbers again.
    """

    # start of the next iteration: batch, samples of that batch, samples of the epoch before its first batch, (lanes, drift)
    _start = BEGIN
    _place = BEGIN  # position of the newest iteration, in the same form
    _n_begun = 0

    def __init__(self, dataset, *, batch_size=1, seed=0, shuffle=True, rank=None, world_size=None, drop_last=False,
                 window_chunks=0, lanes=None, drift=None):
        # Not super().__init__(): it needs the ranks now, and they may not be known yet.
        if (rank is None) != (world_size is None):
            raise ValueError("give both rank and world_size, or neither")
        self.dataset, self.batch_size, self.seed = dataset, batch_size, seed
        self.shuffle, self.drop_last, self.window_chunks = shuffle, drop_last, window_chunks
        self.lanes, self.drift = dealing.check(lanes, drift, len(dataset), dataset.path)
        self.epoch = 0
        self._given = None if rank is None else (rank, world_size)

    def _ranks(self):
        return self._given or membership.find(os.environ, group())

    def _dealt(self):
        """Returns (lanes, drift) of an epoch that begins."""
        return dealing.in_force(self.lanes, self.drift, self.num_replicas, self.shuffle)

    def _order(self, batch_size=None, drop_last=None, seed=None, start=0, dealt=None):
        lanes, drift = dealt or self._dealt()
        rank, world_size = self._ranks()
        drop_last = self.drop_last if drop_last is None else drop_last
        return EpochOrder(self.dataset, seed=self.seed if seed is None else seed, epoch=self.epoch, flags=flags(self.shuffle, drop_last), rank=rank,
                     world=world_size, batch=batch_size or self.batch_size, start=start, window_chunks=dealing.window(self.window_chunks, lanes, self.dataset),
                     lanes=lanes, drift=drift)

    @property
    def rank(self):
        return self._ranks()[0]

    @property
    def num_replicas(self):
        return self._ranks()[1]

    @property
    def num_samples(self):
        """Returns the number of samples of this rank. It does not depend on the seed, so none is drawn for it."""
        order = self._order(seed=0, dealt=(1, 0))
        n = len(order)
        return max(n - 2, 0) * self.batch_size + sum(len(order.batch(k)) for k in range(max(n - 2, 0), n))

    @property
    def total_size(self):
        return len(self.dataset)

    def batches(self, batch_size=None, drop_last=None):
        """Yields the numbers of this rank's samples, batch by batch, of the epoch that is current when the first batch is asked for."""
        order = self._order(batch_size, drop_last)
        yield from (order.batch(k) for k in range(len(order)))

    def __iter__(self):
        """Yields the numbers of the epoch that is current when the first number is asked for."""
        (*place, dealt), self._start = self._start, BEGIN
        dealt = dealt or self._dealt()
        self._stand_at((*place, dealt))
        yield from self._numbers(self._order(start=place[2], dealt=dealt), *place, dealt, self._n_begun)

    def _stand_at(self, place):
        """Moves to a position. Iterations in progress no longer update it."""
        self._place = place
        self._n_begun += 1

    def _numbers(self, order, batch, skipped, start, dealt, iteration):
        for k in range(batch, len(order)):
            numbers = order.batch(k)
            for i in range(skipped, len(numbers)):
                if iteration == self._n_begun:
                    self._place = (k, i + 1, start, dealt) if i + 1 < len(numbers) else (k + 1, 0, start, dealt)
                yield numbers[i]
            skipped = 0

    def __len__(self):
        return self.num_samples

    def set_epoch(self, epoch):
        """Sets the epoch of the next iteration. If load_state_dict() has moved to the middle of this epoch, the iteration continues
        there."""
        if epoch != self.epoch:
            self.epoch, self._start = epoch, BEGIN
            self._stand_at(BEGIN)

    def state_dict(self):
        """Returns the position of the newest iteration, for load_state_dict(): small, JSON-safe.

        It counts samples over all ranks, so it is valid for any other world size and batch size. With several ranks this holds only
        between batches."""
        batch, of_batch, start, dealt = self._place
        world_size = self.num_replicas
        samples = position(len(self.dataset), start, world_size, self.batch_size, self.drop_last, batch)
        return {"version": STATE_VERSION, "epoch": self.epoch, "samples": samples,
                "of_batch": of_batch, "world_size": world_size, "batch_size": self.batch_size, **self._what(dealt or self._dealt())}

    def _what(self, dealt):
        """Returns the values that must be unchanged when a state is loaded."""
        subset = self.dataset.subset
        return {"dataset_version": self.dataset.version, "n_samples": len(self.dataset),
                "subset": None if subset is None else subset.digest(), "seed": self.seed,
                "shuffle": self.shuffle, "drop_last": self.drop_last, "window_chunks": dealing.window(self.window_chunks, dealt[0], self.dataset), "lanes": dealt[0], "drift": dealt[1]}

    def load_state_dict(self, state):
        """Makes the next iteration continue where `state` was taken, in the same epoch.

        Raises ValueError if the order would not be the same, or the ranks cannot continue there."""
        if state.get("version") != STATE_VERSION:
            raise ValueError(f"cannot resume: state of version {state.get('version')}, but this sampler supports version {STATE_VERSION}")
        dealt = dealing.resumed(state, self.lanes, self.drift, len(self.dataset), self.dataset.path)
        for name, value in self._what(dealt).items():
            was = state.get(name, dealing.BEFORE_THEY_WERE.get(name))
            if was != value:
                hint = f": open the dataset with version={was}" if name == "dataset_version" else ""
                raise ValueError(f"cannot resume: {name} was {was}, now it is {value}{hint}")
        place = self._elsewhere(state["epoch"], state["samples"], state["of_batch"], (state["world_size"], state["batch_size"]), dealt)
        self._start = (*place, dealt if state["samples"] or state["of_batch"] else None)
        self.epoch = state["epoch"]
        self._stand_at(self._start)

    def _elsewhere(self, epoch, samples, of_batch, was, dealt):
        """Converts the position to the present ranks and batch size, which may differ from those of the state."""
        n, now = len(self.dataset), (self.num_replicas, self.batch_size)
        if was != now:
            if was[0] == 1 and dealt[0] == 1:  # with several lanes a batch is sorted by lane, and its first samples are not the epoch's next
                samples, of_batch = samples + of_batch, 0
            if of_batch:
                raise ValueError(f"cannot resume: {was[0]} rank{'s' * (was[0] > 1)} with batches of {was[1]} stopped "
                                 f"{of_batch} samples into a batch, where {now[0]} with batches of {now[1]} cannot "
                                 "start: take the state between batches")
        batch = first_batch(n, samples, *now, self.drop_last)
        if batch is None:
            raise ValueError(f"cannot resume: {n - samples} samples are left in epoch {epoch}, too few for {now[0]} ranks: "
                             "continue with fewer ranks, or with the next epoch")
        return batch, of_batch, samples


class ChunkBatchSampler(torch.utils.data.BatchSampler):
    """The batches of a ChunkShuffleSampler, equally many on every rank.

    Frameworks call the class of a loader's batch sampler with another sampler, batch_size and drop_last, as Lightning does
    for predict() and overfit_batches: for a sampler of another class it makes PyTorch's BatchSampler."""

    def __new__(cls, sampler, batch_size=None, drop_last=None):
        if not isinstance(sampler, ChunkShuffleSampler):
            return torch.utils.data.BatchSampler(sampler, batch_size, bool(drop_last))
        return super().__new__(cls)

    def __init__(self, sampler, batch_size=None, drop_last=None):
        self.sampler, self._batch_size, self._drop_last = sampler, batch_size, drop_last

    @property
    def batch_size(self):
        return self._batch_size or self.sampler.batch_size

    @property
    def drop_last(self):
        return self.sampler.drop_last if self._drop_last is None else self._drop_last

    def set_epoch(self, epoch):
        """Sets the epoch of the sampler."""
        self.sampler.set_epoch(epoch)

    def __iter__(self):
        return self.sampler.batches(self.batch_size, self.drop_last)

    def __len__(self):
        return n_batches(len(self.sampler.dataset), self.sampler.num_replicas, self.batch_size, self.drop_last)

    def __reduce__(self):
        return type(self), (self.sampler, self._batch_size, self._drop_last)
