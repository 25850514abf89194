# SPDX-License-Identifier: Apache-2.0
"""A job over many nodes, simulated from costs that were measured: with one order for all nodes, and with a lane per node.

One order: in each window every node needs some samples of each of its chunks, a part of 1 / n of it. A chunk's owner reads it once, and
sends the parts (or all of it to each node, where only whole chunks are exchanged).

Lanes: a node needs the chunks of its own lane, and has them in memory after the first epoch. With drift 1/m, that share of the chunks
moves to other lanes with the epoch, and each of these comes whole from the one node that had it. Lanes reach their windows one after the
other, as in the order (docs/reference/formats.md).

In the simulation, each node's outgoing link and its incoming one serve one byte after the other. Storage is one server that all share. Each
node has cores for sending, receiving, asking and answering, and uses no window before all of it has arrived. Nodes advance together, as in
data-parallel training. The simulation leaves out latencies, lost packets, oversubscribed switches and other jobs.
"""
import dataclasses
import random


@dataclasses.dataclass
class Costs:
    """Measured costs, in seconds of one core."""
    byte_s: float       # one byte over the link, both ends together
    question_s: float   # one question and its answer without the chunk's bytes, both ends together
    owner_s: float      # finding a chunk's owner, per member: once per chunk, as long as the members stay
    redis_member_s: float      # CPU time of the Redis server, per second and node of the group
    redis_pair_s: float        # CPU time of the Redis server, per second and pair of nodes


@dataclasses.dataclass
class Site:
    """Assumed figures, which are printed with the results."""
    link_bytes_per_s: float = 3.125e9      # 25 Gbit/s, each way
    storage_bytes_per_s: float = 20e9      # storage bandwidth of all nodes together
    cores: float = 1                       # per node, for the exchange: the process that sends and receives has one thread
    sample_bytes: float = 110_000
    n_files: int = 100_000_000
    chunk_bytes: float = 8 << 20
    node_samples_per_s: float = 4000       # upper limit of a node's devices
    cached: float = 1.0                    # share of the dataset in the nodes' memory together
    window: int = 8
    ahead: int = 8                         # chunks prefetched, in addition to the window

    def chunk_use_s(self):
        """Returns the seconds in which a node's devices use a chunk's worth of samples."""
        return self.chunk_bytes / self.sample_bytes / self.node_samples_per_s

    def storage_share(self, n):
        """Returns the largest share of n nodes' device speed while all data comes from storage."""
        return min(1.0, self.storage_bytes_per_s / (n * self.chunk_bytes / self.chunk_use_s()))


STORAGE, LINKS, CORES = "storage", "owners' links", "cores"
RESOURCES = (STORAGE, LINKS, CORES)


def one_order(n, site, costs, free=None, whole=False, windows=400, seed=1):
    """Returns the speed as a share of the devices' own, with n nodes. `free`: a resource that costs nothing. `whole`: chunks are sent
    whole, not in parts."""
    draw = random.Random(seed)
    link_free, cores_free = [0.0] * n, [0.0] * n    # times at which each owner's link and cores are free again
    storage_free = 0.0
    chunk = site.chunk_bytes
    use_s = site.window * site.chunk_use_s() / n    # time to use a window, if nothing waits
    used = [0.0]                                    # time at which window k was used up
    depth = site.ahead // site.window + 1           # windows requested before they are used
    sent = chunk * (n - 1) / (1 if whole else n)    # bytes sent by the owner of a chunk, per chunk
    taken = site.window * sent / n                  # bytes received by each node, per window
    read_s = 0 if free == STORAGE else chunk / site.storage_bytes_per_s
    send_s, take_s = (0, 0) if free == LINKS else (sent / site.link_bytes_per_s, taken / site.link_bytes_per_s)
    answer_s = (sent * costs.byte_s / 2 + (n - 1) * costs.question_s / 2) / site.cores
    ask_s = (taken * costs.byte_s / 2 + site.window * costs.question_s / 2) / site.cores
    if free == CORES:
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


class Lanes:
    """Simulates nodes, each of which has its own lane."""

    def __init__(self, n, site, costs, free, seed):
        self.n, self.site, self.draw = n, site, random.Random(seed)
        self.cores_free, self.out_free, self.in_free, self.storage_free = [0.0] * n, [0.0] * n, [0.0] * n, 0.0
        chunk = site.chunk_bytes
        self.read_s = 0 if free == STORAGE else chunk / site.storage_bytes_per_s
        self.link_s = 0 if free == LINKS else chunk / site.link_bytes_per_s
        self.core_s = 0 if free == CORES else (chunk * costs.byte_s + costs.question_s) / 2 / site.cores

    def read(self, node, asked):
        """Returns the time at which a chunk that the node requests from storage arrives."""
        self.storage_free = max(self.storage_free, asked) + self.read_s
        self.in_free[node] = max(self.in_free[node] + self.link_s, self.storage_free, asked + self.link_s)
        return self.in_free[node]

    def move(self, node, asked):
        """Returns the time at which a chunk from a random other node arrives."""
        other = self.draw.randrange(self.n - 1)
        other += other >= node
        self.cores_free[other] = sent = max(self.cores_free[other], asked) + self.core_s
        self.out_free[other] = sent = max(self.out_free[other], sent) + self.link_s
        self.in_free[node] = taken = max(self.in_free[node] + self.link_s, sent)
        self.cores_free[node] = max(self.cores_free[node], asked) + self.core_s
        return max(taken, self.cores_free[node])

    def window(self, node, asked, n_chunks, moved):
        """Returns the time at which all chunks of a window have arrived."""
        there = asked
        for _ in range(n_chunks):
            if self.draw.random() >= self.site.cached:
                there = max(there, self.read(node, asked))
            elif moved and self.draw.random() < moved:
                there = max(there, self.move(node, asked))
        return there


def lanes(n, site, costs, drift=0, free=None, windows=160, seed=1):
    """Returns the speed as a share of the devices' own with n nodes and a lane for each, with drift 1/drift, from a cold start."""
    nodes = Lanes(n, site, costs, free, seed)
    moved = (1 - 1 / n) / drift if drift else 0.0   # a reassigned chunk may return to its old lane
    use_s, w = site.chunk_use_s(), site.window
    used = [0.0]                                    # times at which each node had used k chunks' worth of samples
    for k in range(windows * w):
        there = used[k]
        asked = used[max(0, k - w * (site.ahead // w))]
        # The first window of each lane is shortened, so that these nodes reach a window now.
        for node in range(n) if k == 0 else range(-k % w, n, w):
            there = max(there, nodes.window(node, asked, w - node % w if k == 0 else w, moved))
        used.append(there + use_s)
    return windows * w * use_s / used[-1]


def speed_and_limit(simulate, wanted=0.97):
    """Returns the speed, and the resource whose removal would raise it most, or None if the job waits for nothing. simulate(free): the
    speed with one resource free of cost."""
    speed = simulate(None)
    if speed >= wanted:
        return speed, None
    without = {name: simulate(name) for name in RESOURCES}
    return speed, max(without, key=without.get)


def redis_cores(n, costs):
    return n * costs.redis_member_s + n * n * costs.redis_pair_s
