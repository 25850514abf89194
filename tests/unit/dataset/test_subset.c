/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include "dataset/subset.h"
#include "lib/cleanup.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

static struct subset *of(uint64_t n_samples, const bool *chosen)
{
	uint64_t *words = calloc(subset_words(n_samples) + 1, sizeof(*words));
	struct subset *s;

	for (uint64_t i = 0; i < n_samples; i++)
		words[i / 64] |= (uint64_t)chosen[i] << i % 64;
	assert_int_equal(subset_new(n_samples, words, &s), 0);
	return s;
}

/* Compares with counting one by one, for each number of samples around the sizes of words and blocks. */
static void compare(uint64_t n_samples, unsigned every)
{
	_cleanup_(freep) bool *chosen = calloc(n_samples + 1, sizeof(*chosen));
	uint64_t k = 0, random = n_samples + every;

	for (uint64_t i = 0; i < n_samples; i++) {
		random = random * UINT64_C(6364136223846793005) + 1;
		chosen[i] = (random >> 40) % every == 0;
	}
	struct subset *s = of(n_samples, chosen);

	assert_int_equal(subset_n_samples(s), n_samples);
	for (uint64_t i = 0; i < n_samples; i++) {
		assert_int_equal(subset_count_range(s, 0, i), k);
		assert_int_equal(subset_count_range(s, i, i + 1), chosen[i]);
		if (chosen[i]) {
			assert_int_equal(subset_sample(s, k), i);
			assert_int_equal(subset_next(s, i), i);
			k++;
		} else {
			assert_int_equal(subset_next(s, i), subset_next(s, i + 1));
		}
	}
	assert_int_equal(subset_next(s, n_samples), n_samples);
	assert_int_equal(subset_count(s), k);
	assert_int_equal(subset_count_range(s, 0, n_samples), k);
	subset_free(s);
}

TEST(counts_agree_with_counting_bits)
{
	static const uint64_t sizes[] = {0, 1, 2, 63, 64, 65, 127, 128, 4095, 4096, 4097, 8192, 12345};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		compare(sizes[i], 1);
		compare(sizes[i], 3);
		compare(sizes[i], 1000);
		compare(sizes[i], 1u << 30); /* none */
	}
}

TEST(bits_beyond_the_end)
{
	struct subset *s = NULL;

	for (unsigned bit = 1; bit < 64; bit++) {
		uint64_t *words = calloc(2, sizeof(*words));

		words[1] = UINT64_C(1) << bit;
		assert_int_equal(subset_new(65, words, &s), -EINVAL);
	}
	assert_null(s);
	subset_free(NULL);
}
