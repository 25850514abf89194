/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "predict.h"
#include "resample.h"

#define WAIT_LEFT  0.02 /* of the time: with less data wait than this the stall counts as removed */
#define POINTS_MAX 16

/* Replays at growing amounts of one resource, kept step by step so that draws can be compared. */
struct ladder {
	double x[POINTS_MAX];
	double *step_ns[POINTS_MAX], *wait_ns[POINTS_MAX];
	size_t n_points;
	const double *floor_step_ns, *floor_wait_ns; /* with nothing to wait for but handing over */
	bool whole;                                  /* only whole amounts make sense */
};

static void ladder_free(struct ladder *ladder)
{
	for (size_t i = 0; i < ladder->n_points; i++) {
		free(ladder->step_ns[i]);
		free(ladder->wait_ns[i]);
	}
	ladder->n_points = 0;
}

static double wait_ratio(const double *step_ns, const double *wait_ns, const uint32_t *weight, size_t n)
{
	double steps = 0, waits = 0;

	for (size_t k = 0; k < n; k++) {
		steps += weight[k] * step_ns[k];
		waits += weight[k] * wait_ns[k];
	}
	return steps > 0 ? waits / steps : 0;
}

/* The amount at which the wait falls to the limit, interpolated between two points. */
static double crossing(const uint32_t *weight, size_t n, const void *context)
{
	const struct ladder *ladder = context;
	double limit = wait_ratio(ladder->floor_step_ns, ladder->floor_wait_ns, weight, n) + WAIT_LEFT;
	double before = 0;

	for (size_t i = 0; i < ladder->n_points; i++) {
		double wait = wait_ratio(ladder->step_ns[i], ladder->wait_ns[i], weight, n);

		if (wait <= limit && (!i || ladder->whole || before <= wait))
			return ladder->x[i];
		if (wait <= limit)
			return ladder->x[i - 1] +
			       (ladder->x[i] - ladder->x[i - 1]) * (before - limit) / (before - wait);
		before = wait;
	}
	return NAN;
}

static int ladder_add(struct ladder *ladder, struct forecast *forecast, double x,
		      const struct model_scenario *scenario)
{
	size_t i = ladder->n_points, n = forecast->job.n_steps;
	struct model_outcome outcome;

	ladder->x[i] = x;
	ladder->step_ns[i] = calloc(n, sizeof(double));
	ladder->wait_ns[i] = calloc(n, sizeof(double));
	ladder->n_points++;
	if (!ladder->step_ns[i] || !ladder->wait_ns[i])
		return -ENOMEM;
	return model_replay(&forecast->job, scenario, ladder->step_ns[i], ladder->wait_ns[i], &outcome);
}

static int ladder_solve(struct ladder *ladder, struct forecast *forecast, struct estimate *ret_estimate)
{
	struct ladder steady = *ladder;

	for (size_t i = 0; i < steady.n_points; i++) {
		steady.step_ns[i] += forecast->first;
		steady.wait_ns[i] += forecast->first;
	}
	steady.floor_step_ns = forecast->other_ns + forecast->first;
	steady.floor_wait_ns = forecast->other_wait_ns + forecast->first;
	return resample(forecast->n, crossing, &steady, ret_estimate);
}

static int needed(struct forecast *forecast, enum what_if_axis axis, const double *points, size_t n_points,
		  struct estimate *ret_estimate)
{
	struct ladder ladder = {.whole = axis == WHAT_IF_WORKERS};
	struct estimate estimate = {NAN, NAN, NAN};
	int r = 0;

	for (size_t i = 0; r == 0 && i < n_points; i++) {
		struct model_scenario scenario = predict_scenario(axis, points[i]);

		r = ladder_add(&ladder, forecast, points[i], &scenario);
	}
	if (r == 0)
		r = ladder_solve(&ladder, forecast, &estimate);
	ladder_free(&ladder);
	*ret_estimate = isnan(estimate.value) ? (struct estimate){NAN, NAN, NAN} : estimate;
	return r;
}

/* To advise what the job has already is no advice: its waits have another cause, e.g. neighbours that took
 * its cores. */
static void more_than_here(struct estimate *estimate, double here)
{
	if (estimate->value <= here)
		*estimate = (struct estimate){NAN, NAN, NAN};
}

/* Is there an epoch among the steady steps that waits for workers of its own? */
static bool starts_anew(const struct forecast *forecast)
{
	const struct model_job *job = &forecast->job;

	for (size_t i = 1; i < job->n_epochs; i++)
		if (job->epochs[i].fresh && job->epochs[i].first_step >= forecast->first)
			return true;
	return false;
}

int predict_persistent(struct forecast *forecast, struct predictions *predictions)
{
	struct model_scenario scenario = model_scenario_recorded();
	struct forecast_point point = {.speedup = {NAN, NAN, NAN}};
	int r = 0;

	scenario.persistent = true;
	if (starts_anew(forecast))
		r = forecast_run(forecast, &scenario, &point);
	if (r == 0)
		predictions->persistent_speedup = point.speedup;
	return r;
}

int predict_needed(struct forecast *forecast, struct predictions *predictions)
{
	static const double ratios[] = {0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1};
	static const double factors[] = {0.1, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 2.5, 3, 4, 6, 8, 16, 64};
	static const double counts[] = {1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 128};
	struct model_scenario nothing = model_scenario_recorded(), half = nothing;
	struct forecast_point point;
	size_t n = 0;
	int r;

	half.prep_cost = 0.5;
	r = forecast_run(forecast, &half, &point);
	predictions->half_prep_speedup = r < 0 ? (struct estimate){NAN, NAN, NAN} : point.speedup;
	nothing.fetch_free = true;
	nothing.prep_cost = 0;
	if (r == 0)
		r = forecast_quick(forecast, &nothing, &point);
	while (n < POINTS_MAX && counts[n] <= 2 * fmax(forecast->job.loader.n_workers, forecast->job.cores))
		n++;
	if (r == 0)
		r = needed(forecast, WHAT_IF_CACHE, ratios, sizeof(ratios) / sizeof(ratios[0]),
			   &predictions->cache_ratio_needed);
	if (r == 0)
		r = needed(forecast, WHAT_IF_STORAGE, factors, sizeof(factors) / sizeof(factors[0]),
			   &predictions->storage_factor_needed);
	if (r == 0)
		r = needed(forecast, WHAT_IF_WORKERS, counts, n, &predictions->workers_needed);
	if (r == 0) {
		more_than_here(&predictions->cache_ratio_needed, model_cached_ratio(&forecast->job));
		more_than_here(&predictions->storage_factor_needed, 1);
		more_than_here(&predictions->workers_needed, forecast->job.loader.n_workers);
	}
	return r;
}
