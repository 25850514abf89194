/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "predict.h"

#define POINTS_MAX 12

/* Points on each axis: where curves usually bend, and the recording itself. worker_points() has those for
 * workers. */
static const double axis_points[WHAT_IF_AXES][POINTS_MAX] = {
    [WHAT_IF_CACHE] = {0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, -1},
    [WHAT_IF_STORAGE] = {0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8, 16, -1},
    [WHAT_IF_DEVICE] = {0.5, 0.75, 1, 1.25, 1.5, 2, 3, 4, 6, 8, -1},
    [WHAT_IF_SAMPLE_SIZE] = {0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 3, 4, -1},
};

/* 0, 1, 2, ... up to twice the workers or cores, and in any case half and double the recorded ones. */
static void worker_points(const struct model_job *job, double points[POINTS_MAX])
{
	static const double usual[] = {0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128};
	double here = job->loader.n_workers;
	double most = fmin(fmax(2 * fmax(here, job->cores), 4), MODEL_WORKERS_MAX);
	double wanted[] = {here, floor(here / 2), fmin(2 * here, most)};
	size_t n = 0;

	for (size_t i = 0; i < sizeof(usual) / sizeof(usual[0]) && usual[i] <= most; i++) {
		bool near = false;

		/* Three places are reserved for the mandatory points. */
		for (size_t k = 0; k < 3; k++)
			near |= wanted[k] == usual[i];
		if (near || n + 4 < POINTS_MAX)
			points[n++] = usual[i];
	}
	for (size_t k = 0; k < 3; k++) {
		size_t i = 0;

		while (i < n && points[i] < wanted[k])
			i++;
		if ((i < n && points[i] == wanted[k]) || n + 1 >= POINTS_MAX)
			continue;
		for (size_t j = n++; j > i; j--)
			points[j] = points[j - 1];
		points[i] = wanted[k];
	}
	points[n] = -1;
}

struct model_scenario predict_scenario(enum what_if_axis axis, double x)
{
	struct model_scenario scenario = model_scenario_recorded();

	switch (axis) {
	case WHAT_IF_CACHE: scenario.cached_ratio = x; break;
	case WHAT_IF_WORKERS: scenario.n_workers = (uint32_t)x; break;
	case WHAT_IF_STORAGE: scenario.storage_speed = x; break;
	case WHAT_IF_DEVICE: scenario.device_speed = x; break;
	case WHAT_IF_SAMPLE_SIZE: scenario.sample_size = x; break;
	case WHAT_IF_AXES: break;
	}
	return scenario;
}

static int point_at(struct forecast *forecast, enum what_if_axis axis, double x,
		    struct what_if_point *ret_point)
{
	struct model_scenario scenario = predict_scenario(axis, x);
	struct forecast_point point;
	int r = forecast_run(forecast, &scenario, &point);

	if (r < 0)
		return r;
	*ret_point = (struct what_if_point){.x = x,
					    .speedup = point.speedup,
					    .fetch_stall = point.fetch_ratio,
					    .prep_stall = point.prep_ratio,
					    .device = point.device_ratio};
	return 0;
}

static int curve_at(struct forecast *forecast, enum what_if_axis axis, struct what_if_curve *curve)
{
	double workers[POINTS_MAX];
	const double *points = axis_points[axis];

	if (axis == WHAT_IF_WORKERS) {
		worker_points(&forecast->job, workers);
		points = workers;
	}
	curve->points = calloc(POINTS_MAX, sizeof(*curve->points));
	if (!curve->points)
		return -ENOMEM;
	for (size_t i = 0; i < POINTS_MAX && points[i] >= 0; i++) {
		int r = point_at(forecast, axis, points[i], &curve->points[i]);

		if (r < 0)
			return r;
		curve->n_points++;
	}
	return 0;
}

int predict_curves(struct forecast *forecast, struct predictions *predictions)
{
	double here[WHAT_IF_AXES] = {[WHAT_IF_CACHE] = model_cached_ratio(&forecast->job),
				     [WHAT_IF_WORKERS] = forecast->job.loader.n_workers,
				     [WHAT_IF_STORAGE] = 1,
				     [WHAT_IF_DEVICE] = 1,
				     [WHAT_IF_SAMPLE_SIZE] = 1};

	for (size_t i = 0; i < WHAT_IF_AXES; i++) {
		int r = curve_at(forecast, (enum what_if_axis)i, &predictions->curves[i]);

		if (r < 0)
			return r;
		predictions->curves[i].here = here[i];
	}
	return 0;
}
