/* SPDX-License-Identifier: Apache-2.0 */
#include "job_fill.h"

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
