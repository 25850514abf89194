# SPDX-License-Identifier: Apache-2.0
"""A job over many nodes, simulated window by window, from costs that were measured.

All ranks walk one order, so in each window every node needs some samples of each of its chunks: a part of 1 / n of the chunk. A chunk's
owner reads it once, and sends the parts. What the simulation has: each owner's outgoing link and each node's incoming one serve one
byte after the other; storage is one server that all share; each node has cores for sending, receiving, asking and answering; and no
window is used before all of its parts are there. Nodes go on together, as data-parallel training makes them. What it has not: latencies, lost
packets, switches that are oversubscribed, other jobs.
"""
import dataclasses
import random


@dataclasses.dataclass
class Costs:
    """Measured; seconds of one core."""
    byte_s: float       # a byte over the link: both ends together
    question_s: float   # a question and its answer beside the bytes: both ends together
    owner_s: float      # finding a chunk's owner, for each member there is: once for each chunk, as long as the members stay
    redis_member_s: float      # of the Redis server, a second, for each node of the group
    redis_pair_s: float        # and for each pair of nodes


@dataclasses.dataclass
class Site:
    """Assumed: said beside the results."""
    link_bytes_per_s: float = 3.125e9      # 25 Gbit/s
    storage_bytes_per_s: float = 20e9      # what all nodes have together
    cores: float = 1                       # of each node, for this: the process that sends and receives has one thread
    sample_bytes: float = 110_000
    n_files: int = 100_000_000
    chunk_bytes: float = 8 << 20
    node_samples_per_s: float = 4000       # that a node's devices could use
    cached: float = 1.0                    # share of the dataset in the nodes' memory together
    window: int = 8
    ahead: int = 8                         # chunks that are read ahead, beside the window


RESOURCES = ("storage", "owners' links", "cores")


def simulate(n, site, costs, free=None, windows=400, seed=1):
    """Speed over the devices' own, in a steady epoch with n nodes; `free`: a resource that costs nothing."""
    draw = random.Random(seed)
    link_free, cores_free = [0.0] * n, [0.0] * n    # when each owner's are free again
    storage_free = 0.0
    chunk = site.chunk_bytes
    use_s = site.window * chunk / site.sample_bytes / (n * site.node_samples_per_s)   # a window, if nothing waits
    used = [0.0]                                    # when window k was used up
    depth = site.ahead // site.window + 1           # windows that are asked for before they are used
    sent = chunk * (n - 1) / n                      # by the owner of a chunk
    taken = site.window * sent / n                  # by each node, in a window
    read_s = 0 if free == "storage" else chunk / site.storage_bytes_per_s
    send_s, take_s = (0, 0) if free == "owners' links" else (sent / site.link_bytes_per_s, taken / site.link_bytes_per_s)
    answer_s = (sent * costs.byte_s / 2 + (n - 1) * costs.question_s / 2) / site.cores
    ask_s = (taken * costs.byte_s / 2 + site.window * costs.question_s / 2) / site.cores
    if free == "cores":
        answer_s = ask_s = 0
    for k in range(windows):
        asked = used[max(0, k - depth + 1)]
        there = asked + max(take_s, ask_s)
        for _ in range(site.window):
            owner, ready = draw.randrange(n), asked
            if draw.random() >= site.cached:
                storage_free = ready = max(storage_free, asked) + read_s
            cores_free[owner] = max(cores_free[owner], ready) + answer_s
            link_free[owner] = max(link_free[owner], ready) + send_s
            there = max(there, cores_free[owner], link_free[owner])
        used.append(max(there, used[-1]) + use_s)
    return windows * use_s / used[-1]


def speed_and_limit(n, site, costs):
    """The speed, and the resource without which it would be the most; None: nothing is waited for."""
    speed = simulate(n, site, costs)
    if speed > 0.97:
        return speed, None
    without = {name: simulate(n, site, costs, free=name) for name in RESOURCES}
    return speed, max(without, key=without.get)


def redis_cores(n, costs):
    return n * costs.redis_member_s + n * n * costs.redis_pair_s
