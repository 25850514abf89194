/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "tests/unit/test.h"

#include "lib/clock.h"
#include "daemon/storage/read_latency.h"

/* Quantiles from a microsecond to hours are within a fifth. Values beyond the ends count as the end. */
TEST(quantiles_are_within_a_fifth)
{
	for (uint64_t ns = 40000; ns < 60 * NS_PER_S; ns += ns / 7) {
		struct read_latency latency = {0};
		double s;

		for (int i = 0; i < 100; i++)
			read_latency_add(&latency, i < 90 ? ns / 2 : ns);
		s = read_latency_quantile_s(&latency, NULL, 0.95, 20) * (double)NS_PER_S;
		assert_true(s > 0.8 * (double)ns && s < 1.25 * (double)ns);
		s = read_latency_quantile_s(&latency, NULL, 0.5, 20) * (double)NS_PER_S;
		assert_true(s < 0.65 * (double)ns);
	}
}

TEST(extreme_latencies_count_at_the_ends)
{
	struct read_latency latency = {0};

	read_latency_add(&latency, 0);
	assert_true(read_latency_quantile_s(&latency, NULL, 0.95, 1) < 25e-6);
	read_latency_add(&latency, UINT64_MAX);
	assert_true(read_latency_quantile_s(&latency, NULL, 0.95, 1) > 60);
}

/* A quantile covers the time between two samples. It is unknown if there were too few reads. */
TEST(quantiles_cover_the_time_between_two_looks)
{
	struct read_latency before, latency = {0};

	for (int i = 0; i < 1000; i++)
		read_latency_add(&latency, NS_PER_S);
	before = latency;
	assert_true(isnan(read_latency_quantile_s(&latency, &before, 0.95, 0)));
	for (int i = 0; i < 19; i++)
		read_latency_add(&latency, NS_PER_MS);
	assert_true(isnan(read_latency_quantile_s(&latency, &before, 0.95, 20)));
	read_latency_add(&latency, NS_PER_MS);
	assert_true(read_latency_quantile_s(&latency, &before, 0.95, 20) < 1.3e-3);
	/* Counters wrap around. */
	memset(&before, 0xff, sizeof(before));
	latency = before;
	for (int i = 0; i < 20; i++)
		read_latency_add(&latency, NS_PER_MS);
	assert_true(read_latency_quantile_s(&latency, &before, 0.95, 20) < 1.3e-3);
}

TEST(counts_below_a_latency_only_grow)
{
	struct read_latency latency = {0};
	uint64_t below = 0, last = 0;
	double end_s, last_s = 0;

	for (uint64_t ns = 1; ns < UINT64_C(1) << 62; ns *= 2)
		read_latency_add(&latency, ns);
	for (size_t octave = 0; octave < READ_LATENCY_OCTAVES; octave++) {
		below = read_latency_below(&latency, octave, &end_s);
		assert_true(below > last && end_s > last_s);
		last = below;
		last_s = end_s;
	}
	assert_int_equal(below, 62);
}
