# SPDX-License-Identifier: Apache-2.0
"""The order of dieseld as samplers of torch.utils.data."""
import itertools
import os

import torch.utils.data
import torch.utils.data.distributed

from . import membership, native
from .frameworks import group
from .order import Order

DEFAULT_WINDOW_CHUNKS = 8


class ChunkShuffleSampler(torch.utils.data.distributed.DistributedSampler):
    """Sample numbers in the order in which dieseld serves them, for DataLoaders that read by number.

    Samples that are near each other in storage come near each other, and still every epoch is another shuffle:
    chunks are shuffled, and so are the samples of each `window_chunks` of them. Every sample comes once an epoch,
    from one of the ranks: none twice, as torch's DistributedSampler pads with, and no rank goes without a batch.

    dataset: a diesel_loader Dataset. batch_size: of the loader; only ranks depend on it. rank, world_size: as for
    diesel_loader.torch.DataLoader. shuffle=False: the order of storage. set_epoch() before each epoch, as always.
    """

    def __init__(self, dataset, *, batch_size=1, seed=0, shuffle=True, rank=None, world_size=None, drop_last=False,
                 window_chunks=DEFAULT_WINDOW_CHUNKS):
        # Not super().__init__(): it wants to know the ranks now, and they may not exist yet.
        if (rank is None) != (world_size is None):
            raise ValueError("give both rank and world_size, or neither")
        self.dataset, self.batch_size, self.seed = dataset, batch_size, seed
        self.shuffle, self.drop_last, self.window_chunks = shuffle, drop_last, window_chunks
        self.epoch = 0
        self._given = None if rank is None else (rank, world_size)

    def _ranks(self):
        return self._given or membership.find(os.environ, group())

    def _order(self):
        rank, world_size = self._ranks()
        flags = (native.SHUFFLE if self.shuffle else 0) | (native.DROP_LAST if self.drop_last else 0)
        return Order(self.dataset, seed=self.seed, epoch=self.epoch, flags=flags, rank=rank, world=world_size,
                     batch=self.batch_size, window_chunks=self.window_chunks)

    @property
    def rank(self):
        return self._ranks()[0]

    @property
    def num_replicas(self):
        return self._ranks()[1]

    @property
    def num_samples(self):
        """How many samples this rank gets."""
        order = self._order()
        n = len(order)
        return max(n - 2, 0) * self.batch_size + sum(len(order.batch(k)) for k in range(max(n - 2, 0), n))

    @property
    def total_size(self):
        return len(self.dataset)

    def batches(self):
        """The numbers of this rank's samples, batch by batch, in the epoch that it is now."""
        order = self._order()
        return (order.batch(k) for k in range(len(order)))

    def __iter__(self):
        return itertools.chain.from_iterable(self.batches())

    def __len__(self):
        return self.num_samples

    def set_epoch(self, epoch):
        """The next iteration is this epoch's."""
        self.epoch = epoch


class ChunkBatchSampler(torch.utils.data.BatchSampler):
    """The batches of a ChunkShuffleSampler: as many on every rank."""

    def __init__(self, sampler):
        self.sampler = sampler

    @property
    def batch_size(self):
        return self.sampler.batch_size

    @property
    def drop_last(self):
        return self.sampler.drop_last

    def __iter__(self):
        return self.sampler.batches()

    def __len__(self):
        return native.lib.diesel_n_batches(len(self.sampler.dataset), self.sampler.num_replicas, self.batch_size,
                                           native.DROP_LAST if self.drop_last else 0)
