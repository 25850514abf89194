/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/analyzer/script.h"

static struct script s; /* too large for the stack */

#define STEPS 10

/* A step is 1000 ticks, with a data wait from 0 to 400 by libdiesel's marks and the backward pass at 500. */
static void steps(void)
{
	script_begin(&s);
	for (uint64_t i = 0; i < STEPS; i++) {
		script_mark(&s, TRAINER, 1000 * i, MARK_NEXT_BEGIN, 0);
		script_mark(&s, TRAINER, 1000 * i + 100, MARK_WAIT_BEGIN, 0);
		script_mark(&s, TRAINER, 1000 * i + 390, MARK_WAIT_END, MARK_CAUSE_PREP);
		script_mark(&s, TRAINER, 1000 * i + 400, MARK_NEXT_END, 0);
		script_step(&s, TRAINER, 1000 * i + 500);
	}
	script_exit(&s, TRAINER, 1000 * STEPS + 500);
}

static void phase(uint32_t tid, uint64_t tick, uint32_t kind, uint64_t name)
{
	struct event *event = script_add(&s, tid, EVENT_PHASE, tick, tick);

	event->phase.kind = kind;
	event->phase.value = name;
}

static const struct phase_label labels[] = {{1, "forward"}, {2, "loss"}};

static struct analysis *analyse(void)
{
	struct analysis *analysis = script_analyse(
	    &s, &(struct analysis_input){.root_tgid = TRAINER, .phase_labels = labels, .n_phase_labels = 2});

	assert_int_equal(analysis->n_steps, STEPS);
	assert_non_null(analysis->phases);
	return analysis;
}

static void check(const struct analysis *analysis, const char *name, uint64_t n, uint64_t ticks)
{
	for (size_t i = 0; i < analysis->phases->n; i++) {
		const struct phase_time *item = &analysis->phases->items[i];

		if (strcmp(item->name, name))
			continue;
		assert_int_equal(item->n, n);
		assert_int_equal(item->ns / TICK_NS, ticks);
		return;
	}
	assert_int_equal(n, 0);
}

TEST(libdiesel_s_marks_are_phases)
{
	steps();
	_cleanup_(analysis_freep) struct analysis *analysis = analyse();
	check(analysis, "diesel:next", STEPS, 400 * STEPS);
	check(analysis, "diesel:wait", STEPS, 290 * STEPS);
	assert_int_equal(analysis->phases->n, 2);
	assert_string_equal(analysis->phases->items[0].name, "diesel:next");
}

/* With NVTX, ends have no name. */
TEST(ends_without_a_name_close_the_innermost_phase)
{
	steps();
	for (uint64_t i = 0; i < STEPS; i++) {
		phase(TRAINER, 1000 * i + 600, PHASE_BEGIN, 1);
		phase(TRAINER, 1000 * i + 650, PHASE_BEGIN, 2);
		phase(TRAINER, 1000 * i + 700, PHASE_END, 0);
		phase(TRAINER, 1000 * i + 800, PHASE_END, 0);
		phase(TRAINER + 3, 1000 * i + 600, PHASE_BEGIN, 2); /* of another thread */
		phase(TRAINER + 3, 1000 * i + 900, PHASE_END, 0);
	}
	_cleanup_(analysis_freep) struct analysis *analysis = analyse();
	check(analysis, "forward", STEPS, 200 * STEPS);
	check(analysis, "loss", STEPS, 50 * STEPS);
}

/* With USDT, an end names its range, so that a lost end does not shift all that follow. */
TEST(a_lost_named_end_shifts_nothing)
{
	steps();
	phase(TRAINER, 100, PHASE_END, 1); /* began before the recording */
	for (uint64_t i = 0; i < STEPS; i++) {
		phase(TRAINER, 1000 * i + 600, PHASE_BEGIN, 1);
		phase(TRAINER, 1000 * i + 650, PHASE_BEGIN, 2); /* its end was lost */
		phase(TRAINER, 1000 * i + 800, PHASE_END, 1);
	}
	_cleanup_(analysis_freep) struct analysis *analysis = analyse();
	check(analysis, "forward", STEPS, 200 * STEPS);
	check(analysis, "loss", 0, 0);
}

TEST(cut_at_the_window)
{
	steps();
	phase(TRAINER, 500, PHASE_BEGIN, 7);
	phase(TRAINER, 1000 * STEPS + 400, PHASE_END, 7);
	_cleanup_(analysis_freep) struct analysis *analysis = analyse();
	check(analysis, "?", 1, (analysis->window.end_ns - at(500)) / TICK_NS);
}

TEST(hostile_phases_stay_within_bounds)
{
	steps();
	for (uint64_t i = 0; i < 5000; i++)
		phase(TRAINER, 500 + i, i % 7 ? PHASE_BEGIN : PHASE_END, i * 977);
	for (uint64_t i = 0; i < 200; i++)
		phase(TRAINER, 6000, PHASE_END, i % 2);
	phase(TRAINER, 6001, 99, 1);
	_cleanup_(analysis_freep) struct analysis *analysis = analyse();
	assert_in_range(analysis->phases->n, 2, PHASES_MAX);
	for (size_t i = 1; i < analysis->phases->n; i++)
		assert_true(analysis->phases->items[i].ns <= analysis->phases->items[i - 1].ns);
}
