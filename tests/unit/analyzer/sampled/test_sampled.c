/* SPDX-License-Identifier: Apache-2.0 */
/* Analyses sampled recordings that are made up, so that their truth is known. */
#include "tests/unit/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analyzer/analysis.h"
#include "lib/clock.h"
#include "lib/proc_task.h"

#define EVENTS_MAX 40000
#define BASE_NS    UINT64_C(7000000000)
#define SAMPLE_MS  5
#define ALL_KNOWN  (SAMPLE_KNOWN_SCHEDSTAT | SAMPLE_KNOWN_SYSCALL | SAMPLE_KNOWN_IO | SAMPLE_KNOWN_PROCESS)

enum {
	TRAINER = 100,
	PIN_THREAD = 101,
	WORKER = 200,
	RESULT_PIPE = 7000,
	INDEX_PIPE = 7001,
};

struct tape {
	struct event *events;
	size_t n;
	uint16_t known;
};

static struct event *put(struct tape *tape, uint32_t tgid, uint32_t tid, uint16_t type, double begin_ms,
			 double end_ms)
{
	struct event *event = &tape->events[tape->n++];

	assert_true(tape->n < EVENTS_MAX);
	*event = (struct event){.start_ns = BASE_NS + (uint64_t)(begin_ms * 1e6),
				.end_ns = BASE_NS + (uint64_t)(end_ms * 1e6),
				.tid = tid,
				.tgid = tgid,
				.type = type};
	return event;
}

static void process(struct tape *tape, uint32_t tgid, uint32_t parent, uint32_t flags, double at_ms)
{
	struct event *event = put(tape, tgid, tgid, EVENT_SAMPLE_PROCESS, at_ms, at_ms);

	event->process.parent_tgid = parent;
	event->process.flags = flags;
}

/* Adds samples every SAMPLE_MS from start to end, all of the same kind: on a CPU for `run` of their time,
 * else asleep. */
static struct event *interval(struct tape *tape, uint32_t tgid, uint32_t tid, double begin_ms, double end_ms,
			      double run, enum proc_wait wait)
{
	struct event *event = NULL;

	for (int i = 0; begin_ms + i * SAMPLE_MS < end_ms; i++) {
		double at = begin_ms + i * SAMPLE_MS;
		double end = at + SAMPLE_MS < end_ms ? at + SAMPLE_MS : end_ms;

		event = put(tape, tgid, tid, EVENT_SAMPLE, at, end);
		event->sample.exec_ns = (uint32_t)((end - at) * 1e6 * run);
		event->sample.process_ns = tid == tgid ? event->sample.exec_ns : 0;
		event->sample.wait = wait;
		event->sample.state = wait == PROC_WAIT_NONE ? 'R' : 'S';
		event->sample.inode =
		    wait == PROC_WAIT_PIPE ? (tgid == TRAINER ? RESULT_PIPE : INDEX_PIPE) : 0;
		event->sample.known = tape->known;
		event->sample.n = 1;
	}
	return event;
}

static struct tape tape_make(void)
{
	struct tape tape = {.events = calloc(EVENTS_MAX, sizeof(*tape.events)), .known = ALL_KNOWN};

	assert_non_null(tape.events);
	return tape;
}

/* Analyses, and asserts that the shares sum to the window, whatever the events are. */
static struct analysis *analyse(struct tape *tape)
{
	const struct analysis_input input = {
	    .events = tape->events, .n_events = tape->n, .root_tgid = TRAINER, .n_cpus = 4};
	struct analysis *analysis;
	uint64_t sum_ns = 0;

	assert_int_equal(analysis_run(&input, &analysis, NULL), 0);
	assert_true(analysis->sampled.is);
	for (size_t i = 0; i < SHARE_COUNT; i++)
		sum_ns += analysis->share_ns[i];
	assert_int_equal(sum_ns, analysis->window.observed_ns);
	free(tape->events);
	return analysis;
}

static double points(const struct analysis *analysis, enum analysis_share share)
{
	return 100 * analysis_share_ratio(analysis, share);
}

#define assert_points(analysis, share, expected, tolerance)                                                  \
	do {                                                                                                 \
		double points_ = points(analysis, share);                                                    \
		if (points_ < (expected) - (tolerance) || points_ > (expected) + (tolerance))                \
			fail_msg("%s is %.1f, not %.1f", #share, points_, (double)(expected));               \
	} while (0)

/* Makes 50 steps of 100 ms. The trainer waits for 60 and computes for 40. The worker reads for 70 and
 * prepares for 30. */
static void workers_job(struct tape *tape, enum proc_wait trainer_waits, uint32_t flags)
{
	process(tape, TRAINER, 1, 0, 0);
	interval(tape, TRAINER, TRAINER, 0, 900, 1, PROC_WAIT_NONE); /* imports */
	process(tape, WORKER, TRAINER, flags, 900);
	for (int i = 0; i < 50; i++) {
		double at = 900 + 100 * i;

		interval(tape, TRAINER, TRAINER, at, at + 60, 0, trainer_waits);
		interval(tape, TRAINER, TRAINER, at + 60, at + 65, 1, PROC_WAIT_NONE)->sample.n_reads = 6;
		interval(tape, TRAINER, TRAINER, at + 65, at + 100, 1, PROC_WAIT_NONE);
		interval(tape, WORKER, WORKER, at, at + 70, 0, PROC_WAIT_FILE_READ)->sample.read_bytes = 1000;
		interval(tape, WORKER, WORKER, at + 70, at + 100, 1, PROC_WAIT_NONE);
	}
	put(tape, WORKER, WORKER, EVENT_EXIT, 5900, 5900);
	interval(tape, TRAINER, TRAINER, 5900, 6100, 1, PROC_WAIT_NONE); /* tear-down */
}

static const uint32_t worker_flags = SAMPLE_PROCESS_SHARES_PIPE | SAMPLE_PROCESS_COPY;

TEST(a_sampled_job_waits_for_its_workers)
{
	struct tape tape = tape_make();

	workers_job(&tape, PROC_WAIT_PIPE, worker_flags);
	struct analysis *analysis = analyse(&tape);
	assert_int_equal(analysis->verdict, ANALYSIS_FETCH_BOUND);
	assert_int_equal(analysis->job.loader, LOADER_WORKERS);
	assert_int_equal(analysis->job.method, METHOD_SAMPLED);
	assert_int_equal(analysis->job.trainer_tid, TRAINER);
	assert_int_equal(analysis->sampled.n_steps_estimated, 50);
	assert_int_equal(analysis->workers.n_at_once, 1);
	assert_true(analysis->workers.fetch_ns == 3500 * NS_PER_MS);
	assert_true(analysis->workers.cpu_ns == 1500 * NS_PER_MS);
	assert_int_equal(analysis->window.read_bytes, 50 * 1000);
	/* If reading took no time, the trainer's 40 ms would be the longer part. */
	assert_points(analysis, SHARE_FETCH_STALL, 60, 1);
	assert_points(analysis, SHARE_PREP_STALL, 0, 1);
	assert_points(analysis, SHARE_DEVICE, 40, 1);
	assert_true(analysis->window.startup_ns >= 890 * NS_PER_MS &&
		    analysis->window.startup_ns <= 910 * NS_PER_MS);
	analysis_free(analysis);
}

/* Reading is a third, but preparing by itself takes longer than the trainer's step, so only a part of the
 * wait is fetch. */
TEST(workers_that_prepare_longer)
{
	struct tape tape = tape_make();

	process(&tape, TRAINER, 1, 0, 0);
	process(&tape, WORKER, TRAINER, worker_flags, 0);
	for (int i = 0; i < 50; i++) {
		double at = 100 * i;

		interval(&tape, TRAINER, TRAINER, at, at + 80, 0, PROC_WAIT_PIPE);
		interval(&tape, TRAINER, TRAINER, at + 80, at + 100, 1, PROC_WAIT_NONE)->sample.n_reads = 6;
		interval(&tape, WORKER, WORKER, at, at + 30, 0, PROC_WAIT_FILE_READ);
		interval(&tape, WORKER, WORKER, at + 30, at + 100, 1, PROC_WAIT_NONE);
	}
	struct analysis *analysis = analyse(&tape);
	assert_int_equal(analysis->verdict, ANALYSIS_PREP_BOUND);
	assert_points(analysis, SHARE_FETCH_STALL, 30, 2);
	assert_points(analysis, SHARE_PREP_STALL, 50, 2);
	analysis_free(analysis);
}

/* The pin-memory thread waits at the pipe, and the trainer waits in a futex for that thread. */
TEST(pin_memory_thread)
{
	struct tape tape = tape_make();

	workers_job(&tape, PROC_WAIT_FUTEX, worker_flags);
	for (int i = 0; i < 50; i++) {
		double at = 900 + 100 * i;

		interval(&tape, TRAINER, PIN_THREAD, at, at + 60, 0, PROC_WAIT_PIPE);
		interval(&tape, TRAINER, PIN_THREAD, at + 60, at + 65, 0.5, PROC_WAIT_NONE)->sample.n_reads =
		    6;
		interval(&tape, TRAINER, PIN_THREAD, at + 65, at + 100, 0, PROC_WAIT_PIPE);
	}
	struct analysis *analysis = analyse(&tape);
	assert_points(analysis, SHARE_FETCH_STALL, 60, 2);
	assert_int_equal(analysis->sampled.n_steps_estimated, 50);
	analysis_free(analysis);
}

/* A pool starts before all imports are done, and one of its threads waits for batches from then on. An import
 * has the model's name for a moment. */
TEST(a_pool_that_is_older_than_the_training)
{
	struct tape tape = tape_make();

	process(&tape, TRAINER, 1, 0, 0);
	process(&tape, WORKER, TRAINER, worker_flags, 500);
	for (double at = 0; at < 4000; at += SAMPLE_MS)
		interval(&tape, TRAINER, TRAINER, at, at + SAMPLE_MS, 1, PROC_WAIT_NONE)->sample.place =
		    at == 1000 ? SAMPLE_PLACE_COMPUTING : SAMPLE_PLACE_IMPORTING;
	interval(&tape, TRAINER, PIN_THREAD, 500, 4000, 0, PROC_WAIT_PIPE);
	interval(&tape, WORKER, WORKER, 500, 4000, 0, PROC_WAIT_PIPE);
	for (int i = 0; i < 50; i++) {
		double at = 4000 + 100 * i;

		for (double part = 0; part < 100; part += SAMPLE_MS)
			interval(&tape, TRAINER, TRAINER, at + part, at + part + SAMPLE_MS, part < 40,
				 part < 40 ? PROC_WAIT_NONE : PROC_WAIT_FUTEX)
			    ->sample.place = part < 40 ? SAMPLE_PLACE_COMPUTING : SAMPLE_PLACE_OUTSIDE;
		interval(&tape, TRAINER, PIN_THREAD, at, at + 95, 0, PROC_WAIT_PIPE);
		interval(&tape, TRAINER, PIN_THREAD, at + 95, at + 100, 0.5, PROC_WAIT_NONE)->sample.n_reads =
		    6;
		interval(&tape, WORKER, WORKER, at, at + 100, 1, PROC_WAIT_NONE);
	}
	struct analysis *analysis = analyse(&tape);
	assert_points(analysis, SHARE_PREP_STALL, 60, 3);
	analysis_free(analysis);
}

/* A trainer that waits in a futex while its own threads compute is the device's share. */
TEST(helpers_are_the_device)
{
	struct tape tape = tape_make();

	workers_job(&tape, PROC_WAIT_FUTEX, worker_flags);
	for (size_t i = 0; i < tape.n; i++)
		if (tape.events[i].type == EVENT_SAMPLE && tape.events[i].sample.wait == PROC_WAIT_FUTEX)
			tape.events[i].sample.process_ns = SAMPLE_MS * 1000000;
	struct analysis *analysis = analyse(&tape);
	assert_int_equal(analysis->verdict, ANALYSIS_DEVICE_BOUND);
	assert_points(analysis, SHARE_DEVICE, 100, 1);
	analysis_free(analysis);
}

/* Makes 50 steps without workers. Each reads 8 samples in 2 reads, with 5 ms asleep in the file and 5 ms
 * of decoding per sample. Then it computes for 40 ms. Before the steps come imports, which read files as
 * well. */
static void inline_job(struct tape *tape)
{
	double at = 0;

	process(tape, TRAINER, 1, 0, 0);
	for (int i = 0; i < 150; i++, at += 5)
		interval(tape, TRAINER, TRAINER, at, at + 5, 1, PROC_WAIT_NONE)->sample.n_reads =
		    i % 7 ? 9 : 0;
	for (int step = 0; step < 50; step++) {
		for (int i = 0; i < 8; i++, at += 10) {
			interval(tape, TRAINER, TRAINER, at, at + 5, 0, PROC_WAIT_FILE_READ)->sample.n_reads =
			    2;
			interval(tape, TRAINER, TRAINER, at + 5, at + 10, 1, PROC_WAIT_NONE);
		}
		interval(tape, TRAINER, TRAINER, at, at + 40, 1, PROC_WAIT_NONE);
		at += 40;
	}
	interval(tape, TRAINER, TRAINER, at, at + 300, 1, PROC_WAIT_NONE); /* tear-down */
}

TEST(a_sampled_inline_loader_is_found)
{
	struct tape tape = tape_make();

	inline_job(&tape);
	struct analysis *analysis = analyse(&tape);
	assert_int_equal(analysis->job.loader, LOADER_INLINE);
	assert_true(analysis->sampled.n_steps_estimated >= 49 && analysis->sampled.n_steps_estimated <= 51);
	assert_points(analysis, SHARE_FETCH_STALL, 33, 3);
	assert_points(analysis, SHARE_PREP_STALL, 33, 6);
	assert_points(analysis, SHARE_DEVICE, 33, 6);
	assert_true(analysis->window.startup_ns > 700 * NS_PER_MS &&
		    analysis->window.startup_ns < 800 * NS_PER_MS);
	analysis_free(analysis);
}

/* Every fifth step writes for 100 ms, serialises between two writes, and syncs. */
TEST(sampled_checkpoints_include_serialising)
{
	struct tape tape = tape_make();
	double at = 0;

	process(&tape, TRAINER, 1, 0, 0);
	process(&tape, WORKER, TRAINER, worker_flags, 0);
	for (int i = 0; i < 50; i++) {
		interval(&tape, TRAINER, TRAINER, at, at + 10, 0, PROC_WAIT_PIPE);
		interval(&tape, TRAINER, TRAINER, at + 10, at + 80, 1, PROC_WAIT_NONE)->sample.n_reads = 6;
		at += 80;
		if (i % 5)
			continue;
		/* The bytes of a large write count when the write returns, here 60 ms after the first. */
		interval(&tape, TRAINER, TRAINER, at, at + 5, 1, PROC_WAIT_NONE)->sample.written_bytes = 8192;
		interval(&tape, TRAINER, TRAINER, at + 5, at + 65, 1, PROC_WAIT_NONE);
		interval(&tape, TRAINER, TRAINER, at + 65, at + 70, 1, PROC_WAIT_NONE)->sample.written_bytes =
		    1 << 20;
		interval(&tape, TRAINER, TRAINER, at + 70, at + 100, 0, PROC_WAIT_FILE_WRITE);
		at += 100;
	}
	interval(&tape, WORKER, WORKER, 0, at, 0, PROC_WAIT_PIPE);
	struct analysis *analysis = analyse(&tape);
	assert_int_equal(analysis->verdict, ANALYSIS_CHECKPOINT_BOUND);
	assert_points(analysis, SHARE_CHECKPOINT_STALL, 20, 1);
	assert_points(analysis, SHARE_PREP_STALL, 10, 1);
	analysis_free(analysis);
}

/* A trainer that is runnable without a core, outside of waits, is starved. */
TEST(runnable_without_a_core_is_starved)
{
	struct tape tape = tape_make();

	workers_job(&tape, PROC_WAIT_PIPE, worker_flags);
	for (size_t i = 0; i < tape.n; i++)
		if (tape.events[i].type == EVENT_SAMPLE && tape.events[i].tid == TRAINER &&
		    !tape.events[i].sample.n_reads && tape.events[i].sample.wait == PROC_WAIT_NONE) {
			tape.events[i].sample.exec_ns /= 2;
			tape.events[i].sample.queue_ns = tape.events[i].sample.exec_ns;
		}
	struct analysis *analysis = analyse(&tape);
	assert_points(analysis, SHARE_CPU_STARVED, 17.5, 1.5);
	assert_points(analysis, SHARE_FETCH_STALL, 60, 1.5);
	analysis_free(analysis);
}

/* With only thread states, the wait is still found, and the interval shows how much less is known. */
TEST(thread_states_alone_find_the_wait_less_surely)
{
	struct tape rich = tape_make(), poor = tape_make();
	struct analysis *exact, *rough;

	workers_job(&rich, PROC_WAIT_PIPE, worker_flags);
	poor.known = SAMPLE_KNOWN_PROCESS;
	workers_job(&poor, PROC_WAIT_UNKNOWN, SAMPLE_PROCESS_HIDDEN | SAMPLE_PROCESS_COPY);
	for (size_t i = 0; i < poor.n; i++)
		if (poor.events[i].type == EVENT_SAMPLE)
			poor.events[i].sample.n_reads = 0;
	exact = analyse(&rich);
	rough = analyse(&poor);
	assert_points(rough, SHARE_DEVICE, 40, 5);
	assert_int_equal(rough->sampled.n_steps_estimated, 0);
	for (size_t i = 0; i < SHARE_COUNT; i++)
		if (analysis_share_known(rough, (enum analysis_share)i))
			assert_true(rough->sampled.error[i] > exact->sampled.error[i]);
	analysis_free(exact);
	analysis_free(rough);
}

TEST(too_few_samples)
{
	struct tape tape = tape_make();

	process(&tape, TRAINER, 1, 0, 0);
	interval(&tape, TRAINER, TRAINER, 0, 200, 1, PROC_WAIT_NONE);
	struct analysis *analysis = analyse(&tape);
	assert_int_equal(analysis->verdict, ANALYSIS_INSUFFICIENT);
	assert_non_null(strstr(analysis->insufficient, "40 times"));
	analysis_free(analysis);
}

/* A helper of the same job, which is no worker, had the worker's number before. */
TEST(numbers_used_again)
{
	struct tape tape = tape_make();

	process(&tape, WORKER, TRAINER, 0, 0);
	interval(&tape, WORKER, WORKER, 0, 500, 1, PROC_WAIT_NONE);
	put(&tape, WORKER, WORKER, EVENT_EXIT, 500, 500);
	workers_job(&tape, PROC_WAIT_PIPE, worker_flags);
	struct analysis *analysis = analyse(&tape);
	assert_int_equal(analysis->job.loader, LOADER_WORKERS);
	assert_int_equal(analysis->workers.n, 1);
	assert_true(analysis->workers.cpu_ns == 1500 * NS_PER_MS);
	analysis_free(analysis);
}

/* A launcher waits, and spawns ranks, which have workers of their own. */
TEST(launcher_is_no_trainer)
{
	struct tape tape = tape_make();

	process(&tape, 50, 1, 0, 0);
	interval(&tape, 50, 50, 0, 6100, 0, PROC_WAIT_CHILD);
	workers_job(&tape, PROC_WAIT_PIPE, worker_flags);
	for (size_t i = 0; i < tape.n; i++)
		if (tape.events[i].type == EVENT_SAMPLE_PROCESS && tape.events[i].tid == TRAINER) {
			tape.events[i].process.parent_tgid = 50;
			tape.events[i].process.flags = SAMPLE_PROCESS_SPAWNED | SAMPLE_PROCESS_SHARES_PIPE;
		}
	struct analysis *analysis = analyse(&tape);
	assert_int_equal(analysis->job.trainer_tid, TRAINER);
	assert_points(analysis, SHARE_FETCH_STALL, 60, 1);
	analysis_free(analysis);
}

/* The drawn states are as long as the shares, and stay within the requested number. */
TEST(drawn_states_have_the_lengths_of_the_shares)
{
	for (size_t max = 100; max <= 100000; max *= 1000) {
		struct tape tape = tape_make();
		const struct analysis_input input = {
		    .events = tape.events, .root_tgid = TRAINER, .n_cpus = 4, .n_lane_segments_max = max};
		struct analysis_input whole = input;
		struct analysis *analysis;
		uint64_t of_ns[LANE_STATES] = {0};

		workers_job(&tape, PROC_WAIT_PIPE, worker_flags);
		whole.n_events = tape.n;
		assert_int_equal(analysis_run(&whole, &analysis, NULL), 0);
		assert_non_null(analysis->lanes);
		assert_int_equal(analysis->lanes->n_items, 2);
		assert_int_equal(analysis->lanes->items[0].role, LANE_TRAINER);
		assert_true(analysis->lanes->items[0].n_segments + analysis->lanes->items[1].n_segments <=
			    max + 4);
		for (size_t i = 0; i < analysis->lanes->items[0].n_segments; i++) {
			const struct lane_segment *segment = &analysis->lanes->items[0].segments[i];

			of_ns[segment->state] += segment->end_ns - segment->begin_ns;
		}
		/* The stall is 60 of 100 ms in each of 50 steps. */
		assert_true(of_ns[LANE_FETCH_STALL] + of_ns[LANE_PREP_STALL] > 2800 * NS_PER_MS);
		assert_true(of_ns[LANE_FETCH_STALL] + of_ns[LANE_PREP_STALL] < 3200 * NS_PER_MS);
		assert_true(of_ns[LANE_DEVICE] > 1800 * NS_PER_MS);
		analysis_free(analysis);
		free(tape.events);
	}
}

/* Makes steps of 100 ms with 40 ms in next(), of which the first busy_ms are busy. The trainer's Python stack
 * at the end of each sample is the only information. */
static void placed_job(struct tape *tape, enum sample_place next, uint64_t busy_ms)
{
	process(tape, TRAINER, 1, 0, 0);
	for (unsigned int step = 0; step < 50; step++) {
		size_t before = tape->n;

		interval(tape, TRAINER, TRAINER, 100 * step, 100 * step + busy_ms, 1, PROC_WAIT_NONE);
		interval(tape, TRAINER, TRAINER, 100 * step + busy_ms, 100 * step + 40, 0, PROC_WAIT_TIMER);
		for (size_t i = before; i < tape->n; i++)
			tape->events[i].sample.place = (uint8_t)next;
		before = tape->n;
		interval(tape, TRAINER, TRAINER, 100 * step + 40, 100 * step + 100, 1, PROC_WAIT_NONE);
		for (size_t i = before; i < tape->n; i++)
			tape->events[i].sample.place = SAMPLE_PLACE_OUTSIDE;
	}
	put(tape, TRAINER, TRAINER, EVENT_LIBRARY, 0, 0);
}

TEST(all_time_within_next_is_data_wait)
{
	struct tape tape = tape_make();

	placed_job(&tape, SAMPLE_PLACE_NEXT, 20);
	struct analysis *analysis = analyse(&tape);
	assert_int_equal(analysis->job.loader, LOADER_INLINE);
	assert_points(analysis, SHARE_PREP_STALL, 40, 1);
	assert_points(analysis, SHARE_DEVICE, 60, 1);
	assert_points(analysis, SHARE_OTHER, 0, 1);
	assert_int_equal(analysis->sampled.n_steps_estimated, 50);
	assert_int_equal(analysis->verdict, ANALYSIS_PREP_BOUND);
	assert_false(analysis->job.blind);
	assert_true(analysis->sampled.error[SHARE_PREP_STALL] < 0.1);
	analysis_free(analysis);
	tape = tape_make();
	placed_job(&tape, SAMPLE_PLACE_DIESEL, 10);
	analysis = analyse(&tape);
	assert_int_equal(analysis->job.loader, LOADER_DIESEL);
	assert_points(analysis, SHARE_PREP_STALL, 40, 1);
	/* Fetch may be none or all of the time that the trainer slept. */
	assert_true(analysis->sampled.error[SHARE_FETCH_STALL] >= 0.29);
	assert_non_null(strstr(analysis->note, "dieseld"));
	assert_null(strstr(analysis->actions[0].text, "\"auto\""));
	analysis_free(analysis);
}

/* If the trainer was seen to prepare by itself, that is no waiting for dieseld, and workers can take it
 * over. */
TEST(places_of_own_preparing)
{
	struct tape tape = tape_make();

	placed_job(&tape, SAMPLE_PLACE_DIESEL, 30);
	struct analysis *analysis = analyse(&tape);
	assert_int_equal(analysis->job.loader, LOADER_DIESEL);
	assert_points(analysis, SHARE_PREP_STALL, 40, 1);
	assert_true(analysis->sampled.error[SHARE_FETCH_STALL] < 0.15);
	assert_string_equal(analysis->note, "");
	assert_non_null(strstr(analysis->actions[0].text, "\"auto\""));
	analysis_free(analysis);
}

/* The trainer compiles for half of its time outside of next(). That is no computing, and a file written then
 * is no checkpoint. */
TEST(compiling_is_no_computing_and_writes_no_checkpoint)
{
	struct tape tape = tape_make();

	placed_job(&tape, SAMPLE_PLACE_NEXT, 20);
	uint64_t begin_ns = tape.events[0].end_ns;
	for (size_t i = 0; i < tape.n; i++) {
		struct event *sample = &tape.events[i];

		if (sample->type != EVENT_SAMPLE || sample->sample.place != SAMPLE_PLACE_OUTSIDE ||
		    sample->end_ns > begin_ns + 2500 * NS_PER_MS)
			continue;
		sample->sample.place = SAMPLE_PLACE_COMPILING;
		sample->sample.written_bytes = 1000000;
	}
	struct analysis *analysis = analyse(&tape);
	assert_true(analysis_share_known(analysis, SHARE_COMPILING));
	assert_points(analysis, SHARE_COMPILING, 30, 2);
	assert_points(analysis, SHARE_DEVICE, 30, 2);
	assert_points(analysis, SHARE_PREP_STALL, 40, 2);
	assert_points(analysis, SHARE_CHECKPOINT_STALL, 0, 0.1);
	assert_float_equal(analysis_steady_ratio(analysis, SHARE_PREP_STALL), 0.4 / 0.7, 0.03);
	assert_float_equal(analysis_steady_ratio(analysis, SHARE_COMPILING), 0, 0);
	assert_non_null(strstr(analysis->note, "paid once"));
	analysis_free(analysis);
}

/* The trainer is in no next(), or its place is unknown, so its loading, if any, was not seen. */
TEST(places_that_say_nothing)
{
	for (int place = SAMPLE_PLACE_UNKNOWN; place <= SAMPLE_PLACE_OUTSIDE; place++) {
		struct tape tape = tape_make();
		struct analysis *analysis;

		placed_job(&tape, (enum sample_place)place, 20);
		analysis = analyse(&tape);
		assert_int_equal(analysis->job.loader, LOADER_NONE);
		assert_int_equal(analysis->verdict, ANALYSIS_UNCLEAR);
		assert_true(analysis->job.blind);
		assert_non_null(strstr(analysis->note, "does not show how"));
		for (size_t i = 0; i < analysis->n_actions; i++)
			assert_int_equal(analysis->actions[i].confidence, CONFIDENCE_LOW);
		analysis_free(analysis);
	}
}

/* If a script ends before its first step, its imports are no training. */
TEST(imports_are_no_training)
{
	struct tape tape = tape_make();

	process(&tape, TRAINER, 1, 0, 0);
	put(&tape, TRAINER, TRAINER, EVENT_LIBRARY, 100, 100);
	interval(&tape, TRAINER, TRAINER, 0, 3000, 1, PROC_WAIT_NONE);
	for (size_t i = 0; i < tape.n; i++)
		tape.events[i].sample.place = tape.events[i].type == EVENT_SAMPLE
						  ? SAMPLE_PLACE_IMPORTING
						  : tape.events[i].sample.place;
	struct analysis *analysis = analyse(&tape);
	assert_int_equal(analysis->verdict, ANALYSIS_INSUFFICIENT);
	assert_non_null(strstr(analysis->insufficient, "no training step"));
	analysis_free(analysis);
}

/* Makes 50 steps of 100 ms outside of any next(), with 50 in the model, and 50 asleep while another thread
 * computes. n_known: number of samples that show where the trainer is. */
static struct analysis *asleep_job(enum proc_wait wait, size_t n_known)
{
	struct tape tape = tape_make();
	size_t n = 0;

	process(&tape, TRAINER, 1, 0, 0);
	put(&tape, TRAINER, TRAINER, EVENT_LIBRARY, 0, 0);
	for (int i = 0; i < 50; i++) {
		interval(&tape, TRAINER, TRAINER, 100 * i, 100 * i + 50, 1, PROC_WAIT_NONE);
		interval(&tape, TRAINER, TRAINER, 100 * i + 50, 100 * i + 100, 0, wait);
	}
	for (size_t i = 0; i < tape.n; i++) {
		struct event *event = &tape.events[i];

		if (event->type != EVENT_SAMPLE)
			continue;
		event->sample.place = n++ < n_known ? SAMPLE_PLACE_COMPUTING : SAMPLE_PLACE_UNKNOWN;
		event->sample.process_ns = (uint32_t)(event->end_ns - event->start_ns);
	}
	return analyse(&tape);
}

/* Python's stack could hardly ever be read, so the few samples show nothing about the rest. */
TEST(a_stack_that_was_hardly_read)
{
	struct analysis *analysis = asleep_job(PROC_WAIT_FUTEX, 15);

	assert_true(isnan(analysis->parts.computing_part));
	assert_int_equal(analysis->verdict, ANALYSIS_UNCLEAR);
	analysis_free(analysis);
}

/* Python waits for its lock with a timeout, and OpenMP waits for its threads without one. */
TEST(a_lock_with_a_timeout_is_python_s)
{
	struct analysis *analysis = asleep_job(PROC_WAIT_TIMED_LOCK, SIZE_MAX);

	assert_points(analysis, SHARE_CPU_STARVED, 50, 3);
	assert_true(analysis->parts.gil_starved_ns > 2 * NS_PER_S);
	analysis_free(analysis);
	analysis = asleep_job(PROC_WAIT_FUTEX, SIZE_MAX);
	assert_points(analysis, SHARE_DEVICE, 100, 3);
	assert_int_equal(analysis->parts.gil_starved_ns, 0);
	assert_int_equal(analysis->verdict, ANALYSIS_DEVICE_BOUND);
	analysis_free(analysis);
}

TEST(naps_are_sleep_on_purpose)
{
	struct analysis *analysis = asleep_job(PROC_WAIT_TIMER, SIZE_MAX);

	assert_points(analysis, SHARE_OTHER, 50, 3);
	assert_true(analysis->parts.asleep_ns > 2 * NS_PER_S);
	assert_non_null(strstr(analysis->note, "on purpose"));
	analysis_free(analysis);
}

/* With an iterator that is no loader's, the time outside of it and of the model may be loading, too. */
TEST(places_of_iterators)
{
	struct tape tape = tape_make();

	placed_job(&tape, SAMPLE_PLACE_ITERATOR, 20);
	struct analysis *analysis = analyse(&tape);
	assert_points(analysis, SHARE_PREP_STALL, 40, 1);
	assert_int_equal(analysis->verdict, ANALYSIS_PREP_BOUND);
	analysis_free(analysis);
	/* Only few samples lie in the iterator. */
	tape = tape_make();
	placed_job(&tape, SAMPLE_PLACE_ITERATOR, 20);
	for (size_t i = 0; i < tape.n; i++)
		if (tape.events[i].type == EVENT_SAMPLE && i % 8)
			tape.events[i].sample.place = SAMPLE_PLACE_OUTSIDE;
	analysis = analyse(&tape);
	assert_int_equal(analysis->verdict, ANALYSIS_UNCLEAR);
	analysis_free(analysis);
}

/* A fork server is the workers' parent, shares pipes with both sides, and is no worker. */
TEST(a_fork_server_is_no_worker)
{
	struct tape tape = tape_make();

	process(&tape, 150, TRAINER, SAMPLE_PROCESS_SPAWNED | SAMPLE_PROCESS_SHARES_PIPE, 100);
	interval(&tape, 150, 150, 100, 6100, 0, PROC_WAIT_POLL);
	workers_job(&tape, PROC_WAIT_PIPE, worker_flags);
	for (size_t i = 0; i < tape.n; i++)
		if (tape.events[i].type == EVENT_SAMPLE_PROCESS && tape.events[i].tid == WORKER)
			tape.events[i].process.parent_tgid = 150;
	struct analysis *analysis = analyse(&tape);
	assert_int_equal(analysis->job.trainer_tid, TRAINER);
	assert_int_equal(analysis->workers.n, 1);
	assert_points(analysis, SHARE_FETCH_STALL, 60, 1);
	analysis_free(analysis);
}
