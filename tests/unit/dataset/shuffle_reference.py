#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A second, plain implementation of the shuffle of docs/reference/formats.md. Prints the golden values of
test_shuffle.c and test_subset.py."""

M = (1 << 64) - 1


def splitmix64(state):
    state = (state + 0x9E3779B97F4A7C15) & M
    z = state
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & M
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & M
    return state, z ^ (z >> 31)


class Xoshiro256:
    def __init__(self, seed, epoch, stream):
        key = splitmix64(seed)[1] ^ epoch
        key = splitmix64(key)[1] ^ stream
        self.s = []
        for _ in range(4):
            key, value = splitmix64(key)
            self.s.append(value)

    def next(self):
        s = self.s
        x = s[1] * 5 & M
        result = ((x << 7 | x >> 57) & M) * 9 & M
        t = s[1] << 17 & M
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = (s[3] << 45 | s[3] >> 19) & M
        return result

    def below(self, bound):
        while True:
            product = self.next() * bound
            if product & M >= (1 << 64) % bound:
                return product >> 64

    def shuffle(self, values):
        for i in range(len(values) - 1, 0, -1):
            j = self.below(i + 1)
            values[i], values[j] = values[j], values[i]


def order(chunk_samples, seed, epoch, window_chunks, chosen=None):
    parts = [(chunk, list(range(n))) for chunk, n in enumerate(chunk_samples)]
    if chosen is not None:
        parts = [(chunk, [i for i in places if (chunk, i) in chosen]) for chunk, places in parts]
        parts = [part for part in parts if part[1]]
    return lane_order(chunk_samples, parts, seed, epoch, window_chunks, 0)


def deal(base, chunk_samples, epoch, drift):
    """Returns the list of an epoch, in which cohort j of the slots has the order of its latest deal."""
    dealt = list(base)
    for j in range(drift):
        newest = epoch - (epoch - j) % drift
        if newest <= 0:
            continue
        random = Xoshiro256(M - 1, newest, j)
        slots = sorted((chunk_samples[base[slot]], random.next(), slot) for slot in range(j, len(base), drift))
        for k in range(0, len(slots), 64):
            block = sorted(slot for _, _, slot in slots[k:k + 64])
            chunks = [base[slot] for slot in block]
            random.shuffle(chunks)
            for slot, chunk in zip(block, chunks):
                dealt[slot] = chunk
    return dealt


def cut(chunk_samples, dealt, lanes, chosen=None):
    """Returns [(chunk, positions in it)] of each lane, in storage order."""
    listed = [(chunk, i) for chunk in dealt for i in range(chunk_samples[chunk]) if chosen is None or (chunk, i) in chosen]
    result, begin = [], 0
    for lane in range(lanes):
        end = begin + len(listed) // lanes + (lane < len(listed) % lanes)
        parts = {}
        for chunk, i in listed[begin:end]:
            parts.setdefault(chunk, []).append(i)
        result.append(sorted(parts.items()))
        begin = end
    return result


def lane_order(chunk_samples, parts, seed, epoch, window_chunks, lane):
    starts = [sum(chunk_samples[:i]) for i in range(len(chunk_samples))]
    visits = list(parts)
    Xoshiro256(seed, epoch, lane << 40).shuffle(visits)
    result, begin, window = [], 0, 0
    while begin < len(visits):
        end = (window + 1) * window_chunks - lane % window_chunks  # the first window is shorter
        samples = [starts[c] + i for c, places in visits[begin:end] for i in places]
        Xoshiro256(seed, epoch, (lane << 40) + 1 + window).shuffle(samples)
        result += samples
        begin, window = end, window + 1
    return result


def lanes_order(chunk_samples, base, seed, epoch, window_chunks, lanes, drift, chosen=None):
    """Returns the epoch as a list of (lane, sample)."""
    cuts = cut(chunk_samples, deal(base, chunk_samples, epoch, drift), lanes, chosen)
    rows = [lane_order(chunk_samples, parts, seed, epoch, window_chunks, lane) for lane, parts in enumerate(cuts)]
    return [(p % lanes, rows[p % lanes][p // lanes]) for p in range(sum(map(len, rows)))]


def step(positions, first, n):
    """Returns a step's samples, those of all ranks one after the other."""
    return [sample for _, sample in sorted(positions[first:first + n], key=lambda place: place[0])]


def share(n, rank, ranks):
    """Returns the positions [begin, end) of n that the rank takes."""
    begin = rank * (n // ranks) + min(rank, n % ranks)
    return begin, begin + n // ranks + (rank < n % ranks)


def batch(positions, lanes, first, n, rank, world):
    """Returns the rank's samples of the step."""
    if lanes > 1 and world % lanes == 0:
        own = [(lane, sample) for lane, sample in positions[first:first + n] if lane == rank // (world // lanes)]
        begin, end = share(len(own), rank % (world // lanes), world // lanes)
        return step(own, 0, len(own))[begin:end]
    begin, end = share(n, rank, world)
    return step(positions, first, n)[begin:end]


def split(groups, sizes, seed):
    """Returns the part of each sample. groups: the group of each sample."""
    given, space, dealt = [0] * len(sizes), {}, 0
    for group in sorted(set(groups)):
        space[group] = [0] * len(sizes)
        for _ in range(groups.count(group)):
            behind = [(dealt + 1) * size - given[i] * len(groups) for i, size in enumerate(sizes)]
            part = max((i for i, size in enumerate(sizes) if given[i] < size), key=lambda i: (behind[i], -i))
            given[part] += 1
            space[group][part] += 1
            dealt += 1
    random, parts = Xoshiro256(seed, M, 0), []
    for group in groups:
        at, part = random.below(sum(space[group])), 0
        while at >= space[group][part]:
            at -= space[group][part]
            part += 1
        space[group][part] -= 1
        parts.append(part)
    return parts


def digest(rounds):
    """Returns a digest of the orders of random cases. test_shuffle.c draws the same cases."""
    state, result = 11, 0xCBF29CE484222325

    def draw(low, high):
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) & M
        return low + (state >> 33) % (high - low + 1)

    for _ in range(rounds):
        chunk_samples = [draw(0, 12) for _ in range(draw(1, 200))]
        keys = [draw(0, 99) for _ in chunk_samples]
        n = sum(chunk_samples)
        seed, epoch, window, drift = draw(0, 1000), draw(0, 9), draw(1, 9), draw(0, 5)
        lanes, chosen = draw(1, 40), None
        if draw(0, 1):
            places = [(chunk, i) for chunk, m in enumerate(chunk_samples) for i in range(m)]
            chosen = {place for place in places if draw(0, 2) > 0}
            n = len(chosen)
        first, size, world = draw(0, n), draw(1, 100), draw(1, 12)
        rank = draw(0, world - 1)
        if first == n:
            continue
        if first + 2 * world * size > n:
            world, rank = 1, 0
        elif draw(0, 1):
            lanes = (1, world, world // 2 or 1)[draw(0, 2)]
        lanes, count, base = min(lanes, n), min(world * size, n - first), sorted(range(len(keys)), key=lambda chunk: (keys[chunk], chunk))
        if lanes == 1:
            samples = order(chunk_samples, seed, epoch, window, chosen)
            positions = [(0, sample) for sample in samples]
        else:
            positions = lanes_order(chunk_samples, base, seed, epoch, window, lanes, drift, chosen)
            samples = [sample for _, sample in positions]
        assert len(set(samples)) == n
        for sample in batch(positions, lanes, first, count, rank, world):
            result = (result ^ sample) * 0x100000001B3 & M
    return result


if __name__ == "__main__":
    print(order([3, 5, 2, 4], seed=42, epoch=1, window_chunks=2))
    positions = lanes_order([3, 5, 2, 4], [2, 0, 3, 1], seed=42, epoch=3, window_chunks=1, lanes=3, drift=2)
    print([sample for _, sample in positions], step(positions, 0, 6) + step(positions, 6, 6) + step(positions, 12, 2))
    print(hex(digest(300)))
    print(deal([2, 0, 3, 1], [3, 5, 2, 4], 3, 2))
    print([i for i, part in enumerate(split([0] * 14, [9, 5], seed=42)) if part == 1])
    print(split([0, 1, 1, 0, 2, 1, 1, 0, 0, 2, 1, 2, 1, 0], [7, 4, 3], seed=42))
