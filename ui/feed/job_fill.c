/* SPDX-License-Identifier: Apache-2.0 */
#include "job_fill.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "analyzer/analysis.h"
#include "lib/cleanup.h"
#include "lib/sorted.h"
#include "ui/state/sample.h"

#define NS_TO_S 1e-9

/* Sets quantiles of complete steps, without excluded ones. */
static void fill_steps(const struct analysis *analysis, struct job_sample *job)
{
	_cleanup_(freep) uint64_t *ns = calloc(analysis->n_steps ? analysis->n_steps : 1, sizeof(*ns));
	size_t n = 0;
	uint64_t sum_ns = 0, p50_ns, p95_ns;

	for (size_t i = 0; ns && i < analysis->n_steps; i++) {
		if (analysis->steps[i].excluded)
			continue;
		ns[n] = analysis->steps[i].end_ns - analysis->steps[i].begin_ns;
		sum_ns += ns[n++];
	}
	if (!n)
		return;
	qsort(ns, n, sizeof(*ns), compare_u64);
	p50_ns = ns[n / 2];
	p95_ns = ns[sorted_p95(n)];
	job->step_p50_s = (double)p50_ns * NS_TO_S;
	job->step_p95_s = (double)p95_ns * NS_TO_S;
	if (sum_ns)
		job->steps_per_s = (double)n / ((double)sum_ns * NS_TO_S);
	job->n_steps = analysis->n_steps;
}

static void fill_gpu(const struct analysis *analysis, double window_s, struct job_sample *job)
{
	const struct gpu_use *gpu = analysis->gpu;

	if (!gpu || !analysis->window.observed_ns)
		return;
	job->gpu_spin = (double)gpu->spin_ns / (double)analysis->window.observed_ns;
	if (gpu->n_calls)
		snprintf(job->gpu_call, sizeof(job->gpu_call), "%s", gpu->calls[0].name);
	if (!gpu->launches_known || window_s <= 0)
		return;
	job->gpu_starved = (double)gpu->starved_ns / (double)analysis->window.observed_ns;
	job->launches_per_s = (double)gpu->n_launches / window_s;
	job->copies_per_s = (double)gpu->n_copies / window_s;
}

static void fill_shares(const struct analysis *analysis, struct job_sample *job)
{
	job->share_error = 0;
	for (int i = 0; i < SHARE_COUNT; i++) {
		if (analysis_share_known(analysis, (enum analysis_share)i))
			job->share[i] = analysis_share_ratio(analysis, (enum analysis_share)i);
		if (analysis->sampled.is && analysis->sampled.error[i] > job->share_error)
			job->share_error = analysis->sampled.error[i];
	}
	if (analysis->parts.gpu_wait_known && analysis->window.observed_ns)
		job->gpu_wait = (double)analysis->parts.gpu_wait_ns / (double)analysis->window.observed_ns;
	snprintf(job->verdict, sizeof(job->verdict), "%s", analysis_verdict_name(analysis->verdict));
}

void job_fill(const struct analysis *analysis, struct job_sample *job)
{
	double window_s = (double)(analysis->window.end_ns - analysis->window.begin_ns) * NS_TO_S;

	snprintf(job->method, sizeof(job->method), "%s", analysis->sampled.is ? "sampled" : "bpf");
	snprintf(job->remark, sizeof(job->remark), "%s",
		 analysis->insufficient[0] ? analysis->insufficient : analysis->note);
	if (analysis->job.loader != LOADER_NONE)
		snprintf(job->loader, sizeof(job->loader), "%s", analysis_loader_name(analysis->job.loader));
	if (analysis->recorded.n_lost)
		job->n_lost = analysis->recorded.n_lost;
	fill_steps(analysis, job);
	if (analysis->verdict == ANALYSIS_INSUFFICIENT)
		return;
	fill_shares(analysis, job);
	fill_gpu(analysis, window_s, job);
	if (analysis->sampled.n_steps_estimated && window_s > 0) {
		job->n_steps = analysis->sampled.n_steps_estimated;
		job->steps_per_s = (double)analysis->sampled.n_steps_estimated / window_s;
	}
	if (analysis->job.loader != LOADER_NONE &&
	    (!analysis->sampled.is || analysis->sampled.n_steps_estimated))
		job->wait_mean_s = (double)analysis->wait_mean_ns * NS_TO_S;
	if (analysis->job.loader == LOADER_WORKERS)
		job->n_workers = analysis->workers.n_at_once;
	else if (analysis->job.loader == LOADER_INLINE)
		job->n_workers = 0;
	if (window_s > 0 && analysis->window.read_bytes_known)
		job->read_bytes_per_s = (double)analysis->window.read_bytes / window_s;
	if (analysis->page_cache)
		job->hit_ratio = page_cache_hit_ratio(analysis->page_cache->accessed_pages,
						      analysis->page_cache->missed_pages);
}

static int add_place(const struct page_cache_place *place, const char *job, double window_s,
		     struct top_sample *sample)
{
	struct place_sample *to;

	if (!place->used_bytes && !place->cold_bytes)
		return 0;
	to = sample_add(sample, SAMPLE_PLACES);
	if (!to)
		return -ENOMEM;
	snprintf(to->job, sizeof(to->job), "%s", job);
	snprintf(to->path, sizeof(to->path), "%s", place->path);
	to->used_bytes_per_s = (double)place->used_bytes / window_s;
	to->cold_bytes_per_s = (double)place->cold_bytes / window_s;
	to->hit_ratio = page_cache_hit_ratio(place->accessed_pages, place->missed_pages);
	return 0;
}

int job_fill_places(const struct analysis *analysis, const char *job, struct top_sample *sample)
{
	const struct page_cache *cache = analysis->page_cache;
	double window_s = (double)(analysis->window.end_ns - analysis->window.begin_ns) * NS_TO_S;
	int r = 0;

	if (!cache || window_s <= 0)
		return 0;
	for (size_t i = 0; r == 0 && i < cache->n_folders; i++)
		r = add_place(&cache->folders[i], job, window_s, sample);
	for (size_t i = 0; r == 0 && i < cache->n_files; i++)
		r = add_place(&cache->files[i], job, window_s, sample);
	return r;
}

int job_fill_hops(const struct analysis *analysis, const char *job, struct top_sample *sample)
{
	const struct wait_chain *chain = analysis->chain;

	for (size_t i = 0; chain && i < chain->n; i++) {
		const struct wait_piece *piece = &chain->pieces[i];
		const struct wait_piece *next = i + 1 < chain->n ? &chain->pieces[i + 1] : NULL;
		struct hop_sample *to = sample_add(sample, SAMPLE_HOPS);

		if (!to)
			return -ENOMEM;
		snprintf(to->job, sizeof(to->job), "%s", job);
		snprintf(to->role, sizeof(to->role), "%s", piece->role);
		snprintf(to->name, sizeof(to->name), "%s", piece->name);
		snprintf(to->what, sizeof(to->what), "%s", piece->what);
		if (next && next->tid != piece->tid)
			snprintf(to->edge, sizeof(to->edge), "woken by %u", next->tid);
		to->tid = piece->tid;
		to->begin_s = (double)(piece->begin_ns - chain->wait_begin_ns) * NS_TO_S;
		to->length_s = (double)(piece->end_ns - piece->begin_ns) * NS_TO_S;
		to->fetch = piece->fetch;
	}
	return 0;
}
