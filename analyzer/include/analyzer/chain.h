/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Wake-up chain of the last slow step: from the end of its longest data wait back through the threads that
 * ended each sleep, to the cause of the delay. The pieces are those of the walk (shares/walk.h). Each ns of
 * the wait is in exactly one piece, unless there are more than WAIT_CHAIN_MAX.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WAIT_CHAIN_MAX 24

struct wait_piece {
	uint64_t begin_ns, end_ns;
	uint32_t tid;
	char role[20];
	char name[16];    /* the thread's own name, which may hold any bytes */
	const char *what; /* static */
	bool fetch;
};

struct wait_chain {
	uint64_t step_begin_ns, step_end_ns, wait_begin_ns, wait_end_ns;
	struct wait_piece pieces[WAIT_CHAIN_MAX]; /* latest first */
	size_t n;
};
