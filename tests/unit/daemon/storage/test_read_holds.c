/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include "lib/clock.h"
#include "daemon/storage/read_holds.h"

#define BEGIN (1000 * NS_PER_S)

static struct read_holds holds;

static int clear(void **state)
{
	holds = (struct read_holds){0};
	return 0;
}

static uint64_t until(uint32_t uid, dev_t storage, uint64_t now_ns)
{
	uint64_t job = 0, end_ns = read_holds_until(&holds, uid, storage, now_ns, &job);

	assert_true(end_ns == 0 || job == 7);
	return end_ns;
}

/* Prefetch is paused only on that storage, and only for that user. */
TEST_WITH(whom_it_concerns, clear, NULL)
{
	assert_int_equal(until(1, 5, BEGIN), 0);
	read_holds_note(&holds, 1, 5, 7, BEGIN);
	assert_int_equal(until(1, 5, BEGIN), BEGIN + READ_HOLD_AFTER_NS);
	assert_int_equal(until(2, 5, BEGIN), 0);
	assert_int_equal(until(1, 6, BEGIN), 0);
	assert_int_equal(until(1, 5, BEGIN + READ_HOLD_AFTER_NS), 0);
}

/* If a job writes all the time, prefetch is paused once, for the maximum time. After a break of the writes it
 * is paused again. */
TEST_WITH(a_steady_writer_is_held_back_once, clear, NULL)
{
	uint64_t held_ns = 0, now_ns = BEGIN;

	for (uint32_t i = 0; i < 60; i++, now_ns += NS_PER_S) {
		read_holds_note(&holds, 1, 5, 7, now_ns);
		held_ns += until(1, 5, now_ns) ? NS_PER_S : 0;
	}
	assert_int_equal(held_ns, READ_HOLD_MOST_NS);
	now_ns += READ_HOLD_AFTER_NS;
	read_holds_note(&holds, 1, 5, 7, now_ns);
	assert_int_equal(until(1, 5, now_ns), now_ns + READ_HOLD_AFTER_NS);
}

/* A checkpoint that is reported to be written pauses nothing any more. Another job's still does. */
TEST_WITH(a_reported_end_ends_the_pause, clear, NULL)
{
	read_holds_note(&holds, 1, 5, 7, BEGIN);
	read_holds_end(&holds, 2, 5, 7);
	read_holds_end(&holds, 1, 6, 7);
	read_holds_end(&holds, 1, 5, 8);
	assert_true(until(1, 5, BEGIN) != 0);
	read_holds_end(&holds, 1, 5, 7);
	assert_int_equal(until(1, 5, BEGIN), 0);
}

/* A user who reports many leaves the table to others. */
TEST_WITH(a_user_has_a_part_of_the_table, clear, NULL)
{
	for (uint32_t i = 0; i < 2 * READ_HOLDS_MAX; i++)
		read_holds_note(&holds, 1, i, 7, BEGIN);
	assert_true(until(1, READ_HOLDS_OF_USER - 1, BEGIN) != 0);
	assert_int_equal(until(1, READ_HOLDS_OF_USER, BEGIN), 0);
	read_holds_note(&holds, 2, 5, 7, BEGIN);
	assert_true(until(2, 5, BEGIN) != 0);
}

/* Notes beyond the table's size pause nothing, and remove no existing note. */
TEST_WITH(notes_beyond_the_table_hold_nobody_back, clear, NULL)
{
	for (uint32_t i = 0; i < 2 * READ_HOLDS_MAX; i++)
		read_holds_note(&holds, i, 5, 7, BEGIN);
	assert_true(until(0, 5, BEGIN) && until(READ_HOLDS_MAX - 1, 5, BEGIN));
	assert_int_equal(until(READ_HOLDS_MAX, 5, BEGIN), 0);
	read_holds_note(&holds, 1000, 5, 7, BEGIN + READ_HOLD_AFTER_NS);
	assert_true(until(1000, 5, BEGIN + READ_HOLD_AFTER_NS));
}
