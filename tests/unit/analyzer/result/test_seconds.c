/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>

#include "tests/unit/test.h"

#include "analyzer/seconds.h"
#include "lib/cleanup.h"
#include "lib/clock.h"

#define MS NS_PER_MS

/* A trainer that computes for 60 ms of 100, and waits 10 for storage and 30 for preparing, with two workers.
 * The time from 2 s to 3 s is unknown. */
struct job {
	struct analysis analysis;
	struct lanes lanes;
	struct lane items[4];
	struct lane_segment trainer[400], worker[2][200];
	struct lane_batch batches[2][100];
	struct analysis_step steps[100];
};

static void trainer_step(struct job *job, size_t i)
{
	struct lane *lane = &job->items[0];
	uint64_t at_ns = i * 100 * MS;

	job->steps[i] = (struct analysis_step){.begin_ns = at_ns, .end_ns = at_ns + 100 * MS};
	if (i / 10 == 2)
		return;
	lane->segments[lane->n_segments++] = (struct lane_segment){at_ns, at_ns + 10 * MS, LANE_FETCH_STALL};
	lane->segments[lane->n_segments++] =
	    (struct lane_segment){at_ns + 10 * MS, at_ns + 40 * MS, LANE_PREP_STALL};
	lane->segments[lane->n_segments++] =
	    (struct lane_segment){at_ns + 40 * MS, at_ns + 90 * MS, LANE_DEVICE};
	lane->segments[lane->n_segments++] =
	    (struct lane_segment){at_ns + 90 * MS, at_ns + 100 * MS, LANE_GPU_WAIT};
}

static void worker_batch(struct job *job, size_t worker, size_t i)
{
	struct lane *lane = &job->items[1 + worker];
	uint64_t at_ns = i * 200 * MS;

	lane->segments[lane->n_segments++] = (struct lane_segment){at_ns, at_ns + 150 * MS, LANE_CPU};
	lane->segments[lane->n_segments++] =
	    (struct lane_segment){at_ns + 150 * MS, at_ns + 200 * MS, LANE_QUEUE};
	lane->batches[lane->n_batches++] = (struct lane_batch){at_ns, at_ns + 150 * MS};
}

static struct job *job_new(void)
{
	struct job *job = calloc(1, sizeof(*job));

	job->items[0] = (struct lane){.role = LANE_TRAINER, .tid = 7, .segments = job->trainer};
	for (size_t i = 0; i < 2; i++)
		job->items[1 + i] = (struct lane){
		    .role = LANE_WORKER, .segments = job->worker[i], .batches = job->batches[i]};
	/* The time of another rank is not this trainer's. */
	job->items[3] =
	    (struct lane){.role = LANE_TRAINER, .tid = 8, .segments = job->trainer, .n_segments = 8};
	job->lanes = (struct lanes){.items = job->items, .n_items = 4};
	job->analysis = (struct analysis){.job.trainer_tid = 7,
					  .lanes = &job->lanes,
					  .steps = job->steps,
					  .n_steps = 40,
					  .window.end_ns = 4 * NS_PER_S};
	for (size_t i = 0; i < 40; i++)
		trainer_step(job, i);
	for (size_t i = 0; i < 20; i++)
		for (size_t worker = 0; worker < 2; worker++)
			if (!worker || i >= 5) /* the second worker starts after a second */
				worker_batch(job, worker, i);
	return job;
}

TEST(a_second_has_its_shares)
{
	_cleanup_(freep) struct job *job = job_new();
	struct analysis_interval s = analysis_interval(&job->analysis, NS_PER_S, 2 * NS_PER_S);

	assert_int_equal(s.known_ns, NS_PER_S);
	assert_int_equal(s.share_ns[SHARE_FETCH_STALL], 100 * MS);
	assert_int_equal(s.share_ns[SHARE_PREP_STALL], 300 * MS);
	assert_int_equal(s.share_ns[SHARE_DEVICE], 600 * MS);
	assert_int_equal(s.gpu_wait_ns, 100 * MS);
	assert_float_equal(s.n_steps, 10, 0);
	assert_float_equal(s.step_p50_s, 0.1, 1e-9);
	assert_int_equal(s.n_workers, 2);
	assert_int_equal(s.n_batches, 10);
	assert_int_equal(s.worker_cpu_ns, 1500 * MS);
	assert_int_equal(s.queue_ns, 500 * MS);
}

/* Cuts through steps, segments and batches count only the parts within. */
TEST(cut_steps_count_by_what_lies_within)
{
	_cleanup_(freep) struct job *job = job_new();
	struct analysis_interval s = analysis_interval(&job->analysis, 25 * MS, 375 * MS);

	assert_int_equal(s.known_ns, 350 * MS);
	assert_int_equal(s.share_ns[SHARE_FETCH_STALL], 30 * MS);
	assert_int_equal(s.share_ns[SHARE_PREP_STALL], (15 + 30 + 30 + 30) * MS);
	assert_float_equal(s.n_steps, 3, 0);
	assert_int_equal(s.n_workers, 1);
	assert_int_equal(s.n_batches, 2);
	assert_int_equal(s.worker_cpu_ns, (125 + 150) * MS);
}

TEST(time_in_a_gap_is_unknown)
{
	_cleanup_(freep) struct job *job = job_new();
	struct analysis_interval s = analysis_interval(&job->analysis, 2 * NS_PER_S, 3 * NS_PER_S);

	assert_int_equal(s.known_ns, 0); /* steps continue in a gap */
	assert_float_equal(s.n_steps, 10, 0);
	s = analysis_interval(&job->analysis, 9 * NS_PER_S, 10 * NS_PER_S);
	assert_int_equal(s.known_ns, 0);
	assert_float_equal(s.n_steps, 0, 0);
	assert_true(isnan(s.step_p95_s));
	job->analysis.lanes = NULL;
	s = analysis_interval(&job->analysis, 0, NS_PER_S);
	assert_int_equal(s.known_ns, 0);
}

TEST(one_step_in_twenty_is_beyond_the_percentile)
{
	_cleanup_(freep) struct job *job = job_new();

	job->steps[25].end_ns += 50 * MS;
	job->steps[26].begin_ns += 50 * MS;
	job->steps[26].end_ns += 50 * MS;
	job->steps[27].begin_ns += 50 * MS;
	struct analysis_interval s = analysis_interval(&job->analysis, NS_PER_S, 3 * NS_PER_S);
	assert_float_equal(s.n_steps, 20, 0);
	assert_float_equal(s.step_p50_s, 0.1, 1e-9);
	assert_float_equal(s.step_p95_s, 0.1, 1e-9);
	s = analysis_interval(&job->analysis, 2 * NS_PER_S, 3 * NS_PER_S);
	assert_float_equal(s.step_p95_s, 0.15, 1e-9);
}
