/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/analyzer/script.h"

#include "analyzer/timeline/calls.h"
#include "analyzer/timeline/timeline.h"

static struct timeline *build(const struct script *s)
{
	struct timeline *timeline = NULL;

	assert_int_equal(timeline_build(s->events, s->n, &timeline, NULL), 0);
	return timeline;
}

static void account_is(const struct timeline_thread *thread, uint64_t begin_tick, uint64_t end_tick,
		       const uint64_t expected_tick[5])
{
	struct timeline_account account = timeline_account(thread, at(begin_tick), at(end_tick));

	assert_int_equal(account.cpu_ns, expected_tick[0] * TICK_NS);
	assert_int_equal(account.queue_ns, expected_tick[1] * TICK_NS);
	assert_int_equal(account.sleep_ns, expected_tick[2] * TICK_NS);
	assert_int_equal(account.block_ns, expected_tick[3] * TICK_NS);
	assert_int_equal(account.unknown_ns, expected_tick[4] * TICK_NS);
}

TEST(time_is_accounted_by_state)
{
	static struct script s;

	s = (struct script){0};
	script_off(&s, 10, 0, 0, 100, 0, 0);           /* runnable: preempted, with no flag set */
	script_off(&s, 10, 200, 260, 300, 0x1, 11);    /* 60 asleep, 40 in the queue */
	script_off(&s, 10, 400, 450, 450, 0x102, 11);  /* a read by a page fault: D with another bit */
	script_off(&s, 10, 500, 600, 600, 0x2001, 11); /* a freezable futex: S with another bit */
	script_exit(&s, 10, 700);
	struct timeline *timeline = build(&s);
	const struct timeline_thread *thread = timeline_find(timeline, 10, at(0));
	assert_non_null(thread);
	account_is(thread, 0, 700, (uint64_t[]){350, 140, 160, 50, 0});
	account_is(thread, 220, 280, (uint64_t[]){0, 20, 40, 0, 0}); /* clipped on both sides */
	account_is(thread, 100, 200, (uint64_t[]){100, 0, 0, 0, 0});
	account_is(thread, 690, 800, (uint64_t[]){10, 0, 0, 0, 100}); /* nothing is known after its exit */
	account_is(thread, 300, 300, (uint64_t[]){0, 0, 0, 0, 0});
	assert_int_equal(timeline->n_malformed, 0);
	timeline_free(timeline);
}

TEST(interrupts_are_no_wakers)
{
	static struct script s;

	s = (struct script){0};
	script_off(&s, 10, 100, 200, 210, 0x1, 11);
	script_off(&s, 10, 300, 400, 410, 0x1, TIMER_WOKE); /* `current` was tid 11 by chance */
	/* a waking outside the sleep belongs to another sleep */
	script_off(&s, 10, 500, 450, 600, 0x1, 11);
	struct timeline *timeline = build(&s);
	const struct timeline_thread *thread = timeline_find(timeline, 10, at(0));
	assert_int_equal(thread->offs[0].waker_tid, 11);
	assert_int_equal(thread->offs[1].waker_tid, 0);
	assert_int_equal(thread->offs[2].waker_tid, 0);
	assert_int_equal(thread->offs[2].waking_ns, at(600));
	timeline_free(timeline);
}

TEST(time_the_host_takes_is_steal)
{
	static struct script s;

	s = (struct script){0};
	script_off(&s, 10, 0, 0, 100, 0, 0);
	/* The thread is on the CPU from 100 to 500, but the kernel counted only 300 ticks. The host had the
	 * rest. */
	script_off(&s, 10, 500, 500, 600, 0, 0)->sw.exec_ns = 300 * TICK_NS;
	struct timeline *timeline = build(&s);
	struct timeline_account account =
	    timeline_account(timeline_find(timeline, 10, at(0)), at(100), at(500));
	assert_int_equal(account.cpu_ns, 400 * TICK_NS);
	assert_int_equal(account.exec_ns, 300 * TICK_NS);
	account = timeline_account(timeline_find(timeline, 10, at(0)), at(100), at(300));
	assert_int_equal(account.exec_ns, 150 * TICK_NS);
	timeline_free(timeline);
}

TEST(a_reused_tid_is_another_thread)
{
	static struct script s;
	const struct timeline_thread *first, *second;

	s = (struct script){0};
	script_call(&s, 20, 100, 110, SYS_read, EVENT_FILE_REG, 1, 1);
	script_exit(&s, 20, 120);
	script_fork(&s, 10, 20, 500);
	script_call(&s, 20, 600, 610, SYS_read, EVENT_FILE_REG, 2, 1);
	struct timeline *timeline = build(&s);
	first = timeline_find(timeline, 20, at(110));
	second = timeline_find(timeline, 20, at(605));
	assert_ptr_not_equal(first, second);
	assert_int_equal(first->n_calls, 1);
	assert_int_equal(second->n_calls, 1);
	assert_int_equal(first->calls[0].inode, 1);
	assert_int_equal(second->calls[0].inode, 2);
	assert_int_equal(second->creator_tid, 10);
	assert_int_equal(second->first_ns, at(500));
	assert_null(timeline_find(timeline, 21, at(0)));
	timeline_free(timeline);
}

TEST(the_call_at_a_time_is_found)
{
	static struct script s;

	s = (struct script){0};
	/* Records are out of order, as records of several rings may be. */
	script_call(&s, 10, 300, 400, SYS_poll, EVENT_FILE_FIFO, 3, 1);
	script_call(&s, 10, 100, 200, SYS_read, EVENT_FILE_REG, 1, 1);
	script_call(&s, 10, 200, 250, SYS_close, EVENT_FILE_REG, 2, 0);
	struct timeline *timeline = build(&s);
	const struct timeline_thread *thread = timeline_find(timeline, 10, at(0));
	assert_int_equal(timeline_call_at(thread, at(150))->inode, 1);
	assert_int_equal(timeline_call_at(thread, at(100))->inode, 1);
	assert_int_equal(timeline_call_at(thread, at(200))->inode, 2);
	assert_int_equal(timeline_call_at(thread, at(250))->inode, 2);
	assert_null(timeline_call_at(thread, at(270)));
	assert_null(timeline_call_at(thread, at(99)));
	assert_int_equal(timeline_call_at(thread, at(400))->inode, 3);
	assert_null(timeline_call_at(thread, at(401)));
	assert_int_equal(timeline_call_from(thread, at(260)), 2);
	assert_int_equal(timeline_call_from(thread, at(400)), 3);
	timeline_free(timeline);
}

TEST(each_futex_call_that_waits_is_a_wait_at_a_lock)
{
	static const uint64_t calls[] = {SYS_futex, 449, 455}; /* futex_waitv, futex_wait */
	static struct script s;

	s = (struct script){0};
	for (uint64_t i = 0; i < 3; i++)
		script_call(&s, 10, 100 * i + 10, 100 * i + 60, calls[i], EVENT_FILE_NONE, 0x1000, 0);
	script_exit(&s, 10, 700);
	struct timeline *timeline = build(&s);
	const struct timeline_thread *thread = timeline_find(timeline, 10, at(0));
	assert_non_null(thread);
	assert_int_equal(thread->n_calls, 3);
	for (size_t i = 0; i < 3; i++)
		assert_true(call_is_lock_wait(&thread->calls[i]));
	timeline_free(timeline);
}

/* Contradictory records are cut or dropped, and counted. */
TEST(malformed_records_are_counted_and_left_out)
{
	static struct script s;

	s = (struct script){0};
	script_off(&s, 10, 100, 200, 300, 1, 11);
	script_off(&s, 10, 250, 350, 400, 1, 11); /* overlaps */
	script_off(&s, 10, 120, 130, 140, 1, 11); /* inside the first */
	script_add(&s, 10, EVENT_SYSCALL, 500, 400);
	script_add(&s, 0, EVENT_SYSCALL, 500, 600);
	script_add(&s, 10, 99, 500, 600);
	struct timeline *timeline = build(&s);
	const struct timeline_thread *thread = timeline_find(timeline, 10, at(0));
	assert_int_equal(thread->n_offs, 2);
	assert_int_equal(thread->offs[1].begin_ns, at(300));
	assert_int_equal(timeline->n_malformed, 5);
	account_is(thread, 100, 400, (uint64_t[]){0, 150, 150, 0, 0});
	timeline_free(timeline);
	assert_int_equal(timeline_build(NULL, 0, &timeline, NULL), 0);
	assert_int_equal(timeline->n_threads, 0);
	assert_null(timeline_find(timeline, 1, 1));
	timeline_free(timeline);
}
