/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/split.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/subset.h"
#include "lib/cleanup.h"
#include "random.h"

/* The random stream of splits uses an epoch number that no epoch has. */
#define SPLIT_EPOCH UINT64_MAX

static uint64_t next_of(const struct subset *of, uint64_t sample)
{
	return of ? subset_next(of, sample) : sample;
}

static uint32_t group_of(const struct split_spec *spec, uint64_t sample)
{
	return spec->group_of ? spec->group_of(spec->user, sample) : 0;
}

/* Returns the part that is farthest behind its proportion once `dealt` + 1 samples are given out. */
static uint32_t farthest_behind(const struct split_spec *spec, const uint64_t *given, uint64_t dealt,
				uint64_t total)
{
	__int128 most = 0;
	uint32_t chosen = spec->n_parts;

	for (uint32_t i = 0; i < spec->n_parts; i++) {
		__int128 behind = (__int128)(dealt + 1) * spec->sizes[i] - (__int128)given[i] * total;

		if (given[i] < spec->sizes[i] && (chosen == spec->n_parts || behind > most)) {
			most = behind;
			chosen = i;
		}
	}
	return chosen;
}

/* Deals each group's samples out among the parts, group after group: space[group * n_parts + part]. */
static int deal(const struct split_spec *spec, const uint64_t *group_samples, uint64_t total, uint64_t *space)
{
	_cleanup_(freep) uint64_t *given = calloc(spec->n_parts + 1, sizeof(*given));
	uint64_t dealt = 0;

	if (!given)
		return -ENOMEM;
	if (spec->n_groups == 1) {
		memcpy(space, spec->sizes, spec->n_parts * sizeof(*space));
		return 0;
	}
	for (uint32_t g = 0; g < spec->n_groups; g++) {
		for (uint64_t i = 0; i < group_samples[g]; i++, dealt++) {
			uint32_t part = farthest_behind(spec, given, dealt, total);

			given[part]++;
			space[(uint64_t)g * spec->n_parts + part]++;
		}
	}
	return 0;
}

/* Draws a part at random, in proportion to the space left in each. */
static uint32_t draw(struct random_state *random, uint64_t *space, uint64_t left)
{
	uint64_t at = random_below(random, left);
	uint32_t part = 0;

	while (at >= space[part])
		at -= space[part++];
	space[part]--;
	return part;
}

static uint64_t count_groups(const struct split_spec *spec, uint64_t n_samples, const struct subset *of,
			     uint64_t *ret)
{
	uint64_t total = 0;

	for (uint64_t i = next_of(of, 0); i < n_samples; i = next_of(of, i + 1), total++)
		ret[group_of(spec, i)]++;
	return total;
}

int split_subset(uint64_t n_samples, const struct subset *of, const struct split_spec *spec,
		 uint64_t *const *words)
{
	_cleanup_(freep) uint64_t *left = calloc(spec->n_groups, sizeof(*left));
	_cleanup_(freep) uint64_t *space = calloc((size_t)spec->n_groups * spec->n_parts + 1, sizeof(*space));
	struct random_state random;
	uint64_t sum = 0;
	int r;

	if (!left || !space)
		return -ENOMEM;
	for (uint32_t i = 0; i < spec->n_parts; i++) {
		if (__builtin_add_overflow(sum, spec->sizes[i], &sum))
			return -EINVAL;
	}
	if (count_groups(spec, n_samples, of, left) != sum)
		return -EINVAL;
	r = deal(spec, left, sum, space);
	if (r < 0)
		return r;
	random_init(&random, spec->seed, SPLIT_EPOCH, 0);
	for (uint64_t i = next_of(of, 0); i < n_samples; i = next_of(of, i + 1)) {
		uint32_t g = group_of(spec, i), part;

		part = draw(&random, &space[(uint64_t)g * spec->n_parts], left[g]--);
		words[part][i / 64] |= UINT64_C(1) << i % 64;
	}
	return 0;
}
