/* SPDX-License-Identifier: Apache-2.0 */
/* When a trainer whose own threads load waited for data, and when a hand-over ends. */
#include "scene_waits.h"

#include <linux/futex.h>

static struct script s; /* too large for the stack */

#define STEPS      8
#define GIL_WORD   0x7000
#define GIL_TICKS  250 /* 5 ms */
#define WAIT_TIMED (FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG)

enum { LOADER = 102 };

/* Uses the interpreter lock again and again. The trainer waits for it for 5 ms, or gets it from the other
 * thread. */
static void lock_uses(uint32_t other)
{
	for (uint64_t i = 0; i < 12; i++) {
		uint64_t tick = 20000 + 1000 * i, word = GIL_WORD + 4 * (i % 2);

		script_off(&s, TRAINER, tick, tick + GIL_TICKS, tick + GIL_TICKS, 0x1, TIMER_WOKE);
		script_call(&s, TRAINER, tick, tick + GIL_TICKS, SYS_futex, EVENT_FILE_NONE, word, -ETIMEDOUT)
		    ->call.argument = WAIT_TIMED;
		script_call(&s, other, tick + 500, tick + 500, SYS_futex, EVENT_FILE_NONE, word, 1)
		    ->call.argument = FUTEX_WAKE | FUTEX_PRIVATE_FLAG;
		script_off(&s, other, tick + 600, tick + 650, tick + 650, 0x1, TRAINER);
		script_call(&s, other, tick + 600, tick + 650, SYS_futex, EVENT_FILE_NONE, word, 0)
		    ->call.argument = WAIT_TIMED;
		script_call(&s, TRAINER, tick + 650, tick + 650, SYS_futex, EVENT_FILE_NONE, word, 1)
		    ->call.argument = FUTEX_WAKE | FUTEX_PRIVATE_FLAG;
	}
}

static void thread_steps(void)
{
	script_begin(&s);
	script_fork(&s, TRAINER, LOADER, 0);
	for (uint64_t i = 0; i < STEPS; i++) {
		script_read_file(&s, LOADER, 1000 * i + 10, 1000 * i + 300);
		script_off(&s, TRAINER, 1000 * i + 100, 1000 * i + 310, 1000 * i + 315, 0x1, LOADER);
		script_step(&s, TRAINER, 1000 * i + 900);
	}
}

TEST(loader_thread_ends_waits)
{
	thread_steps();
	script_off(&s, TRAINER, 7400, 7450, 7450, 0x1, REQUESTER);
	lock_uses(LOADER);
	/* The trainer waits for the interpreter lock, which the loader thread releases. */
	script_off(&s, TRAINER, 7500, 7550, 7550, 0x1, LOADER);
	script_call(&s, TRAINER, 7500, 7550, SYS_futex, EVENT_FILE_NONE, GIL_WORD, 0)->call.argument =
	    WAIT_TIMED;
	/* The trainer is preempted as it takes the batch over. */
	script_off(&s, TRAINER, 6320, 6320, 6330, 0, TIMER_WOKE)->sw.syscall_nr = SYS_futex;
	for (size_t i = 0; i < s.n; i++)
		if (s.events[i].type == EVENT_SWITCH && s.events[i].tid == TRAINER &&
		    s.events[i].start_ns == at(100))
			s.events[i].flags |= EVENT_FLAG_CLIPPED;
	_cleanup_(scene_free) struct scene scene = scene_of(&s);
	struct data_waits waits = waits_of(&scene);
	assert_int_equal(waits.loader, LOADER_THREADS);
	assert_int_equal(waits.n, STEPS);
	for (uint64_t i = 0; i < STEPS; i++) {
		check_wait(&waits, i, 1000 * i + 100, 1000 * i + (i == 6 ? 330 : 315));
		assert_int_equal(waits.items[i].ready_ns, at(1000 * i + 310));
		assert_int_equal(waits.items[i].clipped, i == 0);
	}
	data_waits_free(&waits);
}

/* The trainer hands over at 100. Its activity in the next 15 ticks of CPU time (0.3 ms) belongs to the
 * hand-over. */
TEST(end_of_a_handover)
{
	const struct timeline_thread *trainer;

	script_begin(&s);
	script_add(&s, LOADER, EVENT_NAME, 0, 0);
	script_off(&s, TRAINER, 105, 110, 112, 0x1, LOADER);
	script_off(&s, TRAINER, 121, 121, 130, 0, TIMER_WOKE)->sw.syscall_nr = SYS_futex;
	script_off(&s, TRAINER, 132, 140, 140, 0x1, LOADER);
	/* The trainer waits for the lock, within and after the hand-over. */
	script_off(&s, TRAINER, 205, 205 + GIL_TICKS, 205 + GIL_TICKS, 0x1, TIMER_WOKE);
	script_call(&s, TRAINER, 205, 205 + GIL_TICKS, SYS_futex, EVENT_FILE_NONE, GIL_WORD, -ETIMEDOUT)
	    ->call.argument = WAIT_TIMED;
	/* The trainer is preempted in another call, and sleeps for another thread. */
	script_off(&s, TRAINER, 605, 605, 610, 0, TIMER_WOKE)->sw.syscall_nr = SYS_read;
	script_off(&s, TRAINER, 705, 705, 710, 0x1, TIMER_WOKE);
	lock_uses(LOADER);
	script_exit(&s, TRAINER, 40000);
	script_add(&s, 1, EVENT_GAP, 805, 820);
	_cleanup_(scene_free) struct scene scene = scene_of(&s);
	trainer = scene.roles.trainer;
	assert_int_equal(scene.roles.gil.n, 1);
	assert_int_equal(trainer->tid, TRAINER);
	/* The trainer computes for 5, 9 and 2 ticks, which are more than 15. So the last sleep is no longer
	 * part of the hand-over. */
	assert_int_equal(data_waits_handover_end(&scene.roles, at(100), LOADER), at(130));
	assert_int_equal(data_waits_handover_end(&scene.roles, at(101), LOADER), at(140));
	assert_int_equal(data_waits_handover_end(&scene.roles, at(101) - 1, LOADER), at(130));
	assert_int_equal(data_waits_handover_end(&scene.roles, at(107), LOADER),
			 at(140)); /* asleep already */
	assert_int_equal(data_waits_handover_end(&scene.roles, at(100), REQUESTER), at(100));
	assert_int_equal(data_waits_handover_end(&scene.roles, at(100), 0), at(100));
	assert_int_equal(data_waits_handover_end(&scene.roles, at(114), 0), at(130));
	assert_int_equal(data_waits_handover_end(&scene.roles, at(200), 0), at(205 + GIL_TICKS));
	assert_int_equal(data_waits_handover_end(&scene.roles, at(189), 0), at(189));
	assert_int_equal(data_waits_handover_end(&scene.roles, at(600), LOADER), at(600));
	assert_int_equal(data_waits_handover_end(&scene.roles, at(700), LOADER), at(700));
	assert_int_equal(data_waits_handover_end(&scene.roles, at(700), 0), at(700));
	/* A gap ends the hand-over, and so does the trainer's end. */
	assert_int_equal(data_waits_handover_end(&scene.roles, at(800), LOADER), at(800));
	assert_int_equal(data_waits_handover_end(&scene.roles, at(39995), LOADER), at(39995));
	assert_int_equal(data_waits_handover_end(&scene.roles, at(50000), LOADER), at(50000));
}

/* Half of the time waited is in waits at least as long as the usual one. A wait of less than an eighth of
 * that is for a lock. */
TEST(short_waits_are_no_handovers)
{
	const uint64_t hour_ns = 3600 * NS_PER_S;
	struct data_wait items[6];
	struct data_waits waits = {.items = items};
	uint64_t times[6];

	assert_int_equal(data_waits_handovers(&waits, times), 0);
	items[0] = (struct data_wait){.begin_ns = 1, .end_ns = 2};
	waits.n = 1;
	assert_int_equal(data_waits_handovers(&waits, times), 1);
	assert_int_equal(times[0], 2);
	for (uint64_t i = 0; i < 6; i++) {
		const uint64_t ns[] = {hour_ns, hour_ns / 8, hour_ns / 8 - 1, 1, hour_ns, hour_ns / 4};

		items[i].begin_ns = SCRIPT_BASE_NS + 2 * i * hour_ns;
		items[i].end_ns = items[i].begin_ns + ns[i];
	}
	waits.n = 6;
	assert_int_equal(data_waits_handovers(&waits, times), 4);
	assert_int_equal(times[0], items[0].end_ns);
	assert_int_equal(times[1], items[1].end_ns);
	assert_int_equal(times[2], items[4].end_ns);
	assert_int_equal(times[3], items[5].end_ns);
	/* The usual wait is not the longest one. */
	for (uint64_t i = 0; i < 6; i++)
		items[i].end_ns = items[i].begin_ns + (i ? hour_ns : 4 * hour_ns);
	items[3].end_ns = items[3].begin_ns + hour_ns / 4;
	assert_int_equal(data_waits_handovers(&waits, times), 6);
}
