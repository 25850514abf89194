/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analyzer/comparison.h"
#include "lib/clock.h"

/* Makes n steps, of which `fetch` ms are fetch stall with some noise, and 50 ms are device. */
static struct analysis job(struct analysis_step *steps, size_t n, double fetch, unsigned int seed)
{
	struct analysis analysis = {.verdict = ANALYSIS_FETCH_BOUND, .steps = steps, .n_steps = n};
	uint64_t at_ns = NS_PER_S;

	for (size_t i = 0; i < n; i++) {
		uint64_t noise_ns = (uint64_t)(rand_r(&seed) % 20) * NS_PER_MS;
		uint64_t fetch_ns = (uint64_t)(fetch * (double)NS_PER_MS) + noise_ns;

		memset(&steps[i], 0, sizeof(steps[i]));
		steps[i].begin_ns = at_ns;
		steps[i].share_ns[SHARE_FETCH_STALL] = fetch_ns;
		steps[i].share_ns[SHARE_DEVICE] = 50 * NS_PER_MS;
		at_ns += fetch_ns + 50 * NS_PER_MS;
		steps[i].end_ns = at_ns;
		for (size_t k = 0; k < SHARE_COUNT; k++)
			analysis.share_ns[k] += steps[i].share_ns[k];
	}
	analysis.window.begin_ns = NS_PER_S;
	analysis.window.end_ns = at_ns;
	analysis.window.observed_ns = at_ns - NS_PER_S;
	return analysis;
}

static struct analysis_step steps_a[200], steps_b[200];

TEST(same_job_is_no_difference)
{
	struct analysis a = job(steps_a, 200, 40, 1), b = job(steps_b, 200, 40, 2);
	struct comparison made;

	assert_int_equal(comparison_make(&a, &b, &made), 0);
	assert_false(made.faster || made.slower || made.verdict_changed);
	assert_true(made.speed.low < 1 && made.speed.high > 1);
	for (size_t i = 0; i < SHARE_COUNT; i++)
		assert_false(made.shares[i].significant);
}

/* Compiling and a validation pass do not count as slower steps. One-time costs are compared as parts of all
 * time. */
TEST(what_is_apart_makes_no_difference)
{
	struct analysis a = job(steps_a, 200, 40, 1), b = job(steps_b, 200, 40, 2);
	struct comparison made;

	for (size_t i = 20; i < 30; i++) {
		steps_b[i].excluded = true;
		steps_b[i].share_ns[i < 25 ? SHARE_COMPILING : SHARE_PREP_STALL] = 4 * NS_PER_S;
		steps_b[i].end_ns += 4 * NS_PER_S;
	}
	b.share_ns[SHARE_COMPILING] = b.share_ns[SHARE_PREP_STALL] = 20 * NS_PER_S;
	b.window.observed_ns += 40 * NS_PER_S;
	a.compiling.known = b.compiling.known = true;
	assert_int_equal(comparison_make(&a, &b, &made), 0);
	assert_false(made.faster || made.slower);
	for (size_t i = 0; i < SHARE_COUNT; i++)
		assert_false(made.shares[i].significant);
	assert_float_equal(made.shares[SHARE_COMPILING].a, 0, 0);
	assert_float_equal(made.shares[SHARE_COMPILING].b, 20.0 / 60, 0.01);
	assert_true(isnan(made.shares[SHARE_COMPILING].change.low));
	b.compiling.known = false;
	assert_int_equal(comparison_make(&a, &b, &made), 0);
	assert_true(isnan(made.shares[SHARE_COMPILING].b) &&
		    isnan(made.shares[SHARE_COMPILING].change.value));
}

TEST(a_faster_run_is_told_with_its_verdict)
{
	struct analysis a = job(steps_a, 200, 40, 1), b = job(steps_b, 200, 0, 2);
	struct comparison made;

	b.verdict = ANALYSIS_DEVICE_BOUND;
	assert_int_equal(comparison_make(&a, &b, &made), 0);
	assert_true(made.faster && !made.slower && made.verdict_changed);
	/* 50 + 40 + 9.5 against 50 + 9.5 ms per step */
	assert_true(fabs(made.speed.value - 99.5 / 59.5) < 0.05);
	assert_true(made.speed.low < made.speed.value && made.speed.value < made.speed.high);
	assert_true(made.shares[SHARE_FETCH_STALL].significant);
	assert_true(made.shares[SHARE_FETCH_STALL].change.value < -0.25);
	assert_true(made.shares[SHARE_DEVICE].significant);
	assert_true(made.stall.significant);
}

TEST(same_answer_every_time)
{
	struct analysis a = job(steps_a, 50, 40, 1), b = job(steps_b, 60, 38, 2);
	struct comparison once, again;

	assert_int_equal(comparison_make(&a, &b, &once), 0);
	assert_int_equal(comparison_make(&a, &b, &again), 0);
	assert_true(once.speed.low == again.speed.low && once.speed.high == again.speed.high);
}

TEST(warmup_is_left_out)
{
	struct analysis a = job(steps_a, 100, 40, 1), b = job(steps_b, 100, 40, 1);
	struct comparison made;

	steps_b[0].share_ns[SHARE_PREP_STALL] = 60 * NS_PER_S;
	b.steady.n_warmup_steps = 1;
	assert_int_equal(comparison_make(&a, &b, &made), 0);
	assert_true(made.shares[SHARE_PREP_STALL].b == 0);
	assert_true(fabs(made.speed.value - 1) < 0.02);
}

TEST(sampled_runs_compare_shares_and_no_speed)
{
	struct analysis a = job(steps_a, 100, 40, 1), b = job(steps_b, 100, 0, 1);
	struct comparison made;

	a.sampled.is = b.sampled.is = true;
	a.steps = b.steps = NULL;
	a.n_steps = b.n_steps = 0;
	for (size_t i = 0; i < SHARE_COUNT; i++)
		a.sampled.error[i] = b.sampled.error[i] = 0.03;
	assert_int_equal(comparison_make(&a, &b, &made), 0);
	assert_true(isnan(made.speed.value));
	assert_false(made.faster || made.slower);
	assert_true(made.shares[SHARE_FETCH_STALL].significant);
}

TEST(an_insufficient_run_is_not_compared)
{
	struct analysis a = job(steps_a, 100, 40, 1), b = {.verdict = ANALYSIS_INSUFFICIENT};
	struct comparison made;

	assert_int_equal(comparison_make(&a, &b, &made), -ENODATA);
	assert_int_equal(comparison_make(&b, &a, &made), -ENODATA);
}
