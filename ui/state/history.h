/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Keeps the last HISTORY_POINTS samples of each job, for the plot. A job that is in none of the last
 * HISTORY_POINTS samples is forgotten. */

#include <stddef.h>
#include <stdint.h>

#include "sample.h"

#define HISTORY_POINTS 600

struct top_history_point {
	float share[SHARE_COUNT]; /* NAN: not known */
	float steps_per_s;
};

struct history_series {
	char job[48];
	size_t n; /* points so far; may exceed HISTORY_POINTS */
	uint64_t last_used;
	struct top_history_point points[HISTORY_POINTS]; /* a ring */
};

struct top_history {
	struct history_series **series;
	size_t n_series;
	uint64_t n_samples;
};

/* Adds a point for each job of the sample. -ENOMEM: some jobs have no new point. */
int history_add(struct top_history *history, const struct top_sample *sample);
void history_clear(struct top_history *history);

/* Returns the points of a job; NULL: the job has none. */
const struct history_series *history_find(const struct top_history *history, const char *job);

/* Returns the point `ago` samples before the last one; NULL: none. */
const struct top_history_point *history_point(const struct history_series *series, size_t ago);
