/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The last minutes of each job, for the plot. Bounded: the oldest goes first, and jobs that ended with it. */

#include <stddef.h>
#include <stdint.h>

#include "sample.h"

#define HISTORY_POINTS 600

struct history_point {
	float share[SHARE_COUNT]; /* NAN: not known */
	float steps_per_s;
};

struct history_series {
	char job[48];
	size_t n; /* so far, more than HISTORY_POINTS too */
	uint64_t last_used;
	struct history_point points[HISTORY_POINTS]; /* a ring */
};

struct history {
	struct history_series **series;
	size_t n_series;
	uint64_t n_samples;
};

/* One more point for each job of the sample. -ENOMEM: without it. */
int history_add(struct history *history, const struct sample *sample);
void history_clear(struct history *history);

/* NULL: nothing known. */
const struct history_series *history_find(const struct history *history, const char *job);

/* The point `ago` samples before the last one; NULL: there was none. */
const struct history_point *history_point(const struct history_series *series, size_t ago);
