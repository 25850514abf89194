/* SPDX-License-Identifier: Apache-2.0 */
#include "random.h"

#include "lib/hash.h"

void random_init(struct random_state *r, uint64_t seed, uint64_t epoch, uint64_t stream)
{
	uint64_t key = splitmix64(&seed);

	key ^= epoch;
	key = splitmix64(&key);
	key ^= stream;
	for (int i = 0; i < 4; i++)
		r->s[i] = splitmix64(&key);
}

static uint64_t rotate_left(uint64_t x, unsigned n)
{
	return x << n | x >> (64 - n);
}

uint64_t random_next(struct random_state *r)
{
	uint64_t *s = r->s;
	uint64_t result = rotate_left(s[1] * 5, 7) * 9;
	uint64_t t = s[1] << 17;

	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = rotate_left(s[3], 45);
	return result;
}

uint64_t random_below(struct random_state *r, uint64_t bound)
{
	unsigned __int128 product = (unsigned __int128)random_next(r) * bound;

	if ((uint64_t)product < bound) {
		uint64_t threshold = -bound % bound;

		while ((uint64_t)product < threshold)
			product = (unsigned __int128)random_next(r) * bound;
	}
	return (uint64_t)(product >> 64);
}

void random_shuffle(struct random_state *r, uint64_t *values, uint64_t n)
{
	for (uint64_t i = n; i > 1; i--) {
		uint64_t j = random_below(r, i), value = values[i - 1];

		values[i - 1] = values[j];
		values[j] = value;
	}
}
