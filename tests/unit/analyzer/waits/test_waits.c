/* SPDX-License-Identifier: Apache-2.0 */
/* When the trainer waited for data: invariants of all waits, waits shown by marks, and waits of a trainer
 * that reads by itself. */
#include "scene_waits.h"

static struct script s; /* too large for the stack */

#define STEPS 8

TEST(waits_do_not_overlap)
{
	struct data_waits waits = {0};
	struct interval_list list;

	assert_int_equal(data_waits_add(&waits, (struct data_wait){.begin_ns = 10, .end_ns = 20}), 0);
	assert_int_equal(data_waits_add(&waits, (struct data_wait){.begin_ns = 15, .end_ns = 30}), 0);
	assert_int_equal(data_waits_add(&waits, (struct data_wait){.begin_ns = 12, .end_ns = 30}), 0);
	assert_int_equal(data_waits_add(&waits, (struct data_wait){.begin_ns = 40, .end_ns = 40}), 0);
	assert_int_equal(data_waits_add(&waits, (struct data_wait){.begin_ns = 50, .end_ns = 45}), 0);
	assert_int_equal(data_waits_add(&waits, (struct data_wait){.begin_ns = 60, .end_ns = 61}), 0);
	assert_int_equal(waits.n, 3);
	assert_int_equal(waits.items[1].begin_ns, 20);
	assert_int_equal(waits.items[1].end_ns, 30);
	assert_int_equal(data_waits_intervals(&waits, &list), 0);
	assert_int_equal(list.n, 2); /* waits that touch are one interval */
	assert_int_equal(list.items[0].begin_ns, 10);
	assert_int_equal(list.items[0].end_ns, 30);
	interval_list_free(&list);
	/* A wait that ends at a time is over at that time. */
	assert_int_equal(data_waits_from(&waits, 0), 0);
	assert_int_equal(data_waits_from(&waits, 19), 0);
	assert_int_equal(data_waits_from(&waits, 20), 1);
	assert_int_equal(data_waits_from(&waits, 30), 2);
	assert_int_equal(data_waits_from(&waits, 60), 2);
	assert_int_equal(data_waits_from(&waits, 61), 3);
	data_waits_free(&waits);
	assert_int_equal(data_waits_from(&waits, 0), 0);
	assert_int_equal(data_waits_intervals(&waits, &list), 0);
	assert_int_equal(list.n, 0);
	interval_list_free(&list);
}

TEST(gaps_take_whole_waits)
{
	struct data_wait items[] = {
	    {.begin_ns = 10, .end_ns = 20}, /* ends as the first gap begins */
	    {.begin_ns = 29, .end_ns = 40}, /* overlaps the gap's end */
	    {.begin_ns = 50, .end_ns = 60}, /* begins as the gap ends */
	    {.begin_ns = 60, .end_ns = 71}, /* overlaps the gap's start */
	    {.begin_ns = 71, .end_ns = 90}, /* contains the last gap */
	};
	struct interval gaps[] = {{20, 30}, {45, 50}, {70, 71}, {80, 81}};
	struct data_waits waits = {.items = items, .n = 5};
	const struct interval_list list = {.items = gaps, .n = 4};

	data_waits_leave_gaps(&waits, &none);
	assert_int_equal(waits.n, 5);
	data_waits_leave_gaps(&waits, &list);
	assert_int_equal(waits.n, 2);
	assert_int_equal(waits.items[0].begin_ns, 10);
	assert_int_equal(waits.items[1].begin_ns, 50);
	waits.n = 0;
	data_waits_leave_gaps(&waits, &list);
	assert_int_equal(waits.n, 0);
}

/* The trainer makes no call, no mark and no sleep. Then it has steps, too. */
TEST(a_trainer_alone_never_waits)
{
	for (uint64_t n = 0; n <= STEPS; n += STEPS) {
		struct scene scene;
		struct data_waits waits;

		script_begin(&s);
		for (uint64_t i = 0; i < n; i++)
			script_step(&s, TRAINER, 1000 * i + 900);
		scene = scene_of(&s);
		waits = waits_of(&scene);
		assert_int_equal(waits.n, 0);
		assert_int_equal(waits.loader, LOADER_NONE);
		assert_int_equal(waits.file_calls.n, 0);
		data_waits_free(&waits);
		scene_free(&scene);
	}
}

TEST(marks_of_next_are_the_waits)
{
	struct data_waits waits;

	script_begin(&s);
	script_mark(&s, TRAINER, 5, MARK_NEXT_END, 0); /* began before the recording */
	script_mark(&s, TRAINER, 100, MARK_NEXT_BEGIN, 0);
	script_mark(&s, TRAINER, 110, MARK_NEXT_BEGIN, 0); /* the first next() raised an exception */
	script_mark(&s, TRAINER, 150, MARK_NEXT_END, 0);
	script_mark(&s, TRAINER, 160, MARK_NEXT_END, 0);
	script_mark(&s, TRAINER, 300, MARK_NEXT_BEGIN, 0);
	script_mark(&s, TRAINER, 350, MARK_NEXT_END, 0);
	script_mark(&s, TRAINER, 400, MARK_NEXT_BEGIN, 0); /* still waits */
	for (uint64_t i = 0; i < 8; i++)
		script_step(&s, TRAINER, 1000 * i + 900);
	struct scene scene = scene_of(&s);
	waits = waits_of(&scene);
	assert_int_equal(waits.loader, LOADER_DIESEL); /* four ends, half as many as steps */
	assert_true(waits.marked);
	assert_int_equal(waits.n, 2);
	check_wait(&waits, 0, 110, 150);
	check_wait(&waits, 1, 300, 350);
	assert_int_equal(waits.items[0].ready_ns, at(150));
	data_waits_free(&waits);
	scene_free(&scene);
	/* If there are fewer marks, they come from something else than its training data. */
	script_step(&s, TRAINER, 9000);
	scene = scene_of(&s);
	waits = waits_of(&scene);
	assert_int_equal(waits.loader, LOADER_NONE);
	assert_false(waits.marked);
	data_waits_free(&waits);
	scene_free(&scene);
}

/* If next() makes its batch, the marks are the wait, and reading within is known. */
TEST(marks_of_batches_tell_reading_apart)
{
	script_begin(&s);
	for (uint64_t i = 0; i < STEPS; i++) {
		script_mark(&s, TRAINER, 1000 * i + 100, MARK_BATCH_BEGIN, MARK_BATCH_INLINE);
		script_read_file(&s, TRAINER, 1000 * i + 150, 1000 * i + 250);
		script_mark(&s, TRAINER, 1000 * i + 400, MARK_BATCH_END, 0);
		script_step(&s, TRAINER, 1000 * i + 900);
	}
	/* In a group of calls only a part of the time is reading. A page fault may lie between two calls. */
	script_add(&s, TRAINER, EVENT_CALLS, 7260, 7300)->calls.busy_ns = 10 * TICK_NS;
	script_off(&s, TRAINER, 7110, 7120, 7120, 0x2, TIMER_WOKE)->flags = EVENT_FLAG_MAJOR_FAULT;
	_cleanup_(scene_free) struct scene scene = scene_of(&s);
	struct data_waits waits = waits_of(&scene);
	assert_int_equal(waits.loader, LOADER_INLINE);
	assert_true(waits.marked);
	assert_int_equal(waits.n, STEPS);
	for (uint64_t i = 0; i < STEPS; i++)
		check_wait(&waits, i, 1000 * i + 100, 1000 * i + 400);
	assert_int_equal(waits.file_calls.n, STEPS + 2);
	assert_int_equal(waits.file_calls.items[STEPS - 1].begin_ns, at(7110));
	assert_int_equal(interval_list_cover(&waits.file_calls, 0, UINT64_MAX), (100 * STEPS + 20) * TICK_NS);
	data_waits_free(&waits);
}

/* With a loader of the job's own, a wait goes from the first file call after a step to the last one. It
 * includes the time in which a sample is then decoded. */
TEST(an_own_loader_waits_from_first_to_last_file_call)
{
	struct interval saved = {at(7000), at(8000)};
	const struct interval_list checkpoints = {.items = &saved, .n = 1};

	script_begin(&s);
	for (uint64_t i = 0; i < STEPS; i++) {
		for (uint64_t k = 0; k < 4; k++) {
			uint64_t tick = 1000 * i + 100 * k;

			script_call(&s, TRAINER, tick, tick + 1, SYS_openat, EVENT_FILE_REG, DATA_FILE, 9);
			script_read_file(&s, TRAINER, tick + 1, tick + 60);
		}
		script_step(&s, TRAINER, 1000 * i + 900);
	}
	/* no batch of four samples */
	script_call(&s, TRAINER, 8000, 8001, SYS_openat, EVENT_FILE_REG, DATA_FILE, 9);
	script_first_call(&s, TRAINER, SYS_openat)->flags = EVENT_FLAG_CLIPPED; /* its start is unknown */
	_cleanup_(scene_free) struct scene scene = scene_of(&s);
	struct data_waits waits = waits_of(&scene);
	assert_int_equal(waits.loader, LOADER_INLINE);
	assert_false(waits.marked);
	assert_int_equal(waits.n, STEPS);
	for (uint64_t i = 0; i < STEPS; i++)
		check_wait(&waits, i, 1000 * i + (i == 0), 1000 * i + 400);
	assert_int_equal(interval_list_cover(&waits.file_calls, 0, UINT64_MAX),
			 (4 * 60 * STEPS - 1) * TICK_NS);
	data_waits_free(&waits);
	/* Reading within a checkpoint is no batch. */
	assert_int_equal(data_waits_find(scene.timeline, &scene.roles, &checkpoints, &waits), 0);
	assert_int_equal(waits.n, STEPS - 1);
	data_waits_free(&waits);
}

/* Not every file access is a batch. Before the first step, only as many samples as a batch has count. After a
 * long time of computing, fewer than half a batch do not count. */
TEST(inline_among_other_reads)
{
	script_begin(&s);
	for (uint64_t i = 1; i <= STEPS; i++) {
		for (uint64_t k = 0; k < 4 + 4 * (i == 1); k++) {
			uint64_t tick = 2000 * i + 100 * k;

			script_call(&s, TRAINER, tick, tick + 1, SYS_openat, EVENT_FILE_REG, DATA_FILE, 9);
			script_read_file(&s, TRAINER, tick + 1, tick + 60);
		}
		script_step(&s, TRAINER, 2000 * i + 1900);
	}
	/* A batch has four samples. One read is no batch, but two may be the last ones of an epoch. */
	script_call(&s, TRAINER, 5500, 5501, SYS_openat, EVENT_FILE_REG, DATA_FILE, 9);
	script_call(&s, TRAINER, 7500, 7501, SYS_openat, EVENT_FILE_REG, DATA_FILE, 9);
	script_call(&s, TRAINER, 7600, 7601, SYS_openat, EVENT_FILE_REG, DATA_FILE, 9);
	_cleanup_(scene_free) struct scene scene = scene_of(&s);
	struct data_waits waits = waits_of(&scene);
	assert_int_equal(waits.n, STEPS + 1);
	check_wait(&waits, 0, 2400, 2800);
	check_wait(&waits, 1, 4000, 4400);
	check_wait(&waits, 2, 6000, 6400);
	assert_int_equal(waits.items[3].begin_ns, at(7500));
	check_wait(&waits, 4, 8000, 8400);
	data_waits_free(&waits);
}

/* Samples are told apart by the computing between two reads. Four per step, in one step ten: the machine was
 * slow, and each looks like several. */
TEST(one_slow_step_does_not_make_the_batches_of_others_small)
{
	script_begin(&s);
	for (uint64_t i = 0; i < STEPS; i++) {
		for (uint64_t k = 0; k < (i == 5 ? 10 : 4); k++)
			script_read_file(&s, TRAINER, 1000 * i + 80 * k, 1000 * i + 80 * k + 40);
		script_step(&s, TRAINER, 1000 * i + 900);
	}
	script_exit(&s, TRAINER, 1000 * STEPS);
	_cleanup_(scene_free) struct scene scene = scene_of(&s);
	struct data_waits waits = waits_of(&scene);
	assert_int_equal(waits.n, STEPS);
	check_wait(&waits, 4, 4000, 4320);
	check_wait(&waits, 5, 5000, 5800);
	check_wait(&waits, 6, 6000, 6320);
	data_waits_free(&waits);
}

/* No steps are known, so the rhythm of reads makes them. */
TEST(inline_without_steps)
{
	script_begin(&s);
	for (uint64_t i = 0; i < 20; i++)
		for (uint64_t k = 0; k < 4; k++) {
			uint64_t tick = 1000 * i + 100 * k;

			/* There are two calls per sample. */
			script_call(&s, TRAINER, tick, tick + 1, SYS_openat, EVENT_FILE_REG, DATA_FILE, 9);
			script_read_file(&s, TRAINER, tick + 2, tick + 60);
		}
	script_exit(&s, TRAINER, 20000);
	script_first_call(&s, TRAINER, SYS_openat)->flags = EVENT_FLAG_CLIPPED;
	_cleanup_(scene_free) struct scene scene = scene_of(&s);
	struct data_waits waits = waits_of(&scene);
	assert_int_equal(waits.loader, LOADER_INLINE);
	assert_int_equal(waits.n, 20);
	for (uint64_t i = 0; i < 20; i++) {
		assert_int_equal(waits.items[i].begin_ns, at(1000 * i + (i ? 0 : 2)));
		/* 22 ticks are in calls, and 40 lie three times between four samples, which makes 52 per
		 * sample. */
		assert_in_range(waits.items[i].end_ns, at(1000 * i + 411), at(1000 * i + 413));
	}
	data_waits_free(&waits);
}
