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

static json_t *point(const struct what_if_point *from)
{
	return JSON_OBJECT({"x", json_number(from->x)}, {"speedup", json_estimate(&from->speedup)},
			   {"fetch_stall", json_number(from->fetch_stall)},
			   {"prep_stall", json_number(from->prep_stall)},
			   {"device", json_number(from->device)});
}

static json_t *curve(const struct what_if_curve *from)
{
	json_t *points = json_array();

	if (!from->n_points) {
		json_decref(points);
		return json_null();
	}
	for (size_t i = 0; i < from->n_points; i++)
		json_append(&points, point(&from->points[i]));
	return JSON_OBJECT({"here", json_number(from->here)}, {"points", points});
}

static json_t *curves(const struct predictions *from)
{
	static const char *const axes[WHAT_IF_AXES] = {
	    [WHAT_IF_CACHE] = "cache",   [WHAT_IF_WORKERS] = "workers",         [WHAT_IF_STORAGE] = "storage",
	    [WHAT_IF_DEVICE] = "device", [WHAT_IF_SAMPLE_SIZE] = "sample_size", [WHAT_IF_CORES] = "cores",
	};
	json_t *object = json_object();

	for (size_t i = 0; i < WHAT_IF_AXES; i++)
		json_set(&object, axes[i], curve(&from->curves[i]));
	return object;
}

static json_t *native(const struct native_prediction *from)
{
	if (isnan(from->part.value))
		return json_null();
	return JSON_OBJECT({"part", json_estimate(&from->part)}, {"speedup", json_estimate(&from->speedup)},
			   {"fetch_stall", json_number(from->fetch_stall)},
			   {"prep_stall", json_number(from->prep_stall)},
			   {"device", json_number(from->device)});
}

static json_t *rates(const struct predictions *from)
{
	return JSON_OBJECT({"fetch_samples_per_s", json_estimate(&from->fetch_rate)},
			   {"prep_samples_per_s", json_estimate(&from->prep_rate)},
			   {"device_samples_per_s", json_estimate(&from->device_rate)},
			   {"storage_bytes_per_s", json_estimate(&from->storage_bytes_per_s)},
			   {"memory_bytes_per_s", json_estimate(&from->memory_bytes_per_s)});
}

static json_t *needed(const struct predictions *from)
{
	return JSON_OBJECT({"cache_ratio", json_estimate(&from->cache_ratio_needed)},
			   {"workers", json_estimate(&from->workers_needed)},
			   {"storage_factor", json_estimate(&from->storage_factor_needed)});
}

json_t *json_predictions(const struct analysis *analysis)
{
	const struct predictions *from = analysis->predictions;

	if (!from)
		return json_null();
	return JSON_OBJECT({"batch_samples", json_number(from->batch_samples)},
			   {"bytes_per_step", json_number(from->bytes_per_step)},
			   {"recorded_step_s", json_number(from->recorded_step_s)},
			   {"replayed_step_s", json_number(from->replayed_step_s)},
			   {"half_prep_speedup", json_estimate(&from->half_prep_speedup)},
			   {"persistent_speedup", json_estimate(&from->persistent_speedup)},
			   {"native", native(&from->native)}, {"rates", rates(from)},
			   {"what_if", curves(from)}, {"needed", needed(from)});
}

/* Makes an object of figures of the shares. NAN becomes null. */
static json_t *by_share(const double figures[SHARE_COUNT])
{
	json_t *object = json_object();

	for (size_t i = 0; i < SHARE_COUNT; i++)
		json_set(&object, analysis_share_name((enum analysis_share)i), json_number(figures[i]));
	return object;
}

static json_t *rank(const struct analysis *analysis, const struct analysis_rank *from)
{
	double shares[SHARE_COUNT];

	for (size_t i = 0; i < SHARE_COUNT; i++)
		shares[i] = from->window_ns && analysis_share_known(analysis, (enum analysis_share)i)
				? (double)from->share_ns[i] / (double)from->window_ns
				: NAN;
	return JSON_OBJECT({"tgid", json_count(from->tgid)}, {"tid", json_count(from->tid)},
			   {"wall_s", json_seconds(from->window_ns)}, {"steps", json_count(from->n_steps)},
			   {"collective_wait_s", json_seconds(from->collective_ns)},
			   {"straggler", json_boolean(from->straggler)}, {"shares", by_share(shares)});
}

static json_t *ranks(const struct analysis *analysis)
{
	json_t *list = json_array();

	for (size_t i = 0; i < analysis->n_ranks; i++)
		json_append(&list, rank(analysis, &analysis->ranks[i]));
	return list;
}

static json_t *places(const struct page_cache_place *items, size_t n)
{
	json_t *list = json_array();

	for (size_t i = 0; i < n; i++)
		json_append(&list, JSON_OBJECT({"path", json_bytes(items[i].path)},
					       {"accessed_pages", json_count(items[i].accessed_pages)},
					       {"missed_pages", json_count(items[i].missed_pages)},
					       {"used_bytes", json_count(items[i].used_bytes)},
					       {"cold_bytes", json_count(items[i].cold_bytes)},
					       {"reads", json_count(items[i].n_reads)}));
	return list;
}

static json_t *read_sizes(const struct page_cache *cache)
{
	json_t *list = json_array();

	for (size_t i = 0; i < PAGE_CACHE_SIZES; i++)
		if (cache->read_sizes[i])
			json_append(&list, JSON_OBJECT({"from_bytes", json_count(i ? UINT64_C(1) << i : 0)},
						       {"reads", json_count(cache->read_sizes[i])}));
	return list;
}

static json_t *mapped(const struct page_cache_mapped *from)
{
	return JSON_OBJECT(
	    {"major_faults", json_count(from->n_major_faults)},
	    {"minor_faults", json_count(from->n_minor_faults)}, {"fault_s", json_seconds(from->fault_ns)},
	    {"read_ahead_pages", json_count(from->read_ahead_pages)},
	    {"read_aheads", json_count(from->n_read_aheads)},
	    {"random_ratio", json_number(from->random_ratio)}, {"wakeups", json_count(from->n_wakeups)},
	    {"context_switches", json_count(from->n_context_switches)});
}

/* This function, and those like it below, return null if the analysis lacks the part. */
static json_t *page_cache(const struct analysis *analysis)
{
	const struct page_cache *from = analysis->page_cache;

	if (!from)
		return json_null();
	return JSON_OBJECT(
	    {"hit_ratio", json_number(page_cache_hit_ratio(from->accessed_pages, from->missed_pages))},
	    {"page_bytes", json_count(from->page_bytes)},
	    {"accessed_pages", json_count(from->accessed_pages)},
	    {"missed_pages", json_count(from->missed_pages)}, {"used_bytes", json_count(from->used_bytes)},
	    {"cold_bytes", json_count(from->cold_bytes)}, {"direct_bytes", json_count(from->direct_bytes)},
	    {"network_bytes", json_count(from->network_bytes)}, {"reads", json_count(from->n_reads)},
	    {"read_sizes", read_sizes(from)}, {"mapped", mapped(&from->mapped)},
	    {"files", places(from->files, from->n_files)},
	    {"folders", places(from->folders, from->n_folders)});
}

static json_t *profile_items(const struct profile_item *items, size_t n)
{
	json_t *list = json_array();

	for (size_t i = 0; i < n; i++)
		json_append(&list,
			    JSON_OBJECT({"name", json_bytes(items[i].name)},
					{items[i].library ? "library" : NULL, json_bytes(items[i].library)},
					{items[i].caller ? "caller" : NULL, json_bytes(items[i].caller)},
					{"samples", json_count(items[i].n_samples)}));
	return list;
}

static json_t *stacks(const struct profile *from)
{
	json_t *list = json_array();

	for (size_t i = 0; i < from->n_stacks; i++)
		json_append(&list, JSON_OBJECT({"frames", json_bytes(from->stacks[i].frames)},
					       {"samples", json_count(from->stacks[i].n_samples)}));
	return list;
}

static json_t *profile(const struct analysis *analysis)
{
	const struct profile *from = analysis->profile;

	if (!from)
		return json_null();
	return JSON_OBJECT(
	    {"samples", json_count(from->n_samples)}, {"unknown_samples", json_count(from->n_unknown)},
	    {"rate_hz", json_number(from->rate_hz)},
	    {"images", JSON_OBJECT({"decode", json_count(from->images.n_decode)},
				   {"transform", json_count(from->images.n_transform)},
				   {"other_transforms", json_count(from->images.n_foreign)})},
	    {"libraries", profile_items(from->libraries, from->n_libraries)},
	    {"functions", profile_items(from->functions, from->n_functions)}, {"stacks", stacks(from)});
}

static json_t *gpu_calls(const struct gpu_use *from)
{
	json_t *list = json_array();

	for (size_t i = 0; i < from->n_calls; i++)
		json_append(&list, JSON_OBJECT({"name", json_bytes(from->calls[i].name)},
					       {"calls", json_count(from->calls[i].n)},
					       {"seconds", json_seconds(from->calls[i].ns)},
					       {"spin_s", json_seconds(from->calls[i].spin_ns)}));
	return list;
}

static json_t *gpu(const struct analysis *analysis)
{
	const struct gpu_use *from = analysis->gpu;

	if (!from)
		return json_null();
	return JSON_OBJECT({"library", json_bytes(from->library)}, {"launches", json_count(from->n_launches)},
			   {"copies", json_count(from->n_copies)}, {"wait_s", json_seconds(from->wait_ns)},
			   {"spin_s", json_seconds(from->spin_ns)},
			   {"starved_s", json_seconds(from->starved_ns)},
			   {"utilization", json_number(from->utilization)}, {"calls", gpu_calls(from)},
			   {"launches_known", json_boolean(from->launches_known)},
			   {"probes", JSON_OBJECT({"functions", json_count(from->n_probed)},
						  {"expensive", json_count(from->n_expensive)},
						  {"missing", json_count(from->n_missing)},
						  {"refused", json_count(from->n_refused)})});
}

static json_t *phases(const struct analysis *analysis)
{
	const struct phase_times *from = analysis->phases;
	json_t *list = from ? json_array() : json_null();

	for (size_t i = 0; from && i < from->n; i++)
		json_append(&list, JSON_OBJECT({"name", json_bytes(from->items[i].name)},
					       {"seconds", json_seconds(from->items[i].ns)},
					       {"count", json_count(from->items[i].n)}));
	return list;
}

static json_t *checkpoint_items(const struct analysis *analysis)
{
	const struct checkpoint_report *from = analysis->checkpoints;
	json_t *list = json_array();

	for (size_t i = 0; i < from->n_items; i++) {
		const struct checkpoint_item *item = &from->items[i];
		uint64_t begin_ns = item->begin_ns > analysis->window.begin_ns
					? item->begin_ns - analysis->window.begin_ns
					: 0;

		json_append(&list, JSON_OBJECT({"begin_s", json_seconds(begin_ns)},
					       {"wall_s", json_seconds(item->end_ns - item->begin_ns)},
					       {"stall_s", json_seconds(item->stall_ns)},
					       {"wait_s", json_seconds(item->wait_ns)},
					       {"copy_s", json_seconds_of(item->copy_ns)},
					       {"tail_s", json_seconds_of(item->tail_ns)},
					       {"bytes", json_count(item->bytes)},
					       {"write_s", json_seconds(item->write_ns)},
					       {"fsync_s", json_seconds(item->fsync_ns)},
					       {"writeback_s", json_seconds(item->writeback_ns)},
					       {"background", json_boolean(item->background)}));
	}
	return list;
}

static json_t *checkpoint_tail(const struct checkpoint_tail *tail)
{
	json_t *shares = json_object();

	if (!tail) {
		json_decref(shares);
		return json_null();
	}
	for (size_t k = 0; k < SHARE_COUNT; k++)
		if (k != SHARE_CHECKPOINT_STALL && k != SHARE_COMPILING)
			json_set(&shares, analysis_share_name((enum analysis_share)k),
				 json_seconds_of(tail->share_ns[k]));
	return JSON_OBJECT({"steps_overlapping", json_count(tail->n_during)},
			   {"seconds", json_seconds_of(tail->ns)},
			   {"error_s", json_seconds_of(tail->error_ns)},
			   {"gil_s", json_seconds_of(tail->gil_ns)}, {"shares_s", shares});
}

static json_t *checkpoint_causes(const struct checkpoint_report *from)
{
	json_t *object = from->n_costs ? json_object() : json_null();

	for (size_t i = 0; from->n_costs && i < CHECKPOINT_CAUSES; i++)
		json_set(&object, checkpoint_cause_name((enum checkpoint_cause)i),
			 json_seconds_of(from->cause_ns[i]));
	return object;
}

static json_t *restored(const struct analysis *analysis)
{
	return analysis->restored.ns ? JSON_OBJECT({"seconds", json_seconds(analysis->restored.ns)},
						   {"bytes", json_count(analysis->restored.bytes)})
				     : json_null();
}

static json_t *checkpoints(const struct analysis *analysis)
{
	const struct checkpoint_report *from = analysis->checkpoints;
	uint64_t moved_ns = 0; /* moved to checkpoint_stall from other shares */

	if (!from)
		return json_null();
	for (size_t i = 0; i < SHARE_COUNT; i++)
		moved_ns += from->moved_ns[i];
	return JSON_OBJECT(
	    {"items", checkpoint_items(analysis)}, {"tail", checkpoint_tail(from->tail)},
	    {"copy_s", json_seconds_of(from->copy_ns)},
	    {"cost_s", json_seconds_of(from->n_costs ? from->cost_ns : NAN)},
	    {"cost_error_s", json_seconds_of(from->n_costs ? from->cost_error_ns : NAN)},
	    {"causes", checkpoint_causes(from)}, {"copied_s", json_seconds(from->copied_ns)},
	    {"slowed_s", json_seconds(moved_ns - from->copied_ns)},
	    {"stage_s", json_seconds_of(from->stage_ns)},
	    {"stage_slowed_s", json_seconds_of(from->stage_slowed_ns)},
	    {"interval_steps", json_number(from->interval_steps)}, {"overhead", json_number(from->overhead)},
	    {"overhead_max", json_number(from->overhead_max)},
	    {"advised_steps", json_known_count(from->advised_steps)},
	    {"advised_least", from->advised_most ? json_count(from->advised_least) : json_null()},
	    {"advised_most", json_known_count(from->advised_most)},
	    {"advised_overhead", json_number(from->advised_steps ? from->advised_overhead : NAN)},
	    {"unclear", from->unclear ? json_string(from->unclear) : json_null()});
}

static bool judged(const struct analysis *analysis)
{
	return analysis->verdict != ANALYSIS_INSUFFICIENT;
}

static bool known(const struct analysis *analysis, enum analysis_share share)
{
	return judged(analysis) && analysis_share_known(analysis, share);
}

static json_t *shares(const struct analysis *analysis)
{
	uint64_t wall_ns = analysis->window.observed_ns;
	bool waits = judged(analysis) && analysis->parts.gpu_wait_known && wall_ns;
	double ratios[SHARE_COUNT];
	json_t *object;

	for (enum analysis_share i = 0; i < SHARE_COUNT; i++)
		ratios[i] = known(analysis, i) ? analysis_share_ratio(analysis, i) : NAN;
	object = by_share(ratios);
	json_set(&object, "gpu_wait",
		 json_number(waits ? (double)analysis->parts.gpu_wait_ns / (double)wall_ns : NAN));
	return object;
}

/* Returns the 95 % interval of each share, or null if the shares are exact. */
static json_t *share_intervals(const struct analysis *analysis)
{
	bool given = analysis->sampled.is && judged(analysis);
	json_t *intervals = given ? json_object() : json_null();

	for (enum analysis_share i = 0; given && i < SHARE_COUNT; i++) {
		double ratio = analysis_share_ratio(analysis, i);
		double low = ratio - analysis->sampled.error[i], high = ratio + analysis->sampled.error[i];
		json_t *pair;

		if (!known(analysis, i))
			continue;
		pair = json_array();
		json_append(&pair, json_real(low > 0 ? low : 0));
		json_append(&pair, json_real(high < 1 ? high : 1));
		json_set(&intervals, analysis_share_name(i), pair);
	}
	return intervals;
}

/* Returns the figures on which the verdict is based: the window without warm-up. */
static json_t *steady(const struct analysis *analysis)
{
	struct report_shares shown = report_shares(analysis);
	double ratios[SHARE_COUNT];

	if (!judged(analysis))
		return json_null();
	for (enum analysis_share i = 0; i < SHARE_COUNT; i++)
		ratios[i] = known(analysis, i) ? report_shares_ratio(&shown, i) : NAN;
	return JSON_OBJECT({"wall_s", json_seconds(shown.wall_ns)},
			   {"steps", report_steps_known(analysis) ? json_count(shown.n_steps) : json_null()},
			   {"shares", by_share(ratios)});
}

static json_t *job(const struct analysis *analysis)
{
	return JSON_OBJECT(
	    {"command", json_bytes(analysis->job.command)},
	    {"attached", json_boolean(analysis->job.attached)}, {"tgid", json_count(analysis->job.root_tgid)},
	    {"trainer_tgid", json_count(analysis->job.trainer_tgid)},
	    {"trainer_ns_tgid", json_known_count(analysis->job.trainer_ns_tgid)},
	    {"trainer_ns_tid", json_known_count(analysis->job.trainer_ns_tid)},
	    {"trainer_tid", json_count(analysis->job.trainer_tid)},
	    {"trainers", json_count(analysis->job.n_trainers)}, {"cpus", json_count(analysis->job.n_cpus)});
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

static json_t *recording(const struct report_source *source)
{
	static const struct report_source nothing;

	if (!source)
		source = &nothing;
	return JSON_OBJECT({"file", json_bytes(source->recording)}, {"host", json_bytes(source->host)},
			   {"kernel", json_bytes(source->kernel)}, {"machine", json_bytes(source->machine)},
			   {"diesel_version", json_bytes(source->version)},
			   {"recorded_at", moment(source->clocks.realtime_ns)},
			   {"cut_off", json_boolean(source->cut_off)});
}

static json_t *workers(const struct analysis *analysis)
{
	const struct analysis_workers *from = &analysis->workers;

	return JSON_OBJECT({"count", json_count(from->n_at_once)}, {"processes", json_count(from->n)},
			   {"fetch_s", json_seconds(from->fetch_ns)}, {"cpu_s", json_seconds(from->cpu_ns)},
			   {"queue_s", json_seconds(from->queue_ns)}, {"idle_s", json_seconds(from->idle_ns)},
			   {"blocked_s", json_seconds(from->blocked_ns)});
}

static json_t *evidence(const struct analysis *analysis)
{
	json_t *list = json_array();

	for (size_t i = 0; i < analysis->n_evidence; i++) {
		const struct analysis_evidence *from = &analysis->evidence[i];

		json_append(&list,
			    JSON_OBJECT({"role", json_string(from->role)}, {"what", json_string(from->what)},
					{"seconds", json_seconds(from->ns)},
					{"kind", json_string(from->fetch ? "fetch" : "prep")}));
	}
	return list;
}

/* A predicted gain of 0 means that nothing was predicted. */
static json_t *actions(const struct analysis *analysis)
{
	json_t *list = json_array();

	for (size_t i = 0; i < analysis->n_actions; i++) {
		const struct analysis_action *from = &analysis->actions[i];

		json_append(
		    &list, JSON_OBJECT(
			       {"text", json_string(from->text)},
			       {"gain_at_most", from->gain_max > 0 ? json_real(from->gain_max) : json_null()},
			       {"gain_at_most_about", json_boolean(from->about)},
			       {"gain", from->gain.value > 0 ? json_estimate(&from->gain) : json_null()},
			       {"confidence", json_string(analysis_confidence_name(from->confidence))}));
	}
	return list;
}

static json_t *steps(const struct analysis *analysis)
{
	json_t *list = json_array();

	for (size_t i = 0; i < analysis->n_steps; i++) {
		const struct analysis_step *from = &analysis->steps[i];
		json_t *item =
		    JSON_OBJECT({"begin_s", json_seconds(from->begin_ns - analysis->window.begin_ns)},
				{"wall_s", json_seconds(from->end_ns - from->begin_ns)});

		for (enum analysis_share k = 0; k < SHARE_COUNT; k++) {
			char key[32];

			snprintf(key, sizeof(key), "%s_s", analysis_share_name(k));
			json_set(&item, key,
				 analysis_share_known(analysis, k) ? json_seconds(from->share_ns[k])
								   : json_null());
		}
		json_set(&item, "complete", json_boolean(from->complete));
		json_set(&item, "excluded", json_boolean(from->excluded));
		json_append(&list, item);
	}
	return list;
}

static json_t *validation(const struct analysis_excluded *from)
{
	return from->known
		   ? JSON_OBJECT({"passes", json_count(from->n_steps)}, {"seconds", json_seconds(from->ns)},
				 {"wait_s", json_seconds(from->wait_ns)})
		   : json_null();
}

/* Returns the time in seconds, or null if it is not known. */
static json_t *seconds_if(bool is_known, uint64_t ns)
{
	return is_known ? json_seconds(ns) : json_null();
}

/* Without a verdict nothing is known of the steps. */
static json_t *times(const struct analysis *analysis)
{
	bool workers = analysis->job.loader == LOADER_WORKERS, is_judged = judged(analysis);

	return JSON_OBJECT(
	    {"wall_s", json_seconds(analysis->window.end_ns - analysis->window.begin_ns)},
	    {"observed_s", json_seconds(analysis->window.observed_ns)},
	    {"recorded_s", json_seconds(analysis->recorded.end_ns - analysis->recorded.begin_ns)},
	    {"compiling_s", seconds_if(analysis->compiling.known, analysis->compiling.ns)},
	    {"validation", validation(&analysis->validation)},
	    {"excluded_steps", json_count(analysis->steady.n_excluded_steps)},
	    {"unrecorded_s", json_seconds(analysis->recorded.gaps_ns)},
	    {"startup_s", json_seconds(analysis->window.startup_ns)},
	    {"teardown_s", json_seconds(analysis->window.teardown_ns)},
	    {"wait_mean_s", seconds_if(report_wait_known(analysis), analysis->wait_mean_ns)},
	    {"wait_p95_s",
	     seconds_if(report_wait_known(analysis) && !analysis->sampled.is, analysis->wait_p95_ns)},
	    {"head_of_line_s", seconds_if(workers && is_judged, analysis->parts.head_of_line_ns)},
	    {"gil_s", seconds_if(is_judged, analysis->parts.gil_ns)},
	    {"gil_starved_s", seconds_if(is_judged, analysis->parts.gil_starved_ns)},
	    {"asleep_s", seconds_if(is_judged, analysis->parts.asleep_ns)},
	    {"starved_by_neighbours_s",
	     seconds_if(is_judged && !analysis->sampled.is, analysis->parts.neighbours_ns)},
	    {"warmup_s", seconds_if(is_judged, analysis->steady.warmup_ns)},
	    {"steal_s", json_seconds(analysis->parts.steal_ns)});
}

static json_t *figures(const struct analysis *analysis)
{
	bool bytes_known = judged(analysis) && analysis->window.read_bytes_known;

	return JSON_OBJECT(
	    {"verdict", json_string(analysis_verdict_name(analysis->verdict))},
	    {"insufficient", json_bytes(judged(analysis) ? NULL : analysis->insufficient)},
	    {"note", json_bytes(analysis->note[0] ? analysis->note : NULL)},
	    {"steps", report_steps_known(analysis) ? json_count(report_n_steps(analysis)) : json_null()},
	    {"steps_counted_by", json_bytes(analysis_counted_name(analysis->counted))},
	    {"incomplete_steps", json_count(analysis->n_incomplete)},
	    {"loader", json_string(analysis_loader_name(analysis->job.loader))},
	    {"method", json_string(analysis_method_name(analysis->job.method))},
	    {"steps_per_s", json_number(report_steps_per_s(analysis))},
	    {"warmup_steps", json_count(analysis->steady.n_warmup_steps)},
	    {"no_predictions", json_bytes(analysis->no_predictions[0] ? analysis->no_predictions : NULL)},
	    {"read_bytes", bytes_known ? json_count(analysis->window.read_bytes) : json_null()},
	    {"lost_events", json_count(analysis->recorded.n_lost)},
	    {"malformed_events", json_count(analysis->recorded.n_malformed)},
	    {"coverage", json_real(analysis->recorded.coverage_ratio)},
	    {"self_cost", json_number(analysis->recorded.self_cost_ratio)});
}

int report_json(FILE *stream, const struct analysis *analysis, const struct report_source *source,
		bool with_steps)
{
	json_t *root = JSON_OBJECT({"schema", json_string("diesel.report/1")}, {"session", recording(source)},
				   {"job", job(analysis)});

	json_merge(&root, times(analysis));
	json_merge(&root, figures(analysis));
	json_merge(
	    &root,
	    JSON_OBJECT({"shares", shares(analysis)}, {"approximate", json_boolean(analysis->sampled.is)},
			{"share_intervals", share_intervals(analysis)}, {"steady", steady(analysis)},
			{"workers", workers(analysis)}, {"evidence", evidence(analysis)},
			{"actions", actions(analysis)}, {"page_cache", page_cache(analysis)},
			{"profile", profile(analysis)}, {"gpu", gpu(analysis)}, {"phases", phases(analysis)},
			{"restored", restored(analysis)}, {"checkpoints", checkpoints(analysis)},
			{"predictions", json_predictions(analysis)}, {"ranks", ranks(analysis)},
			{with_steps ? "step_table" : NULL, with_steps ? steps(analysis) : json_null()}));
	return json_write(root, stream, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
}

int report_json_schema(FILE *stream)
{
	struct asset schema = asset_schema();

	errno = 0;
	if (fwrite(schema.bytes, 1, schema.length, stream) != schema.length || fflush(stream))
		return errno ? -errno : -EIO;
	return 0;
}
