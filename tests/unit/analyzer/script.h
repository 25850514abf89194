/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Synthetic recordings: events of made-up threads with known shares. Functions take times in ticks, which
 * makes tests readable. The events are in ns, with the CPU time that the kernel would count if a thread's
 * records are added in order. A real recording never starts at 0, so every time is shifted by SCRIPT_BASE_NS.
 */

#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>

#include "analyzer/analysis.h"
#include "lib/cleanup.h"
#include "lib/clock.h"

#define SCRIPT_MAX     20000
#define SCRIPT_BASE_NS UINT64_C(5000000000)
#define TICK_NS        UINT64_C(20000)
#define TIMER_WOKE     0 /* as waker_tid: the local timer woke the thread, with any thread as `current` */

/* The threads of a DataLoader job. */
enum {
	TRAINER = 100,
	REQUESTER = 101, /* the trainer's thread that sends indices */
	WORKER = 200,    /* + 10 for each further worker: its main thread */
	FEEDER = 201,    /* + 10 for each further worker: its thread that writes the result pipe */
	RESULT_PIPE = 7000,
	INDEX_PIPE = 7100, /* + the worker's number */
	DATA_FILE = 50,
};

struct script {
	size_t n;
	struct event events[SCRIPT_MAX];
	uint64_t last_tick[1024], exec_tick[1024]; /* by tid */
};

static inline uint64_t at(uint64_t tick)
{
	return SCRIPT_BASE_NS + tick * TICK_NS;
}

static inline uint32_t script_tgid(uint32_t tid)
{
	return tid / 10 * 10;
}

static inline struct event *script_add(struct script *s, uint32_t tid, uint16_t type, uint64_t begin_tick,
				       uint64_t end_tick)
{
	struct event *event = &s->events[s->n++];

	assert_true(s->n < SCRIPT_MAX && tid < 1024);
	*event = (struct event){.start_ns = at(begin_tick),
				.end_ns = at(end_tick),
				.tid = tid,
				.tgid = script_tgid(tid),
				.type = type};
	return event;
}

/* Takes the thread off the CPU. It is asleep (state 1 or 2, with any further bits) until waking_tick, then
 * runnable. state 0: runnable all the time. */
static inline struct event *script_off(struct script *s, uint32_t tid, uint64_t begin_tick,
				       uint64_t waking_tick, uint64_t end_tick, uint16_t state,
				       uint32_t waker_tid)
{
	struct event *event = script_add(s, tid, EVENT_SWITCH, begin_tick, end_tick);

	if (begin_tick > s->last_tick[tid])
		s->exec_tick[tid] += begin_tick - s->last_tick[tid];
	s->last_tick[tid] = end_tick;
	event->sw.exec_ns = s->exec_tick[tid] * TICK_NS;
	event->sw.state = state;
	event->sw.waking_ns = state ? at(waking_tick) : 0;
	event->sw.waker_tid = waker_tid ? waker_tid : tid + 1;
	event->sw.waker_context = waker_tid ? WAKER_TASK : WAKER_TIMER;
	event->flags = EVENT_FLAG_IN_SYSCALL;
	return event;
}

static inline struct event *script_call(struct script *s, uint32_t tid, uint64_t begin_tick,
					uint64_t end_tick, uint16_t nr, uint8_t file_type, uint64_t inode,
					int64_t result)
{
	struct event *event = script_add(s, tid, EVENT_SYSCALL, begin_tick, end_tick);

	event->call.nr = nr;
	event->call.file_type = file_type;
	event->call.inode = inode;
	event->call.result = result;
	event->call.fd = 9;
	return event;
}

static inline void script_step(struct script *s, uint32_t tid, uint64_t tick)
{
	script_add(s, tid, EVENT_STEP, tick, tick);
}

static inline void script_mark(struct script *s, uint32_t tid, uint64_t tick, uint32_t kind, uint64_t value)
{
	struct event *event = script_add(s, tid, EVENT_MARK, tick, tick);

	event->mark.kind = kind;
	event->mark.value = value;
}

static inline void script_fork(struct script *s, uint32_t tid, uint32_t child_tid, uint64_t tick)
{
	struct event *event = script_add(s, tid, EVENT_FORK, tick, tick);

	event->fork.child_tid = child_tid;
	event->fork.child_tgid = script_tgid(child_tid);
	s->last_tick[child_tid] = tick;
}

static inline void script_exit(struct script *s, uint32_t tid, uint64_t tick)
{
	script_add(s, tid, EVENT_EXIT, tick, tick);
}

/* Adds a file read of a worker or trainer that sleeps on the disk, except for its first and last 10 ticks. */
static inline void script_read_file(struct script *s, uint32_t tid, uint64_t begin_tick, uint64_t end_tick)
{
	script_off(s, tid, begin_tick + 10, end_tick - 10, end_tick - 10, 0x2, TIMER_WOKE);
	script_call(s, tid, begin_tick, end_tick, SYS_read, EVENT_FILE_REG, DATA_FILE, 100000);
}

/* Worker n takes an index message, and then works until it polls for the next one. */
static inline void script_take_index(struct script *s, uint32_t n, uint64_t tick)
{
	uint32_t tid = WORKER + 10 * n;

	script_call(s, tid, tick, tick + 1, SYS_poll, EVENT_FILE_FIFO, INDEX_PIPE + n, 1);
	script_call(s, tid, tick + 2, tick + 3, SYS_read, EVENT_FILE_FIFO, INDEX_PIPE + n, 4);
	script_call(s, tid, tick + 4, tick + 5, SYS_read, EVENT_FILE_FIFO, INDEX_PIPE + n, 60);
}

/* The feeder of worker n, which its worker wakes at wake_tick, writes the result at `tick`. */
static inline void script_give_result(struct script *s, uint32_t n, uint64_t wake_tick, uint64_t tick)
{
	uint32_t tid = FEEDER + 10 * n;

	script_off(s, tid, s->last_tick[tid] + 1, wake_tick, wake_tick, 0x1, WORKER + 10 * n);
	script_call(s, tid, tick, tick + 1, SYS_write, EVENT_FILE_FIFO, RESULT_PIPE, 300);
}

/* Adds a next() of the trainer. It polls from begin_tick, is woken by worker n's feeder at ready_tick, and
 * ends the handshake at end_tick, which is at least ready_tick + 20. */
static inline void script_next(struct script *s, uint32_t n, uint64_t begin_tick, uint64_t ready_tick,
			       uint64_t end_tick)
{
	if (begin_tick + 2 < ready_tick)
		script_off(s, TRAINER, begin_tick + 1, ready_tick, ready_tick, 0x1, FEEDER + 10 * n);
	script_call(s, TRAINER, begin_tick, ready_tick + 1, SYS_poll, EVENT_FILE_FIFO, RESULT_PIPE, 1);
	script_call(s, TRAINER, ready_tick + 2, ready_tick + 3, SYS_read, EVENT_FILE_FIFO, RESULT_PIPE, 4);
	script_call(s, TRAINER, ready_tick + 4, ready_tick + 5, SYS_read, EVENT_FILE_FIFO, RESULT_PIPE, 300);
	script_call(s, TRAINER, ready_tick + 10, end_tick, SYS_recvmsg, EVENT_FILE_SOCK, 77, 1);
}

/* The trainer requests a batch, for which its index thread writes to every worker's pipe once. */
static inline void script_request(struct script *s, uint32_t n, uint64_t tick)
{
	if (s->last_tick[REQUESTER] < tick)
		script_off(s, REQUESTER, s->last_tick[REQUESTER] + 2, tick, tick, 1, TIMER_WOKE);
	script_call(s, REQUESTER, tick, tick + 1, SYS_write, EVENT_FILE_FIFO, INDEX_PIPE + n, 60);
}

/* Begins an empty recording of a trainer that started a second before time 0. */
static inline void script_begin(struct script *s)
{
	memset(s, 0, sizeof(*s));
	struct event *event = script_add(s, TRAINER, EVENT_NAME, 0, 0);
	event->start_ns = event->end_ns = SCRIPT_BASE_NS - NS_PER_S;
}

/* Asserts the invariants of every analysis, whatever its input is. */
static inline void check_invariants(const struct analysis *analysis)
{
	uint64_t sum_ns = 0, whole_ns = 0, steps_ns[SHARE_COUNT] = {0}, at_ns = analysis->window.begin_ns;

	for (size_t i = 0; i < SHARE_COUNT; i++)
		sum_ns += analysis->share_ns[i];
	assert_int_equal(sum_ns, analysis->window.observed_ns);
	assert_true(sum_ns <= analysis->window.end_ns - analysis->window.begin_ns);
	for (size_t k = 0; k < analysis->n_steps; k++) {
		const struct analysis_step *step = &analysis->steps[k];

		assert_true(step->begin_ns >= at_ns);
		whole_ns += step->end_ns - step->begin_ns;
		assert_true(step->end_ns >= step->begin_ns);
		at_ns = step->end_ns;
		for (size_t i = 0; i < SHARE_COUNT; i++)
			steps_ns[i] += step->share_ns[i];
	}
	assert_int_equal(whole_ns, analysis->window.observed_ns);
	for (size_t i = 0; i < SHARE_COUNT; i++)
		assert_int_equal(steps_ns[i], analysis->share_ns[i]);
	assert_true(analysis->parts.gpu_wait_ns <= analysis->share_ns[SHARE_DEVICE]);
	assert_true(analysis->recorded.coverage_ratio >= 0 && analysis->recorded.coverage_ratio <= 1);
	assert_true(analysis->n_actions <= ANALYSIS_ACTIONS_MAX);
	assert_int_equal(analysis->verdict == ANALYSIS_INSUFFICIENT, analysis->insufficient[0] != '\0');
}

/* Analyses the script, and checks the invariants. The caller frees the result. */
static inline struct analysis *script_analyse(const struct script *s, struct analysis_input *input)
{
	struct analysis_input plain = {.root_tgid = TRAINER, .n_cpus = 4};
	struct analysis *analysis = NULL;

	if (!input)
		input = &plain;
	input->events = s->events;
	input->n_events = s->n;
	assert_int_equal(analysis_run(input, &analysis, NULL), 0);
	check_invariants(analysis);
	return analysis;
}

static inline uint64_t share_ticks(const struct analysis *analysis, enum analysis_share share)
{
	return analysis->share_ns[share] / TICK_NS;
}

/* Adds a sample of a thread's Python stack, outside of system calls. */
static inline void script_sample(struct script *s, uint32_t tid, uint64_t tick, uint64_t python)
{
	struct event *event = script_add(s, tid, EVENT_STACK, tick, tick);

	event->stack.python = python;
	event->stack.syscall_nr = 0xffff;
}

static inline struct event *script_first_call(struct script *s, uint32_t tid, uint16_t nr)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->events[i].tid == tid && s->events[i].type == EVENT_SYSCALL &&
		    s->events[i].call.nr == nr)
			return &s->events[i];
	fail();
	return NULL;
}
