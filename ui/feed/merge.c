/* SPDX-License-Identifier: Apache-2.0 */
#include "merge.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ui/state/sample.h"

static void take_real(double *to, double from)
{
	if (isnan(*to))
		*to = from;
}

static void take_count(uint64_t *to, uint64_t from)
{
	if (*to == SAMPLE_UNKNOWN)
		*to = from;
}

/* Merges a job that the daemon serves. Its served figures come from the daemon; shares and steps come from
 * the node, if known there. */
static void merge_job(struct job_sample *to, const struct job_sample *from)
{
	to->served = from->served;
	if (isnan(to->share[SHARE_DEVICE]) && !isnan(from->share[SHARE_DEVICE])) {
		memcpy(to->share, from->share, sizeof(to->share));
		memcpy(to->method, from->method, sizeof(to->method));
		memcpy(to->verdict, from->verdict, sizeof(to->verdict));
		to->gpu_wait = from->gpu_wait;
		to->share_error = from->share_error;
		to->age_s = from->age_s;
		to->remark[0] = '\0';
	}
	take_real(&to->steps_per_s, from->steps_per_s);
	take_real(&to->step_p50_s, from->step_p50_s);
	take_real(&to->step_p95_s, from->step_p95_s);
	take_real(&to->read_bytes_per_s, from->read_bytes_per_s);
	take_real(&to->hit_ratio, from->hit_ratio);
	take_count(&to->n_workers, from->n_workers);
}

static struct job_sample *find(struct top_sample *sample, uint64_t pid, size_t n)
{
	for (size_t i = 0; pid && i < n; i++)
		if (sample->jobs[i].pid == pid)
			return &sample->jobs[i];
	return NULL;
}

static int copy_list(struct top_sample *to, enum sample_list list, const void *items, size_t n, size_t size)
{
	for (size_t i = 0; i < n; i++) {
		void *item = sample_add(to, list);

		if (!item)
			return -ENOMEM;
		memcpy(item, (const char *)items + i * size, size);
	}
	return 0;
}

int merge_daemon(struct top_sample *node, const struct top_sample *daemon,
		 uint64_t (*job_of)(void *user, uint64_t pid), void *user)
{
	size_t n_own = node->n_jobs;
	int r;

	node->daemon = daemon->daemon;
	for (size_t i = 0; i < daemon->n_jobs; i++) {
		const struct job_sample *from = &daemon->jobs[i];
		struct job_sample *to = find(node, job_of(user, from->pid), n_own);

		if (to) {
			merge_job(to, from);
			continue;
		}
		to = sample_add(node, SAMPLE_JOBS);
		if (!to)
			return -ENOMEM;
		*to = *from;
	}
	r = copy_list(node, SAMPLE_DATASETS, daemon->datasets, daemon->n_datasets, sizeof(*daemon->datasets));
	return r < 0 ? r
		     : copy_list(node, SAMPLE_DECISIONS, daemon->decisions, daemon->n_decisions,
				 sizeof(*daemon->decisions));
}
