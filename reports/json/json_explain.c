/* SPDX-License-Identifier: Apache-2.0 */
#include "json_build.h"

#include "analyzer/analysis.h"
#include "reports/report.h"

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

int json_set_page_cache(json_t *root, const struct analysis *analysis)
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

int json_set_profile(json_t *root, const struct analysis *analysis)
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

int json_set_gpu(json_t *root, const struct analysis *analysis)
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

int json_set_phases(json_t *root, const struct analysis *analysis)
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

int json_set_checkpoints(json_t *root, const struct analysis *analysis)
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
