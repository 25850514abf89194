/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Reproducible randomness: the same numbers on any machine, specified in docs/reference/formats.md.
 *
 * random_init() mixes (seed, epoch, stream) by splitmix64 into a key and takes the state of xoshiro256**
 * (Blackman, Vigna: "Scrambled linear pseudorandom number generators", 2018) from splitmix64 of that key.
 */

#include <stdint.h>

struct random_state {
	uint64_t s[4];
};

void random_init(struct random_state *r, uint64_t seed, uint64_t epoch, uint64_t stream);

uint64_t random_next(struct random_state *r);

/* Returns an unbiased random number in [0, bound), bound >= 1: Lemire's multiplication with rejection (ACM
 * TOMACS 29(1), 2019). */
uint64_t random_below(struct random_state *r, uint64_t bound);

/* Shuffles by Fisher-Yates, from the last place to the first: place i swaps with random_below(i + 1). */
void random_shuffle(struct random_state *r, uint64_t *values, uint64_t n);
