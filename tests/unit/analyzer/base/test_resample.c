/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <math.h>

#include "analyzer/base/resample.h"

static double mean(const uint32_t *weight, size_t n, const void *context)
{
	const double *values = context;
	double sum = 0, count = 0;

	for (size_t i = 0; i < n; i++) {
		sum += weight[i] * values[i];
		count += weight[i];
	}
	return sum / count;
}

TEST(resampling_brackets_the_mean_and_repeats)
{
	double values[400];
	struct estimate estimate, again;
	uint32_t seed = 5;

	for (size_t i = 0; i < 400; i++) {
		seed = seed * 1664525 + 1013904223;
		values[i] = (seed >> 8) % 1000;
	}
	assert_int_equal(resample(400, mean, values, &estimate), 0);
	/* The mean of 400 uniform values is 500, plus or minus 2 x 14. */
	assert_true(estimate.low > 440 && estimate.low < estimate.value - 10);
	assert_true(estimate.high < 560 && estimate.high > estimate.value + 10);
	assert_int_equal(resample(400, mean, values, &again), 0);
	assert_memory_equal(&estimate, &again, sizeof(again));
	for (size_t i = 0; i < 400; i++)
		values[i] = 7;
	assert_int_equal(resample(400, mean, values, &estimate), 0);
	assert_true(estimate.low == 7 && estimate.value == 7 && estimate.high == 7);
	assert_int_equal(resample(0, mean, values, &estimate), 0);
	assert_true(isnan(estimate.value));
}
