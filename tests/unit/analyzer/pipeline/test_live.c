/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/analyzer/script.h"

#include "analyzer/live.h"

static struct script s; /* too large for the stack */

#define OTHER 500 /* added to all numbers of the first job's threads for a second job */

/* Makes inline steps of 1000 ticks each, of which `read` are spent reading a file. */
static void inline_steps(uint64_t from_tick, unsigned int n, uint64_t read)
{
	for (unsigned int i = 0; i < n; i++) {
		uint64_t tick = from_tick + 1000 * (uint64_t)i;

		script_read_file(&s, TRAINER, tick, tick + read);
		script_step(&s, TRAINER, tick + 900);
	}
}

static void feed(struct live *live, uint32_t shift)
{
	for (size_t i = 0; i < s.n; i++) {
		struct event event = s.events[i];

		event.tid += shift;
		event.tgid += shift;
		assert_int_equal(live_event(live, &event), 0);
	}
}

static struct analysis *analyse(struct live *live, uint32_t root, uint64_t tick)
{
	struct analysis *analysis = NULL;

	assert_int_equal(live_analyze(live, root, at(tick), &analysis, NULL), 0);
	check_invariants(analysis);
	return analysis;
}

static struct live *live_make(uint64_t window_ticks, size_t n_events_max)
{
	struct live *live = live_new(&(struct live_config){window_ticks * TICK_NS, n_events_max, 4});

	assert_non_null(live);
	return live;
}

TEST(two_live_jobs_are_analysed_apart)
{
	struct live *live = live_make(1000000, 0);
	struct analysis *a, *b;

	assert_int_equal(live_add(live, TRAINER), 0);
	assert_int_equal(live_add(live, TRAINER), -EEXIST);
	assert_int_equal(live_add(live, TRAINER + OTHER), 0);
	script_begin(&s);
	inline_steps(0, 50, 600);
	feed(live, 0);
	script_begin(&s);
	inline_steps(0, 50, 100);
	feed(live, OTHER);
	a = analyse(live, TRAINER, 50000);
	b = analyse(live, TRAINER + OTHER, 50000);
	assert_float_equal(analysis_share_ratio(a, SHARE_FETCH_STALL), 0.6, 0.02);
	assert_float_equal(analysis_share_ratio(b, SHARE_FETCH_STALL), 0.1, 0.02);
	assert_int_equal(a->job.trainer_tid, TRAINER);
	assert_int_equal(live_root_of(live, TRAINER), TRAINER);
	assert_int_equal(live_root_of(live, TRAINER + OTHER), TRAINER + OTHER);
	live_remove(live, TRAINER);
	assert_int_equal(live_root_of(live, TRAINER), 0);
	assert_int_equal(live_root_of(live, TRAINER + OTHER), TRAINER + OTHER);
	assert_int_equal(live_analyze(live, TRAINER, at(50000), &a, NULL), -ENOENT);
	analysis_free(a);
	analysis_free(b);
	live_free(live);
}

static struct event found_alive(uint32_t tgid)
{
	return (struct event){.type = EVENT_ALIVE, .tid = tgid, .tgid = tgid, .end_ns = 1};
}

/* Processes that are found when a job is attached belong to that job, and to no job once it is gone. */
TEST(found_processes_belong_to_the_attached_job)
{
	struct live *live = live_make(1000000, 0);
	struct event first = found_alive(5001), second = found_alive(5002), late = found_alive(5003);

	assert_int_equal(live_event(live, &first), 0);
	assert_int_equal(live_root_of(live, 5001), 0);
	assert_int_equal(live_add(live, TRAINER), 0);
	assert_int_equal(live_event(live, &first), 0);
	assert_int_equal(live_root_of(live, 5001), TRAINER);
	assert_int_equal(live_add(live, TRAINER + OTHER), 0);
	assert_int_equal(live_event(live, &second), 0);
	assert_int_equal(live_root_of(live, 5002), TRAINER + OTHER);
	live_remove(live, TRAINER + OTHER);
	assert_int_equal(live_event(live, &late), 0);
	assert_int_equal(live_root_of(live, 5003), 0);
	assert_int_equal(live_root_of(live, 5002), 0);
	assert_int_equal(live_root_of(live, 5001), TRAINER);
	live_free(live);
}

/* A new process belongs to its parent's job, whichever process had its number before. The record of that
 * one's end was lost. */
TEST(a_number_is_used_again)
{
	struct live *live = live_make(1000000, 0);
	struct event event = {.type = EVENT_FORK, .tid = TRAINER, .tgid = TRAINER, .end_ns = 1};

	assert_int_equal(live_add(live, TRAINER), 0);
	assert_int_equal(live_add(live, TRAINER + OTHER), 0);
	event.fork.child_tid = event.fork.child_tgid = 5001;
	assert_int_equal(live_event(live, &event), 0);
	assert_int_equal(live_root_of(live, 5001), TRAINER);
	event.tid = event.tgid = TRAINER + OTHER;
	event.end_ns = 2;
	assert_int_equal(live_event(live, &event), 0);
	assert_int_equal(live_root_of(live, 5001), TRAINER + OTHER);
	/* But a job that was added before the record of its root's fork keeps its root. */
	event.fork.child_tid = event.fork.child_tgid = TRAINER;
	assert_int_equal(live_event(live, &event), 0);
	assert_int_equal(live_root_of(live, TRAINER), TRAINER);
	live_remove(live, TRAINER);
	assert_int_equal(live_root_of(live, 5001), TRAINER + OTHER);
	live_remove(live, TRAINER + OTHER);
	assert_int_equal(live_root_of(live, 5001), 0);
	live_free(live);
}

TEST(what_was_long_ago_does_not_count)
{
	struct live *live = live_make(20000, 0);

	assert_int_equal(live_add(live, TRAINER), 0);
	script_begin(&s);
	inline_steps(0, 100, 600);
	inline_steps(100000, 100, 100);
	feed(live, 0);
	struct analysis *analysis = analyse(live, TRAINER, 200000);
	assert_in_range(analysis->n_steps, 17, 21);
	assert_float_equal(analysis_share_ratio(analysis, SHARE_FETCH_STALL), 0.1, 0.02);
	analysis_free(analysis);
	live_free(live);
}

TEST(children_belong_to_the_job_and_strangers_do_not)
{
	struct live *live = live_make(1000000, 0);

	assert_int_equal(live_add(live, TRAINER), 0);
	script_begin(&s);
	for (unsigned int n = 0; n < 2; n++)
		script_fork(&s, TRAINER, WORKER + 10 * n, 1 + n);
	inline_steps(10, 20, 600);
	/* A process whose fork was not recorded. */
	script_step(&s, 900, 500);
	feed(live, 0);
	struct analysis *analysis = analyse(live, TRAINER, 21000);
	assert_int_equal(analysis->job.n_trainers, 1);
	analysis_free(analysis);
	live_free(live);
}

/* Ten thousand short-lived processes leave nothing behind. A full list makes the window shorter. */
TEST(memory_is_bounded)
{
	struct live *live = live_make(1000, 2000);
	struct analysis *analysis;

	assert_int_equal(live_add(live, TRAINER), 0);
	for (uint64_t i = 0; i < 10000; i++) {
		script_begin(&s);
		script_fork(&s, TRAINER, WORKER, 100 * i);
		script_exit(&s, WORKER, 100 * i + 50);
		inline_steps(100 * i, 1, 60);
		feed(live, 0);
		if (i % 1000 == 999) {
			analysis = analyse(live, TRAINER, 100 * i);
			assert_true(analysis->n_steps < 100);
			analysis_free(analysis);
		}
	}
	live_free(live);
	live_free(NULL);
}
