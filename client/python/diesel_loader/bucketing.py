# SPDX-License-Identifier: Apache-2.0
"""Batches of samples of similar length: n consecutive batches of the order are held, sorted and cut again.

Nothing else changes: the same samples in the same n batches, as many in each as before, so that ranks stay in step, a state
is a batch number, and an epoch is delivered once. Which of the n comes first is drawn from (seed, epoch, which n they are)
without the rank, so that all ranks have their short batches, and their long ones, at the same steps.
"""
from __future__ import annotations

import ctypes

from . import errors, native, seeding

DEFAULT_BATCHES = 8
MAX_BATCHES = 24  # twice as many are held, out of native.SLOTS_MAX slots


def regroup(batches, length, turn):
    """Redistributes samples into lists of the same sizes, by length(sample). turn: integers from which the places of
    the new batches are drawn. Samples of equal length keep their order."""
    left = sorted((sample for batch in batches for sample in batch), key=length)
    made, at = [None] * len(batches), 0
    for place in sorted(range(len(batches)), key=lambda k: seeding.derive(*turn, k)):
        end = at + len(batches[place])
        made[place], at = left[at:end], end
    return made


def regroup_all(batches, n, length, seed, epoch):
    """Yields the batches of an epoch, regrouped n at a time."""
    held, turn = [], 0
    for batch in batches:
        held.append(batch)
        if len(held) == n:
            yield from regroup(held, length, (seed, epoch, turn))
            held, turn = [], turn + 1
    if held:
        yield from regroup(held, length, (seed, epoch, turn))


def gathered(batch, epoch, index, items):
    """Fills a native.Batch with these native.Items. Returns an object that must live as long as the batch is used."""
    table = (native.Item * len(items))(*items)
    labels = (native.c_int64 * len(items))(*[item.label for item in items])
    batch.epoch, batch.index, batch.n_items, batch.item_bytes, batch.packed = epoch, index, len(items), 0, None
    batch.items = ctypes.cast(table, ctypes.POINTER(native.Item))
    batch.labels = ctypes.addressof(labels)
    return table, labels


class _Copied:
    """A copy of a batch from shared memory, for a session that cannot hold as many batches as must be regrouped."""

    def __init__(self, lease):
        sizes = [item.bytes for item in lease.batch.items[:lease.batch.n_items]]
        self._bytes = (native.c_uint8 * max(sum(sizes), 1))()
        items, at = [], ctypes.addressof(self._bytes)
        for item, size in zip(lease.batch.items[:lease.batch.n_items], sizes):
            if size:
                ctypes.memmove(at, item.data, size)
            items.append(native.Item(at, item.sample, size, item.label))
            at += size
        self.batch = native.Batch()
        self._table = gathered(self.batch, lease.batch.epoch, lease.batch.index, items)

    @property
    def life(self):
        raise ConnectionError("the batch is a copy, not in the daemon's memory")  # the trainer does the work


class _Gathered:
    """A lease on samples of several batches. Holds the leases on all of these batches."""

    __slots__ = ("batch", "_leases", "_parts", "_keep")

    def __init__(self, epoch, index, samples):
        """samples: tuples (native.Item, lease, place in its batch)."""
        self.batch = native.Batch()
        self._keep = gathered(self.batch, epoch, index, [item for item, _, _ in samples])
        self._leases = list({id(lease): lease for _, lease, _ in samples}.values())
        self._parts = [(lease, place) for _, lease, place in samples]

    @property
    def life(self):
        lives = {lease.life for lease in self._leases}
        if len(lives) != 1:
            raise ConnectionError("the batch has samples from several daemon connections")
        return lives.pop()

    def segments(self):
        return sorted({segment for lease in self._leases for segment in lease.segments()})

    @property
    def places(self):
        """Returns the location of each sample: [(batch buffer, place)]."""
        batch_buffers = {id(lease): lease.batch_buffer for lease in self._leases}
        return [(batch_buffers[id(lease)], place) for lease, place in self._parts]


class Bucketed:
    """A session.Session whose batches are regrouped, n at a time. seed: the seed of the order. Has the same methods and errors."""

    def __init__(self, open_session, n, seed, epoch, batch, **options):
        self._n, self._seed = n, seed
        self._session = open_session(epoch, batch - batch % n, **options)
        self._begin(batch)

    def __getattr__(self, name):
        return getattr(self._session, name)

    def _begin(self, batch):
        self._skip, self._held, self._failed = batch % self._n, [], []
        self._ready, self._ended = [], False
        self._taken = batch - batch % self._n  # number of batches of the epoch that the session has delivered

    def seek(self, epoch, batch):
        self._session.seek(epoch, batch - batch % self._n)
        self._begin(batch)

    @property
    def n_ready(self):
        if self._ready or self._ended:
            return len(self._ready) + self._ended
        missing = min(self._n - len(self._held) - len(self._failed), self._session.n_batches - self._taken)
        return int(self._session.n_ready >= missing)

    @property
    def crowded(self):
        return not (self._ready or self._ended) and self.must_copy

    @property
    def must_copy(self):
        """Returns True if the session cannot hold n more batches now."""
        return self._session.n_held + self._n > self._session.max_held - 1

    def next_batch(self):
        """Like Session.next_batch(), but raises the errors of damaged batches first."""
        while not self._ready:
            if self._ended:
                self._ended = False
                return None
            self._collect()
            del self._ready[:self._skip]
            self._skip = 0
        found = self._ready.pop(0)
        try:
            if isinstance(found, Exception):
                raise found
            return found
        finally:
            del found  # see Session._failed()

    def _collect(self):
        """Takes n batches, or the rest of the epoch."""
        while len(self._held) + len(self._failed) < self._n:
            if self._session.crowded:
                self._held = [lease if isinstance(lease, _Copied) else _Copied(lease) for lease in self._held]
            try:
                lease = self._session.next_batch()
            except OSError as error:
                if not getattr(error, "is_of_batch", False):
                    raise
                self._failed.append(error.with_traceback(None))  # its frames hold this session
                self._taken += 1
                continue
            if lease is None:
                self._ended, self._taken = True, 0
                break
            self._held.append(lease)
            self._taken += 1
        held, self._held = self._held, []
        failed, self._failed = self._failed, []
        self._ready = [*failed, *self._regrouped(held, len(failed))]

    def _regrouped(self, held, n_failed):
        if not held:
            return []
        epoch, turn = held[0].batch.epoch, held[0].batch.index // self._n
        batches = [[(item, lease, place) for place, item in enumerate(lease.batch.items[:lease.batch.n_items])]
                   for lease in held]
        made = regroup(batches, lambda sample: sample[0].bytes, (self._seed, epoch, turn))
        first = turn * self._n + n_failed
        return [_Gathered(epoch, first + k, samples) for k, samples in enumerate(made)]
