/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/analyzer/script.h"

#include "analyzer/base/interval.h"
#include "analyzer/timeline/timeline.h"

/* Recordings with gaps. Unknown time never counts as computing or as waiting. */

static struct script s; /* too large for the stack */

/* Makes inline steps of 1000 ticks, with 600 reading a file, 400 computing, and the backward pass at 900.
 * Steps that touch [gap_begin, gap_end) have lost all but their backward pass, as the recorder leaves it. */
static void inline_steps(unsigned int n, uint64_t gap_begin, uint64_t gap_end)
{
	script_begin(&s);
	for (unsigned int i = 0; i < n; i++) {
		uint64_t tick = 1000 * (uint64_t)i;

		if (tick + 600 <= gap_begin || tick >= gap_end)
			script_read_file(&s, TRAINER, tick, tick + 600);
		script_step(&s, TRAINER, tick + 900);
	}
	script_exit(&s, TRAINER, 1000 * (uint64_t)n);
	if (gap_end > gap_begin)
		script_add(&s, 1, EVENT_GAP, gap_begin, gap_end);
}

TEST(shares_are_of_the_steps_that_were_seen)
{
	struct analysis *whole, *gapped;

	inline_steps(100, 0, 0);
	whole = script_analyse(&s, NULL);
	inline_steps(100, 20300, 70700);
	gapped = script_analyse(&s, NULL);
	/* Steps 20 to 70 reach into the gap. */
	assert_int_equal(gapped->n_steps, 100 - 51);
	assert_in_range(gapped->window.observed_ns / TICK_NS, 48800, 49100);
	for (size_t i = 0; i < SHARE_COUNT; i++)
		assert_float_equal(analysis_share_ratio(gapped, (enum analysis_share)i),
				   analysis_share_ratio(whole, (enum analysis_share)i), 0.005);
	assert_int_equal(gapped->verdict, ANALYSIS_FETCH_BOUND);
	analysis_free(whole);
	analysis_free(gapped);
}

TEST(a_recording_that_is_one_gap_is_insufficient)
{
	inline_steps(50, 0, 50000);
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->verdict, ANALYSIS_INSUFFICIENT);
}

/* A thread's state within a gap is unknown, except where its records cover the time. */
TEST(states_in_a_gap)
{
	struct timeline *timeline;

	script_begin(&s);
	/* began before the gap, and is recorded whole */
	script_off(&s, TRAINER, 100, 300, 300, 1, TIMER_WOKE);
	script_off(&s, TRAINER, 900, 950, 950, 1, TIMER_WOKE);
	script_exit(&s, TRAINER, 1000);
	script_add(&s, 1, EVENT_GAP, 200, 600);
	script_add(&s, 1, EVENT_GAP, 500, 700); /* overlaps */
	assert_int_equal(timeline_build(s.events, s.n, &timeline, NULL), 0);
	assert_int_equal(timeline->n_malformed, 0);
	assert_int_equal(timeline->n_threads, 1); /* a gap belongs to no thread */
	const struct timeline_thread *thread = timeline_find(timeline, TRAINER, at(0));
	struct timeline_account account = timeline_account(thread, at(0), at(1000));
	assert_int_equal(account.sleep_ns / TICK_NS, 250);
	assert_int_equal(account.unknown_ns / TICK_NS, 400);
	assert_int_equal(account.cpu_ns / TICK_NS, 350);
	timeline_free(timeline);
}

/* If no thread is off its core, the list of these intervals is empty, and has no address. */
TEST(gap_outside_every_life)
{
	struct timeline *timeline;

	script_begin(&s);
	script_exit(&s, TRAINER, 1000);
	script_add(&s, 1, EVENT_GAP, 2000, 3000);
	assert_int_equal(timeline_build(s.events, s.n, &timeline, NULL), 0);
	assert_int_equal(timeline->n_threads, 1);
	assert_int_equal(timeline->threads[0].n_offs, 0);
	timeline_free(timeline);
}
