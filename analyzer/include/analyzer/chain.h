/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Why the last slow step waited, piece by piece: from the end of its longest data wait back through whoever
 * ended each sleep to what held the trainer up. Evidence, as the walk finds it: each ns of the wait is in
 * exactly one piece, unless there are more than WAIT_CHAIN_MAX.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WAIT_CHAIN_MAX 24

struct wait_piece {
	uint64_t begin_ns, end_ns;
	uint32_t tid;
	char role[20];
	char name[16];    /* as the thread calls itself: bytes from outside */
	const char *what; /* static */
	bool fetch;
};

struct wait_chain {
	uint64_t step_begin_ns, step_end_ns, wait_begin_ns, wait_end_ns;
	struct wait_piece pieces[WAIT_CHAIN_MAX]; /* latest first */
	size_t n;
};
