/* SPDX-License-Identifier: Apache-2.0 */
#include "script.h"

#include "bpf/notes.h"

/* What lies between steps and is no training: validation, and compiling. */

static struct script s; /* too large for the stack */

#define STEPS 20

static void batch(uint64_t begin_tick, uint64_t end_tick)
{
	script_mark(&s, TRAINER, begin_tick, MARK_BATCH_BEGIN, MARK_BATCH_INLINE);
	script_mark(&s, TRAINER, end_tick, MARK_BATCH_END, 0);
}

/* Steps of 1000 ticks: next() for 100, the backward pass at 200. Step `slow` is 5000 long. */
static uint64_t steps(uint64_t slow)
{
	uint64_t tick = 0, slow_tick = 0;

	script_begin(&s);
	for (uint64_t i = 0; i < STEPS; i++) {
		if (i == slow) {
			slow_tick = tick;
			tick += 4000;
		}
		batch(tick, tick + 100);
		script_step(&s, TRAINER, tick + 200);
		tick += 1000;
	}
	script_exit(&s, TRAINER, tick + 500);
	return slow_tick;
}

static void check_apart(const struct analysis *analysis, size_t n)
{
	check_invariants(analysis);
	assert_int_equal(analysis->n_steps, STEPS);
	assert_int_equal(analysis->n_apart_steps, n);
	/* The verdict is of the others: a tenth of their time is waiting. */
	assert_float_equal(analysis_steady_ratio(analysis, SHARE_PREP_STALL), 0.1, 0.02);
}

static void test_validation(void **state)
{
	uint64_t tick = steps(10);
	struct analysis *analysis;

	(void)state;
	batch(tick, tick + 10); /* the epoch's end */
	for (uint64_t i = 0; i < 9; i++)
		batch(tick + 20 + 400 * i, tick + 320 + 400 * i);
	analysis = script_analyse(&s, NULL);
	check_apart(analysis, 1);
	assert_int_equal(analysis->validation.n_steps, 1);
	assert_int_equal(analysis->validation.ns / TICK_NS, 4000);
	assert_int_equal(analysis->validation.wait_ns / TICK_NS, 10 + 9 * 300);
	analysis_free(analysis);
}

/* An epoch's end is one more next(). So is the second loader of a job that always takes two batches. */
static void test_no_validation(void **state)
{
	uint64_t tick = steps(10);
	struct analysis *analysis;

	(void)state;
	batch(tick + 3900, tick + 3910);
	analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->validation.n_steps, 0);
	assert_int_equal(analysis->n_apart_steps, 0);
	assert_true(analysis->validation.known);
	assert_false(analysis->compiling.known);
	analysis_free(analysis);
}

static void sample(uint64_t tick, uint64_t python)
{
	struct event *event = script_add(&s, TRAINER, EVENT_STACK, tick, tick);

	event->stack.python = python;
	event->stack.syscall_nr = 0xffff;
}

static void test_compiling(void **state)
{
	static const struct profile_frame frames[] = {
	    {1, FRAME_PYTHON, "train.py", "main"},
	    {2, FRAME_PYTHON, "convert_frame.py", "_compile"},
	    {3, FRAME_PYTHON, "compile_fx.py", "align_inputs.<locals>.run"},
	};
	static const uint64_t training[] = {1}, compiling[] = {2, 1}, compiled[] = {3, 1};
	static const struct profile_trace traces[] = {
	    {11, training, 1}, {12, compiling, 2}, {13, compiled, 2}};
	const struct profile_notes notes = {
	    .frames = frames, .n_frames = 3, .traces = traces, .n_traces = 3, .rate_hz = 1000};
	uint64_t tick = steps(10);
	struct analysis *analysis;

	(void)state;
	for (uint64_t i = 0; i < STEPS; i++) /* what was compiled runs: that is training */
		sample((i < 10 ? 0 : 4000) + 1000 * i + 500, 13);
	sample(tick + 500, 12);
	sample(tick + 3500, 12); /* asleep in between, as its processes compile */
	analysis = script_analyse(
	    &s, &(struct analysis_input){.root_tgid = TRAINER, .n_cpus = 4, .profile = &notes});
	check_apart(analysis, 1);
	assert_int_equal(analysis->compiling.n_steps, 1);
	assert_int_equal(analysis->compiling.ns / TICK_NS, 3050);
	assert_int_equal(analysis->validation.n_steps, 0);
	analysis_free(analysis);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_validation),
	    cmocka_unit_test(test_no_validation),
	    cmocka_unit_test(test_compiling),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
