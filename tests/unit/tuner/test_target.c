/* SPDX-License-Identifier: Apache-2.0 */
/* The model's answer, rule by rule. */
#include "test.h"

#include <math.h>
#include <string.h>

#include "state.h"

#define MIB 0x1p20

static struct tuner_job job;
static struct figures f;
static struct room room;

/* 100 samples a chunk of 10 MB, a dataset of 1 GB, storage of 100 MB/s with 4 reads under way: 1000
 * samples/s. */
static int setup(void **state)
{
	(void)state;
	memset(&job, 0, sizeof(job));
	job.in_force = (struct tuner_knobs){.value = {400000000, 4, 2, 0}};
	f = (struct figures){.rate = 500,
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
			     .need_bytes = 20e6,
			     .nodes = NAN,
			     .served = NAN,
			     .peer_hit = NAN,
			     .peer_latency_s = NAN,
			     .peer_latency_p95_s = NAN,
			     .peer_bandwidth = NAN,
			     .peers_in_flight = NAN,
			     .asking = NAN,
			     .peer_bytes = NAN};
	room = (struct room){
	    .cache_bytes = 2e9, .prefetch = 64, .daemon_workers = 8, .client_workers = 8, .cores = 8};
	return 0;
}

static uint64_t wanted(enum tuner_knob knob)
{
	struct tuner_knobs knobs;

	target_knobs(&job, &f, &room, &knobs);
	return knobs.value[knob];
}

static void test_unknown_stays(void **state)
{
	struct tuner_knobs knobs;

	(void)state;
	f.demand = NAN;
	target_knobs(&job, &f, &room, &knobs);
	assert_memory_equal(&knobs, &job.in_force, sizeof(knobs));
	setup(NULL);
	f.bandwidth = NAN; /* workers can be told, storage cannot */
	f.daemon_cpu_s = 4e-3;
	target_knobs(&job, &f, &room, &knobs);
	assert_int_equal(knobs.value[TUNER_CACHE_BYTES], job.in_force.value[TUNER_CACHE_BYTES]);
	assert_int_equal(knobs.value[TUNER_PREFETCH_CHUNKS], job.in_force.value[TUNER_PREFETCH_CHUNKS]);
	assert_int_equal(knobs.value[TUNER_DAEMON_WORKERS], 3);
}

static void test_fast_storage_needs_no_cache(void **state)
{
	(void)state;
	/* 500 samples/s of 100 kB from 100 MB/s: what sessions need and read-ahead, not more. */
	assert_in_range(wanted(TUNER_CACHE_BYTES), 20000000, 100000000);
}

static void test_cache_for_what_storage_lacks(void **state)
{
	(void)state;
	/* Storage is known to give no more: 2000 samples/s need half of the data in memory. */
	f.demand = 2000;
	job.full_bandwidth = 100e6;
	job.full_depth = 4;
	assert_in_range(wanted(TUNER_CACHE_BYTES), 500000000, 700000000);
	room.cache_bytes = 300e6; /* never beyond the room */
	assert_in_range(wanted(TUNER_CACHE_BYTES), 200000000, 300000000);
}

/* As long as deeper reading may bring more, the cache stays and the depth grows. */
static void test_depth_before_cache(void **state)
{
	(void)state;
	f.demand = 2000;
	f.hit = 0;
	assert_int_equal(wanted(TUNER_CACHE_BYTES), 400000000);
	assert_true(wanted(TUNER_PREFETCH_CHUNKS) > 4);
}

static void test_depth_by_littles_law(void **state)
{
	(void)state;
	/* 0.1 s a chunk, 5 chunks/s: half a chunk under way. */
	f.latency_s = f.latency_p95_s = 0.1;
	assert_in_range(wanted(TUNER_PREFETCH_CHUNKS), 1, 2);
	f.latency_s = f.latency_p95_s = 1; /* 5 under way, with the margin 6, and one */
	assert_in_range(wanted(TUNER_PREFETCH_CHUNKS), 6, 7);
	room.prefetch = 3;
	assert_int_equal(wanted(TUNER_PREFETCH_CHUNKS), 3);
}

/* A window is needed at once; ready batches bridge a part of its reading. */
static void test_depth_for_windows(void **state)
{
	(void)state;
	f.window = 8;
	f.ready = 0;
	f.need_bytes = 100e6;
	assert_true(wanted(TUNER_PREFETCH_CHUNKS) >= 7);
	f.ready = 10000;
	assert_true(wanted(TUNER_PREFETCH_CHUNKS) <= 4);
}

static void test_daemon_workers(void **state)
{
	static const struct {
		double cpu_s;
		uint64_t workers;
	} table[] = {{0, 1}, {1e-4, 1}, {1.8e-3, 1}, {2e-3, 2}, {5e-3, 3}, {1, 8}};

	(void)state;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		f.daemon_cpu_s = table[i].cpu_s;
		assert_int_equal(wanted(TUNER_DAEMON_WORKERS), table[i].workers);
	}
}

static void test_client_workers(void **state)
{
	static const struct {
		double cpu_s, handoff_s;
		uint64_t workers;
	} table[] = {
	    {0, 1e-4, 0},    /* no Python work */
	    {1e-5, 1e-3, 0}, /* cheap samples: handing over costs more than it saves */
	    {3e-5, 1e-6, 0}, /* not worth a process: 1.5 % */
	    {1e-3, 1e-5, 1}, /* half of a step */
	    {3e-3, 1e-5, 2}, /* 1.5 cores */
	    {1, 1e-5, 8},    /* more than there are */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		f.client_cpu_s = table[i].cpu_s;
		f.handoff_s = table[i].handoff_s;
		if (wanted(TUNER_CLIENT_WORKERS) != table[i].workers)
			fail_msg("row %zu: %llu workers", i,
				 (unsigned long long)wanted(TUNER_CLIENT_WORKERS));
	}
}

/* Workers for what storage lets through, not for what the device could take. */
static void test_workers_for_the_slowest(void **state)
{
	(void)state;
	f.demand = 4000;
	f.daemon_cpu_s = 1e-3;
	job.full_bandwidth = 100e6;
	job.full_depth = 4;
	room.cache_bytes = 60e6; /* next to nothing can be kept: 1000 samples/s */
	assert_in_range(wanted(TUNER_DAEMON_WORKERS), 1, 2);
}

static void test_cached_ratio(void **state)
{
	(void)state;
	assert_true(target_cached_ratio(&f, 0) == 0);
	/* The window and what is read ahead are part of what an epoch finds. */
	assert_true(fabs(target_cached_ratio(&f, 10e6 + 500e6) - 0.5) < 1e-9);
	assert_true(target_cached_ratio(&f, 2e9) == 1);
}

/* Four nodes, each of which takes a quarter of a chunk; the others give it in so many seconds. */
static void share(double latency_s)
{
	f.nodes = 4;
	f.served = 1;
	f.hit = 0.1;
	f.peer_hit = 0.75;
	f.peer_bytes = 2.5e6;
	f.peer_latency_s = latency_s;
	f.peer_latency_p95_s = 2 * latency_s;
	f.peers_in_flight = 2;
	f.asking = 1;
	f.peer_bandwidth = f.peers_in_flight * f.peer_bytes / latency_s;
	job.peer_full_bandwidth = f.peer_bandwidth;
	job.peer_full_depth = 2;
}

/* The part of the rate that so much more memory brings. */
static double gain(uint64_t bytes)
{
	struct tuner_knobs less = job.in_force, more = less;

	more.value[TUNER_CACHE_BYTES] += bytes;
	return target_rate(&job, &f, &room, &more) / target_rate(&job, &f, &room, &less) - 1;
}

/* A chunk that is missed costs less where another node has it. */
static void test_fast_peers_make_cache_worth_less(void **state)
{
	uint64_t alone;
	double alone_gain;

	(void)state;
	f.demand = 2000;
	job.full_bandwidth = 100e6;
	job.full_depth = 4;
	job.in_force.value[TUNER_CACHE_BYTES] = 300000000;
	alone = wanted(TUNER_CACHE_BYTES);
	alone_gain = gain(150000000);
	assert_true(alone >= 500000000 && alone_gain > 0.2);
	share(0.005);
	/* What storage has to bring of this node's own quarter: a sixth of the dataset, not a half. */
	assert_in_range(wanted(TUNER_CACHE_BYTES), 100000000, 250000000);
	assert_true(gain(150000000) < alone_gain / 10);
	/* Slow ones: memory is worth as much as beside a slow storage, beyond what this node owns. */
	share(0.5);
	assert_true(wanted(TUNER_CACHE_BYTES) > alone);
	assert_true(gain(150000000) > alone_gain / 2);
}

static void test_slow_peers_need_depth(void **state)
{
	uint64_t quick, slow;

	(void)state;
	f.window = 1;
	f.latency_s = f.latency_p95_s = 0.01;
	f.bandwidth = 1e9;
	f.in_flight = 1;
	f.reading = 0.1;
	room.cache_bytes = 300e6;
	share(0.005);
	job.peer_full_bandwidth = 0;
	quick = wanted(TUNER_PREFETCH_CHUNKS);
	share(0.2);
	job.peer_full_bandwidth = 0;
	f.peers_in_flight = 4; /* all that is read ahead */
	f.peer_bandwidth = 4 * f.peer_bytes / 0.2;
	slow = wanted(TUNER_PREFETCH_CHUNKS);
	assert_true(quick <= 4);
	/* 20 chunks/s, 15 of them of others, 0.4 s the slow ones: eight under way. */
	assert_in_range(slow, 7, 10);
	/* Seldom, and slow: the mix counts, and not its mean. */
	assert_int_equal(tiers_of_time(&f, 0), TUNER_TIER_NODES);
	f.latency_s = f.latency_p95_s = 1;
	assert_int_equal(tiers_of_time(&f, 0), TUNER_TIER_STORAGE);
	assert_true(wanted(TUNER_PREFETCH_CHUNKS) > slow);
}

/* Nodes that gave nothing yet, or are not reached, change nothing. */
static void test_without_peers_all_is_as_it_was(void **state)
{
	struct tuner_knobs alone, beside;

	(void)state;
	f.demand = 2000;
	target_knobs(&job, &f, &room, &alone);
	f.nodes = 4;
	f.served = 0;
	target_knobs(&job, &f, &room, &beside);
	assert_memory_equal(&alone, &beside, sizeof(alone));
	share(0.005);
	job.peer_full_bandwidth = 0;
	f.nodes = 1;
	target_knobs(&job, &f, &room, &beside);
	assert_memory_equal(&alone, &beside, sizeof(alone));
}

/* Nobody knows what it would cost to keep less; how long others take is known. */
static void test_unknown_storage_beside_peers(void **state)
{
	(void)state;
	share(0.5);
	job.peer_full_bandwidth = 0;
	f.peers_in_flight = 4;
	f.bandwidth = f.latency_s = f.latency_p95_s = f.in_flight = NAN;
	f.reading = 0;
	f.demand = 1000;
	assert_int_equal(wanted(TUNER_CACHE_BYTES), 400000000);
	assert_true(wanted(TUNER_PREFETCH_CHUNKS) > 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup(test_unknown_stays, setup),
	    cmocka_unit_test_setup(test_fast_storage_needs_no_cache, setup),
	    cmocka_unit_test_setup(test_cache_for_what_storage_lacks, setup),
	    cmocka_unit_test_setup(test_depth_before_cache, setup),
	    cmocka_unit_test_setup(test_depth_by_littles_law, setup),
	    cmocka_unit_test_setup(test_depth_for_windows, setup),
	    cmocka_unit_test_setup(test_daemon_workers, setup),
	    cmocka_unit_test_setup(test_client_workers, setup),
	    cmocka_unit_test_setup(test_workers_for_the_slowest, setup),
	    cmocka_unit_test_setup(test_cached_ratio, setup),
	    cmocka_unit_test_setup(test_fast_peers_make_cache_worth_less, setup),
	    cmocka_unit_test_setup(test_slow_peers_need_depth, setup),
	    cmocka_unit_test_setup(test_without_peers_all_is_as_it_was, setup),
	    cmocka_unit_test_setup(test_unknown_storage_beside_peers, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
