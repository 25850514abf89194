/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <math.h>
#include <stdlib.h>

#include "daemon/run/metrics_totals.h"
#include "lib/cleanup.h"

static struct stall_sample sample(uint64_t job, uint64_t at_ns)
{
	struct stall_sample s = stall_sample_unknown();

	s.job = job;
	s.at_ns = at_ns;
	s.covered_s = 1;
	return s;
}

TEST(totals_add_up_over_jobs)
{
	_cleanup_(freep) struct metrics_totals *t = calloc(1, sizeof(*t));

	assert_non_null(t);
	assert_null(metrics_totals_find(t, 7));
	assert_null(metrics_totals_find(t, 0));
	for (uint64_t i = 1; i <= 10; i++) {
		struct stall_sample s = sample(7, i);

		s.covered_s = 2;
		s.steps_per_s = 5;
		s.samples_per_s = 320;
		s.shares.fetch_stall = 0.25;
		if (i > 5)
			s.shares.checkpoint_stall = 0.5;
		s.step_p50_s = 0.1 * (double)i;
		metrics_totals_add(t, NULL, &s, 1);
	}
	const struct metrics_job *j = metrics_totals_find(t, 7);
	assert_non_null(j);
	assert_true(fabs(j->trainer_s - 20) < 1e-9);
	assert_true(fabs(j->steps - 100) < 1e-9);
	assert_true(fabs(j->samples - 6400) < 1e-9);
	assert_true(fabs(j->stall_s[METRICS_STALL_FETCH] - 5) < 1e-9);
	assert_true(fabs(j->stall_s[METRICS_STALL_CHECKPOINT] - 5) < 1e-9);
	/* Unknown time is not zero, and is not divided by. */
	assert_true(fabs(j->known_s[METRICS_STALL_FETCH] - 20) < 1e-9);
	assert_true(fabs(j->known_s[METRICS_STALL_CHECKPOINT] - 10) < 1e-9);
	assert_true(j->known_s[METRICS_STALL_OTHER] == 0);
	assert_true(fabs(j->step_s - 20) < 1e-9);
	for (uint64_t i = 11; i <= 15; i++) { /* seconds in which nothing is known */
		struct stall_sample s = sample(7, i);

		metrics_totals_add(t, NULL, &s, 1);
	}
	assert_true(fabs(j->trainer_s - 20) < 1e-9);
	assert_true(fabs(j->step_s - 20) < 1e-9);
	j = metrics_totals_find(t, 7);
	assert_true(isnan(j->step_p50_s));
}

TEST(absurd_samples_add_nothing)
{
	const double absurd[] = {-1, NAN, INFINITY, 1e300};
	_cleanup_(freep) struct metrics_totals *t = calloc(1, sizeof(*t));
	struct stall_sample s = sample(1, 1);

	assert_non_null(t);
	metrics_totals_add(t, NULL, &s, 1);
	for (size_t i = 0; i < sizeof(absurd) / sizeof(absurd[0]); i++) {
		s = sample(1, 2);
		s.covered_s = absurd[i];
		metrics_totals_add(t, NULL, &s, 1);
		s.covered_s = 0;
		s.steps_per_s = s.samples_per_s = s.shares.fetch_stall = s.shares.other = absurd[i];
		metrics_totals_add(t, NULL, &s, 1);
		s.covered_s = 0.5;
		metrics_totals_add(t, NULL, &s, 1);
	}
	assert_true(metrics_totals_find(t, 1)->trainer_s == 0);
	assert_true(metrics_totals_find(t, 1)->steps == 0);
	assert_true(metrics_totals_find(t, 1)->stall_s[METRICS_STALL_FETCH] == 0);
	s = sample(0, 3);
	metrics_totals_add(t, NULL, &s, 1);
	assert_null(metrics_totals_find(t, 0));
}

TEST(the_oldest_makes_space)
{
	_cleanup_(freep) struct metrics_totals *t = calloc(1, sizeof(*t));
	struct stall_sample s;

	assert_non_null(t);
	for (uint64_t i = 1; i <= METRICS_MAX_JOBS; i++) {
		s = sample(i, i);
		metrics_totals_add(t, NULL, &s, 1);
	}
	s = sample(1, 1000); /* reported again, so 2 is the oldest now */
	metrics_totals_add(t, NULL, &s, 1);
	s = sample(500, 1001);
	metrics_totals_add(t, NULL, &s, 1);
	assert_non_null(metrics_totals_find(t, 1));
	assert_null(metrics_totals_find(t, 2));
	assert_non_null(metrics_totals_find(t, 3));
	assert_int_equal(metrics_totals_find(t, 500)->at_ns, 1001);
}
