/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include "lib/sorted.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

struct step {
	double other;
	uint64_t end_ns;
};

TEST(counts_agree_with_counting_one_by_one)
{
	static const struct step steps[] = {{0, 2}, {0, 4}, {0, 4}, {0, 4}, {0, 7}, {0, 9}, {0, UINT64_MAX}};

	for (size_t n = 0; n <= sizeof(steps) / sizeof(steps[0]); n++) {
		for (uint64_t at_ns = 0; at_ns < 12; at_ns++) {
			size_t below = 0, until = 0;

			for (size_t i = 0; i < n; i++) {
				below += steps[i].end_ns < at_ns;
				until += steps[i].end_ns <= at_ns;
			}
			assert_int_equal(sorted_count(n, i, steps[i].end_ns < at_ns), below);
			assert_int_equal(sorted_count(n, i, steps[i].end_ns <= at_ns), until);
		}
		assert_int_equal(sorted_count(n, i, steps[i].end_ns <= UINT64_MAX), n);
	}
}

static bool is_asked(size_t i, size_t n, size_t *n_asked)
{
	assert_true(i < n);
	++*n_asked;
	return i < n / 3;
}

TEST(few_are_looked_at)
{
	size_t n_asked = 0, n = SIZE_MAX;

	assert_int_equal(sorted_count(n, i, is_asked(i, n, &n_asked)), n / 3);
	assert_in_range(n_asked, 63, 64);
}

TEST(p95_is_the_least_index_that_covers)
{
	for (size_t n = 1; n < 300; n++) {
		assert_true(100 * (sorted_p95(n) + 1) >= 95 * n);
		assert_true(100 * sorted_p95(n) < 95 * n);
	}
}

static void check_compare(int (*compare)(const void *, const void *), const void *less, const void *more)
{
	assert_true(compare(less, more) < 0);
	assert_true(compare(more, less) > 0);
	assert_int_equal(compare(less, less), 0);
}

TEST(comparing_extremes_does_not_overflow)
{
	uint64_t wide[] = {1, UINT64_C(1) << 32, UINT64_MAX};
	uint32_t narrow[] = {0, UINT32_MAX};
	int whole[] = {-2147483647 - 1, 2147483647};
	double real[] = {-INFINITY, 0.25, 0.5};

	check_compare(compare_u64, &wide[0], &wide[1]);
	check_compare(compare_u64, &wide[0], &wide[2]);
	check_compare(compare_u32, &narrow[0], &narrow[1]);
	check_compare(compare_int, &whole[0], &whole[1]);
	check_compare(compare_double, &real[0], &real[1]);
	check_compare(compare_double, &real[1], &real[2]);
}
