/* SPDX-License-Identifier: Apache-2.0 */
#include "forecast.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/clock.h"
#include "analyzer/base/resample.h"
#include "split.h"

#define DRAINED_TOLERANCE (SPLIT_TOLERANCE / 2)

#define ERROR_MAX 0.25 /* a replay with a larger error is not trusted at all */

/* Returns the number of steps, from the first on and with all warm-up, that are cheap to replay many
 * times. */
static size_t steps_to_replay(const struct model_job *job, size_t n_warmup)
{
	size_t n = 0, n_segments = 0;

	while (n < job->n_steps && (n < n_warmup || n - n_warmup < FORECAST_STEPS_MAX) &&
	       (n < n_warmup + ANALYSIS_STEPS_MIN || n_segments < FORECAST_SEGMENTS_MAX))
		n_segments += job->batches[n++].n_segments;
	return n;
}

static double sum(const double *values, size_t n)
{
	double total = 0;

	for (size_t i = 0; i < n; i++)
		total += values[i];
	return total;
}

static int replay_recorded(struct forecast *forecast, const struct analysis_step *steps)
{
	struct model_scenario recorded = model_scenario_recorded();
	struct model_outcome outcome;
	int r = model_replay(&forecast->job, &recorded, forecast->step_ns, NULL, &outcome);

	if (r < 0)
		return r;
	forecast->replayed_ns = sum(forecast->step_ns + forecast->first, forecast->n);
	forecast->recorded_ns = 0;
	for (size_t k = forecast->first; k < forecast->first + forecast->n; k++)
		forecast->recorded_ns +=
		    (double)(steps[k].end_ns - steps[k].begin_ns - steps[k].share_ns[SHARE_COMPILING]);
	if (!(forecast->recorded_ns > 0) || !(forecast->replayed_ns > 0))
		return -EINVAL;
	forecast->error_ratio = fmin(fabs(forecast->replayed_ns / forecast->recorded_ns - 1), ERROR_MAX);
	return 0;
}

static int steps_copy(struct forecast *forecast, const struct analysis_step *steps)
{
	forecast->steps = calloc(forecast->job.n_steps + 1, sizeof(*forecast->steps));
	if (!forecast->steps)
		return -ENOMEM;
	for (size_t k = 0; k < forecast->job.n_steps; k++) {
		forecast->steps[k] = forecast->job.steps[k];
		forecast->steps[k].fixed_ns -= (double)steps[k].share_ns[SHARE_COMPILING];
	}
	forecast->job.steps = forecast->steps;
	return 0;
}

static int arrays_make(struct forecast *forecast, size_t n)
{
	forecast->step_ns = calloc(n + 1, sizeof(double));
	forecast->other_ns = calloc(n + 1, sizeof(double));
	forecast->other_wait_ns = calloc(n + 1, sizeof(double));
	forecast->free_ns = calloc(n + 1, sizeof(double));
	return forecast->step_ns && forecast->other_ns && forecast->other_wait_ns && forecast->free_ns
		   ? 0
		   : -ENOMEM;
}

/* Chooses the storage that explains the recording best. */
static int storage_choose(struct forecast *forecast, const struct service *service,
			  const struct analysis_step *steps)
{
	int r;

	/* Bandwidth that the volume saved up before the job began is not part of its steady speed. It is left
	 * out if the steady steps can be explained without it. */
	forecast->job.storage.drained = true;
	r = replay_recorded(forecast, steps);
	if (r == 0 && forecast->error_ratio > DRAINED_TOLERANCE) {
		forecast->job.storage.drained = false;
		r = replay_recorded(forecast, steps);
	}
	/* If even a shared server does not explain the recording, assume that there is none: waits stay as
	 * recorded. */
	if (r == 0 && forecast->segments && forecast->error_ratio > SPLIT_TOLERANCE) {
		forecast->job.segments = service->job.segments;
		forecast->job.storage = service->job.storage;
		r = replay_recorded(forecast, steps);
	}
	return r;
}

int forecast_init(struct forecast *forecast, const struct service *service, const struct analysis_step *steps,
		  size_t n_warmup)
{
	size_t n;
	int r;

	/* With any loader, the trainer waits for the whole first batch, but only once in a job's life. */
	if (!n_warmup && service->job.n_steps > ANALYSIS_STEPS_MIN)
		n_warmup = 1;
	*forecast = (struct forecast){.job = service->job, .cores_limit = INFINITY, .own_limit = INFINITY};
	n = steps_to_replay(&service->job, n_warmup);
	if (n <= n_warmup)
		return -EINVAL;
	forecast->first = n_warmup;
	forecast->n = n - n_warmup;
	forecast->job.n_steps = n;
	while (forecast->job.n_epochs && forecast->job.epochs[forecast->job.n_epochs - 1].first_step >= n)
		forecast->job.n_epochs--;
	r = arrays_make(forecast, n);
	if (r == 0)
		r = steps_copy(forecast, steps);
	if (r == 0)
		r = service_serve(service, &forecast->job, &forecast->segments);
	if (r == 0)
		r = storage_choose(forecast, service, steps);
	if (r < 0)
		forecast_free(forecast);
	return r;
}

void forecast_free(struct forecast *forecast)
{
	free(forecast->segments);
	free(forecast->steps);
	free(forecast->step_ns);
	free(forecast->other_ns);
	free(forecast->other_wait_ns);
	free(forecast->free_ns);
	*forecast = (struct forecast){0};
}

static double draw_speedup(const uint32_t *weight, size_t n, const void *context)
{
	const struct forecast *forecast = context;
	double before = 0, after = 0;

	for (size_t k = 0; k < n; k++) {
		before += weight[k] * forecast->step_ns[forecast->first + k];
		after += weight[k] * forecast->other_ns[forecast->first + k];
	}
	return after > 0 ? before / after : NAN;
}

static double draw_rate(const uint32_t *weight, size_t n, const void *context)
{
	const struct forecast *forecast = context;
	double steps = 0, ns = 0;

	for (size_t k = 0; k < n; k++) {
		steps += weight[k];
		ns += weight[k] * forecast->other_ns[forecast->first + k];
	}
	return ns > 0 ? steps / ns * (double)NS_PER_S : NAN;
}

int forecast_rate(struct forecast *forecast, const struct model_scenario *scenario,
		  struct estimate *ret_per_s)
{
	struct model_outcome outcome;
	int r = model_replay(&forecast->job, scenario, forecast->other_ns, NULL, &outcome);

	return r < 0 ? r : resample(forecast->n, draw_rate, forecast, ret_per_s);
}

static int means(struct forecast *forecast, const struct model_scenario *scenario,
		 struct forecast_point *ret_point)
{
	struct forecast_point point = {.fetch_ratio = NAN, .prep_ratio = NAN};
	struct model_outcome outcome;
	double wall_ns, wait_ns;
	int r;

	r = model_replay(&forecast->job, scenario, forecast->other_ns, forecast->other_wait_ns, &outcome);
	if (r < 0)
		return r;
	wall_ns = sum(forecast->other_ns + forecast->first, forecast->n);
	wait_ns = sum(forecast->other_wait_ns + forecast->first, forecast->n);
	point.step_ns = wall_ns / (double)forecast->n;
	point.speedup = (struct estimate){wall_ns > 0 ? forecast->replayed_ns / wall_ns : NAN, NAN, NAN};
	point.wait_ratio = wall_ns > 0 ? wait_ns / wall_ns : 0;
	point.device_ratio = 1 - point.wait_ratio;
	*ret_point = point;
	return 0;
}

/* Returns the CPU time that the scenario takes on cores without neighbours. */
static double work_ns(const struct model_job *job, const struct model_scenario *scenario)
{
	double ns = 0;

	for (size_t k = 0; k < job->n_steps; k++) {
		const struct model_batch *batch = &job->batches[k];

		for (size_t i = batch->first_segment; i < batch->first_segment + batch->n_segments; i++)
			ns += (job->segments[i].compute_ns * fmax(1, job->segments[i].width) *
				   scenario->prep_cost +
			       job->segments[i].fetch_cpu_ns) *
			      scenario->sample_size;
		ns += job->steps[k].cpu_ns * fmax(1, job->gang) / scenario->device_speed;
	}
	return ns;
}

/* Returns the largest speed-up that the cores allow; INFINITY without more workers, to which the replay gives
 * cores that others may have. */
static int most_by_cores(struct forecast *forecast, const struct model_scenario *scenario, double *ret_most)
{
	const struct model_job *job = &forecast->job;
	struct model_scenario recorded = model_scenario_recorded(), fewer = *scenario;
	struct forecast_point point;
	double most = isnan(scenario->cores) ? forecast->cores_limit
					     : forecast->own_limit * scenario->cores / fmax(1, job->cores),
	       work = work_ns(job, scenario);
	int r;

	*ret_most = INFINITY;
	if (isinf(most) || scenario->n_workers == UINT32_MAX ||
	    scenario->n_workers <= job->loader.n_workers || !(work > 0))
		return 0;
	fewer.n_workers = UINT32_MAX;
	r = means(forecast, &fewer, &point);
	if (r == 0)
		*ret_most = fmax(point.speedup.value, most * work_ns(job, &recorded) / work);
	return r;
}

/* A value that the cores limit is as uncertain as the model's own: its low end shrinks by the same factor. */
static struct estimate limited(const struct estimate *speedup, double most)
{
	if (!(speedup->value > most))
		return (struct estimate){speedup->value, speedup->low, fmin(speedup->high, most)};
	return (struct estimate){most, speedup->low * most / speedup->value, most};
}

int forecast_quick(struct forecast *forecast, const struct model_scenario *scenario,
		   struct forecast_point *ret_point)
{
	double most;
	int r = most_by_cores(forecast, scenario, &most);

	if (r == 0)
		r = means(forecast, scenario, ret_point);
	if (r < 0)
		return r;
	ret_point->limited = ret_point->speedup.value > most;
	if (ret_point->limited)
		ret_point->speedup.value = most;
	return 0;
}

/* The time that the replay did not see is spent waiting for batches, for which there are no cores. */
static void point_limit(struct forecast_point *point, double most)
{
	double slower = point->speedup.value / most;

	point->speedup = limited(&point->speedup, most);
	point->limited = slower > 1;
	if (!point->limited)
		return;
	point->step_ns *= slower;
	point->fetch_ratio /= slower;
	point->device_ratio /= slower;
	point->wait_ratio = 1 - point->device_ratio;
	point->prep_ratio = point->wait_ratio - point->fetch_ratio;
}

/* Splits the wait: the same scenario with free reading shows the part of the wait that is for reading. */
static int split_point(struct forecast *forecast, const struct model_scenario *scenario,
		       struct forecast_point *point)
{
	struct model_scenario unfetched = *scenario;
	struct model_outcome outcome;
	double free_ns;
	int r;

	unfetched.fetch_free = true;
	r = model_replay(&forecast->job, &unfetched, forecast->free_ns, NULL, &outcome);
	if (r < 0)
		return r;
	free_ns = sum(forecast->free_ns + forecast->first, forecast->n) / (double)forecast->n;
	point->fetch_ratio = point->step_ns > 0 ? fmax(0, 1 - free_ns / point->step_ns) : 0;
	point->fetch_ratio = fmin(point->fetch_ratio, point->wait_ratio);
	point->prep_ratio = point->wait_ratio - point->fetch_ratio;
	return 0;
}

/* A job without workers does not show how much cores slow each other down. */
static int widen_by_sharing(struct forecast *forecast, const struct model_scenario *scenario,
			    struct estimate *speedup)
{
	struct model_scenario other = *scenario;
	struct forecast_point slow, fast;
	int r;

	other.sharing_ratio = MODEL_SHARING_HIGH;
	r = means(forecast, &other, &slow);
	other.sharing_ratio = 0;
	if (r == 0)
		r = means(forecast, &other, &fast);
	if (r < 0)
		return r;
	speedup->low *= slow.speedup.value / speedup->value;
	speedup->high *= fast.speedup.value / speedup->value;
	return 0;
}

int forecast_run(struct forecast *forecast, const struct model_scenario *scenario,
		 struct forecast_point *ret_point)
{
	struct forecast_point point;
	double most;
	int r = most_by_cores(forecast, scenario, &most);

	if (r == 0)
		r = means(forecast, scenario, &point);
	if (r == 0)
		r = split_point(forecast, scenario, &point);
	if (r == 0)
		r = resample(forecast->n, draw_speedup, forecast, &point.speedup);
	if (r == 0 && model_gives_workers(&forecast->job, scenario))
		r = widen_by_sharing(forecast, scenario, &point.speedup);
	if (r < 0)
		return r;
	/* The interval covers chance only, so this adds the model's own error. */
	point.speedup.low *= 1 - forecast->error_ratio;
	point.speedup.high *= 1 + forecast->error_ratio;
	point_limit(&point, most);
	*ret_point = point;
	return 0;
}
