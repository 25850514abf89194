/* SPDX-License-Identifier: Apache-2.0 */
/* The model's answers, rule by rule. */
#include "tests/unit/test.h"

#include <math.h>
#include <string.h>

#include "daemon/tuner/state.h"

#define MIB 0x1p20

static struct tuner_job job;
static struct job_figures f;
static struct memory_space space;

/* Sets up 100 samples per chunk of 10 MB, a dataset of 1 GB, and storage of 100 MB/s with 4 reads under way.
 * That gives 1000 samples/s. */
static int setup(void **state)
{
	memset(&job, 0, sizeof(job));
	job.in_force = (struct tuner_knobs){.value = {400000000, 4, 2, 0}};
	f = (struct job_figures){.rate = 500,
				 .wait = 0,
				 .demand = 500,
				 .latency_s = 0.4,
				 .latency_p95_s = 0.4,
				 .bandwidth = 100e6,
				 .in_flight = 4,
				 .reading = 1,
				 .hit = 1,
				 .chunk_bytes = 10e6,
				 .samples_per_chunk = 100,
				 .window = 1,
				 .ready = 100,
				 .daemon_cpu_s = NAN,
				 .client_cpu_s = NAN,
				 .handoff_s = NAN,
				 .dataset_bytes = 1e9,
				 .cached_bytes = 0,
				 .need_bytes = 20e6};
	space = (struct memory_space){
	    .cache_bytes = 2e9, .prefetch = 64, .daemon_workers = 8, .client_workers = 8, .cores = 8};
	return 0;
}

static uint64_t wanted(enum tuner_knob knob)
{
	struct tuner_knobs knobs;

	target_knobs(&job, &f, &space, &knobs);
	return knobs.value[knob];
}

TEST_WITH(unknown_figures_change_no_knob, setup, NULL)
{
	struct tuner_knobs knobs;

	f.demand = NAN;
	target_knobs(&job, &f, &space, &knobs);
	assert_memory_equal(&knobs, &job.in_force, sizeof(knobs));
	setup(NULL);
	f.bandwidth = NAN; /* the need for workers is known, that for storage is not */
	f.daemon_cpu_s = 4e-3;
	target_knobs(&job, &f, &space, &knobs);
	assert_int_equal(knobs.value[TUNER_CACHE_BYTES], job.in_force.value[TUNER_CACHE_BYTES]);
	assert_int_equal(knobs.value[TUNER_PREFETCH_CHUNKS], job.in_force.value[TUNER_PREFETCH_CHUNKS]);
	assert_int_equal(knobs.value[TUNER_DAEMON_WORKERS], 3);
}

TEST_WITH(fast_storage_needs_no_cache, setup, NULL)
{
	/* 500 samples/s of 100 kB at 100 MB/s need only the sessions' need and read-ahead. */
	assert_in_range(wanted(TUNER_CACHE_BYTES), 20000000, 100000000);
}

TEST_WITH(cache_for_what_storage_lacks, setup, NULL)
{
	/* Storage is known to give no more, so 2000 samples/s need half of the data in memory. */
	f.demand = 2000;
	job.full_bandwidth = 100e6;
	job.full_depth = 4;
	assert_in_range(wanted(TUNER_CACHE_BYTES), 500000000, 700000000);
	space.cache_bytes = 300e6; /* never beyond the space */
	assert_in_range(wanted(TUNER_CACHE_BYTES), 200000000, 300000000);
}

/* As long as deeper reading may help, the cache stays as it is and the depth grows. */
TEST_WITH(depth_before_cache, setup, NULL)
{
	f.demand = 2000;
	f.hit = 0;
	assert_int_equal(wanted(TUNER_CACHE_BYTES), 400000000);
	assert_true(wanted(TUNER_PREFETCH_CHUNKS) > 4);
}

TEST_WITH(depth_by_littles_law, setup, NULL)
{
	/* At 0.1 s per chunk and 5 chunks/s, half a chunk is under way. */
	f.latency_s = f.latency_p95_s = 0.1;
	assert_in_range(wanted(TUNER_PREFETCH_CHUNKS), 1, 2);
	f.latency_s = f.latency_p95_s = 1; /* 5 are under way, 6 with the margin, and one in addition */
	assert_in_range(wanted(TUNER_PREFETCH_CHUNKS), 6, 7);
	space.prefetch = 3;
	assert_int_equal(wanted(TUNER_PREFETCH_CHUNKS), 3);
}

/* A window is needed at once. Ready batches cover a part of the time to read it. */
TEST_WITH(depth_for_windows, setup, NULL)
{
	f.window = 8;
	f.ready = 0;
	f.need_bytes = 100e6;
	assert_true(wanted(TUNER_PREFETCH_CHUNKS) >= 7);
	f.ready = 10000;
	assert_true(wanted(TUNER_PREFETCH_CHUNKS) <= 4);
}

TEST_WITH(daemon_workers_follow_cpu_time, setup, NULL)
{
	static const struct {
		double cpu_s;
		uint64_t workers;
	} table[] = {{0, 1}, {1e-4, 1}, {1.8e-3, 1}, {2e-3, 2}, {5e-3, 3}, {1, 8}};

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		f.daemon_cpu_s = table[i].cpu_s;
		assert_int_equal(wanted(TUNER_DAEMON_WORKERS), table[i].workers);
	}
}

TEST_WITH(client_workers_follow_python_work, setup, NULL)
{
	static const struct {
		double cpu_s, handoff_s;
		uint64_t workers;
	} table[] = {
	    {0, 1e-4, 0},    /* without Python work */
	    {1e-5, 1e-3, 0}, /* cheap samples, for which the hand-over costs more than it saves */
	    {3e-5, 1e-6, 0}, /* 1.5 %, not worth a process */
	    {1e-3, 1e-5, 1}, /* half of a step */
	    {3e-3, 1e-5, 2}, /* 1.5 cores */
	    {1, 1e-5, 8},    /* more than the machine has */
	};

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		f.client_cpu_s = table[i].cpu_s;
		f.handoff_s = table[i].handoff_s;
		if (wanted(TUNER_CLIENT_WORKERS) != table[i].workers)
			fail_msg("row %zu: %llu workers", i,
				 (unsigned long long)wanted(TUNER_CLIENT_WORKERS));
	}
}

/* The number of workers follows the rate that storage allows, not the device's possible rate. */
TEST_WITH(workers_for_the_slowest, setup, NULL)
{
	f.demand = 4000;
	f.daemon_cpu_s = 1e-3;
	job.full_bandwidth = 100e6;
	job.full_depth = 4;
	space.cache_bytes = 60e6; /* next to nothing can be kept, so 1000 samples/s */
	assert_in_range(wanted(TUNER_DAEMON_WORKERS), 1, 2);
}

TEST_WITH(the_cached_ratio_includes_the_window, setup, NULL)
{
	assert_true(target_cached_ratio(&f, 0) == 0);
	/* The window and the read-ahead are part of the memory in which an epoch finds chunks. */
	assert_true(fabs(target_cached_ratio(&f, 10e6 + 500e6) - 0.5) < 1e-9);
	assert_true(target_cached_ratio(&f, 2e9) == 1);
}
