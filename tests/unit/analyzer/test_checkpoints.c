/* SPDX-License-Identifier: Apache-2.0 */
#include "script.h"

#include <fcntl.h>
#include <math.h>

#include "bpf/notes.h"

static struct script s; /* too large for the stack */

#define STEPS   12
#define EVERY   4
#define WRITER  150 /* a child of the trainer's process */
#define LARGE   1000000
#define FILE_FD 9

/* A step is 1000 ticks: data wait 0..100, backward pass at 200. */
static void steps(void)
{
	script_begin(&s);
	for (uint64_t i = 0; i < STEPS; i++) {
		script_mark(&s, TRAINER, 1000 * i, MARK_NEXT_BEGIN, 0);
		script_mark(&s, TRAINER, 1000 * i + 100, MARK_NEXT_END, 0);
		script_step(&s, TRAINER, 1000 * i + 200);
	}
	script_exit(&s, TRAINER, 1000 * STEPS + 500);
}

static void open_for_writing(uint32_t tid, uint64_t tick)
{
	struct event *event = script_call(&s, tid, tick, tick + 1, SYS_openat, EVENT_FILE_REG, 60, FILE_FD);

	event->call.argument = O_WRONLY | O_CREAT;
}

/* begin .. begin+1 open, .. writes of so many bytes .., end-1 .. end close. */
static void write_file(uint32_t tid, uint64_t begin_tick, uint64_t end_tick, int64_t bytes)
{
	open_for_writing(tid, begin_tick);
	script_call(&s, tid, begin_tick + 2, end_tick - 2, SYS_write, EVENT_FILE_REG, 60, bytes);
	script_call(&s, tid, end_tick - 1, end_tick, SYS_close, EVENT_FILE_REG, 60, 0);
}

static struct analysis *analyse(double overhead_max)
{
	struct analysis *analysis = script_analyse(
	    &s, &(struct analysis_input){
		    .root_tgid = TRAINER, .n_cpus = 4, .checkpoint_overhead_max = overhead_max});

	check_invariants(analysis);
	assert_int_equal(analysis->n_steps, STEPS);
	return analysis;
}

static uint64_t stall_ticks(const struct analysis *analysis)
{
	uint64_t sum_ns = 0;

	for (size_t i = 0; i < analysis->checkpoints->n_items; i++)
		sum_ns += analysis->checkpoints->items[i].stall_ns;
	return sum_ns / TICK_NS;
}

static void test_formula(void **state)
{
	/* By hand: nothing in the background: ceil(o / (p T)). */
	assert_int_equal(checkpoint_interval(10, 10, 20, 0.05), 10);
	assert_int_equal(checkpoint_interval(10.1, 10.1, 20, 0.05), 11);
	/* The background part is longer: ceil((full - o) / T). */
	assert_int_equal(checkpoint_interval(100, 1, 10, 0.05), 10);
	assert_int_equal(checkpoint_interval(100, 1, 10, 0.005), 20);
	/* No stall: as often as one is complete. */
	assert_int_equal(checkpoint_interval(0, 0, 10, 0.05), 1);
	assert_int_equal(checkpoint_interval(5, 0, 10, 0.05), 1);
	assert_int_equal(checkpoint_interval(5, 5, 0, 0.05), 0);
	assert_int_equal(checkpoint_interval(5, 5, 10, 0), 0);
	assert_int_equal(checkpoint_interval(NAN, 5, 10, 0.05), 0);
	assert_int_equal(checkpoint_interval(1e300, 1e300, 1e-9, 0.05), UINT32_MAX);
}

static void test_one_by_one(void **state)
{
	const struct checkpoint_report *report;
	struct analysis *analysis;

	steps();
	for (uint64_t i = EVERY - 1; i < STEPS; i += EVERY)
		write_file(TRAINER, 1000 * i + 300, 1000 * i + 700, LARGE);
	analysis = analyse(0);
	report = analysis->checkpoints;
	assert_int_equal(report->n_items, STEPS / EVERY);
	for (size_t i = 0; i < report->n_items; i++) {
		assert_int_equal(report->items[i].stall_ns / TICK_NS, 400);
		assert_int_equal(report->items[i].write_ns / TICK_NS, 396);
		assert_int_equal(report->items[i].bytes, LARGE);
		assert_false(report->items[i].background);
	}
	assert_true(report->interval_steps == EVERY);
	assert_int_equal(stall_ticks(analysis), share_ticks(analysis, SHARE_CHECKPOINT_STALL));
	/* T_step = (12000 - 1200) / 12 = 900; o / (p T) = 400 / 45 = 8.9. */
	assert_int_equal(report->advised_steps, 9);
	assert_float_equal(report->overhead, 1200.0 / 10800, 1e-9);
	assert_float_equal(report->advised_overhead, 400.0 / 8100, 1e-9);
	analysis_free(analysis);
	analysis = analyse(0.2);
	assert_int_equal(analysis->checkpoints->advised_steps, 3);
	analysis_free(analysis);
}

/* Shards, and a pause to compute checksums in between. */
static void test_several_files(void **state)
{
	struct analysis *analysis;

	steps();
	write_file(TRAINER, 3300, 3400, LARGE);
	write_file(TRAINER, 3500, 3600, LARGE);
	write_file(TRAINER, 7300, 7400, LARGE);
	analysis = analyse(0);
	assert_int_equal(analysis->checkpoints->n_items, 2);
	assert_int_equal(analysis->checkpoints->items[0].bytes, 2 * LARGE);
	assert_int_equal(analysis->checkpoints->items[0].stall_ns / TICK_NS, 200);
	analysis_free(analysis);
}

static void test_fsync_and_rename(void **state)
{
	struct analysis *analysis;

	steps();
	open_for_writing(TRAINER, 3300);
	script_call(&s, TRAINER, 3302, 3350, SYS_write, EVENT_FILE_REG, 60, LARGE);
	script_off(&s, TRAINER, 3361, 3480, 3490, 0x2, TIMER_WOKE);
	script_call(&s, TRAINER, 3360, 3500, SYS_fsync, EVENT_FILE_REG, 60, 0);
	script_call(&s, TRAINER, 3510, 3511, SYS_close, EVENT_FILE_REG, 60, 0);
	script_call(&s, TRAINER, 3512, 3520, SYS_rename, 0, 0, 0);
	analysis = analyse(0);
	assert_int_equal(analysis->checkpoints->n_items, 1);
	assert_int_equal(analysis->checkpoints->items[0].fsync_ns / TICK_NS, 140);
	/* Uninterruptible until it was woken. */
	assert_int_equal(analysis->checkpoints->items[0].writeback_ns / TICK_NS, 119);
	assert_int_equal(analysis->checkpoints->items[0].stall_ns / TICK_NS, 220);
	analysis_free(analysis);
}

/* numpy.memmap closes the descriptor, writes memory, and calls msync. */
static void test_mapped(void **state)
{
	struct analysis *analysis;

	steps();
	open_for_writing(TRAINER, 3300);
	script_call(&s, TRAINER, 3302, 3303, SYS_mmap, EVENT_FILE_REG, 60, 0x7f0000000000)->call.argument =
	    LARGE;
	script_call(&s, TRAINER, 3304, 3305, SYS_close, EVENT_FILE_REG, 60, 0);
	script_call(&s, TRAINER, 3600, 3700, SYS_msync, 0, 0, 0);
	analysis = analyse(0);
	assert_int_equal(analysis->checkpoints->n_items, 1);
	assert_int_equal(analysis->checkpoints->items[0].bytes, LARGE);
	assert_int_equal(analysis->checkpoints->items[0].stall_ns / TICK_NS, 400);
	assert_int_equal(analysis->checkpoints->items[0].fsync_ns / TICK_NS, 100);
	analysis_free(analysis);
}

/* A thread writes over two steps; at the end the trainer waits for it for 100 ticks. */
static void test_thread(void **state)
{
	const struct checkpoint_item *item;
	struct analysis *analysis;

	steps();
	write_file(REQUESTER, 3300, 5600, LARGE);
	script_off(&s, TRAINER, 5500, 5600, 5600, 0x1, REQUESTER);
	analysis = analyse(0);
	assert_int_equal(analysis->checkpoints->n_items, 1);
	item = &analysis->checkpoints->items[0];
	assert_true(item->background);
	assert_int_equal(item->bytes, LARGE);
	assert_int_equal(item->stall_ns / TICK_NS, 100);
	/* 2200 in the background, steps of nearly 1000: the next one must not begin before it ends. */
	assert_int_equal(analysis->checkpoints->advised_steps, 3);
	analysis_free(analysis);
}

/* A forked child writes, the trainer sleeps until it ends. */
static void test_child(void **state)
{
	const struct checkpoint_item *item;
	struct analysis *analysis;
	struct event *event;

	steps();
	script_fork(&s, TRAINER, WRITER, 3300);
	event = script_add(&s, WRITER, EVENT_NAME, 3300, 3300);
	event->name.parent_tgid = TRAINER;
	write_file(WRITER, 3400, 3700, LARGE);
	script_exit(&s, WRITER, 3710);
	script_off(&s, TRAINER, 3310, 3700, 3700, 0x1, WRITER);
	analysis = analyse(0);
	assert_int_equal(analysis->checkpoints->n_items, 1);
	item = &analysis->checkpoints->items[0];
	assert_true(item->background);
	assert_int_equal(item->bytes, LARGE);
	assert_int_equal(item->stall_ns / TICK_NS, 390);
	assert_int_equal(share_ticks(analysis, SHARE_OTHER), 0);
	analysis_free(analysis);
}

/* The trainer waits until the thread says that all is done, also while that prepares what to write. */
static void test_wait_for_a_thread_that_saves(void **state)
{
	struct analysis *analysis;

	(void)state;
	steps();
	write_file(REQUESTER, 3300, 5600, LARGE);
	script_off(&s, REQUESTER, 5610, 5680, 5680, 0x1, TIMER_WOKE);
	script_off(&s, TRAINER, 5300, 5690, 5690, 0x1, REQUESTER);
	script_off(&s, TRAINER, 7300, 7400, 7400, 0x1, WRITER); /* by a child that saves nothing */
	analysis = analyse(0);
	assert_int_equal(share_ticks(analysis, SHARE_CHECKPOINT_STALL), 390);
	assert_int_equal(share_ticks(analysis, SHARE_OTHER), 100);
	analysis_free(analysis);
}

/* The trainer meets the saver at a lock of the kernel, the address space's say: no save is over by that. */
static void test_kernel_lock_within_a_save(void **state)
{
	struct analysis *analysis;

	(void)state;
	steps();
	open_for_writing(REQUESTER, 2300);
	script_call(&s, REQUESTER, 2302, 3000, SYS_write, EVENT_FILE_REG, 60, LARGE);
	script_call(&s, REQUESTER, 4000, 4600, SYS_write, EVENT_FILE_REG, 60, LARGE);
	script_call(&s, REQUESTER, 4699, 4700, SYS_close, EVENT_FILE_REG, 60, 0);
	script_off(&s, TRAINER, 3320, 3720, 3720, 0x2, REQUESTER);
	analysis = analyse(0);
	assert_int_equal(analysis->checkpoints->n_items, 1);
	assert_int_equal(analysis->checkpoints->items[0].bytes, 2 * LARGE);
	analysis_free(analysis);
}

/* A save by a child that lives on: a thread of the trainer's process asks it and waits for its answer. */
static void save_by_child(uint64_t begin_tick, uint64_t end_tick)
{
	script_off(&s, REQUESTER, begin_tick, end_tick + 10, end_tick + 10, 0x1, WRITER);
	write_file(WRITER, begin_tick + 10, end_tick, LARGE);
}

static void test_child_that_answers_a_thread(void **state)
{
	const struct checkpoint_report *report;
	struct analysis *analysis;

	(void)state;
	steps();
	script_add(&s, WRITER, EVENT_NAME, 10, 10)->name.parent_tgid = TRAINER;
	/* Each save waits for the one before, for 400 ticks: no backward pass lies between them. */
	save_by_child(2300, 4700);
	script_off(&s, TRAINER, 4320, 4720, 4720, 0x1, REQUESTER);
	save_by_child(4750, 7700);
	script_off(&s, TRAINER, 7320, 7720, 7720, 0x1, REQUESTER);
	save_by_child(7750, 9500);
	analysis = analyse(0);
	assert_int_equal(share_ticks(analysis, SHARE_CHECKPOINT_STALL), 800);
	assert_int_equal(share_ticks(analysis, SHARE_OTHER), 0);
	report = analysis->checkpoints;
	assert_int_equal(report->n_items, 3);
	for (size_t i = 0; i < report->n_items; i++)
		assert_int_equal(report->items[i].bytes, LARGE);
	for (size_t i = 0; i < analysis->n_actions; i++)
		assert_null(strstr(analysis->actions[i].text, "Write checkpoints in the background"));
	analysis_free(analysis);
}

static void sample(uint32_t tid, uint64_t tick, uint64_t python)
{
	struct event *event = script_add(&s, tid, EVENT_STACK, tick, tick);

	event->stack.python = python;
	event->stack.syscall_nr = 0xffff;
}

/* Stacks for sample(): 11 trains, 12 saves, 13 imports what saves. */
static struct analysis *analyse_sampled(void)
{
	static const struct profile_frame frames[] = {
	    {1, FRAME_PYTHON, "train.py", "main"},
	    {2, FRAME_PYTHON, "state_dict_saver.py", "async_save"},
	    {3, FRAME_PYTHON, "state_dict_saver.py", "<module>"},
	};
	static const uint64_t training[] = {1}, saving[] = {2, 1}, importing[] = {3, 1};
	static const struct profile_trace traces[] = {{11, training, 1}, {12, saving, 2}, {13, importing, 2}};
	const struct profile_notes notes = {
	    .frames = frames, .n_frames = 3, .traces = traces, .n_traces = 3, .rate_hz = 1000};
	struct analysis *analysis = script_analyse(
	    &s, &(struct analysis_input){.root_tgid = TRAINER, .n_cpus = 4, .profile = &notes});

	check_invariants(analysis);
	return analysis;
}

/* Copying the state makes no call: samples of the stack show it, to half a sampling interval (25 ticks). */
static void test_copy_by_stack_samples(void **state)
{
	struct analysis *analysis;

	(void)state;
	steps();
	for (uint64_t i = 0; i < STEPS; i++) {
		sample(TRAINER, 1000 * i + 250, 11);
		sample(TRAINER, 1000 * i + 850, i == 5 ? 13 : 11);
	}
	for (uint64_t tick = 3400; tick <= 3600; tick += 50)
		sample(TRAINER, tick, 12);
	script_off(&s, TRAINER, 3450, 3540, 3540, 0x1, TIMER_WOKE); /* asleep within */
	sample(TRAINER, 7210, 12);                                  /* a backward pass at 7200 bounds it */
	analysis = analyse_sampled();
	assert_int_equal(share_ticks(analysis, SHARE_CHECKPOINT_STALL), 250 + 35);
	analysis_free(analysis);
}

/* The copy begins when the save before it has ended; by the samples it seems to begin before its last write.
 */
static void test_copy_right_behind_a_save(void **state)
{
	struct analysis *analysis;

	(void)state;
	steps();
	open_for_writing(REQUESTER, 2300);
	script_call(&s, REQUESTER, 2302, 2400, SYS_write, EVENT_FILE_REG, 60, LARGE);
	script_call(&s, REQUESTER, 3380, 3393, SYS_write, EVENT_FILE_REG, 60, LARGE);
	script_call(&s, REQUESTER, 3394, 3395, SYS_close, EVENT_FILE_REG, 60, 0);
	for (uint64_t tick = 3400; tick <= 3600; tick += 50)
		sample(TRAINER, tick, 12);
	write_file(REQUESTER, 3610, 4700, LARGE);
	analysis = analyse_sampled();
	assert_int_equal(analysis->checkpoints->n_items, 2);
	assert_int_equal(analysis->checkpoints->items[0].bytes, 2 * LARGE);
	assert_int_equal(analysis->checkpoints->items[1].bytes, LARGE);
	analysis_free(analysis);
}

/* Steps beside a save are 200 longer: the trainer has no core for that long. */
static void test_tail(void **state)
{
	const struct checkpoint_tail *tail;
	struct analysis *analysis;

	(void)state;
	steps();
	write_file(REQUESTER, 3300, 8600, LARGE);
	for (uint64_t i = 3; i <= 8; i++)
		script_off(&s, TRAINER, 1000 * i + 400, 1000 * i + 400, 1000 * i + 600, 0, 0);
	analysis = analyse(0);
	tail = analysis->checkpoints->tail;
	assert_non_null(tail);
	assert_int_equal(tail->n_beside, 6);
	assert_int_equal(tail->n_others, STEPS - 1 - 6);
	assert_float_equal(tail->share_ns[SHARE_CPU_STARVED] / TICK_NS, 6 * 200, 1);
	assert_float_equal(tail->share_ns[SHARE_CHECKPOINT_STALL], 0, 0.1);
	analysis_free(analysis);
}

/* A log that stays open, one that is synced every step, and a small file. */
static void test_logs_are_none(void **state)
{
	struct analysis *analysis;

	steps();
	open_for_writing(TRAINER, 10);
	for (uint64_t i = 1; i < STEPS; i++) {
		script_call(&s, TRAINER, 1000 * i + 300, 1000 * i + 310, SYS_write, EVENT_FILE_REG, 60,
			    30000);
		script_call(&s, TRAINER, 1000 * i + 320, 1000 * i + 400, SYS_fsync, EVENT_FILE_REG, 60, 0);
	}
	write_file(TRAINER, 5500, 5600, 4096);
	/* An event writer's thread: much, but in small pieces. */
	open_for_writing(REQUESTER, 50);
	for (uint64_t i = 0; i < STEPS; i++)
		script_call(&s, REQUESTER, 1000 * i + 600, 1000 * i + 610, SYS_write, EVENT_FILE_REG, 61,
			    30000);
	script_call(&s, REQUESTER, 1000 * STEPS + 100, 1000 * STEPS + 101, SYS_close, EVENT_FILE_REG, 61, 0);
	analysis = analyse(0);
	assert_null(analysis->checkpoints);
	/* What the syncs cost is still said. */
	assert_int_equal(share_ticks(analysis, SHARE_CHECKPOINT_STALL), 80 * (STEPS - 1));
	analysis_free(analysis);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_formula),
	    cmocka_unit_test(test_one_by_one),
	    cmocka_unit_test(test_several_files),
	    cmocka_unit_test(test_fsync_and_rename),
	    cmocka_unit_test(test_mapped),
	    cmocka_unit_test(test_thread),
	    cmocka_unit_test(test_kernel_lock_within_a_save),
	    cmocka_unit_test(test_wait_for_a_thread_that_saves),
	    cmocka_unit_test(test_child_that_answers_a_thread),
	    cmocka_unit_test(test_copy_right_behind_a_save),
	    cmocka_unit_test(test_copy_by_stack_samples),
	    cmocka_unit_test(test_tail),
	    cmocka_unit_test(test_child),
	    cmocka_unit_test(test_logs_are_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
