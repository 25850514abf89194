/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever the events say, the shares sum to the window and nothing crashes. */
#include "tests/unit/analyzer/script.h"

#include <stdlib.h>

/* xorshift64*, which gives the same numbers on every machine. */
static uint64_t random_next(uint64_t *seed)
{
	*seed ^= *seed >> 12;
	*seed ^= *seed << 25;
	*seed ^= *seed >> 27;
	return *seed * UINT64_C(2685821657736338717);
}

static uint64_t pick(uint64_t *seed, uint64_t n)
{
	return random_next(seed) % n;
}

/* Fills in plausible threads, calls and files at random times, which overlap, come out of order, and wake
 * each other. */
static void fill_plausible(struct event *event, uint64_t *seed)
{
	static const uint32_t tids[] = {TRAINER, REQUESTER, 105, WORKER, FEEDER, WORKER + 10, FEEDER + 10};
	static const uint16_t calls[] = {SYS_poll,      SYS_read,    SYS_write, SYS_openat,
					 SYS_close,     SYS_recvmsg, SYS_fsync, SYS_futex,
					 SYS_renameat2, SYS_mmap,    SYS_wait4};
	static const uint8_t types[] = {EVENT_FILE_NONE, EVENT_FILE_FIFO, EVENT_FILE_REG, EVENT_FILE_SOCK};
	uint64_t begin_ns = at(0) + pick(seed, 20000) * TICK_NS / 2;

	*event = (struct event){.start_ns = begin_ns,
				.end_ns = begin_ns + pick(seed, 400) * TICK_NS / 4,
				.tid = tids[pick(seed, 7)],
				.flags = (uint16_t)pick(seed, 32)};
	event->tgid = script_tgid(event->tid);
	switch (pick(seed, 12)) {
	case 0:
	case 1:
	case 2:
	case 3:
		event->type = EVENT_SWITCH;
		event->sw.state = (uint16_t)pick(seed, 3);
		event->sw.waking_ns = begin_ns + pick(seed, 300) * TICK_NS / 4;
		event->sw.exec_ns = pick(seed, 1000) * NS_PER_MS;
		event->sw.waker_tid = tids[pick(seed, 7)];
		event->sw.waker_context = (uint8_t)pick(seed, 4);
		break;
	case 4: event->type = EVENT_STEP; break;
	case 5:
		event->type = EVENT_MARK;
		event->mark.kind = (uint32_t)pick(seed, 6);
		event->mark.value = pick(seed, 3);
		break;
	case 6:
		event->type = (uint16_t)pick(seed, 18);
		event->fork.child_tid = tids[pick(seed, 7)];
		event->fork.child_tgid = script_tgid(event->fork.child_tid);
		break;
	default:
		event->type = EVENT_SYSCALL;
		event->call.nr = calls[pick(seed, 11)];
		event->call.file_type = types[pick(seed, 4)];
		event->call.inode = pick(seed, 2) ? RESULT_PIPE : INDEX_PIPE + pick(seed, 2);
		event->call.argument = pick(seed, 4);
		event->call.result = (int64_t)pick(seed, 200000) - 10;
		event->call.fd = (int32_t)pick(seed, 4);
		break;
	}
}

static void analyse_and_check(const struct event *events, size_t n, const struct analysis_input *base)
{
	struct analysis_input input = *base;
	struct analysis *analysis = NULL;

	input.events = events;
	input.n_events = n;
	assert_int_equal(analysis_run(&input, &analysis, NULL), 0);
	check_invariants(analysis);
	analysis_free(analysis);
}

TEST(random_plausible_events_keep_the_invariants)
{
	static struct event events[3000];
	uint64_t seed = 42;

	for (unsigned int round = 0; round < 200; round++) {
		size_t n = 1 + pick(&seed, 3000);
		struct analysis_input input = {.trainer_tid = round % 3 == 1 ? WORKER : 0,
					       .root_tgid = TRAINER,
					       .n_cpus = (uint32_t)pick(&seed, 5)};

		for (size_t i = 0; i < n; i++) {
			fill_plausible(&events[i], &seed);
			/* Some rounds have no marks, so that the other kinds of loaders occur, too. */
			if (round % 2 && events[i].type == EVENT_MARK)
				events[i].type = EVENT_STEP;
		}
		analyse_and_check(events, n, &input);
	}
}

TEST(garbage_keeps_the_invariants)
{
	static struct event events[400];
	uint64_t seed = 7;

	for (unsigned int round = 0; round < 300; round++) {
		uint64_t *words = (uint64_t *)events;

		for (size_t i = 0; i < 400 * sizeof(struct event) / sizeof(uint64_t); i++)
			words[i] = random_next(&seed);
		/* Few types and tids are used. Otherwise hardly any record would be considered. */
		for (size_t i = 0; i < 400; i++) {
			events[i].type = (uint16_t)(events[i].type % 18);
			events[i].tid %= 5;
			events[i].tgid %= 3;
			if (round % 2) {
				events[i].start_ns %= 1000000000;
				events[i].end_ns = events[i].start_ns + events[i].end_ns % 1000000;
			}
			if (events[i].type == EVENT_SYSCALL) {
				events[i].call.nr %= 450;
				events[i].call.inode %= 3;
				events[i].call.file_type %= 16;
			}
		}
		analyse_and_check(events, 400, &(struct analysis_input){.root_tgid = 1});
	}
}

/* The critical path ends even if threads wake each other in a circle at one instant. */
TEST(wakers_in_a_circle)
{
	static struct script s;

	script_begin(&s);
	for (unsigned int i = 0; i < 6; i++) {
		uint64_t tick = 1000 * i;

		script_off(&s, FEEDER, tick, tick + 800, tick + 800, 1, WORKER);
		script_off(&s, WORKER, tick, tick + 800, tick + 800, 1, FEEDER);
		script_take_index(&s, 0, tick + 900);
		script_call(&s, FEEDER, tick + 950, tick + 951, SYS_write, EVENT_FILE_FIFO, RESULT_PIPE, 9);
		script_request(&s, 0, tick + 960);
		script_next(&s, 0, tick, tick + 800, tick + 850);
		script_step(&s, TRAINER, tick + 900);
	}
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(share_ticks(analysis, SHARE_PREP_STALL) + share_ticks(analysis, SHARE_FETCH_STALL),
			 850 * 6);
}
