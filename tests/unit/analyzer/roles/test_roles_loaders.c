/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the threads of the trainer's process that load its data. */
#include "tests/unit/analyzer/scene.h"

static struct script s; /* too large for the stack */

#define STEPS 8

enum {
	LOADER = 102, /* threads of the trainer's process */
	STAGE = 103,
};

/* A thread reads a file in each step and wakes the trainer, or wakes the stage that does. */
static void thread_steps(uint32_t n, bool wakes)
{
	script_begin(&s);
	script_fork(&s, TRAINER, LOADER, 0);
	for (uint32_t i = 0; i < n; i++) {
		uint64_t tick = 1000 * (i + 1);

		script_read_file(&s, LOADER, tick + 10, tick + 300);
		script_off(&s, TRAINER, tick, tick + 310, tick + 310, 0x1, wakes ? LOADER : TIMER_WOKE);
		script_step(&s, TRAINER, tick + 900);
	}
}

static enum role role_found(uint32_t tid)
{
	struct scene scene = scene_of(&s);
	enum role role = scene_role(&scene, tid, 5000);

	assert_int_equal(scene.roles.n_loaders > 0, scene_role(&scene, LOADER, 5000) == ROLE_LOADER);
	scene_free(&scene);
	return role;
}

TEST(a_thread_that_feeds_the_trainer_loads)
{
	thread_steps(STEPS, true);
	struct scene scene = scene_of(&s);
	assert_int_equal(scene.roles.n_loaders, 1);
	assert_int_equal(scene.roles.loaders[0]->tid, LOADER);
	assert_int_equal(scene_role(&scene, LOADER, 100), ROLE_LOADER);
	scene_free(&scene);
	/* Two steps between three backward passes are the minimum. */
	thread_steps(3, true);
	assert_int_equal(role_found(LOADER), ROLE_LOADER);
	thread_steps(2, true);
	assert_int_equal(role_found(LOADER), ROLE_HELPER);
}

TEST(threads_that_load_nothing)
{
	/* A thread that ends no sleep of the trainer is a monitor. */
	thread_steps(STEPS, false);
	assert_int_equal(role_found(LOADER), ROLE_HELPER);
	/* The thread writes more than it reads. */
	thread_steps(STEPS, true);
	script_call(&s, LOADER, 9000, 9001, SYS_write, EVENT_FILE_REG, 60, 100000 * STEPS + 1);
	assert_int_equal(role_found(LOADER), ROLE_HELPER);
	s.events[s.n - 1].call.result--;
	assert_int_equal(role_found(LOADER), ROLE_LOADER);
	/* A write that failed does not make the thread a writer, either. */
	s.events[s.n - 1].call.result = -ENOSPC;
	assert_int_equal(role_found(LOADER), ROLE_LOADER);
}

/* In most steps the trainer reads by itself, so a thread that wakes it now and then is no loader. */
TEST(trainer_that_reads_itself)
{
	thread_steps(20, true);
	for (size_t i = 0; i < s.n; i++)
		if (s.events[i].type == EVENT_SWITCH && s.events[i].tid == TRAINER &&
		    s.events[i].start_ns >= at(6000))
			s.events[i].sw.waker_context = WAKER_TIMER;
	assert_int_equal(role_found(LOADER), ROLE_LOADER); /* ended five of 20 sleeps */
	for (uint64_t i = 1; i <= 20; i++)
		script_call(&s, TRAINER, 1000 * i + 400, 1000 * i + 410, SYS_read, EVENT_FILE_REG, DATA_FILE,
			    1000);
	assert_int_equal(role_found(LOADER), ROLE_LOADER); /* 19 whole steps, and four times five is more */
	for (size_t i = 0; i < s.n; i++)
		if (s.events[i].type == EVENT_SWITCH && s.events[i].tid == TRAINER &&
		    s.events[i].start_ns >= at(5000))
			s.events[i].sw.waker_context = WAKER_TIMER;
	assert_int_equal(role_found(LOADER), ROLE_HELPER); /* four times four is less */
}

/* A reader wakes a stage, which wakes the trainer. */
TEST(a_reader_and_a_stage_both_load)
{
	script_begin(&s);
	script_fork(&s, TRAINER, LOADER, 0);
	script_fork(&s, TRAINER, STAGE, 0);
	for (uint32_t i = 0; i < STEPS; i++) {
		uint64_t tick = 1000 * (i + 1);

		script_read_file(&s, LOADER, tick + 10, tick + 200);
		script_off(&s, STAGE, tick - 600, tick + 210, tick + 210, 0x1, LOADER);
		script_off(&s, TRAINER, tick, tick + 310, tick + 310, 0x1, STAGE);
		script_step(&s, TRAINER, tick + 900);
	}
	assert_int_equal(role_found(STAGE), ROLE_LOADER);
	assert_int_equal(role_found(LOADER), ROLE_LOADER);
	/* The stage is woken as often by others, so it is no stage, and no thread loads. */
	for (uint32_t i = 0; i < STEPS; i++)
		script_off(&s, STAGE, 1000 * (i + 1) + 250, 1000 * (i + 1) + 260, 1000 * (i + 1) + 260, 0x1,
			   TRAINER);
	assert_int_equal(role_found(STAGE), ROLE_HELPER);
	assert_int_equal(role_found(LOADER), ROLE_HELPER);
}

/* If next() makes the batch itself, threads count only for sleeps within it. */
TEST(threads_within_next)
{
	thread_steps(STEPS, true);
	for (uint32_t i = 0; i < STEPS; i++) {
		script_mark(&s, TRAINER, 1000 * (i + 1) + 400, MARK_BATCH_BEGIN, MARK_BATCH_INLINE);
		script_mark(&s, TRAINER, 1000 * (i + 1) + 500, MARK_BATCH_END, 0);
	}
	assert_int_equal(role_found(LOADER), ROLE_HELPER);
	for (size_t i = 0; i < s.n; i++)
		if (s.events[i].type == EVENT_MARK && s.events[i].mark.kind == MARK_BATCH_BEGIN)
			/* next() begins as the trainer falls asleep */
			s.events[i].start_ns = s.events[i].end_ns -= 400 * TICK_NS;
	assert_int_equal(role_found(LOADER), ROLE_LOADER);
	/* Sleeps in half of the next() calls are enough. */
	for (uint32_t i = 0; i < STEPS; i++)
		script_mark(&s, TRAINER, 1000 * (i + 1) + 600, MARK_BATCH_BEGIN, MARK_BATCH_INLINE);
	assert_int_equal(role_found(LOADER), ROLE_LOADER);
	script_mark(&s, TRAINER, 9700, MARK_BATCH_BEGIN, MARK_BATCH_INLINE);
	assert_int_equal(role_found(LOADER), ROLE_HELPER);
}

/* Without any steps, a thread reads and wakes the trainer, again and again. */
static void handovers(uint64_t n, uint64_t every_ticks, uint64_t life_ticks, bool reads)
{
	script_begin(&s);
	script_fork(&s, TRAINER, LOADER, 0);
	for (uint64_t i = 0; i < n; i++) {
		uint64_t tick = every_ticks * (i + 1);

		if (reads || !i)
			script_read_file(&s, LOADER, tick + 10, tick + 300);
		script_off(&s, TRAINER, tick, tick + 310, tick + 310, 0x1, LOADER);
	}
	script_exit(&s, TRAINER, life_ticks);
}

TEST(handovers_without_steps)
{
	const uint64_t hour_ticks = 3600 * NS_PER_S / TICK_NS;

	handovers(40, 1000, 41000, true);
	assert_int_equal(role_found(LOADER), ROLE_LOADER);
	/* The hand-overs last only for a while, as during compiling. */
	handovers(40, 1000, 61000, true);
	assert_int_equal(role_found(LOADER), ROLE_HELPER);
	/* Without reads in between, the wakes are no hand-overs. */
	handovers(40, 1000, 41000, false);
	assert_int_equal(role_found(LOADER), ROLE_HELPER);
	/* Hand-overs in twelve of sixteen parts are enough, in eleven they are not. The test covers three
	 * hours. */
	handovers(12, hour_ticks / 4, 17 * hour_ticks / 4 - hour_ticks / 8, true);
	assert_int_equal(role_found(LOADER), ROLE_LOADER);
	handovers(11, hour_ticks / 4, 17 * hour_ticks / 4 - hour_ticks / 8, true);
	assert_int_equal(role_found(LOADER), ROLE_HELPER);
}
