/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Decides when the watcher records in detail. Detail is on or off for all jobs, and it is expensive: every
 * context switch of a job's threads becomes a record. So it is on for some seconds (a slice) when a job is
 * new or its wait has changed, and otherwise now and then, but in the long run for at most a fifth of the
 * time.
 *
 * Pure: no clock, no I/O.
 */

#include <stdbool.h>
#include <stdint.h>

#include "tuner/stall_sample.h"

#define DETAIL_MIN_NS     UINT64_C(2000000000)
#define DETAIL_MAX_NS     UINT64_C(12000000000) /* maximum length of a slice; enough for steps of a second */
#define DETAIL_STEPS      12                    /* number of steps of each job after which a slice may end */
#define DETAIL_PERIOD_NS  UINT64_C(60000000000) /* interval of slices that no job asks for */
#define DETAIL_REST       4                     /* pause after a slice, in slice lengths: 12 s after 3 s */
#define DETAIL_WAIT_DELTA 0.15                  /* change of the waiting share that asks for a slice */

struct detail_plan {
	bool on;
	uint64_t begin_ns, end_ns; /* limits of the current or last slice */
	uint64_t not_before_ns;    /* earliest begin of the next slice */
};

/* The plan's view of one job. */
struct detail_job {
	bool seen;                 /* the job was in a complete slice */
	double seen_wait;          /* share of that slice that the job waited */
	double wait;               /* share of the last second that the job waited; NAN: not known */
	uint64_t slice_steps;      /* steps since this slice began */
	uint64_t last_step_age_ns; /* UINT64_MAX: no step yet */
};

enum detail_change { DETAIL_AS_BEFORE, DETAIL_BEGIN, DETAIL_END };

/* Advances the plan. cost_ns: CPU time that the analyses of the last slice took: the more they cost, the
 * rarer slices are. */
enum detail_change detail_step(struct detail_plan *plan, const struct detail_job *jobs, uint32_t n_jobs,
			       uint64_t cost_ns, uint64_t now_ns);

/*
 * Combines the shares of one second from figures of different times: the exact wait of this second, and the
 * last slice, which gives the division of the rest. wait: share of the second in which the trainer waited for
 * data; NAN: not known, then the result is the slice's shares. slice: NULL before the first slice; then the
 * time without waits counts as the device's, and the division of the wait is not known (NAN). All shares that
 * are known sum to 1.
 */
void detail_shares(const struct stall_shares *slice, double wait, struct stall_shares *ret);
