/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include "dataset/split.h"
#include "dataset/subset.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define N_MAX 1000

/* Lists the part of each sample; -1: none. A sample in two parts fails the test. */
static void parts_of(uint64_t n, const struct subset *of, const struct split_spec *spec, int *parts)
{
	uint64_t *words[8];

	for (uint32_t i = 0; i < spec->n_parts; i++)
		words[i] = calloc(subset_words(n) + 1, sizeof(uint64_t));
	assert_int_equal(split_subset(n, of, spec, words), 0);
	for (uint64_t s = 0; s < n; s++) {
		parts[s] = -1;
		for (uint32_t i = 0; i < spec->n_parts; i++) {
			if (!(words[i][s / 64] >> s % 64 & 1))
				continue;
			assert_int_equal(parts[s], -1);
			parts[s] = (int)i;
		}
	}
	for (uint32_t i = 0; i < spec->n_parts; i++)
		free(words[i]);
}

static uint32_t group_of(void *user, uint64_t sample)
{
	const uint32_t *groups = user;

	return groups[sample];
}

/* The values are from an independent program (tests/unit/dataset/shuffle_reference.py). */
TEST(the_reference_split_never_changes)
{
	static uint32_t groups[] = {0, 1, 1, 0, 2, 1, 1, 0, 0, 2, 1, 2, 1, 0};
	static const int golden[] = {0, 0, 2, 1, 1, 0, 1, 0, 0, 2, 1, 0, 0, 2};
	int parts[14];

	parts_of(14, NULL,
		 &(struct split_spec){.sizes = (const uint64_t[]){7, 4, 3},
				      .n_parts = 3,
				      .seed = 42,
				      .group_of = group_of,
				      .user = groups,
				      .n_groups = 3},
		 parts);
	assert_memory_equal(parts, golden, sizeof(golden));
}

/* Draws any samples, in any groups, and splits them into any sizes. Each sample is in one part, and each part
 * has the requested size. No group deviates from its proportion by more than one sample per part. */
TEST(every_sample_in_one_part)
{
	uint64_t random = 3;

	for (int round = 0; round < 300; round++) {
		uint64_t n = 1 + (random = random * 6364136223846793005u + 1) % N_MAX, *words, count;
		uint32_t groups[N_MAX], n_groups = 1 + (uint32_t)(random >> 40) % 6, n_parts = 1 + round % 5;
		uint64_t sizes[5] = {0}, group_samples[6] = {0}, in[6][5] = {0}, part_samples[5] = {0};
		struct subset *of;
		int parts[N_MAX];

		words = calloc(subset_words(n), sizeof(*words));
		for (uint64_t s = 0; s < n; s++) {
			random = random * 6364136223846793005u + 1;
			groups[s] = (uint32_t)(random >> 33) % n_groups;
			words[s / 64] |= (uint64_t)((random >> 50) % 3 != 0) << s % 64;
		}
		assert_int_equal(subset_new(n, words, &of), 0);
		count = subset_count(of);
		for (uint64_t k = 0; k < count; k++)
			sizes[(random = random * 6364136223846793005u + 1) >> 45 & 1 ? 0 : k % n_parts]++;
		parts_of(n, of,
			 &(struct split_spec){.sizes = sizes,
					      .n_parts = n_parts,
					      .seed = random,
					      .group_of = group_of,
					      .user = groups,
					      .n_groups = n_groups},
			 parts);
		for (uint64_t s = 0; s < n; s++) {
			assert_int_equal(parts[s] >= 0, subset_count_range(of, s, s + 1));
			if (parts[s] < 0)
				continue;
			group_samples[groups[s]]++;
			part_samples[parts[s]]++;
			in[groups[s]][parts[s]]++;
		}
		for (uint32_t p = 0; p < n_parts; p++) {
			assert_int_equal(part_samples[p], sizes[p]);
			for (uint32_t g = 0; g < n_groups && count; g++) {
				double wanted = (double)group_samples[g] * (double)sizes[p] / (double)count;

				assert_true((double)in[g][p] > wanted - n_parts - 1);
				assert_true((double)in[g][p] < wanted + n_parts + 1);
			}
		}
		subset_free(of);
	}
}

/* Each of the 10 ways to choose 2 of 5 is about equally frequent, within 5 sigma of a binomial. */
TEST(each_choice_of_a_part_is_equally_likely)
{
	unsigned counts[32] = {0}, n_ways = 0;

	for (uint64_t seed = 0; seed < 20000; seed++) {
		unsigned chosen = 0;
		int parts[5];

		parts_of(5, NULL,
			 &(struct split_spec){
			     .sizes = (const uint64_t[]){3, 2}, .n_parts = 2, .seed = seed, .n_groups = 1},
			 parts);
		for (int i = 0; i < 5; i++)
			chosen |= (unsigned)parts[i] << i;
		counts[chosen]++;
	}
	for (int i = 0; i < 32; i++) {
		if (!counts[i])
			continue;
		n_ways++;
		assert_in_range(counts[i], 1788, 2212);
	}
	assert_int_equal(n_ways, 10);
}

TEST(sizes_that_do_not_add_up)
{
	static const uint64_t wrong[][2] = {{3, 3}, {2, 2}, {UINT64_MAX, 6}};
	uint64_t parts[2] = {0};

	for (size_t i = 0; i < 3; i++) {
		const struct split_spec spec = {.sizes = wrong[i], .n_parts = 2, .n_groups = 1};

		assert_int_equal(split_subset(5, NULL, &spec, (uint64_t *[]){&parts[0], &parts[1]}), -EINVAL);
		assert_int_equal(parts[0] | parts[1], 0);
	}
}
