/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include "analyzer/analysis.h"
#include "analyzer/shares/warmup.h"

static void steps_fill(struct analysis_step *steps, size_t n, uint64_t ns)
{
	for (size_t k = 0; k < n; k++)
		steps[k] = (struct analysis_step){.end_ns = ns + k % 3};
}

TEST(the_warm_up_ends_where_steps_are_steady)
{
	struct analysis_step steps[60];
	size_t n;

	steps_fill(steps, 60, 1000);
	assert_int_equal(warmup_find(steps, 60, 0, &n), 0);
	assert_int_equal(n, 0);
	steps[0].end_ns = 50000;
	steps[2].end_ns = 9000;
	assert_int_equal(warmup_find(steps, 60, 0, &n), 0);
	assert_int_equal(n, 3);
	/* A checkpoint is no warm-up. */
	steps_fill(steps, 60, 1000);
	steps[0].end_ns = 50000;
	steps[0].share_ns[SHARE_CHECKPOINT_STALL] = 49000;
	assert_int_equal(warmup_find(steps, 60, 0, &n), 0);
	assert_int_equal(n, 0);
	/* The first epoch fills the cache. */
	steps_fill(steps, 60, 1000);
	for (size_t k = 0; k < 20; k++)
		steps[k].end_ns = 2000;
	assert_int_equal(warmup_find(steps, 60, 20, &n), 0);
	assert_int_equal(n, 20);
	/* The first epoch takes as long as the others. */
	steps_fill(steps, 60, 1000);
	assert_int_equal(warmup_find(steps, 60, 20, &n), 0);
	assert_int_equal(n, 0);
	/* There are too few steps to tell. */
	steps[0].end_ns = 50000;
	assert_int_equal(warmup_find(steps, 14, 0, &n), 0);
	assert_int_equal(n, 0);
}
