/* SPDX-License-Identifier: Apache-2.0 */
#include "reports/report.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <time.h>

#include "analyzer/analysis.h"
#include "json_build.h"
#include "lib/clock.h"
#include "reports/assets/assets.h"

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

static int json_set_ranks(json_t *root, const struct analysis *analysis)
{
	json_t *list = json_array();
	int r = 0;

	for (size_t i = 0; i < analysis->n_ranks; i++)
		r |= json_array_append_new(list, rank(analysis, &analysis->ranks[i]));
	return r | json_object_set_new(root, "ranks", list);
}

static json_t *places(const struct page_cache_place *items, size_t n)
{
	json_t *list = json_array();
	int r = 0;

	for (size_t i = 0; i < n; i++) {
		json_t *item = json_object();

		r |= json_object_set_new(item, "path", json_bytes(items[i].path));
		r |= json_object_set_new(item, "accessed_pages", json_count(items[i].accessed_pages));
		r |= json_object_set_new(item, "missed_pages", json_count(items[i].missed_pages));
		r |= json_object_set_new(item, "used_bytes", json_count(items[i].used_bytes));
		r |= json_object_set_new(item, "cold_bytes", json_count(items[i].cold_bytes));
		r |= json_object_set_new(item, "reads", json_count(items[i].n_reads));
		r |= json_array_append_new(list, item);
	}
	return json_whole(list, r);
}

static json_t *read_sizes(const struct page_cache *cache)
{
	json_t *list = json_array();
	int r = 0;

	for (size_t i = 0; i < PAGE_CACHE_SIZES; i++) {
		json_t *item;

		if (!cache->read_sizes[i])
			continue;
		item = json_object();
		r |= json_object_set_new(item, "from_bytes", json_count(i ? UINT64_C(1) << i : 0));
		r |= json_object_set_new(item, "reads", json_count(cache->read_sizes[i]));
		r |= json_array_append_new(list, item);
	}
	return json_whole(list, r);
}

static json_t *mapped(const struct page_cache_mapped *from)
{
	json_t *object = json_object();
	int r = 0;

	r |= json_object_set_new(object, "major_faults", json_count(from->n_major_faults));
	r |= json_object_set_new(object, "minor_faults", json_count(from->n_minor_faults));
	r |= json_object_set_new(object, "fault_s", json_seconds(from->fault_ns));
	r |= json_object_set_new(object, "read_ahead_pages", json_count(from->read_ahead_pages));
	r |= json_object_set_new(object, "read_aheads", json_count(from->n_read_aheads));
	r |= json_object_set_new(object, "random_ratio", json_number(from->random_ratio));
	r |= json_object_set_new(object, "wakeups", json_count(from->n_wakeups));
	r |= json_object_set_new(object, "context_switches", json_count(from->n_context_switches));
	return json_whole(object, r);
}

/* Each function sets one key of root, to null if the analysis lacks that part. */
static int json_set_page_cache(json_t *root, const struct analysis *analysis)
{
	const struct page_cache *from = analysis->page_cache;
	json_t *cache;
	int r = 0;

	if (!from)
		return json_object_set_new(root, "page_cache", json_null());
	cache = json_object();
	r |= json_object_set_new(cache, "hit_ratio",
				 json_number(page_cache_hit_ratio(from->accessed_pages, from->missed_pages)));
	r |= json_object_set_new(cache, "page_bytes", json_count(from->page_bytes));
	r |= json_object_set_new(cache, "accessed_pages", json_count(from->accessed_pages));
	r |= json_object_set_new(cache, "missed_pages", json_count(from->missed_pages));
	r |= json_object_set_new(cache, "used_bytes", json_count(from->used_bytes));
	r |= json_object_set_new(cache, "cold_bytes", json_count(from->cold_bytes));
	r |= json_object_set_new(cache, "direct_bytes", json_count(from->direct_bytes));
	r |= json_object_set_new(cache, "network_bytes", json_count(from->network_bytes));
	r |= json_object_set_new(cache, "reads", json_count(from->n_reads));
	r |= json_object_set_new(cache, "read_sizes", read_sizes(from));
	r |= json_object_set_new(cache, "mapped", mapped(&from->mapped));
	r |= json_object_set_new(cache, "files", places(from->files, from->n_files));
	r |= json_object_set_new(cache, "folders", places(from->folders, from->n_folders));
	return r | json_object_set_new(root, "page_cache", cache);
}

static json_t *profile_items(const struct profile_item *items, size_t n)
{
	json_t *list = json_array();
	int r = 0;

	for (size_t i = 0; i < n; i++) {
		json_t *item = json_object();

		r |= json_object_set_new(item, "name", json_bytes(items[i].name));
		if (items[i].library)
			r |= json_object_set_new(item, "library", json_bytes(items[i].library));
		if (items[i].caller)
			r |= json_object_set_new(item, "caller", json_bytes(items[i].caller));
		r |= json_object_set_new(item, "samples", json_count(items[i].n_samples));
		r |= json_array_append_new(list, item);
	}
	return json_whole(list, r);
}

static json_t *stacks(const struct profile *from)
{
	json_t *list = json_array();
	int r = 0;

	for (size_t i = 0; i < from->n_stacks; i++) {
		json_t *item = json_object();

		r |= json_object_set_new(item, "frames", json_bytes(from->stacks[i].frames));
		r |= json_object_set_new(item, "samples", json_count(from->stacks[i].n_samples));
		r |= json_array_append_new(list, item);
	}
	return json_whole(list, r);
}

static int json_set_profile(json_t *root, const struct analysis *analysis)
{
	const struct profile *from = analysis->profile;
	json_t *profile, *images;
	int r = 0;

	if (!from)
		return json_object_set_new(root, "profile", json_null());
	profile = json_object();
	images = json_object();
	r |= json_object_set_new(profile, "samples", json_count(from->n_samples));
	r |= json_object_set_new(profile, "unknown_samples", json_count(from->n_unknown));
	r |= json_object_set_new(profile, "rate_hz", json_number(from->rate_hz));
	r |= json_object_set_new(images, "decode", json_count(from->images.n_decode));
	r |= json_object_set_new(images, "transform", json_count(from->images.n_transform));
	r |= json_object_set_new(images, "other_transforms", json_count(from->images.n_foreign));
	r |= json_object_set_new(profile, "images", images);
	r |= json_object_set_new(profile, "libraries", profile_items(from->libraries, from->n_libraries));
	r |= json_object_set_new(profile, "functions", profile_items(from->functions, from->n_functions));
	r |= json_object_set_new(profile, "stacks", stacks(from));
	return r | json_object_set_new(root, "profile", profile);
}

static int json_set_gpu(json_t *root, const struct analysis *analysis)
{
	const struct gpu_use *from = analysis->gpu;
	json_t *gpu, *calls, *probes;
	int r = 0;

	if (!from)
		return json_object_set_new(root, "gpu", json_null());
	gpu = json_object();
	calls = json_array();
	r |= json_object_set_new(gpu, "library", json_bytes(from->library));
	r |= json_object_set_new(gpu, "launches", json_count(from->n_launches));
	r |= json_object_set_new(gpu, "copies", json_count(from->n_copies));
	r |= json_object_set_new(gpu, "wait_s", json_seconds(from->wait_ns));
	r |= json_object_set_new(gpu, "spin_s", json_seconds(from->spin_ns));
	r |= json_object_set_new(gpu, "starved_s", json_seconds(from->starved_ns));
	r |= json_object_set_new(gpu, "utilization", json_number(from->utilization));
	for (size_t i = 0; i < from->n_calls; i++) {
		json_t *item = json_object();

		r |= json_object_set_new(item, "name", json_bytes(from->calls[i].name));
		r |= json_object_set_new(item, "calls", json_count(from->calls[i].n));
		r |= json_object_set_new(item, "seconds", json_seconds(from->calls[i].ns));
		r |= json_object_set_new(item, "spin_s", json_seconds(from->calls[i].spin_ns));
		r |= json_array_append_new(calls, item);
	}
	r |= json_object_set_new(gpu, "calls", calls);
	r |= json_object_set_new(gpu, "launches_known", json_boolean(from->launches_known));
	probes = json_object();
	r |= json_object_set_new(probes, "functions", json_count(from->n_probed));
	r |= json_object_set_new(probes, "expensive", json_count(from->n_expensive));
	r |= json_object_set_new(probes, "missing", json_count(from->n_missing));
	r |= json_object_set_new(probes, "refused", json_count(from->n_refused));
	r |= json_object_set_new(gpu, "probes", probes);
	return r | json_object_set_new(root, "gpu", gpu);
}

static int json_set_phases(json_t *root, const struct analysis *analysis)
{
	const struct phase_times *from = analysis->phases;
	json_t *list;
	int r = 0;

	if (!from)
		return json_object_set_new(root, "phases", json_null());
	list = json_array();
	for (size_t i = 0; i < from->n; i++) {
		json_t *item = json_object();

		r |= json_object_set_new(item, "name", json_bytes(from->items[i].name));
		r |= json_object_set_new(item, "seconds", json_seconds(from->items[i].ns));
		r |= json_object_set_new(item, "count", json_count(from->items[i].n));
		r |= json_array_append_new(list, item);
	}
	return r | json_object_set_new(root, "phases", list);
}

static json_t *checkpoint_items(const struct analysis *analysis)
{
	const struct checkpoint_report *from = analysis->checkpoints;
	json_t *list = json_array();
	int r = 0;

	for (size_t i = 0; i < from->n_items; i++) {
		const struct checkpoint_item *item = &from->items[i];
		uint64_t begin_ns = item->begin_ns > analysis->window.begin_ns
					? item->begin_ns - analysis->window.begin_ns
					: 0;
		json_t *object = json_object();

		r |= json_object_set_new(object, "begin_s", json_seconds(begin_ns));
		r |= json_object_set_new(object, "wall_s", json_seconds(item->end_ns - item->begin_ns));
		r |= json_object_set_new(object, "stall_s", json_seconds(item->stall_ns));
		r |= json_object_set_new(object, "wait_s", json_seconds(item->wait_ns));
		r |= json_object_set_new(object, "copy_s", json_number(item->copy_ns / (double)NS_PER_S));
		r |= json_object_set_new(object, "tail_s", json_number(item->tail_ns / (double)NS_PER_S));
		r |= json_object_set_new(object, "bytes", json_count(item->bytes));
		r |= json_object_set_new(object, "write_s", json_seconds(item->write_ns));
		r |= json_object_set_new(object, "fsync_s", json_seconds(item->fsync_ns));
		r |= json_object_set_new(object, "writeback_s", json_seconds(item->writeback_ns));
		r |= json_object_set_new(object, "background", json_boolean(item->background));
		r |= json_array_append_new(list, object);
	}
	return json_whole(list, r);
}

static json_t *checkpoint_tail(const struct checkpoint_tail *tail)
{
	json_t *object, *shares;
	int r = 0;

	if (!tail)
		return json_null();
	object = json_object();
	shares = json_object();
	r |= json_object_set_new(object, "steps_overlapping", json_count(tail->n_during));
	r |= json_object_set_new(object, "seconds", json_number(tail->ns / (double)NS_PER_S));
	r |= json_object_set_new(object, "error_s", json_number(tail->error_ns / (double)NS_PER_S));
	r |= json_object_set_new(object, "gil_s", json_number(tail->gil_ns / (double)NS_PER_S));
	for (size_t k = 0; k < SHARE_COUNT; k++)
		if (k != SHARE_CHECKPOINT_STALL && k != SHARE_COMPILING)
			r |= json_object_set_new(shares, analysis_share_name((enum analysis_share)k),
						 json_number(tail->share_ns[k] / (double)NS_PER_S));
	r |= json_object_set_new(object, "shares_s", shares);
	return json_whole(object, r);
}

/* Sets what was moved to checkpoint_stall from other shares. */
static int set_moved(json_t *checkpoints, const struct checkpoint_report *from)
{
	uint64_t moved_ns = 0;
	int r;

	for (size_t i = 0; i < SHARE_COUNT; i++)
		moved_ns += from->moved_ns[i];
	r = json_object_set_new(checkpoints, "copied_s", json_seconds(from->copied_ns));
	return r | json_object_set_new(checkpoints, "slowed_s", json_seconds(moved_ns - from->copied_ns));
}

/* Sets what one save costs; null where it is not known. */
static int set_cost(json_t *checkpoints, const struct checkpoint_report *from)
{
	bool known = from->n_costs > 0;
	double second = (double)NS_PER_S;
	json_t *causes = json_object();
	int r = json_object_set_new(checkpoints, "cost_s",
				    known ? json_number(from->cost_ns / second) : json_null());

	r |= json_object_set_new(checkpoints, "cost_error_s",
				 known ? json_number(from->cost_error_ns / second) : json_null());
	for (size_t i = 0; i < CHECKPOINT_CAUSES; i++)
		r |= json_object_set_new(causes, checkpoint_cause_name((enum checkpoint_cause)i),
					 json_number(from->cause_ns[i] / second));
	if (known)
		return r | json_object_set_new(checkpoints, "causes", causes);
	json_decref(causes);
	return r | json_object_set_new(checkpoints, "causes", json_null());
}

static json_t *restored(const struct analysis *analysis)
{
	json_t *object;

	if (!analysis->restored.ns)
		return json_null();
	object = json_object();
	if (json_object_set_new(object, "seconds", json_seconds(analysis->restored.ns)) |
	    json_object_set_new(object, "bytes", json_count(analysis->restored.bytes))) {
		json_decref(object);
		return NULL;
	}
	return object;
}

static int json_set_checkpoints(json_t *root, const struct analysis *analysis)
{
	const struct checkpoint_report *from = analysis->checkpoints;
	json_t *checkpoints;
	int r = 0;

	r |= json_object_set_new(root, "restored", restored(analysis));
	if (!from)
		return r | json_object_set_new(root, "checkpoints", json_null());
	checkpoints = json_object();
	r |= json_object_set_new(checkpoints, "items", checkpoint_items(analysis));
	r |= json_object_set_new(checkpoints, "tail", checkpoint_tail(from->tail));
	r |= json_object_set_new(checkpoints, "copy_s", json_number(from->copy_ns / (double)NS_PER_S));
	r |= set_cost(checkpoints, from);
	r |= set_moved(checkpoints, from);
	r |= json_object_set_new(checkpoints, "stage_s", json_number(from->stage_ns / (double)NS_PER_S));
	r |= json_object_set_new(checkpoints, "stage_slowed_s",
				 json_number(from->stage_slowed_ns / (double)NS_PER_S));
	r |= json_object_set_new(checkpoints, "interval_steps", json_number(from->interval_steps));
	r |= json_object_set_new(checkpoints, "overhead", json_number(from->overhead));
	r |= json_object_set_new(checkpoints, "overhead_max", json_number(from->overhead_max));
	r |= json_object_set_new(checkpoints, "advised_steps",
				 from->advised_steps ? json_count(from->advised_steps) : json_null());
	r |= json_object_set_new(checkpoints, "advised_least",
				 from->advised_most ? json_count(from->advised_least) : json_null());
	r |= json_object_set_new(checkpoints, "advised_most",
				 from->advised_most ? json_count(from->advised_most) : json_null());
	r |= json_object_set_new(checkpoints, "advised_overhead",
				 from->advised_steps ? json_number(from->advised_overhead) : json_null());
	r |= json_object_set_new(checkpoints, "unclear",
				 from->unclear ? json_string(from->unclear) : json_null());
	return r | json_object_set_new(root, "checkpoints", checkpoints);
}

static bool judged(const struct analysis *analysis)
{
	return analysis->verdict != ANALYSIS_INSUFFICIENT;
}

static bool known(const struct analysis *analysis, enum analysis_share share)
{
	return judged(analysis) && analysis_share_known(analysis, share);
}

static int set_shares(json_t *root, const struct analysis *analysis)
{
	json_t *shares = json_object();
	uint64_t wall_ns = analysis->window.observed_ns;
	int r = 0;

	for (size_t i = 0; i < SHARE_COUNT; i++)
		r |= json_object_set_new(
		    shares, analysis_share_name((enum analysis_share)i),
		    known(analysis, (enum analysis_share)i)
			? json_real(analysis_share_ratio(analysis, (enum analysis_share)i))
			: json_null());
	r |= json_object_set_new(shares, "gpu_wait",
				 judged(analysis) && analysis->parts.gpu_wait_known && wall_ns
				     ? json_real((double)analysis->parts.gpu_wait_ns / (double)wall_ns)
				     : json_null());
	return r | json_object_set_new(root, "shares", shares);
}

/* Sets the 95 % interval of each share, or null if the shares are exact. */
static int set_share_intervals(json_t *root, const struct analysis *analysis)
{
	json_t *intervals = analysis->sampled.is && judged(analysis) ? json_object() : json_null();
	int r = 0;

	for (size_t i = 0; json_is_object(intervals) && i < SHARE_COUNT; i++) {
		double ratio = analysis_share_ratio(analysis, (enum analysis_share)i);
		double low = ratio - analysis->sampled.error[i], high = ratio + analysis->sampled.error[i];
		json_t *pair;

		if (!known(analysis, (enum analysis_share)i))
			continue;
		pair = json_array();
		r |= json_array_append_new(pair, json_real(low > 0 ? low : 0));
		r |= json_array_append_new(pair, json_real(high < 1 ? high : 1));
		r |= json_object_set_new(intervals, analysis_share_name((enum analysis_share)i), pair);
	}
	r |= json_object_set_new(root, "approximate", json_boolean(analysis->sampled.is));
	return r | json_object_set_new(root, "share_intervals", intervals);
}

/* Sets the figures on which the verdict is based: the window without warm-up. */
static int set_steady(json_t *root, const struct analysis *analysis)
{
	struct report_shares shown = report_shares(analysis);
	json_t *steady = judged(analysis) ? json_object() : json_null();
	int r = 0;

	if (judged(analysis)) {
		json_t *shares = json_object();

		for (enum analysis_share i = 0; i < SHARE_COUNT; i++)
			r |= json_object_set_new(
			    shares, analysis_share_name(i),
			    known(analysis, i) ? json_real(report_shares_ratio(&shown, i)) : json_null());
		r |= json_object_set_new(steady, "wall_s", json_seconds(shown.wall_ns));
		r |= json_object_set_new(
		    steady, "steps", report_steps_known(analysis) ? json_count(shown.n_steps) : json_null());
		r |= json_object_set_new(steady, "shares", shares);
	}
	return r | json_object_set_new(root, "steady", steady);
}

static int set_job(json_t *root, const struct analysis *analysis)
{
	json_t *job = json_object();
	int r = 0;

	r |= json_object_set_new(job, "command", json_bytes(analysis->job.command));
	r |= json_object_set_new(job, "attached", json_boolean(analysis->job.attached));
	r |= json_object_set_new(job, "tgid", json_count(analysis->job.root_tgid));
	r |= json_object_set_new(job, "trainer_tgid", json_count(analysis->job.trainer_tgid));
	r |= json_object_set_new(job, "trainer_ns_tgid",
				 analysis->job.trainer_ns_tgid ? json_count(analysis->job.trainer_ns_tgid)
							       : json_null());
	r |= json_object_set_new(job, "trainer_ns_tid",
				 analysis->job.trainer_ns_tid ? json_count(analysis->job.trainer_ns_tid)
							      : json_null());
	r |= json_object_set_new(job, "trainer_tid", json_count(analysis->job.trainer_tid));
	r |= json_object_set_new(job, "trainers", json_count(analysis->job.n_trainers));
	r |= json_object_set_new(job, "cpus", json_count(analysis->job.n_cpus));
	return r | json_object_set_new(root, "job", job);
}

static json_t *moment(uint64_t realtime_ns)
{
	time_t seconds = (time_t)(realtime_ns / NS_PER_S);
	struct tm utc;
	char text[32];

	if (!realtime_ns || !gmtime_r(&seconds, &utc))
		return json_null();
	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
	return json_string(text);
}

static int set_recording(json_t *root, const struct report_source *source)
{
	static const struct report_source nothing;
	json_t *recording = json_object();
	int r = 0;

	if (!source)
		source = &nothing;
	r |= json_object_set_new(recording, "file", json_bytes(source->recording));
	r |= json_object_set_new(recording, "host", json_bytes(source->host));
	r |= json_object_set_new(recording, "kernel", json_bytes(source->kernel));
	r |= json_object_set_new(recording, "machine", json_bytes(source->machine));
	r |= json_object_set_new(recording, "diesel_version", json_bytes(source->version));
	r |= json_object_set_new(recording, "recorded_at", moment(source->clocks.realtime_ns));
	r |= json_object_set_new(recording, "cut_off", json_boolean(source->cut_off));
	return r | json_object_set_new(root, "session", recording);
}

static int set_workers(json_t *root, const struct analysis *analysis)
{
	const struct analysis_workers *from = &analysis->workers;
	json_t *workers = json_object();
	int r = 0;

	r |= json_object_set_new(workers, "count", json_count(from->n_at_once));
	r |= json_object_set_new(workers, "processes", json_count(from->n));
	r |= json_object_set_new(workers, "fetch_s", json_seconds(from->fetch_ns));
	r |= json_object_set_new(workers, "cpu_s", json_seconds(from->cpu_ns));
	r |= json_object_set_new(workers, "queue_s", json_seconds(from->queue_ns));
	r |= json_object_set_new(workers, "idle_s", json_seconds(from->idle_ns));
	r |= json_object_set_new(workers, "blocked_s", json_seconds(from->blocked_ns));
	return r | json_object_set_new(root, "workers", workers);
}

static int set_evidence(json_t *root, const struct analysis *analysis)
{
	json_t *list = json_array();
	int r = 0;

	for (size_t i = 0; i < analysis->n_evidence; i++) {
		const struct analysis_evidence *from = &analysis->evidence[i];
		json_t *item = json_object();

		r |= json_object_set_new(item, "role", json_string(from->role));
		r |= json_object_set_new(item, "what", json_string(from->what));
		r |= json_object_set_new(item, "seconds", json_seconds(from->ns));
		r |= json_object_set_new(item, "kind", json_string(from->fetch ? "fetch" : "prep"));
		r |= json_array_append_new(list, item);
	}
	return r | json_object_set_new(root, "evidence", list);
}

/* Returns an action's predicted gain. A speed-up of 0 means that nothing was predicted. */
static json_t *action_gain(const struct analysis_action *action)
{
	return action->gain.value > 0 ? json_estimate(&action->gain) : json_null();
}

static int set_actions(json_t *root, const struct analysis *analysis)
{
	json_t *list = json_array();
	int r = 0;

	for (size_t i = 0; i < analysis->n_actions; i++) {
		const struct analysis_action *from = &analysis->actions[i];
		json_t *item = json_object();

		r |= json_object_set_new(item, "text", json_string(from->text));
		r |= json_object_set_new(item, "gain_at_most",
					 from->gain_max > 0 ? json_real(from->gain_max) : json_null());
		r |= json_object_set_new(item, "gain_at_most_about", json_boolean(from->about));
		r |= json_object_set_new(item, "gain", action_gain(from));
		r |= json_object_set_new(item, "confidence",
					 json_string(analysis_confidence_name(from->confidence)));
		r |= json_array_append_new(list, item);
	}
	return r | json_object_set_new(root, "actions", list);
}

static int set_steps(json_t *root, const struct analysis *analysis)
{
	json_t *list = json_array();
	int r = 0;

	for (size_t i = 0; i < analysis->n_steps; i++) {
		const struct analysis_step *from = &analysis->steps[i];
		json_t *item = json_object();

		r |= json_object_set_new(item, "begin_s",
					 json_seconds(from->begin_ns - analysis->window.begin_ns));
		r |= json_object_set_new(item, "wall_s", json_seconds(from->end_ns - from->begin_ns));
		for (size_t k = 0; k < SHARE_COUNT; k++) {
			char key[32];

			snprintf(key, sizeof(key), "%s_s", analysis_share_name((enum analysis_share)k));
			r |= json_object_set_new(item, key,
						 analysis_share_known(analysis, (enum analysis_share)k)
						     ? json_seconds(from->share_ns[k])
						     : json_null());
		}
		r |= json_object_set_new(item, "complete", json_boolean(from->complete));
		r |= json_object_set_new(item, "excluded", json_boolean(from->excluded));
		r |= json_array_append_new(list, item);
	}
	return r | json_object_set_new(root, "step_table", list);
}

/* Returns the time in seconds, or null: without a verdict nothing is known of the steps. */
static json_t *judged_seconds(const struct analysis *analysis, uint64_t ns)
{
	return judged(analysis) ? json_seconds(ns) : json_null();
}

static json_t *validation(const struct analysis_excluded *from)
{
	json_t *object = from->known ? json_object() : json_null();

	if (!from->known)
		return object;
	if (json_object_set_new(object, "passes", json_count(from->n_steps)) |
	    json_object_set_new(object, "seconds", json_seconds(from->ns)) |
	    json_object_set_new(object, "wait_s", json_seconds(from->wait_ns))) {
		json_decref(object);
		return NULL;
	}
	return object;
}

static int set_times(json_t *root, const struct analysis *analysis)
{
	bool workers = analysis->job.loader == LOADER_WORKERS;
	int r = 0;

	r |= json_object_set_new(root, "wall_s",
				 json_seconds(analysis->window.end_ns - analysis->window.begin_ns));
	r |= json_object_set_new(root, "observed_s", json_seconds(analysis->window.observed_ns));
	r |= json_object_set_new(root, "recorded_s",
				 json_seconds(analysis->recorded.end_ns - analysis->recorded.begin_ns));
	r |= json_object_set_new(root, "compiling_s",
				 analysis->compiling.known ? json_seconds(analysis->compiling.ns)
							   : json_null());
	r |= json_object_set_new(root, "validation", validation(&analysis->validation));
	r |= json_object_set_new(root, "excluded_steps", json_count(analysis->steady.n_excluded_steps));
	r |= json_object_set_new(root, "unrecorded_s", json_seconds(analysis->recorded.gaps_ns));
	r |= json_object_set_new(root, "startup_s", json_seconds(analysis->window.startup_ns));
	r |= json_object_set_new(root, "teardown_s", json_seconds(analysis->window.teardown_ns));
	r |= json_object_set_new(root, "wait_mean_s",
				 report_wait_known(analysis) ? json_seconds(analysis->wait_mean_ns)
							     : json_null());
	r |= json_object_set_new(root, "wait_p95_s",
				 report_wait_known(analysis) && !analysis->sampled.is
				     ? json_seconds(analysis->wait_p95_ns)
				     : json_null());
	r |= json_object_set_new(root, "head_of_line_s",
				 workers ? judged_seconds(analysis, analysis->parts.head_of_line_ns)
					 : json_null());
	r |= json_object_set_new(root, "gil_s", judged_seconds(analysis, analysis->parts.gil_ns));
	r |= json_object_set_new(root, "gil_starved_s",
				 judged_seconds(analysis, analysis->parts.gil_starved_ns));
	r |= json_object_set_new(root, "asleep_s", judged_seconds(analysis, analysis->parts.asleep_ns));
	r |= json_object_set_new(
	    root, "starved_by_neighbours_s",
	    analysis->sampled.is ? json_null() : judged_seconds(analysis, analysis->parts.neighbours_ns));
	r |= json_object_set_new(root, "warmup_s", judged_seconds(analysis, analysis->steady.warmup_ns));
	return r | json_object_set_new(root, "steal_s", json_seconds(analysis->parts.steal_ns));
}

static int set_figures(json_t *root, const struct analysis *analysis)
{
	int r = set_times(root, analysis);

	r |= json_object_set_new(root, "verdict", json_string(analysis_verdict_name(analysis->verdict)));
	r |= json_object_set_new(root, "insufficient",
				 judged(analysis) ? json_null() : json_bytes(analysis->insufficient));
	r |= json_object_set_new(root, "note", analysis->note[0] ? json_bytes(analysis->note) : json_null());
	r |= json_object_set_new(
	    root, "steps", report_steps_known(analysis) ? json_count(report_n_steps(analysis)) : json_null());
	r |= json_object_set_new(root, "incomplete_steps", json_count(analysis->n_incomplete));
	r |= json_object_set_new(root, "loader", json_string(analysis_loader_name(analysis->job.loader)));
	r |= json_object_set_new(root, "method", json_string(analysis_method_name(analysis->job.method)));
	r |= json_object_set_new(root, "steps_per_s", json_number(report_steps_per_s(analysis)));
	r |= json_object_set_new(root, "warmup_steps", json_count(analysis->steady.n_warmup_steps));
	r |= json_object_set_new(root, "no_predictions",
				 analysis->no_predictions[0] ? json_string(analysis->no_predictions)
							     : json_null());
	r |= json_object_set_new(root, "read_bytes",
				 judged(analysis) && analysis->window.read_bytes_known
				     ? json_count(analysis->window.read_bytes)
				     : json_null());
	r |= json_object_set_new(root, "lost_events", json_count(analysis->recorded.n_lost));
	r |= json_object_set_new(root, "malformed_events", json_count(analysis->recorded.n_malformed));
	r |= json_object_set_new(root, "coverage", json_real(analysis->recorded.coverage_ratio));
	return r | json_object_set_new(root, "self_cost", json_number(analysis->recorded.self_cost_ratio));
}

static int set_parts(json_t *root, const struct analysis *analysis)
{
	int r = 0;

	r |= json_set_page_cache(root, analysis);
	r |= json_set_profile(root, analysis);
	r |= json_set_gpu(root, analysis);
	r |= json_set_phases(root, analysis);
	r |= json_set_checkpoints(root, analysis);
	r |= json_set_predictions(root, analysis);
	return r | json_set_ranks(root, analysis);
}

int report_json(FILE *stream, const struct analysis *analysis, const struct report_source *source,
		bool with_steps)
{
	json_t *root = json_object();
	int r = 0;

	r |= json_object_set_new(root, "schema", json_string("diesel.report/1"));
	r |= set_recording(root, source);
	r |= set_job(root, analysis);
	r |= set_figures(root, analysis);
	r |= set_shares(root, analysis);
	r |= set_share_intervals(root, analysis);
	r |= set_steady(root, analysis);
	r |= set_workers(root, analysis);
	r |= set_evidence(root, analysis);
	r |= set_actions(root, analysis);
	r |= set_parts(root, analysis);
	if (with_steps)
		r |= set_steps(root, analysis);
	return json_write(json_whole(root, r), stream, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
}

int report_json_schema(FILE *stream)
{
	struct asset schema = asset_schema();

	errno = 0;
	if (fwrite(schema.bytes, 1, schema.length, stream) != schema.length || fflush(stream))
		return errno ? -errno : -EIO;
	return 0;
}
