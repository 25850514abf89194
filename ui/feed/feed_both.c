/* SPDX-License-Identifier: Apache-2.0 */
#include "feed.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "lib/error.h"
#include "ui/state/sample.h"

struct both {
	struct feed feed;
	struct feed *node, *daemon;
};

static void work(struct feed *feed, uint64_t now_ns, uint64_t *ret_next_ns)
{
	struct both *both = (struct both *)feed;

	both->node->ops->work(both->node, now_ns, ret_next_ns);
}

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

/* Adds the contents of the daemon's sample to the node's. On -ENOMEM, part of them is missing. */
static int merge(const struct feed *feed, struct top_sample *node, const struct top_sample *daemon)
{
	size_t n_own = node->n_jobs;
	int r;

	node->daemon = daemon->daemon;
	for (size_t i = 0; i < daemon->n_jobs; i++) {
		const struct job_sample *from = &daemon->jobs[i];
		struct job_sample *to =
		    find(node, (uint64_t)feed->ops->job_of(feed, (pid_t)from->pid), n_own);

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

static int take_sample(struct feed *feed, unsigned int wanted, uint64_t now_ns,
		       struct top_sample **ret_sample, struct error *err)
{
	struct both *both = (struct both *)feed;
	struct top_sample *node = NULL, *daemon = NULL;
	int r = both->node->ops->sample(both->node, wanted, now_ns, &node, err);

	if (r == 0)
		r = both->daemon->ops->sample(both->daemon, wanted, now_ns, &daemon, err);
	if (r == 0 && merge(both->node, node, daemon))
		r = error_set(err, -ENOMEM, "no memory for a sample");
	sample_free(daemon);
	if (r < 0)
		sample_free(node);
	else
		*ret_sample = node;
	return r;
}

static void both_close(struct feed *feed)
{
	struct both *both = (struct both *)feed;

	feed_close(both->node);
	feed_close(both->daemon);
	free(both);
}

static const struct feed_ops both_ops = {.work = work, .sample = take_sample, .close = both_close};

int feed_both_open(struct feed *node, struct feed *daemon, struct feed **ret_feed, struct error *err)
{
	struct both *both = calloc(1, sizeof(*both));

	if (!both) {
		feed_close(node);
		feed_close(daemon);
		return error_set(err, -ENOMEM, "not enough memory to start diesel-top");
	}
	*both = (struct both){{&both_ops}, node, daemon};
	*ret_feed = &both->feed;
	return 0;
}
