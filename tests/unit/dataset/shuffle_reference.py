#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The shuffle of docs/formats.md written a second time, plainly: prints the golden values of
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


def order(chunk_samples, seed, epoch, window_chunks):
    starts = [sum(chunk_samples[:i]) for i in range(len(chunk_samples))]
    visits = list(range(len(chunk_samples)))
    Xoshiro256(seed, epoch, 0).shuffle(visits)
    result = []
    for w in range(0, len(visits), window_chunks):
        samples = [starts[c] + i for c in visits[w:w + window_chunks] for i in range(chunk_samples[c])]
        Xoshiro256(seed, epoch, 1 + w // window_chunks).shuffle(samples)
        result += samples
    return result


def split(groups, sizes, seed):
    """The part of each sample; groups: the group of each."""
    given, room, dealt = [0] * len(sizes), {}, 0
    for group in sorted(set(groups)):
        room[group] = [0] * len(sizes)
        for _ in range(groups.count(group)):
            behind = [(dealt + 1) * size - given[i] * len(groups) for i, size in enumerate(sizes)]
            part = max((i for i, size in enumerate(sizes) if given[i] < size), key=lambda i: (behind[i], -i))
            given[part] += 1
            room[group][part] += 1
            dealt += 1
    random, parts = Xoshiro256(seed, M, 0), []
    for group in groups:
        at, part = random.below(sum(room[group])), 0
        while at >= room[group][part]:
            at -= room[group][part]
            part += 1
        room[group][part] -= 1
        parts.append(part)
    return parts


if __name__ == "__main__":
    print(order([3, 5, 2, 4], seed=42, epoch=1, window_chunks=2))
    print([i for i, part in enumerate(split([0] * 14, [9, 5], seed=42)) if part == 1])
    print(split([0, 1, 1, 0, 2, 1, 1, 0, 0, 2, 1, 2, 1, 0], [7, 4, 3], seed=42))
