/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Named ranges that the program itself marks on the trainer, in the window: by NVTX, by USDT markers, and by
 * libdiesel's loaders. A range counts from start to end, nested ranges included, so the sums of phases may
 * overlap. A range that crosses an edge of the window counts only with its part inside.
 */

#include <stddef.h>
#include <stdint.h>

#define PHASES_MAX 64 /* maximum; beyond it, the phases with the least time are left out */

struct phase_time {
	char name[64]; /* any bytes, as received from the program; "?": not known */
	uint64_t n, ns;
};

struct phase_times {
	struct phase_time items[PHASES_MAX]; /* sorted by ns, descending */
	size_t n;
};

/* The name behind a key in EVENT_PHASE. */
struct phase_label {
	uint64_t key;
	char name[64]; /* terminated */
};

void phase_times_free(struct phase_times *phases);
