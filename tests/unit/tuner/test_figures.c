/* SPDX-License-Identifier: Apache-2.0 */
/* Figures that the tuner takes from samples: only plausible ones, how much they vary, and when they change.
 */
#include "world.h"

#include <math.h>

#include "daemon/tuner/state.h"

static struct world world;
static struct stall_sample sample;

static int setup(void **state)
{
	int r = world_begin(&world, 8, 6);

	sample = world_job(1);
	sample.samples_per_s = 1000;
	sample.shares.fetch_stall = 0.3;
	sample.shares.prep_stall = 0.1;
	return r;
}

static int teardown(void **state)
{
	world_end(&world);
	return 0;
}

/* Returns false if the tuner refuses the sample. */
static bool see(void)
{
	(void)world_tick(&world, &sample, 1, false);
	return !world.result->n_samples_refused;
}

static const struct job_figures *newest(void)
{
	const struct tuner_job *job = &world.state->jobs[0];

	return &job->seen[(job->n_seen - 1) % SEEN_MAX];
}

TEST_WITH(a_usual_sample_gives_figures, setup, teardown)
{
	assert_true(see());
	assert_true(newest()->from_ns == world.now_ns - SECOND);
	assert_float_equal(newest()->busy, 0.6, 1e-9);
	assert_true(isnan(newest()->bandwidth) && isnan(newest()->demand));
	assert_float_equal(world.result->views[0].rate, 1000, 1e-9);
	assert_float_equal(world.result->views[0].wait, 0.4, 1e-9);
	assert_float_equal(world.result->views[0].demand, 1000 / 0.6, 1e-6);
}

TEST_WITH(a_sample_of_absurd_time_or_rate_is_refused, setup, teardown)
{
	static const double covered[] = {NAN, 0, 0.1, 31, -1, INFINITY}, rates[] = {NAN, -1, INFINITY, 1e300};

	for (size_t i = 0; i < sizeof(covered) / sizeof(covered[0]); i++) {
		sample.covered_s = covered[i];
		assert_false(see());
	}
	sample.covered_s = 1;
	for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
		sample.samples_per_s = rates[i];
		assert_false(see());
	}
	sample.samples_per_s = 1000;
	sample.job = 0;
	assert_false(see());
	sample.job = 1;
	assert_true(see());
}

TEST_WITH(a_sample_of_another_time_is_refused, setup, teardown)
{
	static const struct {
		int64_t late_s;
		bool refused;
	} rows[] = {{6, true}, {-2, true}, {5, false}, {5, true}}; /* the last one has been taken already */

	sample.at_ns = world.now_ns;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		tuner_decide(&world.config, world.state, NULL, &sample, 1,
			     world.now_ns + (uint64_t)rows[i].late_s * SECOND, world.result);
		assert_int_equal(world.result->n_samples_refused, rows[i].refused);
	}
}

TEST_WITH(an_absurd_figure_costs_that_figure_alone, setup, teardown)
{
	static const double bad[] = {NAN, -1, INFINITY, -INFINITY, 1e300};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		sample.chunk_latency_s = sample.source_bytes_per_s = sample.daemon_cpu_s_per_sample = bad[i];
		sample.dataset_bytes = sample.shares.checkpoint_stall = sample.device_rate = bad[i];
		assert_true(see());
		assert_true(isnan(newest()->latency_s) && isnan(newest()->bandwidth));
		assert_true(isnan(newest()->daemon_cpu_s) && isnan(newest()->dataset_bytes));
		assert_true(isnan(newest()->demand));
		assert_float_equal(world.result->views[0].wait, 0.4, 1e-9);
		assert_float_equal(world.result->views[0].demand, 1000 / 0.6, 1e-6);
	}
}

/* Clocks differ a little. */
TEST_WITH(shares_above_one_are_cut, setup, teardown)
{
	static const struct {
		double fetch, prep, wait;
		enum stall_source source;
	} rows[] = {
	    {1.03, 0, 1, STALL_SOURCE_CLIENT},
	    {0.7, 0.7, NAN, STALL_SOURCE_CLIENT}, /* more than all of the time */
	    {0.3, 0.1, NAN, STALL_SOURCE_NONE},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		sample.job++;
		sample.shares.fetch_stall = rows[i].fetch;
		sample.shares.prep_stall = rows[i].prep;
		sample.source = rows[i].source;
		(void)world_tick(&world, &sample, 1, false);
		double wait = world.result->views[i].wait;
		assert_true(isnan(rows[i].wait) ? isnan(wait) : wait == rows[i].wait);
	}
}

/* Adds one second with this rate. */
static const struct tuner_job *see_rate(double rate)
{
	sample.samples_per_s = rate;
	assert_true(see());
	return &world.state->jobs[world.state->n_jobs - 1];
}

TEST_WITH(a_steady_rate_strays_by_nothing, setup, teardown)
{
	const struct tuner_job *job = see_rate(500);
	double stray = -1;

	assert_int_equal(job_stray(job, UINT64_MAX, &stray), 0);
	assert_true(stray == 0);
	assert_int_equal(job_stray(job, 0, &stray), 1);
	assert_true(stray == 0);
	for (int i = 0; i < 20; i++)
		(void)see_rate(500);
	assert_int_equal(job_stray(job, 0, &stray), SEEN_MAX);
	assert_true(stray < 1e-6);
}

TEST_WITH(stray_is_a_part_of_the_rate, setup, teardown)
{
	const struct tuner_job *job = NULL;
	double stray[2];

	for (int k = 0; k < 2; k++) {
		sample.job++;
		for (int i = 0; i < SEEN_MAX; i++)
			job = see_rate((i % 2 ? 350 : 650) * (k ? 10 : 1));
		(void)job_stray(job, 0, &stray[k]);
	}
	assert_true(stray[0] > 0.25 && stray[0] < 0.4);
	assert_float_equal(stray[1], stray[0], 1e-9);
}

TEST_WITH(samples_before_a_change_say_nothing_of_it, setup, teardown)
{
	const struct tuner_job *job;
	uint64_t since;
	double stray;

	(void)see_rate(100);
	(void)see_rate(900);
	since = world.now_ns;
	(void)see_rate(500);
	job = see_rate(500);
	assert_int_equal(job_stray(job, since, &stray), 2);
	assert_true(stray < 1e-6);
	assert_int_equal(job_stray(job, 0, &stray), 4);
	assert_true(stray > 0.4);
}

static void wait_for(double wait, int seconds)
{
	for (int i = 0; i < seconds; i++) {
		sample.shares.fetch_stall = wait;
		(void)see_rate(1000 * (1 - wait));
	}
}

static bool is_another_job(void)
{
	return world.state->jobs[0].flips_ns[0] == world.now_ns;
}

/* A job whose wait varies from second to second becomes another job only if it waits much longer. */
TEST_WITH(a_wait_that_strays_is_no_other_job, setup, teardown)
{
	sample.shares.prep_stall = 0;
	wait_for(0.3, 20);
	assert_int_equal(world.state->jobs[0].flips_ns[0], 0);
	wait_for(0.5, 3);
	assert_true(is_another_job());
	for (int i = 0; i < 120; i++) /* long enough for this to be forgotten */
		wait_for(i % 2 ? 0.3 : 0.5, 1);
	wait_for(0.5, 3);
	assert_false(is_another_job());
	for (int i = 0; i < 20; i++)
		wait_for(i % 2 ? 0.3 : 0.5, 1);
	wait_for(0.9, 3);
	assert_true(is_another_job());
}
