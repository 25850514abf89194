# SPDX-License-Identifier: Apache-2.0
"""Checks that ranks that read a dataset together use the same order.

Before the first batch, the ranks compare all values that determine the order, except the position. For this a rank waits at
most SOON_S for the others. At the second batch they compare the position, too. They use a store that all of them see, which
needs no collective call. A single rank that reads one batch gets it without the others. If it continues without them, its loader
logs a warning after a while."""
import json
import time

SOON_S = 1    # maximum wait at the first batch for the other ranks to begin
WAIT_S = 10   # maximum wait at the second batch for the other ranks to begin the epoch
PAUSE_S = 0.01

_n_loaders: dict[str, int] = {}  # loaders made so far, by name; all ranks make their loaders in the same order


def number(name):
    """Returns the number of a new loader among those with its name."""
    _n_loaders[name] = _n_loaders.get(name, -1) + 1
    return _n_loaders[name]


def check(store, loader, part, ranks, facts, path, patience_s):
    """Returns True if all ranks have called this for a part of the loader with the same facts, a dict. Raises ValueError on all ranks
    if one rank's facts differ, also in an earlier part. False: not all ranks have come; this rank has withdrawn, and may try again."""
    rank, world_size = ranks
    key = f"{loader}/{part}"
    mine = json.dumps({"rank": rank, **facts}, sort_keys=True)
    n, end = 0, time.monotonic() + patience_s

    def look():
        if store.add(f"{loader}/n_differ", 0):  # older stores cannot check whether a key exists
            said = store.get(f"{loader}/differ").decode()
            raise ValueError(f"{path}: ranks do not agree on the order ({said}), so some samples would come twice, and "
                             "others never: pass the same dataset and arguments on all ranks, and resume all ranks "
                             "from the same state")

    while True:
        first = json.loads(store.compare_set(key, "", mine))
        differ = [name for name, value in facts.items() if first.get(name) != value]
        if differ:
            said = ", ".join(f"{name} is {facts[name]} on rank {rank} and {first.get(name)} on rank {first['rank']}" for name in differ)
            store.set(f"{loader}/differ", said)
            store.add(f"{loader}/n_differ", 1)
            look()
        n = store.add(f"{key}/n", 0 if n else 1)  # a rank is counted when it has compared
        look()
        if n >= world_size:
            return True
        if time.monotonic() > end:
            break
        time.sleep(PAUSE_S)
    if store.add(f"{key}/n", -1) >= world_size - 1:  # the last rank arrived just now, and continues
        store.add(f"{key}/n", 1)
        look()
        return True
    store.compare_set(key, mine, "")  # all ranks compare with another rank's facts
    return False


def seed(store, key, rank, drawn):
    """Returns the number that rank 0 has drawn."""
    if rank == 0:
        store.set(key, str(drawn))
        store.add(f"{key}/n", 1)
    end = time.monotonic() + 60 * WAIT_S
    while not store.add(f"{key}/n", 0):
        if time.monotonic() > end:
            raise RuntimeError("rank 0 has not drawn this loader's seed: pass seed= on all ranks, or iterate over the loader on all of them")
        time.sleep(PAUSE_S)
    return int(store.get(key))
