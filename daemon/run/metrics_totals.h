/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Sums the samples of jobs: Prometheus needs counters, and a scrape every 15 s must not miss 14 of 15
 * seconds. Pure. A job's figures start at zero when it is first seen. Unknown figures in a sample (NAN) add
 * nothing.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tuner/stall_sample.h"

#define METRICS_MAX_JOBS 64 /* jobs at one time; a new job replaces the one whose last sample is oldest */

/* Values of the label `stall`. */
enum metrics_stall {
	METRICS_STALL_FETCH,
	METRICS_STALL_PREPROCESS,
	METRICS_STALL_GPU_WAIT, /* device time spent in a synchronisation: not a stall */
	METRICS_STALL_CHECKPOINT,
	METRICS_STALL_CPU_QUEUE,
	METRICS_STALL_OTHER,
	METRICS_N_STALLS,
};

const char *metrics_stall_name(enum metrics_stall stall);

struct metrics_job {
	uint64_t job; /* 0: free */
	uint64_t at_ns;
	double trainer_s;     /* the trainer's wall time for which samples have at least one share */
	double steps, step_s; /* step_s: wall time in which steps were counted */
	double samples;
	double stall_s[METRICS_N_STALLS];
	double known_s[METRICS_N_STALLS]; /* wall time for which that share is known; 0: never known */
	double step_p50_s, step_p95_s;    /* from the last sample; NAN: unknown */
	enum stall_source source;         /* source of the last sample */
};

struct metrics_totals {
	struct metrics_job jobs[METRICS_MAX_JOBS];
	struct stall_node node; /* the latest sample */
	bool has_node;
};

/* Adds samples; node may be NULL. Skips invalid samples (times or rates negative or not finite, more than one
 * hour). */
void metrics_totals_add(struct metrics_totals *t, const struct stall_node *node,
			const struct stall_sample *samples, size_t n);
/* Returns the figures of the job; NULL: no sample of it has arrived. */
const struct metrics_job *metrics_totals_find(const struct metrics_totals *t, uint64_t job);
