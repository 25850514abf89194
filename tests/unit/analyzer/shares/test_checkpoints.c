/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint_script.h"

#include <math.h>

/* Checkpoints that the trainer writes itself, one after the other. */

#define EVERY 4

static uint64_t stall_ticks(const struct analysis *analysis)
{
	uint64_t sum_ns = 0;

	for (size_t i = 0; i < analysis->checkpoints->n_items; i++)
		sum_ns += analysis->checkpoints->items[i].stall_ns;
	return sum_ns / TICK_NS;
}

TEST(the_interval_follows_the_formula)
{
	/* Calculated by hand. With nothing in the background, the interval is ceil(o / (p T)). */
	assert_int_equal(checkpoint_interval(10, 10, 20, 0.05), 10);
	assert_int_equal(checkpoint_interval(10.1, 10.1, 20, 0.05), 11);
	/* If the background part is longer, the interval is ceil((full - o) / T). */
	assert_int_equal(checkpoint_interval(100, 1, 10, 0.05), 10);
	assert_int_equal(checkpoint_interval(100, 1, 10, 0.005), 20);
	/* Without a stall, a checkpoint may start as soon as the last one is complete. */
	assert_int_equal(checkpoint_interval(0, 0, 10, 0.05), 1);
	assert_int_equal(checkpoint_interval(5, 0, 10, 0.05), 1);
	assert_int_equal(checkpoint_interval(5, 5, 0, 0.05), 0);
	assert_int_equal(checkpoint_interval(5, 5, 10, 0), 0);
	assert_int_equal(checkpoint_interval(NAN, 5, 10, 0.05), 0);
	assert_int_equal(checkpoint_interval(1e300, 1e300, 1e-9, 0.05), UINT32_MAX);
}

TEST(one_by_one)
{
	steps();
	for (uint64_t i = EVERY - 1; i < STEPS; i += EVERY)
		write_file(TRAINER, 1000 * i + 300, 1000 * i + 700, LARGE);
	struct analysis *analysis = analyse(0);
	const struct checkpoint_report *report = analysis->checkpoints;
	assert_int_equal(report->n_items, STEPS / EVERY);
	for (size_t i = 0; i < report->n_items; i++) {
		assert_int_equal(report->items[i].stall_ns / TICK_NS, 400);
		assert_int_equal(report->items[i].write_ns / TICK_NS, 396);
		assert_int_equal(report->items[i].bytes, LARGE);
		assert_false(report->items[i].background);
	}
	assert_true(report->interval_steps == EVERY);
	assert_true(isnan(report->stage_ns) && isnan(report->stage_slowed_ns)); /* nothing was staged */
	assert_int_equal(stall_ticks(analysis), share_ticks(analysis, SHARE_CHECKPOINT_STALL));
	/* T_step = (12000 - 1200) / 12 = 900, and o / (p T) = 400 / 45 = 8.9. */
	assert_int_equal(report->advised_steps, 9);
	assert_float_equal(report->overhead, 1200.0 / 10800, 1e-9);
	assert_float_equal(report->advised_overhead, 400.0 / 8100, 1e-9);
	analysis_free(analysis);
	analysis = analyse(0.2);
	assert_int_equal(analysis->checkpoints->advised_steps, 3);
	analysis_free(analysis);
}

/* The costs of saves in the loop differ so much that the mean may be next to nothing. Nothing is in the
 * background, so the least interval is short, too. */
TEST(costs_of_all_sizes_have_a_wide_range)
{
	uint64_t now = 0;

	script_begin(&s);
	for (uint64_t i = 1; i <= 40; i++) {
		script_mark(&s, TRAINER, now, MARK_NEXT_BEGIN, 0);
		script_mark(&s, TRAINER, now + 100, MARK_NEXT_END, 0);
		script_step(&s, TRAINER, now + 200);
		now += 1000;
		if (i % 10)
			continue;
		write_file(TRAINER, now, now + (i == 20 ? 3000 : 100), LARGE);
		now += i == 20 ? 3000 : 100;
	}
	script_exit(&s, TRAINER, now + 100);
	_cleanup_(analysis_freep) struct analysis *analysis =
	    script_analyse(&s, &(struct analysis_input){.root_tgid = TRAINER, .n_cpus = 4});
	const struct checkpoint_report *report = analysis->checkpoints;
	assert_int_equal(report->n_items, 4);
	assert_true(report->cost_error_ns > report->cost_ns);
	assert_int_equal(report->advised_steps, 0);
	assert_int_equal(report->advised_least, 1);
}

/* A checkpoint may consist of many small writes, or of large writes into a file that stays open. */
TEST(how_it_is_written)
{
	steps();
	open_for_writing(TRAINER, 3300);
	small_writes(TRAINER, 3310, 10);
	script_call(&s, TRAINER, 3399, 3400, SYS_close, EVENT_FILE_REG, 60, 0);
	open_for_writing(TRAINER, 4300);
	script_call(&s, TRAINER, 5500, 5600, SYS_write, EVENT_FILE_REG, 60, LARGE);
	script_call(&s, TRAINER, 9500, 9600, SYS_write, EVENT_FILE_REG, 60, LARGE);
	script_call(&s, TRAINER, 10500, 10501, SYS_close, EVENT_FILE_REG, 60, 0);
	_cleanup_(analysis_freep) struct analysis *analysis = analyse(0);
	assert_int_equal(analysis->checkpoints->n_items, 3);
	assert_int_equal(analysis->checkpoints->items[0].bytes, 300000);
	assert_int_equal(share_ticks(analysis, SHARE_CHECKPOINT_STALL), 300);
}

/* A call after a save extends the save up to the call, unless the trainer computed in between or began a
 * step. */
TEST(what_follows_no_save)
{
	steps();
	write_file(TRAINER, 3300, 3400, LARGE);
	script_off(&s, TRAINER, 3401, 3401, 3401, 0, 0);
	script_off(&s, TRAINER, 3598, 3598, 3598, 0, 0); /* a record that shows how long it computed */
	script_call(&s, TRAINER, 3600, 3610, SYS_fsync, EVENT_FILE_REG, 60, 0);
	write_file(TRAINER, 6150, 6190, LARGE);
	script_call(&s, TRAINER, 6210, 6220, SYS_fsync, EVENT_FILE_REG, 60, 0);
	script_call(&s, TRAINER, 8500, 8600, SYS_rename, 0, 0, 0);
	_cleanup_(analysis_freep) struct analysis *analysis = analyse(0);
	assert_int_equal(share_ticks(analysis, SHARE_CHECKPOINT_STALL), 100 + 10 + 40 + 10);
}

/* The save has shards, with a pause in between to compute checksums. */
TEST(shards_are_one_checkpoint)
{
	steps();
	write_file(TRAINER, 3300, 3400, LARGE);
	write_file(TRAINER, 3500, 3600, LARGE);
	write_file(TRAINER, 7300, 7400, LARGE);
	_cleanup_(analysis_freep) struct analysis *analysis = analyse(0);
	assert_int_equal(analysis->checkpoints->n_items, 2);
	assert_int_equal(analysis->checkpoints->items[0].bytes, 2 * LARGE);
	assert_int_equal(analysis->checkpoints->items[0].stall_ns / TICK_NS, 200);
}

TEST(fsync_and_rename)
{
	steps();
	open_for_writing(TRAINER, 3300);
	script_call(&s, TRAINER, 3302, 3350, SYS_write, EVENT_FILE_REG, 60, LARGE);
	script_off(&s, TRAINER, 3361, 3480, 3490, 0x2, TIMER_WOKE);
	script_call(&s, TRAINER, 3360, 3500, SYS_fsync, EVENT_FILE_REG, 60, 0);
	script_call(&s, TRAINER, 3510, 3511, SYS_close, EVENT_FILE_REG, 60, 0);
	script_call(&s, TRAINER, 3512, 3520, SYS_rename, 0, 0, 0);
	_cleanup_(analysis_freep) struct analysis *analysis = analyse(0);
	assert_int_equal(analysis->checkpoints->n_items, 1);
	assert_int_equal(analysis->checkpoints->items[0].fsync_ns / TICK_NS, 140);
	/* The sleep is uninterruptible until the waking. */
	assert_int_equal(analysis->checkpoints->items[0].writeback_ns / TICK_NS, 119);
	assert_int_equal(analysis->checkpoints->items[0].stall_ns / TICK_NS, 220);
}

/* numpy.memmap closes the descriptor, writes memory, and calls msync. */
TEST(a_mapped_file_with_msync_is_a_checkpoint)
{
	steps();
	open_for_writing(TRAINER, 3300);
	script_call(&s, TRAINER, 3302, 3303, SYS_mmap, EVENT_FILE_REG, 60, 0x7f0000000000)->call.argument =
	    LARGE;
	script_call(&s, TRAINER, 3304, 3305, SYS_close, EVENT_FILE_REG, 60, 0);
	script_call(&s, TRAINER, 3310, 3311, SYS_openat, EVENT_FILE_REG, 61, 11);
	struct event *event =
	    script_call(&s, TRAINER, 3312, 3313, SYS_mmap, EVENT_FILE_REG, 61, 0x7f1000000000);
	event->call.fd = 11; /* opened only for reading */
	event->call.argument = 7 * LARGE;
	script_call(&s, TRAINER, 3600, 3700, SYS_msync, 0, 0, 0);
	/* Steps lie between the mapping and the sync of this file. */
	open_for_writing(TRAINER, 6300);
	script_call(&s, TRAINER, 6302, 6303, SYS_mmap, EVENT_FILE_REG, 60, 0x7f0000000000)->call.argument =
	    LARGE;
	script_call(&s, TRAINER, 6304, 6305, SYS_close, EVENT_FILE_REG, 60, 0);
	script_call(&s, TRAINER, 9600, 9700, SYS_msync, 0, 0, 0);
	_cleanup_(analysis_freep) struct analysis *analysis = analyse(0);
	assert_in_range(share_ticks(analysis, SHARE_CHECKPOINT_STALL), 500, 510);
	assert_in_range(analysis->checkpoints->n_items, 1, 2);
	assert_int_equal(analysis->checkpoints->items[0].bytes, LARGE);
	assert_int_equal(analysis->checkpoints->items[0].stall_ns / TICK_NS, 400);
	assert_int_equal(analysis->checkpoints->items[0].fsync_ns / TICK_NS, 100);
}

static void map_memory(uint64_t tick)
{
	struct event *event =
	    script_call(&s, TRAINER, tick, tick + 1, SYS_mmap, EVENT_FILE_REG, 60, 0x7f0000000000);

	event->call.argument = 3 * LARGE;
	event->call.source = SOURCE_MEMORY;
}

/* The state is copied into shared memory for another process to write. The copy is no checkpoint, and its
 * bytes do not count for one. */
TEST(shared_memory_is_no_file)
{
	steps();
	open_for_writing(TRAINER, 3300);
	map_memory(3302);
	script_call(&s, TRAINER, 3304, 3305, SYS_close, EVENT_FILE_REG, 60, 0);
	open_for_writing(TRAINER, 6300);
	map_memory(6302);
	script_call(&s, TRAINER, 6304, 6398, SYS_write, EVENT_FILE_REG, 60, LARGE);
	script_call(&s, TRAINER, 6399, 6400, SYS_close, EVENT_FILE_REG, 60, 0);
	_cleanup_(analysis_freep) struct analysis *analysis = analyse(0);
	assert_int_equal(analysis->checkpoints->n_items, 1);
	assert_int_equal(analysis->checkpoints->items[0].bytes, LARGE);
	assert_int_equal(share_ticks(analysis, SHARE_CHECKPOINT_STALL), 100);
}

/* A log that stays open, a log that is synced in every step, and a small file are no checkpoints. */
TEST(logs_are_none)
{
	steps();
	open_for_writing(TRAINER, 10);
	for (uint64_t i = 1; i < STEPS; i++) {
		script_call(&s, TRAINER, 1000 * i + 300, 1000 * i + 310, SYS_write, EVENT_FILE_REG, 60,
			    30000);
		script_call(&s, TRAINER, 1000 * i + 320, 1000 * i + 400, SYS_fsync, EVENT_FILE_REG, 60, 0);
	}
	write_file(TRAINER, 5500, 5600, 4096);
	/* An event writer's thread writes much, but in small pieces. */
	open_for_writing(REQUESTER, 50);
	for (uint64_t i = 0; i < STEPS; i++)
		script_call(&s, REQUESTER, 1000 * i + 330, 1000 * i + 335, SYS_write, EVENT_FILE_REG, 61,
			    30000);
	script_call(&s, REQUESTER, 1000 * STEPS + 100, 1000 * STEPS + 101, SYS_close, EVENT_FILE_REG, 61, 0);
	_cleanup_(analysis_freep) struct analysis *analysis = analyse(0);
	assert_null(analysis->checkpoints);
	/* The cost of the syncs still shows in the share. */
	assert_int_equal(share_ticks(analysis, SHARE_CHECKPOINT_STALL), 80 * (STEPS - 1));
}
