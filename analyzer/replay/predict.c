/* SPDX-License-Identifier: Apache-2.0 */
#include "predict.h"

#include <errno.h>
#include <stdlib.h>

#include "analyzer/analysis.h"
#include "analyzer/base/resample.h"
#include "analyzer/waits/window.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "native.h"
#include "split.h"
#include "summary.h"

#define CURVE_POINTS_MAX 12

/* Points on each axis: where curves usually bend, and the recording itself. count_points() has those for
 * workers and cores. */
static const double axis_points[WHAT_IF_AXES][CURVE_POINTS_MAX] = {
    [WHAT_IF_CACHE] = {0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, -1},
    [WHAT_IF_STORAGE] = {0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8, 16, -1},
    [WHAT_IF_DEVICE] = {0.5, 0.75, 1, 1.25, 1.5, 2, 3, 4, 6, 8, -1},
    [WHAT_IF_SAMPLE_SIZE] = {0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 3, 4, -1},
};

/* Fills in least, 1, 2, ... up to twice the workers or cores, and in any case half and double the recorded
 * number, here. */
static void count_points(const struct model_job *job, double here, double least,
			 double points[CURVE_POINTS_MAX])
{
	static const double usual[] = {0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128};
	double most = fmin(fmax(2 * fmax(job->loader.n_workers, job->cores), 4), MODEL_WORKERS_MAX);
	double wanted[] = {here, fmax(floor(here / 2), least), fmin(2 * here, most)};
	size_t n = 0;

	for (size_t i = 0; i < sizeof(usual) / sizeof(usual[0]) && usual[i] <= most; i++) {
		bool near = false;

		if (usual[i] < least)
			continue;
		/* Three places are reserved for the mandatory points. */
		for (size_t k = 0; k < 3; k++)
			near |= wanted[k] == usual[i];
		if (near || n + 4 < CURVE_POINTS_MAX)
			points[n++] = usual[i];
	}
	for (size_t k = 0; k < 3; k++) {
		size_t i = 0;

		while (i < n && points[i] < wanted[k])
			i++;
		if ((i < n && points[i] == wanted[k]) || n + 1 >= CURVE_POINTS_MAX)
			continue;
		for (size_t j = n++; j > i; j--)
			points[j] = points[j - 1];
		points[i] = wanted[k];
	}
	points[n] = -1;
}

static struct model_scenario predict_scenario(enum what_if_axis axis, double x)
{
	struct model_scenario scenario = model_scenario_recorded();

	switch (axis) {
	case WHAT_IF_CACHE: scenario.cached_ratio = x; break;
	case WHAT_IF_WORKERS: scenario.n_workers = (uint32_t)x; break;
	case WHAT_IF_STORAGE: scenario.storage_speed = x; break;
	case WHAT_IF_DEVICE: scenario.device_speed = x; break;
	case WHAT_IF_SAMPLE_SIZE: scenario.sample_size = x; break;
	case WHAT_IF_CORES: scenario.cores = x; break;
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
	const struct model_job *job = &forecast->job;
	double counts[CURVE_POINTS_MAX];
	const double *points = axis_points[axis];

	if (axis == WHAT_IF_WORKERS || axis == WHAT_IF_CORES) {
		bool cores = axis == WHAT_IF_CORES;

		count_points(job, cores ? floor(job->cores) : job->loader.n_workers, cores, counts);
		points = counts;
	}
	curve->points = calloc(CURVE_POINTS_MAX, sizeof(*curve->points));
	if (!curve->points)
		return -ENOMEM;
	for (size_t i = 0; i < CURVE_POINTS_MAX && points[i] >= 0; i++) {
		int r = point_at(forecast, axis, points[i], &curve->points[i]);

		if (r < 0)
			return r;
		curve->n_points++;
	}
	return 0;
}

static int predict_curves(struct forecast *forecast, struct predictions *predictions)
{
	double here[WHAT_IF_AXES] = {[WHAT_IF_CACHE] = model_cached_ratio(&forecast->job),
				     [WHAT_IF_WORKERS] = forecast->job.loader.n_workers,
				     [WHAT_IF_STORAGE] = 1,
				     [WHAT_IF_DEVICE] = 1,
				     [WHAT_IF_SAMPLE_SIZE] = 1,
				     [WHAT_IF_CORES] = floor(forecast->job.cores)};

	for (size_t i = 0; i < WHAT_IF_AXES; i++) {
		int r = curve_at(forecast, (enum what_if_axis)i, &predictions->curves[i]);

		if (r < 0)
			return r;
		predictions->curves[i].here = here[i];
	}
	return 0;
}

#define WAIT_LEFT  0.02 /* fraction of the time: below this data wait, the stall counts as removed */
#define POINTS_MAX 16

/* Replays at growing amounts of one resource, kept step by step so that draws can be compared. */
struct ladder {
	double x[POINTS_MAX];
	double *step_ns[POINTS_MAX], *wait_ns[POINTS_MAX];
	size_t n_points;
	const double *floor_step_ns, *floor_wait_ns; /* results if only hand-overs cause waits */
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

/* Returns the amount at which the wait falls to the limit, interpolated between two points. */
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

/* Drops advice for an amount that the job already has: its waits have another cause, e.g. neighbours that
 * took its cores. */
static void more_than_here(struct estimate *estimate, double here)
{
	if (estimate->value <= here)
		*estimate = (struct estimate){NAN, NAN, NAN};
}

/* Drops a number of workers for which the cores do not suffice. */
static int workers_within_cores(struct forecast *forecast, struct estimate *workers)
{
	struct model_scenario scenario = model_scenario_recorded();
	struct forecast_point point;
	int r;

	if (isnan(workers->value))
		return 0;
	scenario.n_workers = (uint32_t)workers->value;
	r = forecast_quick(forecast, &scenario, &point);
	if (r == 0 && point.limited)
		*workers = (struct estimate){NAN, NAN, NAN};
	return r;
}

/* Returns true if any epoch in the steady steps waits for workers that it started. */
static bool starts_anew(const struct forecast *forecast)
{
	const struct model_job *job = &forecast->job;

	for (size_t i = 1; i < job->n_epochs; i++)
		if (job->epochs[i].fresh && job->epochs[i].first_step >= forecast->first)
			return true;
	return false;
}

static int predict_persistent(struct forecast *forecast, struct predictions *predictions)
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

static int predict_needed(struct forecast *forecast, struct predictions *predictions)
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
	if (r == 0)
		r = workers_within_cores(forecast, &predictions->workers_needed);
	if (r == 0) {
		more_than_here(&predictions->cache_ratio_needed, model_cached_ratio(&forecast->job));
		more_than_here(&predictions->storage_factor_needed, 1);
		more_than_here(&predictions->workers_needed, forecast->job.loader.n_workers);
	}
	return r;
}

#define HITS_MIN 20 /* with fewer reads from memory, or from storage, their speed is unknown */

/* Amounts and times, which are resampled together. */
struct ratio {
	double *amount, *ns;
	size_t n;
};

static int ratio_init(struct ratio *ratio, size_t n)
{
	*ratio = (struct ratio){.amount = calloc(n + 1, sizeof(double)), .ns = calloc(n + 1, sizeof(double))};
	return ratio->amount && ratio->ns ? 0 : -ENOMEM;
}

static void ratio_free(struct ratio *ratio)
{
	free(ratio->amount);
	free(ratio->ns);
}

static double per_second(const uint32_t *weight, size_t n, const void *context)
{
	const struct ratio *ratio = context;
	double amount = 0, ns = 0;

	for (size_t i = 0; i < n; i++) {
		amount += weight[i] * ratio->amount[i];
		ns += weight[i] * ratio->ns[i];
	}
	return ns > 0 ? amount / ns * (double)NS_PER_S : NAN;
}

static void scale(struct estimate *estimate, double factor)
{
	estimate->value *= factor;
	estimate->low *= factor;
	estimate->high *= factor;
}

static int device_rate(const struct forecast *forecast, struct estimate *ret_per_s)
{
	struct ratio ratio;
	int r = ratio_init(&ratio, forecast->n);

	for (size_t k = 0; r == 0 && k < forecast->n; k++) {
		const struct model_step *step = &forecast->job.steps[forecast->first + k];

		ratio.amount[k] = 1;
		ratio.ns[k] = step->cpu_ns + step->sleep_ns;
	}
	if (r == 0)
		r = resample(forecast->n, per_second, &ratio, ret_per_s);
	ratio_free(&ratio);
	return r;
}

/* Estimates the bandwidth: bytes over the time in which any thread waited for some. If the fit found a shared
 * server, the estimate is that server's bandwidth. */
static int storage_rate(const struct service *service, struct estimate *ret_bytes_per_s)
{
	struct ratio ratio;
	double until_ns = -INFINITY;
	int r = ratio_init(&ratio, service->n_requests);

	*ret_bytes_per_s = (struct estimate){NAN, NAN, NAN};
	for (size_t i = 0; r == 0 && i < service->n_requests; i++) {
		const struct model_request *request = &service->requests[i].request;
		double from_ns = fmax(request->at_ns, until_ns), to_ns = request->at_ns + request->wait_ns;

		ratio.amount[i] = request->bytes;
		ratio.ns[i] = fmax(0, to_ns - from_ns);
		until_ns = fmax(until_ns, to_ns);
	}
	if (r == 0)
		r = resample(service->n_requests, per_second, &ratio, ret_bytes_per_s);
	if (r == 0 && service->storage.bytes_per_s < INFINITY && ret_bytes_per_s->value > 0)
		scale(ret_bytes_per_s, service->storage.bytes_per_s / ret_bytes_per_s->value);
	ratio_free(&ratio);
	return r;
}

static int memory_rate(const struct service *service, struct estimate *ret_bytes_per_s)
{
	struct ratio ratio;
	size_t n = 0;
	int r = ratio_init(&ratio, service->n_segments);

	*ret_bytes_per_s = (struct estimate){NAN, NAN, NAN};
	for (size_t i = 0; r == 0 && i < service->n_segments; i++) {
		const struct model_segment *segment = &service->segments[i];

		if (segment->latency_ns > 0 || segment->bytes > 0 || !(segment->size_bytes > 0))
			continue;
		ratio.amount[n] = segment->size_bytes;
		ratio.ns[n++] = segment->fetch_cpu_ns;
	}
	if (r == 0 && n >= HITS_MIN)
		r = resample(n, per_second, &ratio, ret_bytes_per_s);
	ratio_free(&ratio);
	return r;
}

static double bytes_per_step(const struct model_job *job)
{
	double bytes = 0;

	for (size_t k = 0; k < job->n_steps; k++)
		for (size_t i = 0; i < job->batches[k].n_segments; i++)
			bytes += job->segments[job->batches[k].first_segment + i].size_bytes;
	return bytes / (double)job->n_steps;
}

/* Predicts the rates. -ENOMEM, -EINVAL (a recording that contradicts itself). */
static int predict_rates(struct forecast *forecast, const struct service *service,
			 struct predictions *predictions)
{
	struct model_scenario fetch = model_scenario_recorded(), prep = fetch;
	double n = service->batch_samples > 0 ? service->batch_samples : 1;
	int r;

	fetch.prep_cost = 0;
	fetch.device_free = true;
	prep.fetch_free = prep.device_free = true;
	predictions->batch_samples = service->batch_samples > 0 ? service->batch_samples : NAN;
	predictions->bytes_per_step = bytes_per_step(&forecast->job);
	r = forecast_rate(forecast, &fetch, &predictions->fetch_rate);
	if (r == 0)
		r = forecast_rate(forecast, &prep, &predictions->prep_rate);
	if (r == 0)
		r = device_rate(forecast, &predictions->device_rate);
	if (r == 0)
		r = storage_rate(service, &predictions->storage_bytes_per_s);
	if (r == 0)
		r = memory_rate(service, &predictions->memory_bytes_per_s);
	scale(&predictions->fetch_rate, n);
	scale(&predictions->prep_rate, n);
	scale(&predictions->device_rate, n);
	return r;
}

#define LOSS_MAX 0.02 /* fraction of lost records beyond which the unseen time matters */

const char *what_if_bound(double fetch_stall, double prep_stall)
{
	if (fetch_stall + prep_stall < ANALYSIS_STALL_THRESHOLD)
		return analysis_verdict_name(ANALYSIS_DEVICE_BOUND);
	return analysis_verdict_name(fetch_stall >= prep_stall ? ANALYSIS_FETCH_BOUND : ANALYSIS_PREP_BOUND);
}

void predictions_free(struct predictions *predictions)
{
	if (!predictions)
		return;
	for (size_t i = 0; i < WHAT_IF_AXES; i++)
		free(predictions->curves[i].points);
	free(predictions->cells);
	free(predictions->answer);
	free(predictions);
}

static double lost_ratio(const struct analysis_input *input)
{
	double lost = 0;

	for (size_t i = 0; i < input->n_losses; i++)
		lost += (double)input->losses[i].n_events;
	return lost > 0 ? lost / (lost + (double)input->n_events) : 0;
}

/* Returns the speed-up for images that dieseld decodes, of which the share decoded_ratio comes from decoded
 * copies (NAN: none). A decoded copy takes decoded_part of the CPU time. */
static double native_speedup(double speedup, double decoded_ratio, double decoded_part)
{
	return isnan(decoded_ratio) ? speedup : speedup / model_decoded_cpu(1, decoded_part, decoded_ratio);
}

/* Runs the scenario with the part of preparing that dieseld leaves. The interval also covers the uncertainty
 * of that part and of the factors. */
static int native_run(struct forecast *forecast, const struct estimate *part, double decoded_ratio,
		      const struct model_scenario *scenario, struct forecast_point *ret_point)
{
	struct model_scenario least = *scenario, most = *scenario, native = *scenario;
	struct forecast_point point, slow, fast;
	int r;

	native.prep_cost *=
	    native_cost(part->value, native_speedup(NATIVE_SPEEDUP, decoded_ratio, MODEL_DECODED_PART));
	least.prep_cost *= native_cost(
	    part->low, native_speedup(NATIVE_SPEEDUP_LOW, decoded_ratio, MODEL_DECODED_PART_HIGH));
	most.prep_cost *= native_cost(
	    part->high, native_speedup(NATIVE_SPEEDUP_HIGH, decoded_ratio, MODEL_DECODED_PART_LOW));
	r = forecast_run(forecast, &native, &point);
	if (r == 0)
		r = forecast_run(forecast, &least, &slow);
	if (r == 0)
		r = forecast_run(forecast, &most, &fast);
	if (r < 0)
		return r;
	point.speedup.low = fmin(point.speedup.low, slow.speedup.low);
	point.speedup.high = fmax(point.speedup.high, fast.speedup.high);
	*ret_point = point;
	return 0;
}

/* Returns the number of workers that stands for dieseld, which uses all cores. */
static uint32_t native_workers(const struct forecast *forecast)
{
	return (uint32_t)fmax(forecast->job.loader.n_workers, floor(forecast->job.cores));
}

/* Fills in native. native.part must be set. */
static int predict_native(struct forecast *forecast, struct predictions *predictions)
{
	struct native_prediction *native = &predictions->native;
	struct model_scenario scenario = model_scenario_recorded();
	struct forecast_point point;
	int r;

	native->speedup = (struct estimate){NAN, NAN, NAN};
	native->fetch_stall = native->prep_stall = native->device = NAN;
	if (isnan(native->part.value))
		return 0;
	scenario.n_workers = native_workers(forecast);
	r = native_run(forecast, &native->part, NAN, &scenario, &point);
	if (r < 0)
		return r;
	native->speedup = point.speedup;
	native->fetch_stall = point.fetch_ratio;
	native->prep_stall = point.prep_ratio;
	native->device = point.device_ratio;
	return 0;
}

/* native: the part that dieseld does, or NULL. */
static int answer_point(struct forecast *forecast, const struct model_scenario *scenario,
			const struct estimate *native, double decoded_ratio, struct what_if_answer *answer)
{
	struct model_scenario recorded = model_scenario_recorded();
	struct forecast_point point, before;
	double per_s;
	int r = forecast_run(forecast, &recorded, &before);

	if (r == 0)
		r = native ? native_run(forecast, native, decoded_ratio, scenario, &point)
			   : forecast_run(forecast, scenario, &point);
	if (r < 0)
		return r;
	per_s = (double)forecast->n / forecast->recorded_ns * (double)NS_PER_S;
	*answer = (struct what_if_answer){
	    .speedup = point.speedup,
	    .steps_per_s = {point.speedup.value * per_s, point.speedup.low * per_s,
			    point.speedup.high * per_s},
	    .fetch_stall = point.fetch_ratio,
	    .prep_stall = point.prep_ratio,
	    .device = point.device_ratio,
	    .cached_ratio =
		isnan(scenario->cached_ratio) ? model_cached_ratio(&forecast->job) : scenario->cached_ratio,
	    .recorded_fetch_stall = before.fetch_ratio,
	    .recorded_prep_stall = before.prep_ratio,
	    .recorded_device = before.device_ratio,
	};
	return 0;
}

static int predict_answer(struct forecast *forecast, const struct what_if_question *question,
			  struct predictions *predictions)
{
	struct model_scenario scenario = model_scenario_recorded();
	bool native = question->native && !isnan(predictions->native.part.value);
	double cached_ratio =
	    isnan(question->cache_ratio) ? model_cached_ratio(&forecast->job) : question->cache_ratio;

	scenario.cached_ratio = question->cache_ratio;
	if (native)
		scenario.n_workers = native_workers(forecast);
	if (!isnan(question->n_workers))
		scenario.n_workers = (uint32_t)question->n_workers;
	scenario.cores = question->n_cores;
	if (!isnan(question->storage_factor))
		scenario.storage_speed = question->storage_factor;
	if (!isnan(question->storage_bytes_per_s)) {
		/* If nothing was read from storage, its speed makes no difference. */
		if (predictions->storage_bytes_per_s.value > 0)
			scenario.storage_speed =
			    question->storage_bytes_per_s / predictions->storage_bytes_per_s.value;
	}
	if (!isnan(question->device_factor))
		scenario.device_speed = question->device_factor;
	if (!isnan(question->sample_factor))
		scenario.sample_size = question->sample_factor;
	if (!isnan(question->n_nodes))
		scenario.cached_ratio = fmin(question->n_nodes * cached_ratio, 1);
	predictions->answer = calloc(1, sizeof(*predictions->answer));
	return predictions->answer
		   ? answer_point(forecast, &scenario, native ? &predictions->native.part : NULL,
				  question->decoded_ratio, predictions->answer)
		   : -ENOMEM;
}

#define WORKERS_GAIN_MIN 1.02 /* below, the workers stay as recorded */

/* A job that loads in the trainer keeps doing so: the cost of its first workers is only a guess. */
static int grid_cell(struct forecast *forecast, const struct what_if_grid *grid, size_t core, size_t ratio,
		     struct what_if_cell *ret_cell)
{
	struct model_scenario scenario = model_scenario_recorded();
	uint32_t here = forecast->job.loader.n_workers,
		 more = (uint32_t)fmin(floor(grid->cores[core]), MODEL_WORKERS_MAX);
	double per_s = (double)forecast->n / forecast->recorded_ns * (double)NS_PER_S;
	struct forecast_point point, wider;
	int r;

	scenario.cores = grid->cores[core];
	scenario.cached_ratio = grid->cache_ratios[ratio];
	scenario.peers_wait = grid->peers_wait;
	r = forecast_quick(forecast, &scenario, &point);
	if (r < 0)
		return r;
	*ret_cell = (struct what_if_cell){point.speedup.value * per_s, here};
	if (!here || more <= here)
		return 0;
	scenario.n_workers = more;
	r = forecast_quick(forecast, &scenario, &wider);
	if (r == 0 && wider.speedup.value > WORKERS_GAIN_MIN * point.speedup.value)
		*ret_cell = (struct what_if_cell){wider.speedup.value * per_s, more};
	return r;
}

static bool waits_known(const struct model_job *job)
{
	size_t n_missed = 0;

	for (size_t i = 0; i < job->n_segments; i++)
		n_missed += job->segments[i].bytes > 0 || job->segments[i].latency_ns > 0;
	return n_missed >= HITS_MIN;
}

static double foreign_ratio(const struct service *service)
{
	double ns = 1;

	for (size_t i = 0; i < service->n_segments; i++) {
		const struct model_segment *segment = &service->segments[i];

		ns += segment->compute_ns + segment->delay_ns + segment->fetch_cpu_ns + segment->latency_ns;
	}
	return (double)service->foreign_ns / ns;
}

static int predict_grid(struct forecast *forecast, const struct what_if_grid *grid,
			struct predictions *predictions)
{
	int r = 0;

	predictions->cells = calloc(grid->n_cores * grid->n_ratios + 1, sizeof(*predictions->cells));
	if (!predictions->cells)
		return -ENOMEM;
	for (size_t i = 0; r == 0 && i < grid->n_cores; i++)
		for (size_t k = 0; r == 0 && k < grid->n_ratios; k++)
			r = grid_cell(forecast, grid, i, k, &predictions->cells[i * grid->n_ratios + k]);
	return r;
}

static int predict(struct forecast *forecast, const struct study *study, struct predictions *predictions)
{
	int r = predict_rates(forecast, study->service, predictions);

	predictions->recorded_step_s = forecast->recorded_ns / (double)forecast->n / (double)NS_PER_S;
	predictions->replayed_step_s = forecast->replayed_ns / (double)forecast->n / (double)NS_PER_S;
	if (r == 0)
		r = predict_curves(forecast, predictions);
	if (r == 0)
		r = predict_needed(forecast, predictions);
	if (r == 0)
		r = predict_persistent(forecast, predictions);
	if (r == 0)
		r = predict_native(forecast, predictions);
	predictions->waits_known = waits_known(&forecast->job);
	predictions->foreign_ratio = foreign_ratio(study->service);
	if (r == 0 && study->input->grid)
		r = predict_grid(forecast, study->input->grid, predictions);
	if (r == 0 && study->input->what_if)
		r = predict_answer(forecast, study->input->what_if, predictions);
	return r;
}

static double summary_own_limit(const struct analysis *analysis)
{
	return analysis->job.n_cpus && analysis->job.cpu_ns
		   ? analysis->job.n_cpus * (double)analysis->window.observed_ns /
			 (double)analysis->job.cpu_ns
		   : INFINITY;
}

int predictions_find(const struct study *study, const struct analysis *analysis, size_t n_warmup,
		     const struct profile *profile, struct predictions **ret_predictions,
		     const char **ret_why)
{
	const char *why = study->service->why_not;
	struct predictions *predictions;
	struct forecast forecast;
	int r;

	if (!why && study->run->n_steps < n_warmup + ANALYSIS_STEPS_MIN)
		why = "too few steps";
	if (!why && lost_ratio(study->input) > LOSS_MAX)
		why = "too many records were lost";
	if (why) {
		*ret_predictions = NULL;
		*ret_why = why;
		return 0;
	}
	predictions = calloc(1, sizeof(*predictions));
	if (!predictions)
		return -ENOMEM;
	predictions->native.part = native_part(profile);
	r = forecast_init(&forecast, study->service, study->run->steps, n_warmup);
	if (r == 0) {
		forecast.cores_limit = summary_cores_limit(analysis);
		forecast.own_limit = summary_own_limit(analysis);
		if (forecast.error_ratio > SPLIT_TOLERANCE)
			why = "the replay does not reproduce the recording";
		else
			r = predict(&forecast, study, predictions);
		forecast_free(&forecast);
	}
	if (r == -EINVAL)
		why = "records contradict each other";
	if (r == -ENOMEM) {
		predictions_free(predictions);
		return r;
	}
	*ret_predictions = r == 0 && !why ? steal_pointer(predictions) : NULL;
	*ret_why = why;
	predictions_free(predictions);
	return 0;
}
