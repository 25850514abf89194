/* SPDX-License-Identifier: Apache-2.0 */
#include "json_build.h"

#include <math.h>

#include "analyzer/analysis.h"

/* Returns a prediction as an object: `given` under the key `name`, the speed-up, and the predicted shares of
 * time. */
static json_t *outcome(const char *name, json_t *given, const struct estimate *speedup, double fetch_stall,
		       double prep_stall, double device)
{
	json_t *object = json_object();
	int r = 0;

	r |= json_object_set_new(object, name, given);
	r |= json_object_set_new(object, "speedup", json_estimate(speedup));
	r |= json_object_set_new(object, "fetch_stall", json_number(fetch_stall));
	r |= json_object_set_new(object, "prep_stall", json_number(prep_stall));
	r |= json_object_set_new(object, "device", json_number(device));
	return json_whole(object, r);
}

static json_t *point(const struct what_if_point *from)
{
	return outcome("x", json_number(from->x), &from->speedup, from->fetch_stall, from->prep_stall,
		       from->device);
}

static json_t *curve(const struct what_if_curve *from)
{
	json_t *object = json_object(), *points = json_array();
	int r = 0;

	for (size_t i = 0; i < from->n_points; i++)
		r |= json_array_append_new(points, point(&from->points[i]));
	r |= json_object_set_new(object, "here", json_number(from->here));
	r |= json_object_set_new(object, "points", points);
	return json_whole(object, r);
}

static json_t *native(const struct native_prediction *from)
{
	if (isnan(from->part.value))
		return json_null();
	return outcome("part", json_estimate(&from->part), &from->speedup, from->fetch_stall,
		       from->prep_stall, from->device);
}

static int set_rates(json_t *predictions, const struct predictions *from)
{
	json_t *rates = json_object();
	int r = 0;

	r |= json_object_set_new(rates, "fetch_samples_per_s", json_estimate(&from->fetch_rate));
	r |= json_object_set_new(rates, "prep_samples_per_s", json_estimate(&from->prep_rate));
	r |= json_object_set_new(rates, "device_samples_per_s", json_estimate(&from->device_rate));
	r |= json_object_set_new(rates, "storage_bytes_per_s", json_estimate(&from->storage_bytes_per_s));
	r |= json_object_set_new(rates, "memory_bytes_per_s", json_estimate(&from->memory_bytes_per_s));
	return r | json_object_set_new(predictions, "rates", rates);
}

static int set_needed(json_t *predictions, const struct predictions *from)
{
	json_t *needed = json_object();
	int r = 0;

	r |= json_object_set_new(needed, "cache_ratio", json_estimate(&from->cache_ratio_needed));
	r |= json_object_set_new(needed, "workers", json_estimate(&from->workers_needed));
	r |= json_object_set_new(needed, "storage_factor", json_estimate(&from->storage_factor_needed));
	return r | json_object_set_new(predictions, "needed", needed);
}

int json_set_predictions(json_t *root, const struct analysis *analysis)
{
	static const char *const axes[WHAT_IF_AXES] = {
	    [WHAT_IF_CACHE] = "cache",   [WHAT_IF_WORKERS] = "workers",         [WHAT_IF_STORAGE] = "storage",
	    [WHAT_IF_DEVICE] = "device", [WHAT_IF_SAMPLE_SIZE] = "sample_size", [WHAT_IF_CORES] = "cores",
	};
	const struct predictions *from = analysis->predictions;
	json_t *predictions, *curves;
	int r = 0;

	if (!from)
		return json_object_set_new(root, "predictions", json_null());
	predictions = json_object();
	curves = json_object();
	r |= json_object_set_new(predictions, "batch_samples", json_number(from->batch_samples));
	r |= json_object_set_new(predictions, "bytes_per_step", json_number(from->bytes_per_step));
	r |= json_object_set_new(predictions, "recorded_step_s", json_number(from->recorded_step_s));
	r |= json_object_set_new(predictions, "replayed_step_s", json_number(from->replayed_step_s));
	r |= json_object_set_new(predictions, "half_prep_speedup", json_estimate(&from->half_prep_speedup));
	r |= json_object_set_new(predictions, "persistent_speedup", json_estimate(&from->persistent_speedup));
	r |= json_object_set_new(predictions, "native", native(&from->native));
	r |= set_rates(predictions, from);
	for (size_t i = 0; i < WHAT_IF_AXES; i++)
		r |= json_object_set_new(curves, axes[i],
					 from->curves[i].n_points ? curve(&from->curves[i]) : json_null());
	r |= json_object_set_new(predictions, "what_if", curves);
	r |= set_needed(predictions, from);
	return r | json_object_set_new(root, "predictions", predictions);
}

static json_t *rank(const struct analysis *analysis, const struct analysis_rank *from)
{
	json_t *object = json_object(), *shares = json_object();
	int r = 0;

	for (size_t i = 0; i < SHARE_COUNT; i++)
		r |= json_object_set_new(shares, analysis_share_name((enum analysis_share)i),
					 from->window_ns &&
						 analysis_share_known(analysis, (enum analysis_share)i)
					     ? json_real((double)from->share_ns[i] / (double)from->window_ns)
					     : json_null());
	r |= json_object_set_new(object, "tgid", json_count(from->tgid));
	r |= json_object_set_new(object, "tid", json_count(from->tid));
	r |= json_object_set_new(object, "wall_s", json_seconds(from->window_ns));
	r |= json_object_set_new(object, "steps", json_count(from->n_steps));
	r |= json_object_set_new(object, "collective_wait_s", json_seconds(from->collective_ns));
	r |= json_object_set_new(object, "straggler", json_boolean(from->straggler));
	r |= json_object_set_new(object, "shares", shares);
	return json_whole(object, r);
}

int json_set_ranks(json_t *root, const struct analysis *analysis)
{
	json_t *list = json_array();
	int r = 0;

	for (size_t i = 0; i < analysis->n_ranks; i++)
		r |= json_array_append_new(list, rank(analysis, &analysis->ranks[i]));
	return r | json_object_set_new(root, "ranks", list);
}
