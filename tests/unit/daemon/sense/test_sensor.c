/* SPDX-License-Identifier: Apache-2.0 */
/* The sensor's pure parts: tally of marks, plan of slices, shares of a second, rates of a sample. */
#include "tests/support_loop.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/shuffle.h"
#include "daemon/cache/decoded.h"
#include "lib/clock.h"
#include "daemon/sense/sensor_detail.h"
#include "daemon/sense/sensor_sample.h"
#include "daemon/sense/sensor_tally.h"
#include "tuner/tuner.h"

#define MS NS_PER_MS

/* ---- tally --------------------------------------------------------------------------------------------- */

static void mark(struct wait_tally *tally, uint32_t tid, uint32_t kind, uint64_t at_ms)
{
	struct event event = {.type = EVENT_MARK, .tid = tid, .tgid = 1, .end_ns = at_ms * MS};

	event.mark.kind = kind;
	tally_event(tally, &event);
}

static void other(struct wait_tally *tally, uint32_t tid, uint16_t type, uint64_t at_ms)
{
	tally_event(tally, &(struct event){.type = type, .tid = tid, .tgid = 1, .end_ns = at_ms * MS});
}

TEST(next_is_the_wait)
{
	struct wait_tally tally = {0};

	mark(&tally, 7, MARK_NEXT_BEGIN, 1000);
	mark(&tally, 7, MARK_WAIT_BEGIN, 1010); /* inside the other wait, so it counts once */
	mark(&tally, 7, MARK_WAIT_END, 1090);
	mark(&tally, 7, MARK_NEXT_END, 1100);
	mark(&tally, 7, MARK_NEXT_BEGIN, 1200);
	assert_int_equal(tally_sums(&tally, 1200 * MS).wait_ns, 100 * MS);
	/* A wait under way counts up to now. */
	assert_int_equal(tally_sums(&tally, 1700 * MS).wait_ns, 600 * MS);
	mark(&tally, 7, MARK_NEXT_END, 1800);
	assert_int_equal(tally_sums(&tally, 1900 * MS).wait_ns, 700 * MS);
	assert_int_equal(tally_sums(&tally, 1900 * MS).n_steps, 2);
	assert_int_equal(tally_sums(&tally, 1900 * MS).n_trainers, 1);
	/* An end without a start belongs to a wait that began before the tally. */
	mark(&tally, 7, MARK_NEXT_END, 2000);
	assert_int_equal(tally_sums(&tally, 2000 * MS).wait_ns, 700 * MS);
}

/* A program that calls libdiesel itself does not mark next(). */
TEST(sleep_is_the_wait_without_next)
{
	struct wait_tally tally = {0};

	mark(&tally, 7, MARK_WAIT_BEGIN, 100);
	assert_int_equal(tally_sums(&tally, 150 * MS).wait_ns, 50 * MS);
	mark(&tally, 7, MARK_WAIT_END, 200);
	assert_int_equal(tally_sums(&tally, 300 * MS).wait_ns, 100 * MS);
}

TEST(steps_are_backward_passes_where_there_are_any)
{
	struct wait_tally tally = {0};

	other(&tally, 9, EVENT_STEP, 50); /* of a process that loads nothing */
	assert_int_equal(tally_sums(&tally, 60 * MS).n_trainers, 0);
	for (uint64_t i = 0; i < 10; i++) {
		mark(&tally, 7, MARK_NEXT_BEGIN, 100 + 100 * i);
		mark(&tally, 7, MARK_NEXT_END, 110 + 100 * i);
		other(&tally, 7, EVENT_STEP, 150 + 100 * i + (i == 9 ? 40 : 0));
	}
	assert_true(tally.has_steps);
	/* the first next() counted as one step */
	assert_int_equal(tally_sums(&tally, 2000 * MS).n_steps, 11);
	assert_float_equal(tally_step_s(&tally, 0.5), 0.1, 1e-9);
	assert_float_equal(tally_step_s(&tally, 1), 0.14, 1e-9);
	assert_true(isnan(tally_step_s(&(struct wait_tally){0}, 0.5)));
}

TEST(trainers_come_and_go)
{
	struct wait_tally tally = {0};

	for (uint32_t tid = 1; tid <= 2 * TALLY_TRAINERS; tid++)
		mark(&tally, tid, MARK_NEXT_BEGIN, 100);
	assert_int_equal(tally_sums(&tally, 200 * MS).n_trainers, TALLY_TRAINERS);
	assert_int_equal(tally_sums(&tally, 200 * MS).wait_ns, 100 * MS); /* as a mean over threads */
	for (uint32_t tid = 1; tid <= 2 * TALLY_TRAINERS; tid++)
		other(&tally, tid, EVENT_EXIT, 300);
	assert_int_equal(tally_sums(&tally, 400 * MS).n_trainers, 0);
	assert_int_equal(tally_sums(&tally, 400 * MS).wait_ns, 0);
}

TEST(times_that_run_backwards_count_as_nothing)
{
	struct wait_tally tally = {0};

	mark(&tally, 7, MARK_NEXT_BEGIN, 1000);
	mark(&tally, 7, MARK_NEXT_END, 500);
	mark(&tally, 7, MARK_NEXT_BEGIN, 2000);
	assert_int_equal(tally_sums(&tally, 100 * MS).wait_ns, 0);
	mark(&tally, 7, 77, 3000);
	assert_int_equal(tally_sums(&tally, 2100 * MS).wait_ns, 100 * MS);
}

/* ---- slices -------------------------------------------------------------------------------------------- */

#define S NS_PER_S

TEST(slice_for_a_new_job)
{
	struct detail_plan plan = {0};
	struct detail_job job = {.wait = 0.1, .last_step_age_ns = UINT64_MAX};

	/* A job has no detail to record before its first step. */
	assert_int_equal(detail_step(&plan, &job, 1, 0, 100 * S), DETAIL_AS_BEFORE);
	job.last_step_age_ns = 0;
	assert_int_equal(detail_step(&plan, &job, 1, 0, 101 * S), DETAIL_BEGIN);
	job.slice_steps = 1000;
	assert_int_equal(detail_step(&plan, &job, 1, 0, 102 * S), DETAIL_AS_BEFORE); /* DETAIL_MIN_NS */
	assert_int_equal(detail_step(&plan, &job, 1, 0, 103 * S), DETAIL_END);
	job.seen = true;
	job.seen_wait = 0.1;
	/* The slice pauses although the wait changes, and then begins again. */
	job.wait = 0.5;
	assert_int_equal(detail_step(&plan, &job, 1, 0, 110 * S), DETAIL_AS_BEFORE);
	assert_int_equal(detail_step(&plan, &job, 1, 0, 112 * S), DETAIL_BEGIN);
}

TEST(slow_steps_get_a_longer_slice)
{
	struct detail_plan plan = {0};
	struct detail_job jobs[2] = {{.wait = NAN, .last_step_age_ns = 1},
				     {.wait = NAN, .last_step_age_ns = UINT64_MAX}};

	assert_int_equal(detail_step(&plan, jobs, 2, 0, 100 * S), DETAIL_BEGIN);
	jobs[0].slice_steps = DETAIL_STEPS - 1;
	assert_int_equal(detail_step(&plan, jobs, 2, 0, 109 * S), DETAIL_AS_BEFORE);
	/* The second job, which makes no steps, delays no other. */
	jobs[0].slice_steps = DETAIL_STEPS;
	assert_int_equal(detail_step(&plan, jobs, 2, 0, 109 * S), DETAIL_END);
	plan = (struct detail_plan){.on = true, .begin_ns = 200 * S};
	jobs[0].slice_steps = 1;
	assert_int_equal(detail_step(&plan, jobs, 2, 0, 200 * S + DETAIL_MAX_NS), DETAIL_END);
}

/* A steady job gets a slice once a minute, a job without steps none, and slices never cost too much. */
TEST(detail_is_rare)
{
	struct detail_plan plan = {0};
	struct detail_job job = {.seen = true, .seen_wait = 0.3, .wait = 0.3};
	uint64_t on_ns = 0, n = 0;

	for (uint64_t now = 100 * S; now < 1000 * S; now += S / 10) {
		job.slice_steps = 100;
		n += detail_step(&plan, &job, 1, 0, now) == DETAIL_BEGIN;
		on_ns += plan.on ? S / 10 : 0;
	}
	assert_in_range(n, 13, 16);
	assert_true(on_ns < 40 * S);
	job.last_step_age_ns = 3600 * S;
	assert_int_equal(detail_step(&plan, &job, 1, 0, 5000 * S), DETAIL_AS_BEFORE);
	/* An analysis that took a second delays the next slice. */
	job = (struct detail_job){.seen = false};
	plan = (struct detail_plan){.end_ns = 6000 * S};
	assert_int_equal(detail_step(&plan, &job, 1, S, 6100 * S), DETAIL_AS_BEFORE);
	assert_int_equal(detail_step(&plan, &job, 1, S, 6201 * S), DETAIL_BEGIN);
	/* Even for jobs that change all the time, detail is off for four fifths of the time. */
	on_ns = 0;
	plan = (struct detail_plan){0};
	for (uint64_t now = 100 * S; now < 400 * S; now += S / 10) {
		job.slice_steps = 100;
		(void)detail_step(&plan, &job, 1, 0, now);
		on_ns += plan.on ? S / 10 : 0;
	}
	assert_true(on_ns <= 66 * S);
	/* When the last job ends, the slice ends. */
	plan = (struct detail_plan){.on = true, .begin_ns = 1};
	assert_int_equal(detail_step(&plan, NULL, 0, 0, 2), DETAIL_END);
}

/* ---- shares -------------------------------------------------------------------------------------------- */

static double sum(const struct stall_shares *s)
{
	return s->device + s->fetch_stall + s->prep_stall + s->checkpoint_stall + s->cpu_starved + s->other;
}

TEST(a_second_s_wait_goes_with_the_slice_s_shares)
{
	const struct stall_shares slice = {.device = 0.4,
					   .gpu_wait = 0.1,
					   .fetch_stall = 0.3,
					   .prep_stall = 0.1,
					   .checkpoint_stall = 0.1,
					   .cpu_starved = 0.05,
					   .other = 0.05};
	struct stall_shares got;

	/* The wait is this second's. The rest is divided as in the slice. */
	detail_shares(&slice, 0.7, &got);
	assert_float_equal(sum(&got), 1, 1e-9);
	assert_float_equal(got.fetch_stall + got.prep_stall, 0.7, 1e-9);
	assert_float_equal(got.fetch_stall / got.prep_stall, 3, 1e-9);
	assert_float_equal(got.device, 0.2, 1e-9);
	assert_float_equal(got.gpu_wait, 0.05, 1e-9);
	detail_shares(&slice, 0, &got);
	assert_float_equal(sum(&got), 1, 1e-9);
	assert_float_equal(got.fetch_stall, 0, 1e-9);
	/* The wait of this second is unknown, so all is divided as in the slice. */
	detail_shares(&slice, NAN, &got);
	assert_memory_equal(&got, &slice, sizeof(got));
	/* Without a slice, only the wait is known. */
	detail_shares(NULL, 0.25, &got);
	assert_float_equal(got.device, 0.75, 1e-9);
	assert_true(isnan(got.fetch_stall) && isnan(got.cpu_starved));
	detail_shares(NULL, NAN, &got);
	assert_true(isnan(got.device) && isnan(got.gpu_wait) && isnan(got.fetch_stall) &&
		    isnan(got.prep_stall) && isnan(got.checkpoint_stall) && isnan(got.cpu_starved) &&
		    isnan(got.other));
}

/* ---- rates --------------------------------------------------------------------------------------------- */

static uv_loop_t loop;
static struct pool *pool;
static struct ring_control control;
static bool shares;

static int begin(void **state)
{
	return uv_loop_init(&loop) || pool_new(&loop, 4, &pool);
}

static int end(void **state)
{
	pool_free(pool);
	loop_end(&loop);
	return 0;
}

/* Returns the sample of a job with one session on a dataset of 100 samples of 10 kB. */
static struct stall_sample sample_of(const struct sensed_job *sensed)
{
	struct cached_dataset dataset = {.all_bytes = 1000000, .info = {.n_chunks = 1}};
	struct job job = {.n_sessions = 1,
			  .knobs = {.value = {[TUNER_DAEMON_WORKERS] = 2}},
			  .memberships = shares ? (void *)&dataset : NULL};
	struct session session = {
	    .job = &job,
	    .order = {.dataset = &dataset, .request = {.world = 1}, .n_samples = 100, .n_chunks = 1},
	    .slots = {.control = &control}};
	const struct serving serving = {.sessions = &session, .cache = {.pool = pool}};

	return sensed_sample(sensed, &serving, &job);
}

TEST(a_client_s_waits_become_shares)
{
	struct sensed_job sensed = {.readings = {{.at_ns = 10 * S}, {.at_ns = 11 * S}}, .n_readings = 2};
	struct sensed_reading *now = &sensed.readings[1];

	now->taken = (struct job_taken){.batches = 10, .samples = 1000, .wait_ns = S / 2, .fetch_ns = S / 5};
	struct stall_sample sample = sample_of(&sensed);
	assert_int_equal(sample.source, STALL_SOURCE_CLIENT);
	assert_float_equal(sample.shares.fetch_stall, 0.2, 1e-9);
	assert_float_equal(sample.shares.prep_stall, 0.3, 1e-9);
	assert_true(isnan(sample.shares.device));
	assert_float_equal(sample.device_rate, 2000, 1e-6);
	/* The loader's own next() takes longer than libdiesel's sleep in it. */
	now->taken.next_ns = S * 8 / 10;
	sample = sample_of(&sensed);
	assert_float_equal(sample.shares.prep_stall, 0.6, 1e-9);
	/* Whatever is reported, a second has only one second. */
	now->taken.wait_ns = now->taken.fetch_ns = 50 * S;
	sample = sample_of(&sensed);
	assert_float_equal(sample.shares.fetch_stall, 1, 1e-9);
	assert_float_equal(sample.shares.prep_stall, 0, 1e-9);
	assert_true(isnan(sample.device_rate));
}

TEST(report_goes_first)
{
	struct sensed_job sensed = {.readings = {{.at_ns = 10 * S}, {.at_ns = 11 * S}},
				    .n_readings = 2,
				    .has_report = true,
				    .report = {.n_trainers = 1,
					       .wait = 0.4,
					       .steps_per_s = 5,
					       .shares = {.device = 0.6, .prep_stall = 0.4}}};

	sensed.readings[1].taken = (struct job_taken){.wait_ns = S * 3 / 10, .fetch_ns = S / 4};
	struct stall_sample sample = sample_of(&sensed);
	assert_int_equal(sample.source, STALL_SOURCE_BPF);
	assert_float_equal(sample.shares.device, 0.6, 1e-9);
	assert_float_equal(sample.shares.fetch_stall, 0.25, 1e-9);
	assert_float_equal(sample.shares.prep_stall, 0.15, 1e-9);
	assert_float_equal(sample.steps_per_s, 5, 1e-9);
	/* A report without data of the job counts as no report. */
	sensed.report.n_trainers = 0;
	assert_int_equal(sample_of(&sensed).source, STALL_SOURCE_CLIENT);
}

TEST(reads_give_storage_latency_and_bandwidth)
{
	struct sensed_job sensed = {.n_readings = 3};

	/* Each second has ten visits and two reads, one after the other, of 0.25 s and a megabyte each. */
	for (uint64_t i = 0; i < 3; i++)
		sensed.readings[i] = (struct sensed_reading){.at_ns = (10 + i) * S,
							     .counters = {.samples = 1000 * i,
									  .chunk_visits = 10 * i,
									  .chunk_reads = 2 * i,
									  .n_read = 2 * i,
									  .read_bytes = 2000000 * i,
									  .read_ns = S / 2 * i,
									  .coming_ns = S / 2 * i,
									  .cpu_ns = S / 100 * i}};
	struct stall_sample sample = sample_of(&sensed);
	assert_float_equal(sample.chunk_latency_s, 0.25, 1e-9);
	assert_float_equal(sample.source_bytes_per_s, 4e6, 1);
	assert_float_equal(sample.reads_in_flight, 1, 1e-9);
	assert_float_equal(sample.reading_ratio, 0.5, 1e-9);
	assert_float_equal(sample.memory_hit_ratio, 0.8, 1e-9);
	/* A sample has 10 kB. A fifth of them is read at 4 MB/s. */
	assert_float_equal(sample.fetch_rate, 2000, 1e-3);
	assert_float_equal(sample.daemon_cpu_s_per_sample, 1e-5, 1e-12);
	assert_float_equal(sample.prep_rate, 2e5, 1);
	assert_true(isnan(sample.chunk_latency_p95_s)); /* four reads are too few for a quantile */
	/* One read in ten is slow. All stored readings count. */
	for (uint64_t i = 0; i < 40; i++)
		read_latency_add(&sensed.readings[2].counters.came, i % 10 ? S / 4 : 2 * S);
	sample = sample_of(&sensed);
	assert_true(sample.chunk_latency_p95_s > 1.6 && sample.chunk_latency_p95_s < 2.5);
	/* No more reads happen, so no limit shows, and the disk's figures stay. */
	for (uint64_t i = 3; i < 7; i++) {
		sensed.readings[i % SENSED_READINGS] = sensed.readings[(i - 1) % SENSED_READINGS];
		sensed.readings[i % SENSED_READINGS].at_ns += S;
		sensed.readings[i % SENSED_READINGS].counters.chunk_visits += 10;
		sensed.n_readings++;
	}
	sample = sample_of(&sensed);
	assert_float_equal(sample.reading_ratio, 0, 1e-9);
	assert_true(sample.memory_hit_ratio > 0.95);
}

TEST(peers_and_storage_are_one_source)
{
	struct sensed_job sensed = {.n_readings = 3};

	/* Each second has ten visits. Storage gives two chunks, of 0.25 s and a megabyte each. Other nodes
	 * give six, of 0.1 s and 250 kB each, two at a time. For 0.1 s both happen at once. Two requests to
	 * other nodes fail. */
	for (uint64_t i = 0; i < 3; i++)
		sensed.readings[i] = (struct sensed_reading){.at_ns = (10 + i) * S,
							     .counters = {.samples = 1000 * i,
									  .bytes = 5000000 * i,
									  .chunk_visits = 10 * i,
									  .chunk_reads = 2 * i,
									  .n_read = 2 * i,
									  .read_bytes = 2000000 * i,
									  .read_ns = S / 2 * i,
									  .peer_chunks = 6 * i,
									  .peer_bytes = 1500000 * i,
									  .peer_failed = 2 * i,
									  .peer_ns = S * 6 / 10 * i,
									  .coming_ns = S * 7 / 10 * i}};
	struct stall_sample sample =
	    sample_of(&sensed); /* a job without nodes has no figures of other nodes */
	assert_true(isnan(sample.tiers.peer_hit_ratio) && isnan(sample.tiers.peer.chunks_per_s));
	shares = true;
	sample = sample_of(&sensed);
	shares = false;
	assert_float_equal(sample.memory_hit_ratio, 0.2, 1e-9);
	assert_float_equal(sample.tiers.peer_hit_ratio, 0.6, 1e-9);
	assert_float_equal(sample.chunk_latency_s, (2 * 0.25 + 6 * 0.1) / 8, 1e-9);
	assert_float_equal(sample.source_bytes_per_s, 3.5e6 / 0.7, 1);
	assert_float_equal(sample.reads_in_flight, 1.1 / 0.7, 1e-9);
	assert_float_equal(sample.reading_ratio, 0.7, 1e-9);
	assert_float_equal(sample.tiers.memory.chunks_per_s, 2, 1e-9);
	assert_float_equal(sample.tiers.memory.bytes_per_s, 1e6, 1);
	assert_float_equal(sample.tiers.peer.chunks_per_s, 6, 1e-9);
	assert_float_equal(sample.tiers.peer.bytes_per_s, 1.5e6, 1);
	assert_float_equal(sample.tiers.peer.latency_s, 0.1, 1e-9);
	assert_float_equal(sample.tiers.storage.chunks_per_s, 2, 1e-9);
	assert_float_equal(sample.tiers.storage.bytes_per_s, 2e6, 1);
	assert_float_equal(sample.tiers.storage.latency_s, 0.25, 1e-9);
	/* A sample has 10 kB. Four fifths of them come at 5 MB/s. */
	assert_float_equal(sample.fetch_rate, 5e6 / 8e3, 1e-3);
}

/* ---- how much a node needs of the dataset -------------------------------------------------------------- */

#define CHUNK_BYTES  UINT64_C(1000000)
#define CHUNK_LENGTH 10

/* A dataset of a given number of chunks, and sessions of some ranks of a job. */
struct needs {
	struct cached_dataset dataset;
	struct job jobs[4];
	struct session sessions[4];
	struct serving serving;
	struct decoded_cache decoded_cache;
	uint32_t chunk_samples[64];
	uint64_t base[64];
};

static void needs_init(struct needs *n, uint64_t n_chunks)
{
	*n = (struct needs){.dataset = {.all_bytes = n_chunks * CHUNK_BYTES,
					.held_bytes = 3 * CHUNK_BYTES,
					.info = {.n_chunks = n_chunks}}};
	for (uint64_t i = 0; i < n_chunks; i++) {
		n->chunk_samples[i] = CHUNK_LENGTH;
		n->base[i] = i;
	}
}

static void needs_add(struct needs *n, uint32_t at, uint32_t rank, uint32_t world, uint32_t lanes)
{
	struct session *s = &n->sessions[at];
	const struct shuffle_spec spec = {.chunk_samples = n->chunk_samples,
					  .n_chunks = n->dataset.info.n_chunks,
					  .window_chunks = 2,
					  .shuffle = true,
					  .rank = rank,
					  .world = world,
					  .batch = 2,
					  .lanes = lanes,
					  .base = n->base};

	*s = (struct session){.next = n->serving.sessions,
			      .job = &n->jobs[at],
			      .decoded_cache = at ? NULL : &n->decoded_cache,
			      .order = {.dataset = &n->dataset,
					.request = {.rank = rank, .world = world, .lanes = lanes},
					.n_samples = spec.n_chunks * CHUNK_LENGTH,
					.n_chunks = spec.n_chunks},
			      .slots = {.control = &control}};
	assert_int_equal(shuffle_plan_new(&spec, &s->order.plans[0].plan), 0);
	n->serving.sessions = s;
}

static struct stall_sample needs_end(struct needs *n)
{
	const struct sensed_job sensed = {.n_readings = 0};
	struct stall_sample sample;

	n->serving.cache.pool = pool;
	for (uint32_t i = 0; i < 4; i++)
		n->jobs[i].n_sessions = 1;
	sample = sensed_sample(&sensed, &n->serving, n->sessions[0].job);
	for (struct session *s = n->serving.sessions; s; s = s->next)
		shuffle_plan_free(s->order.plans[0].plan);
	return sample;
}

/* Returns the cache that the tuner wants for a job that waits for storage. */
static uint64_t cache_target(struct stall_sample sample)
{
	struct tuner_config config = tuner_config_default();
	struct stall_node node = stall_node_unknown();
	struct tuner_state *state = calloc(1, tuner_state_bytes());
	struct tuner_result *result = calloc(1, sizeof(*result));

	assert_true(state && result);
	node.memory_limit_bytes = node.memory_headroom_bytes = node.memory_free_bytes = 8e9;
	node.cores = node.cores_idle = 4;
	sample.job = 1;
	sample.covered_s = 1;
	sample.source = STALL_SOURCE_CLIENT;
	sample.shares.fetch_stall = 0.5;
	sample.shares.prep_stall = 0;
	sample.samples_per_s = 100;
	sample.chunk_latency_s = sample.chunk_latency_p95_s = 0.1;
	sample.source_bytes_per_s = 5e6;
	sample.reads_in_flight = 20; /* more reads at a time would not be faster */
	sample.reading_ratio = 1;
	sample.memory_hit_ratio = 0;
	sample.window_chunks = 2;
	sample.need_bytes = 2 * CHUNK_BYTES;
	sample.knobs = (struct tuner_knobs){.value = {4 * CHUNK_BYTES, 1, 2, 0}};
	sample.tunable = (1u << TUNER_N_KNOBS) - 1;
	for (uint64_t second = 100; second < 104; second++) {
		sample.at_ns = second * S;
		tuner_decide(&config, state, &node, &sample, 1, second * S, result);
	}
	assert_int_equal(result->n_views, 1);
	uint64_t target = result->views[0].model.value[TUNER_CACHE_BYTES];
	free(state);
	free(result);
	return target;
}

/* A node that serves one of four lanes is like a node without peers and with a quarter of the dataset. */
TEST(lanes_are_the_dataset)
{
	struct needs n;
	struct stall_sample alone, lane, both, one_order, here;

	needs_init(&n, 16);
	needs_add(&n, 0, 0, 1, 1);
	alone = needs_end(&n);
	assert_float_equal(alone.dataset_bytes, 16e6, 0);
	assert_float_equal(alone.cached_bytes, 3e6, 0);
	assert_float_equal(alone.samples_per_chunk, CHUNK_LENGTH, 0);
	assert_float_equal(alone.decoded_cache.usable, 16 * CHUNK_LENGTH, 0);
	needs_init(&n, 64);
	needs_add(&n, 0, 1, 4, 4);
	lane = needs_end(&n);
	assert_float_equal(lane.dataset_bytes, alone.dataset_bytes, 0);
	assert_float_equal(lane.samples_per_chunk, alone.samples_per_chunk, 0);
	assert_float_equal(lane.chunk_bytes, alone.chunk_bytes, 0);
	assert_float_equal(lane.decoded_cache.usable, alone.decoded_cache.usable, 0);
	assert_true(cache_target(alone) > 10 * CHUNK_BYTES);
	assert_int_equal(cache_target(lane), cache_target(alone));
	/* Ranks of a node share its memory. A job with another order has needs of its own, and so has a
	 * validation with fewer samples. */
	needs_init(&n, 64);
	needs_add(&n, 0, 1, 4, 4);
	needs_add(&n, 1, 3, 4, 4);
	needs_add(&n, 2, 0, 1, 1);
	needs_add(&n, 3, 1, 4, 1);
	n.sessions[3].job = n.sessions[0].job;
	n.sessions[3].order.n_samples /= 10;
	both = needs_end(&n);
	assert_float_equal(both.dataset_bytes, 32e6, 0);
	assert_float_equal(both.samples_per_chunk, CHUNK_LENGTH, 0);
	/* Nodes that follow one order need all of it, each for its own part of the samples. */
	needs_init(&n, 64);
	needs_add(&n, 0, 0, 4, 1);
	one_order = needs_end(&n);
	assert_float_equal(one_order.dataset_bytes, 64e6, 0);
	assert_float_equal(one_order.samples_per_chunk, CHUNK_LENGTH / 4.0, 0);
	assert_float_equal(one_order.decoded_cache.usable, 64 * CHUNK_LENGTH,
			   0); /* different chunks in each epoch */
	/* All ranks of a job on one node are like a job with one rank. */
	needs_init(&n, 64);
	for (uint32_t rank = 0; rank < 4; rank++)
		needs_add(&n, rank, rank, 4, 1);
	here = needs_end(&n);
	assert_float_equal(here.dataset_bytes, 64e6, 0);
	assert_float_equal(here.samples_per_chunk, CHUNK_LENGTH, 0);
}

int main(void)
{
	return run_unit_tests(begin, end);
}
