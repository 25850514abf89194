/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/analyzer/script.h"

#include "analyzer/lanes.h"

static struct script s; /* too large for the stack */

/* As in test_analysis.c, a worker reads for 600 ticks and computes for 200. The trainer computes for 150. */
static struct analysis *analyse(unsigned int n_steps, size_t n_segments_max)
{
	struct analysis_input input = {
	    .root_tgid = TRAINER, .n_cpus = 4, .n_lane_segments_max = n_segments_max};

	script_begin(&s);
	for (unsigned int i = 0; i < n_steps; i++) {
		uint64_t tick = 1000 * i;

		script_take_index(&s, 0, tick);
		script_read_file(&s, WORKER, tick + 5, tick + 605);
		script_give_result(&s, 0, tick + 805, tick + 810);
		script_next(&s, 0, tick, tick + 810, tick + 850);
		script_step(&s, TRAINER, tick + 900);
		script_request(&s, 0, tick + 860);
	}
	script_exit(&s, TRAINER, 1000 * n_steps + 500);
	return script_analyse(&s, &input);
}

static const struct lane *lane_of(const struct lanes *lanes, enum lane_role role)
{
	for (size_t i = 0; i < lanes->n_items; i++)
		if (lanes->items[i].role == role)
			return &lanes->items[i];
	fail();
	return NULL;
}

static uint64_t ns_in(const struct lane *lane, enum lane_state state)
{
	uint64_t sum_ns = 0;

	for (size_t i = 0; i < lane->n_segments; i++)
		if (lane->segments[i].state == state)
			sum_ns += lane->segments[i].end_ns - lane->segments[i].begin_ns;
	return sum_ns;
}

static void check_sorted(const struct lanes *lanes)
{
	for (size_t i = 0; i < lanes->n_items; i++) {
		const struct lane *lane = &lanes->items[i];

		for (size_t k = 0; k < lane->n_segments; k++) {
			assert_true(lane->segments[k].begin_ns < lane->segments[k].end_ns);
			assert_true(!k || lane->segments[k - 1].end_ns <= lane->segments[k].begin_ns);
		}
	}
}

TEST(few_segments_are_drawn_exactly)
{
	_cleanup_(analysis_freep) struct analysis *analysis = analyse(10, 100000);
	const struct lanes *lanes = analysis->lanes;
	const struct lane *trainer = lane_of(lanes, LANE_TRAINER), *worker = lane_of(lanes, LANE_WORKER);

	assert_int_equal(lanes->cell_ns, 0);
	check_sorted(lanes);
	assert_string_equal(trainer->name, "trainer");
	assert_string_equal(worker->name, "worker 1");
	assert_int_equal(ns_in(trainer, LANE_FETCH_STALL), analysis->share_ns[SHARE_FETCH_STALL]);
	assert_int_equal(ns_in(trainer, LANE_PREP_STALL), analysis->share_ns[SHARE_PREP_STALL]);
	assert_int_equal(ns_in(trainer, LANE_DEVICE), analysis->share_ns[SHARE_DEVICE]);
	/* The first step's file call ends after the window began, so all ten reads are in the window. */
	assert_int_equal(ns_in(worker, LANE_FETCH), 10 * 600 * TICK_NS);
	assert_int_equal(worker->n_batches, 9); /* the last batch has no end */
	assert_int_equal(lanes->n_waits, 10);
}

/* The chain of each wait is worker -> feeder -> trainer. */
TEST(wakes_show_each_wait_s_chain)
{
	_cleanup_(analysis_freep) struct analysis *analysis = analyse(10, 100000);
	const struct lanes *lanes = analysis->lanes;
	size_t n_to_trainer = 0, n_from_worker = 0;

	for (size_t i = 0; i < lanes->n_wakes; i++) {
		const struct lane_wake *wake = &lanes->wakes[i];

		assert_true(wake->waking_ns <= wake->run_ns);
		n_to_trainer += lanes->items[wake->to].role == LANE_TRAINER;
		n_from_worker += lanes->items[wake->from].role == LANE_WORKER;
	}
	assert_int_equal(n_to_trainer, 10);
	assert_int_equal(n_from_worker, 10);
}

/* With too many segments, the picture has cells, and segments only in excerpts. Its size is bounded, and its
 * sums are near the truth. */
TEST(too_many_segments_become_cells)
{
	_cleanup_(analysis_freep) struct analysis *analysis = analyse(400, 600);
	const struct lanes *lanes = analysis->lanes;
	const struct lane *trainer = lane_of(lanes, LANE_TRAINER);
	size_t n = 0;

	assert_true(lanes->cell_ns > 0);
	check_sorted(lanes);
	for (size_t i = 0; i < lanes->n_items; i++)
		n += lanes->items[i].n_segments;
	assert_in_range(n, 100, 900);
	/* The sum is within 2 % of the window. */
	assert_in_range(ns_in(trainer, LANE_DEVICE), 0.13 * 400000 * TICK_NS, 0.17 * 400000 * TICK_NS);
	/* The first step is exact. */
	assert_int_equal(trainer->segments[0].begin_ns, analysis->window.begin_ns);
	assert_true(lanes->cell_ns &&
		    (trainer->segments[0].end_ns - trainer->segments[0].begin_ns) % lanes->cell_ns != 0);
}

/* The trainer's calls that wait for the GPU have a state of their own in its lane, and a list. Calls within a
 * data wait do not. */
TEST(gpu_waits_are_a_state_of_the_trainer_s_lane)
{
	struct analysis_input input = {.root_tgid = TRAINER, .n_lane_segments_max = 10000};

	script_begin(&s);
	for (uint64_t i = 0; i < 10; i++) {
		script_mark(&s, TRAINER, 1000 * i, MARK_NEXT_BEGIN, 0);
		script_mark(&s, TRAINER, 1000 * i + 400, MARK_NEXT_END, 0);
		script_step(&s, TRAINER, 1000 * i + 500);
		script_add(&s, TRAINER, EVENT_GPU_WAIT, 1000 * i + 300, 1000 * i + 350)->gpu.function = 1;
		script_add(&s, TRAINER, EVENT_GPU_WAIT, 1000 * i + 600, 1000 * i + 850)->gpu.function = 1;
	}
	script_exit(&s, TRAINER, 10500);
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, &input);
	assert_int_equal(ns_in(lane_of(analysis->lanes, LANE_TRAINER), LANE_GPU_WAIT),
			 analysis->parts.gpu_wait_ns);
	assert_int_equal(ns_in(lane_of(analysis->lanes, LANE_TRAINER), LANE_GPU_WAIT), 10 * 250 * TICK_NS);
	assert_int_equal(analysis->lanes->n_gpu_calls, 20);
	assert_string_equal(analysis->lanes->gpu_calls[0].function, "cuStreamSynchronize");
}

TEST(not_asked_for)
{
	struct analysis *analysis = analyse(10, 0);

	assert_null(analysis->lanes);
	analysis_free(analysis);
	lanes_free(NULL);
}
