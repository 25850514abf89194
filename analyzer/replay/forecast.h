/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Compares replays of a changed recording with its unchanged replay, on steady steps: an error common to both
 * cancels out. Both leave out compiling, which later steps do not repeat. */

#include "analyzer/predictions.h"
#include "service.h"

#define FORECAST_STEPS_MAX    2000
#define FORECAST_SEGMENTS_MAX 60000 /* limit, because a replay takes longer with more segments */

struct forecast {
	struct model_job job; /* cut to the replayed steps, with the storage as a server */
	struct model_segment *segments;
	struct model_step *steps; /* steps of the job */
	size_t first, n;          /* steady steps: [first, first + n) of the job's steps */
	double *step_ns;          /* time of each of the job's n_steps in the unchanged replay */
	double *other_ns, *other_wait_ns, *free_ns;
	double recorded_ns; /* recorded time of the steady steps, without compiling */
	double replayed_ns; /* replayed time of the steady steps */
	double error_ratio; /* difference of the two: a prediction may be off by as much */
	/* As summary_cores_limit() and summary_own_limit(); forecast_init() sets INFINITY. The replay knows
	 * nothing of threads that compute without a part in loading, nor of neighbours that have cores. */
	double cores_limit, own_limit;
};

/* A scenario's steady steps, divided into shares. */
struct forecast_point {
	struct estimate speedup;
	double step_ns; /* mean */
	double fetch_ratio, prep_ratio, device_ratio, wait_ratio;
	bool limited; /* the cores do not suffice for what the replay found */
};

/* service: borrowed; its why_not must be NULL. steps: the job's recorded steps. n_warmup: steps to leave out;
 * the first step is always left out if there are enough. -ENOMEM, -EINVAL (damaged, or no step is left): then
 * there is nothing to free. */
int forecast_init(struct forecast *forecast, const struct service *service, const struct analysis_step *steps,
		  size_t n_warmup);
void forecast_free(struct forecast *forecast);

/* Replays the scenario; leaves its times in other_ns[] and other_wait_ns[]. -ENOMEM, -EINVAL. */
int forecast_run(struct forecast *forecast, const struct model_scenario *scenario,
		 struct forecast_point *ret_point);

/* Computes only the means (those of step_ns and the ratios without a limit of cores): no interval, no split
 * of the wait. */
int forecast_quick(struct forecast *forecast, const struct model_scenario *scenario,
		   struct forecast_point *ret_point);

/* Computes steps/s of the scenario, with an interval: for example, those of only the loader or the device. */
int forecast_rate(struct forecast *forecast, const struct model_scenario *scenario,
		  struct estimate *ret_per_s);
