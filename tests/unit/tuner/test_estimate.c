/* SPDX-License-Identifier: Apache-2.0 */
/* Tells random variation from a change. */
#include "tests/unit/test.h"

#include <math.h>

#include "daemon/tuner/state.h"

static struct tuner_job job;

/* Adds one second with this rate and wait. */
static void see(double rate, double wait)
{
	struct job_figures f = {.rate = rate, .wait = wait, .busy = 1 - wait, .demand = rate / (1 - wait)};

	f.latency_s = f.bandwidth = f.reading = f.handoff_s = f.daemon_cpu_s = f.client_cpu_s = NAN;
	f.from_ns = job.last_ns;
	f.at_ns = job.last_ns += SECOND_NS;
	job_see(&job, &f);
}

static int setup(void **state)
{
	job = (struct tuner_job){.phase_ns = SECOND_NS, .last_ns = SECOND_NS};
	return 0;
}

static void test_a_steady_rate_strays_by_nothing(void **state)
{
	double stray = -1;

	assert_int_equal(job_stray(&job, 0, &stray), 0);
	assert_true(stray == 0);
	see(500, 0.3);
	assert_int_equal(job_stray(&job, 0, &stray), 1);
	assert_true(stray == 0);
	for (int i = 0; i < 20; i++)
		see(500, 0.3);
	assert_int_equal(job_stray(&job, 0, &stray), SEEN_MAX);
	assert_true(stray < 1e-6);
}

static void test_stray_is_a_part_of_the_rate(void **state)
{
	double slow, quick;

	for (int i = 0; i < SEEN_MAX; i++)
		see(i % 2 ? 350 : 650, 0.3);
	(void)job_stray(&job, 0, &slow);
	assert_true(slow > 0.25 && slow < 0.4);
	for (int i = 0; i < SEEN_MAX; i++)
		see(i % 2 ? 3500 : 6500, 0.3);
	(void)job_stray(&job, 0, &quick);
	assert_true(fabs(quick - slow) < 1e-9);
}

static void test_samples_before_a_change_say_nothing_of_it(void **state)
{
	double stray;

	see(100, 0.3);
	see(900, 0.3);
	uint64_t since = job.last_ns;
	see(500, 0.3);
	see(500, 0.3);
	assert_int_equal(job_stray(&job, since, &stray), 2);
	assert_true(stray < 1e-6);
	assert_int_equal(job_stray(&job, 0, &stray), 4);
	assert_true(stray > 0.4);
}

static void test_a_wait_that_strays_is_no_other_job(void **state)
{
	see(500, 0.3);
	job.settled = job.seen[0];
	see(500 * 0.5 / 0.7, 0.5); /* the same demand */
	const struct job_figures *now = &job.seen[1];
	assert_true(job_differs(&job, now));
	job.wait_stray = 0.1; /* the wait strays this much every other second */
	assert_false(job_differs(&job, now));
	see(500 * 0.2 / 0.7, 0.8);
	assert_true(job_differs(&job, &job.seen[2])); /* but not this far */
}

UNIT_TESTS(cmocka_unit_test_setup(test_a_steady_rate_strays_by_nothing, setup),
	   cmocka_unit_test_setup(test_stray_is_a_part_of_the_rate, setup),
	   cmocka_unit_test_setup(test_samples_before_a_change_say_nothing_of_it, setup),
	   cmocka_unit_test_setup(test_a_wait_that_strays_is_no_other_job, setup))
