/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the program itself calls the parts of its steps: ranges of NVTX, of USDT markers, and of libdiesel's
 * loaders, on the trainer, in the window. A range counts from its start to its end, with all that is nested
 * in it, so phases need not sum up to anything; one that reaches over an edge of the window counts as far as
 * it lies within.
 */

#include <stddef.h>
#include <stdint.h>

#define PHASES_MAX 64 /* beyond, those with the least time are left out */

struct phase_time {
	char name[64]; /* bytes as the program gave them; "?" where the name was not learnt */
	uint64_t n, ns;
};

struct phase_times {
	struct phase_time items[PHASES_MAX]; /* by ns, descending */
	size_t n;
};

/* The name behind a key in EVENT_PHASE. */
struct phase_label {
	uint64_t key;
	char name[64]; /* terminated */
};

void phase_times_free(struct phase_times *phases);
