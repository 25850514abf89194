/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch's DataLoader marks the start and end of its next(). Covers jobs that read no file, and jobs without
 * backward passes. */
#include "tests/unit/analyzer/script.h"

#include <linux/futex.h>

static struct script s; /* too large for the stack */

#define STEPS 12

/* Marks a step's next(), for the given ticks. */
static void next_marks(uint64_t tick, uint64_t ticks, uint64_t kind)
{
	script_mark(&s, TRAINER, tick, MARK_BATCH_BEGIN, kind);
	script_mark(&s, TRAINER, tick + ticks, MARK_BATCH_END, 0);
}

static void memory_steps(bool backward)
{
	script_begin(&s);
	for (unsigned int i = 0; i < STEPS; i++) {
		next_marks(1000 * i, 400, MARK_BATCH_INLINE);
		/* The trainer is asleep for 100 of it, until the timer fires. */
		script_off(&s, TRAINER, 1000 * i + 100, 1000 * i + 200, 1000 * i + 200, 0x1, TIMER_WOKE);
		if (backward)
			script_step(&s, TRAINER, 1000 * i + 900);
	}
	script_exit(&s, TRAINER, 1000 * STEPS);
}

TEST(without_file_reads)
{
	memory_steps(true);
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->job.loader, LOADER_INLINE);
	assert_int_equal(analysis->n_steps, STEPS);
	assert_int_equal(share_ticks(analysis, SHARE_PREP_STALL), 400 * STEPS);
	assert_int_equal(share_ticks(analysis, SHARE_FETCH_STALL), 0);
	assert_int_equal(share_ticks(analysis, SHARE_DEVICE), 600 * STEPS);
	assert_int_equal(analysis->verdict, ANALYSIS_PREP_BOUND);
	assert_false(analysis->job.blind);
}

/* Reading within next() is fetch. Reading elsewhere is not. */
TEST(reads_within_are_fetch)
{
	memory_steps(true);
	for (unsigned int i = 0; i < STEPS; i++) {
		script_read_file(&s, TRAINER, 1000 * i + 220, 1000 * i + 320);
		script_read_file(&s, TRAINER, 1000 * i + 500, 1000 * i + 600);
	}
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(share_ticks(analysis, SHARE_FETCH_STALL), 100 * STEPS);
	assert_int_equal(share_ticks(analysis, SHARE_PREP_STALL), 300 * STEPS);
}

/* torch.compile has processes that read pipes and answer over others, but outside of next(). */
TEST(compilers_are_no_workers)
{
	memory_steps(true);
	script_fork(&s, TRAINER, WORKER, 0);
	for (unsigned int i = 0; i < STEPS; i++) {
		script_request(&s, 0, 1000 * i + 450);
		script_take_index(&s, 0, 1000 * i + 455);
		script_call(&s, WORKER, 1000 * i + 590, 1000 * i + 600, SYS_write, EVENT_FILE_FIFO,
			    RESULT_PIPE, 300);
		script_next(&s, 0, 1000 * i + 500, 1000 * i + 600, 1000 * i + 650);
	}
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->job.loader, LOADER_INLINE);
	assert_int_equal(share_ticks(analysis, SHARE_PREP_STALL), 400 * STEPS);
}

/* A dataset uses threads to read its samples. They end sleeps within next(), and so tell fetch from prep. */
TEST(threads_within_next)
{
	script_begin(&s);
	for (unsigned int i = 0; i < STEPS; i++) {
		next_marks(1000 * i, 400, MARK_BATCH_INLINE);
		script_off(&s, REQUESTER, 1000 * i - (i ? 620 : 0), 1000 * i + 10, 1000 * i + 10, 0x1,
			   TRAINER);
		script_read_file(&s, REQUESTER, 1000 * i + 20, 1000 * i + 370);
		script_off(&s, TRAINER, 1000 * i + 20, 1000 * i + 380, 1000 * i + 380, 0x1, REQUESTER);
		script_step(&s, TRAINER, 1000 * i + 900);
	}
	script_exit(&s, TRAINER, 1000 * STEPS);
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->job.loader, LOADER_THREADS);
	assert_int_equal(analysis->verdict, ANALYSIS_FETCH_BOUND);
}

/* Without backward passes, each batch is a step. The next() that ends an epoch gives no batch. */
TEST(without_backward_passes)
{
	memory_steps(false);
	s.n--; /* drops the trainer's exit */
	next_marks(1000 * STEPS, 2, MARK_BATCH_INLINE);
	for (unsigned int i = 1; i <= STEPS; i++)
		next_marks(1000 * (STEPS + i), 400, MARK_BATCH_INLINE);
	next_marks(1000 * (2 * STEPS + 1), 2, MARK_BATCH_INLINE);
	script_exit(&s, TRAINER, 1000 * (2 * STEPS + 1) + 10);
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->n_steps, 2 * STEPS);
	assert_int_equal(analysis->counted, COUNTED_BATCHES);
	assert_in_range(share_ticks(analysis, SHARE_PREP_STALL), 400 * 2 * STEPS, 400 * 2 * STEPS + 4);
	assert_int_equal(analysis->verdict, ANALYSIS_PREP_BOUND);
}

/* Four samples are each read for 100 and decoded for 50. Then comes a step of 400 that no record shows, but
 * that the rhythm of reads reveals. */
TEST(rhythm_of_reads)
{
	script_begin(&s);
	for (unsigned int step = 0; step < 3 * STEPS; step++)
		for (unsigned int i = 0; i < 4; i++)
			script_read_file(&s, TRAINER, 1000 * step + 150 * i, 1000 * step + 150 * i + 100);
	script_exit(&s, TRAINER, 3000 * STEPS);
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->job.loader, LOADER_INLINE);
	assert_in_range(analysis->n_steps, 3 * STEPS - 1, 3 * STEPS);
	assert_in_range(share_ticks(analysis, SHARE_FETCH_STALL) / analysis->n_steps, 395, 400);
	assert_in_range(share_ticks(analysis, SHARE_PREP_STALL) / analysis->n_steps, 190, 215);
	assert_int_equal(analysis->verdict, ANALYSIS_FETCH_BOUND);
	for (size_t i = 0; i < analysis->n_actions; i++)
		assert_true(analysis->actions[i].confidence < CONFIDENCE_HIGH);
}

/* Eight samples per step are each read for 20 and decoded for about 50, some of them in two reads, before
 * a step of 400. The pauses that separate steps are hardly an eighth of all pauses. One sample takes
 * longer than a step, as when the hypervisor had the core. That splits a step in two, and is not the end
 * of the job. */
TEST(rhythm_with_reads_in_two_goes)
{
	uint64_t tick = 0;

	script_begin(&s);
	for (unsigned int step = 0; step < 6 * STEPS; step++) {
		for (unsigned int i = 0; i < 8; i++) {
			if (i == 5 && step % 3 == 0) {
				script_read_file(&s, TRAINER, tick, tick + 2);
				tick += 2 + 16;
			}
			script_read_file(&s, TRAINER, tick, tick + 20);
			tick += 20 + 50 + (8 * step + i) * 7 % 5 + (step == 20 && i == 3 ? 500 : 0);
		}
		tick += 350 + step * 11 % 80;
	}
	script_exit(&s, TRAINER, tick);
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_in_range(analysis->n_steps, 6 * STEPS, 6 * STEPS + 1);
	assert_in_range(share_ticks(analysis, SHARE_FETCH_STALL) / analysis->n_steps, 155, 170);
}

/* Another thread reads for 400, prepares for 300, and wakes the trainer, which computes for 300 before it
 * sleeps again. Now and then the thread ends a short sleep for a lock. */
static void handover_steps(unsigned int n_steps, uint64_t end_tick)
{
	script_begin(&s);
	for (unsigned int i = 0; i < n_steps; i++) {
		uint64_t tick = 1000 * i;

		script_read_file(&s, REQUESTER, tick + 1, tick + 401);
		script_off(&s, TRAINER, tick, tick + 700, tick + 700, 0x1, REQUESTER);
		script_off(&s, TRAINER, tick + 720, tick + 730, tick + 730, 0x1, REQUESTER);
		script_off(&s, REQUESTER, tick + 750, tick + 1000, tick + 1000, 0x1, TRAINER);
	}
	script_exit(&s, TRAINER, end_tick);
}

TEST(handovers_of_a_thread)
{
	handover_steps(3 * STEPS, 3000 * STEPS);
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->job.loader, LOADER_THREADS);
	assert_in_range(analysis->n_steps, 3 * STEPS - 1, 3 * STEPS);
	assert_in_range((share_ticks(analysis, SHARE_FETCH_STALL) + share_ticks(analysis, SHARE_PREP_STALL)) /
			    analysis->n_steps,
			690, 720);
	assert_true(analysis->job.blind);
	for (size_t i = 0; i < analysis->n_actions; i++)
		assert_true(analysis->actions[i].confidence < CONFIDENCE_HIGH);
}

/* If hand-overs happen only for a while, as during imports and compiling, no record shows what the trainer
 * does afterwards. */
TEST(handovers_that_end)
{
	handover_steps(STEPS, 10000 * STEPS);
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->verdict, ANALYSIS_INSUFFICIENT);
}

TEST(unseen_data_leaves_the_gain_unsure)
{
	script_begin(&s);
	for (unsigned int i = 0; i < STEPS; i++)
		script_step(&s, TRAINER, 1000 * i);
	script_exit(&s, TRAINER, 1000 * STEPS);
	struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->verdict, ANALYSIS_UNCLEAR);
	assert_true(analysis->job.blind);
	assert_int_equal(analysis->n_actions, 1);
	assert_int_equal(analysis->actions[0].confidence, CONFIDENCE_LOW);
	assert_non_null(strstr(analysis->note, "does not show how"));
	analysis_free(analysis);
	/* With marks, a loader is found. */
	script_begin(&s);
	for (unsigned int i = 0; i < STEPS; i++) {
		next_marks(1000 * i, 10, MARK_BATCH_INLINE);
		script_step(&s, TRAINER, 1000 * i + 500);
	}
	script_exit(&s, TRAINER, 1000 * STEPS);
	analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->verdict, ANALYSIS_DEVICE_BOUND);
	assert_int_equal(analysis->actions[0].confidence, CONFIDENCE_HIGH);
	assert_string_equal(analysis->note, "");
	analysis_free(analysis);
}

/* Threads that read files and wake the trainer during its steps, as compiling does, are no loader, since
 * next() shows the loader. */
TEST(other_threads_that_read)
{
	const uint32_t thread = TRAINER + 2;

	script_begin(&s);
	script_fork(&s, TRAINER, thread, 0);
	for (unsigned int i = 0; i < STEPS; i++) {
		uint64_t tick = 1000 * i;

		next_marks(tick, 400, MARK_BATCH_INLINE);
		script_read_file(&s, thread, tick + 500, tick + 600);
		script_off(&s, TRAINER, tick + 500, tick + 700, tick + 700, 0x1, thread);
		script_call(&s, TRAINER, tick + 500, tick + 700, SYS_futex, EVENT_FILE_NONE, 0x1000, 0)
		    ->call.argument = FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG;
		script_call(&s, thread, tick + 700, tick + 700, SYS_futex, EVENT_FILE_NONE, 0x1000, 1)
		    ->call.argument = FUTEX_WAKE | FUTEX_PRIVATE_FLAG;
		script_step(&s, TRAINER, tick + 900);
	}
	script_exit(&s, TRAINER, 1000 * STEPS);
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->job.loader, LOADER_INLINE);
	assert_int_equal(share_ticks(analysis, SHARE_PREP_STALL), 400 * STEPS);
}

/* Marks that contradict each other are an end without a start, two starts, and an end that comes first. */
TEST(marks_that_do_not_fit)
{
	memory_steps(false);
	for (unsigned int i = 0; i < STEPS; i++) {
		script_mark(&s, TRAINER, 1000 * i + 700, MARK_BATCH_END, i);
		script_mark(&s, TRAINER, 1000 * i + 800, MARK_BATCH_BEGIN, 77);
	}
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(share_ticks(analysis, SHARE_PREP_STALL), 400 * STEPS);
}
