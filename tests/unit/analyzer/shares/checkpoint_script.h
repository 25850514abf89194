/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Jobs that write checkpoints, with twelve steps and threads that write files meanwhile. */

#include "tests/unit/analyzer/script.h"

#include <fcntl.h>

static struct script s; /* too large for the stack */

#define STEPS   12
#define HELPER  102 /* a thread of the trainer's process, as REQUESTER is */
#define WRITER  150 /* a child of the trainer's process */
#define SPEAKER 151 /* a thread of that child */
#define LARGE   1000000
#define FILE_FD 9

/* Makes steps of 1000 ticks, with a data wait from 0 to 100 and the backward pass at 200. */
static inline void steps(void)
{
	script_begin(&s);
	for (uint64_t i = 0; i < STEPS; i++) {
		script_mark(&s, TRAINER, 1000 * i, MARK_NEXT_BEGIN, 0);
		script_mark(&s, TRAINER, 1000 * i + 100, MARK_NEXT_END, 0);
		script_step(&s, TRAINER, 1000 * i + 200);
	}
	script_exit(&s, TRAINER, 1000 * STEPS + 500);
}

static inline void open_for_writing(uint32_t tid, uint64_t tick)
{
	struct event *event = script_call(&s, tid, tick, tick + 1, SYS_openat, EVENT_FILE_REG, 60, FILE_FD);

	event->call.argument = O_WRONLY | O_CREAT;
}

/* Opens a file from begin to begin + 1, writes `bytes`, and closes it from end - 1 to end. */
static inline void write_file(uint32_t tid, uint64_t begin_tick, uint64_t end_tick, int64_t bytes)
{
	open_for_writing(tid, begin_tick);
	script_call(&s, tid, begin_tick + 2, end_tick - 2, SYS_write, EVENT_FILE_REG, 60, bytes);
	script_call(&s, tid, end_tick - 1, end_tick, SYS_close, EVENT_FILE_REG, 60, 0);
}

static inline struct analysis *analyse(double overhead_max)
{
	struct analysis *analysis = script_analyse(
	    &s, &(struct analysis_input){
		    .root_tgid = TRAINER, .n_cpus = 4, .checkpoint_overhead_max = overhead_max});

	assert_int_equal(analysis->n_steps, STEPS);
	return analysis;
}

static inline void small_writes(uint32_t tid, uint64_t begin_tick, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		script_call(&s, tid, begin_tick + 2 * i, begin_tick + 2 * i + 1, SYS_write, EVENT_FILE_REG,
			    60, 30000);
}
