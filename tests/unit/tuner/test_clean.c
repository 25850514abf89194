/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <math.h>

#include "daemon/tuner/state.h"

#define NOW (100 * SECOND_NS)

static struct stall_sample usual(void)
{
	struct stall_sample s = stall_sample_unknown();

	s.job = 1;
	s.at_ns = NOW;
	s.covered_s = 1;
	s.source = STALL_SOURCE_CLIENT;
	s.samples_per_s = 1000;
	s.shares.fetch_stall = 0.3;
	s.shares.prep_stall = 0.1;
	return s;
}

static void test_a_usual_sample_gives_figures(void **state)
{
	struct stall_sample s = usual();
	struct job_figures f;

	assert_true(figures_clean(&s, NOW, &f));
	assert_true(fabs(f.wait - 0.4) < 1e-9 && fabs(f.busy - 0.6) < 1e-9);
	assert_true(f.from_ns == NOW - SECOND_NS);
	assert_true(isnan(f.bandwidth) && isnan(f.demand));
}

static void test_a_sample_of_absurd_time_or_rate_is_refused(void **state)
{
	static const double covered[] = {NAN, 0, 0.1, 31, -1, INFINITY}, rates[] = {NAN, -1, INFINITY, 1e300};
	struct job_figures f;
	struct stall_sample s;

	for (size_t i = 0; i < sizeof(covered) / sizeof(covered[0]); i++) {
		s = usual();
		s.covered_s = covered[i];
		assert_false(figures_clean(&s, NOW, &f));
	}
	for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
		s = usual();
		s.samples_per_s = rates[i];
		assert_false(figures_clean(&s, NOW, &f));
	}
	s = usual();
	s.job = 0;
	assert_false(figures_clean(&s, NOW, &f));
	s = usual(); /* too late, or from the future */
	assert_false(figures_clean(&s, NOW + 6 * SECOND_NS, &f));
	assert_false(figures_clean(&s, NOW - 2 * SECOND_NS, &f));
}

static void test_an_absurd_figure_costs_that_figure_alone(void **state)
{
	static const double bad[] = {NAN, -1, INFINITY, -INFINITY, 1e300};
	struct job_figures f;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct stall_sample s = usual();

		s.chunk_latency_s = s.source_bytes_per_s = s.daemon_cpu_s_per_sample = s.dataset_bytes =
		    bad[i];
		s.shares.checkpoint_stall = s.device_rate = bad[i];
		assert_true(figures_clean(&s, NOW, &f));
		assert_true(isnan(f.latency_s) && isnan(f.bandwidth) && isnan(f.daemon_cpu_s));
		assert_true(isnan(f.dataset_bytes) && isnan(f.demand));
		assert_true(fabs(f.busy - 0.6) < 1e-9);
	}
}

static void test_shares_above_one_are_cut(void **state)
{
	struct stall_sample s = usual();
	struct job_figures f;

	s.shares.fetch_stall = 1.03; /* clocks differ a little */
	s.shares.prep_stall = 0;
	assert_true(figures_clean(&s, NOW, &f));
	assert_true(f.wait == 1 && f.busy == 0);
	s.shares.fetch_stall = s.shares.prep_stall = 0.7; /* more than all of the time */
	assert_true(figures_clean(&s, NOW, &f));
	assert_true(isnan(f.wait) && isnan(f.fetch_wait) && isnan(f.prep_wait));
	s = usual();
	s.source = STALL_SOURCE_NONE;
	assert_true(figures_clean(&s, NOW, &f));
	assert_true(isnan(f.wait));
}

UNIT_TESTS(cmocka_unit_test(test_a_usual_sample_gives_figures),
	   cmocka_unit_test(test_a_sample_of_absurd_time_or_rate_is_refused),
	   cmocka_unit_test(test_an_absurd_figure_costs_that_figure_alone),
	   cmocka_unit_test(test_shares_above_one_are_cut))
