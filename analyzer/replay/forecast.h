/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Replays of a recording with something changed, compared with its replay unchanged, on steady steps: an
 * error that both share cancels out. Both leave out compiling, which later steps will not do again. */

#include "analyzer/predictions.h"
#include "service.h"

#define FORECAST_STEPS_MAX    2000
#define FORECAST_SEGMENTS_MAX 60000 /* a replay's time grows with them */

struct forecast {
	struct model_job job; /* cut to what is replayed, with the storage as a server */
	struct model_segment *segments;
	struct model_step *steps; /* of the job */
	size_t first, n;          /* steady steps: [first, first + n) of the job's */
	double *step_ns;          /* of each of the job's n_steps, unchanged */
	double *other_ns, *other_wait_ns, *free_ns;
	double recorded_ns; /* of the steady steps, as recorded but for compiling */
	double replayed_ns; /* the same, replayed */
	double error_ratio; /* how far these are apart: a prediction may be off by as much */
};

/* A scenario's steady steps, divided by what they wait for. */
struct forecast_point {
	struct estimate speedup;
	double step_ns; /* mean */
	double fetch_ratio, prep_ratio, device_ratio, wait_ratio;
};

/* service is borrowed, and its why_not is NULL. steps: the job's, as recorded. n_warmup: steps to leave out;
 * the first one always is if there are enough. -ENOMEM, -EINVAL (damaged, or no step is left): then there is
 * nothing to free. */
int forecast_init(struct forecast *forecast, const struct service *service, const struct analysis_step *steps,
		  size_t n_warmup);
void forecast_free(struct forecast *forecast);

/* -ENOMEM, -EINVAL. Leaves the scenario's times in other_ns[] and other_wait_ns[]. */
int forecast_run(struct forecast *forecast, const struct model_scenario *scenario,
		 struct forecast_point *ret_point);

/* Only the means: no interval, no split of the wait. */
int forecast_quick(struct forecast *forecast, const struct model_scenario *scenario,
		   struct forecast_point *ret_point);

/* Steps/s of the scenario, with an interval; of the loader or the device alone, for example. */
int forecast_rate(struct forecast *forecast, const struct model_scenario *scenario,
		  struct estimate *ret_per_s);
