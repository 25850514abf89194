# SPDX-License-Identifier: Apache-2.0
"""Ranks that go through a dataset together compare what their order follows from, before the first batch of each epoch.

They do it by the store of torch.distributed, which needs no collective call: a rank that iterates alone is told so after a
while, and goes on."""
import json
import logging
import time

WAIT_S = 10  # for the others to begin
PAUSE_S = 0.01

log = logging.getLogger("diesel_loader")
_n_loaders = {}  # of each name: all ranks make their loaders in one order


def number(name):
    """The number of a loader among those of its name."""
    _n_loaders[name] = _n_loaders.get(name, -1) + 1
    return _n_loaders[name]


def check(store, key, ranks, facts, path):
    """ValueError on all ranks where one's facts differ: a dict, the same on each. What others have begun is known by the key."""
    rank, world_size = ranks
    mine = json.dumps({"rank": rank, **facts}, sort_keys=True)
    first = json.loads(store.compare_set(key, "", mine))
    differ = [name for name, value in facts.items() if first.get(name) != value]
    if differ:
        said = ", ".join(f"{name} is {facts[name]} on rank {rank} and {first.get(name)} on rank {first['rank']}" for name in differ)
        store.set(f"{key}/differ", said)
        store.add(f"{key}/n_differ", 1)
    n, end = store.add(f"{key}/n", 1), time.monotonic() + WAIT_S
    while True:
        if store.add(f"{key}/n_differ", 0):  # older ones cannot tell whether there is a key
            said = store.get(f"{key}/differ").decode()
            raise ValueError(f"{path}: ranks do not agree on the order, and would have samples twice, and others never: {said}: give all ranks "
                             "the same dataset and arguments, and resume all of them from one state")
        if n >= world_size:
            return
        if time.monotonic() > end:
            break
        time.sleep(PAUSE_S)
        n = store.add(f"{key}/n", 0)
    log.warning("%s: rank %d begins epoch %s with its share of the samples, and %d of %d ranks have not begun it for %d s: a rank that is "
                "to have all samples is given rank=0 and world_size=1", path, rank, facts["epoch"], world_size - n, world_size, WAIT_S)


def seed(store, key, rank, drawn):
    """The number that rank 0 has drawn."""
    if rank == 0:
        store.set(key, str(drawn))
        store.add(f"{key}/n", 1)
    end = time.monotonic() + 60 * WAIT_S
    while not store.add(f"{key}/n", 0):
        if time.monotonic() > end:
            raise RuntimeError("rank 0 has not drawn the seed of this loader: give seed= on all ranks, or use the loader on all of them")
        time.sleep(PAUSE_S)
    return int(store.get(key))
