/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "calls.h"
#include "roles.h"

/* A message that the trainer's process read, or (result NONE) a step. */
struct feed {
	uint64_t at_ns;
	size_t result; /* index in roles->results */
};

#define NONE SIZE_MAX

/* Of one result pipe: the first and the last of the steps before which its message was the last to come. */
struct fed {
	size_t result, first, last;
};

static int feed_compare(const void *left, const void *right)
{
	const struct feed *a = left, *b = right;

	return a->at_ns < b->at_ns ? -1 : a->at_ns > b->at_ns;
}

/* Adds messages and steps by time; without an array it only counts them. */
static size_t feeds_collect(const struct timeline *timeline, const struct roles *roles, struct feed *feeds)
{
	size_t n = 0;

	for (size_t i = 0; i < timeline->n_threads; i++) {
		const struct timeline_thread *thread = &timeline->threads[i];

		if (!timeline_same_process(thread, roles->trainer))
			continue;
		for (size_t k = 0; k < thread->n_calls; k++) {
			const struct timeline_call *call = &thread->calls[k];
			size_t result;

			if (!call_is_pipe_read(call) || call->result <= 0)
				continue;
			result = roles_result(roles, call->inode);
			if (result == roles->n_results)
				continue;
			if (feeds)
				feeds[n] = (struct feed){call->end_ns, result};
			n++;
		}
	}
	for (size_t k = 0; k < roles->trainer->n_steps; k++, n++)
		if (feeds)
			feeds[n] = (struct feed){roles->trainer->steps[k], NONE};
	return n;
}

static int fed_compare(const void *left, const void *right)
{
	const struct fed *a = left, *b = right;

	return a->first < b->first ? -1 : a->first > b->first;
}

/* Pipes whose steps alternate are one loader's, which has a pipe for each worker. If each epoch has a loader
 * of its own, its steps all come after those of the one before. */
static void loaders_number(struct fed *fed, size_t n, struct roles *roles)
{
	uint32_t n_loaders = 0;
	size_t last = 0;

	qsort(fed, n, sizeof(*fed), fed_compare);
	for (size_t i = 0; i < n && fed[i].first != NONE; i++) {
		if (!i || fed[i].first > last)
			n_loaders++;
		if (!i || fed[i].last > last)
			last = fed[i].last;
		roles->result_loaders[fed[i].result] = n_loaders;
	}
	/* No step is a backward pass: nothing tells the loaders apart. */
	for (size_t i = 0; i < n && !n_loaders; i++)
		roles->result_loaders[i] = 1;
}

static void feeds_count(struct feed *feeds, size_t n, struct fed *fed, size_t n_results)
{
	size_t result = NONE, step = 0;

	for (size_t i = 0; i < n_results; i++)
		fed[i] = (struct fed){.result = i, .first = NONE};
	qsort(feeds, n, sizeof(*feeds), feed_compare);
	for (size_t i = 0; i < n; i++) {
		if (feeds[i].result != NONE) {
			result = feeds[i].result;
			continue;
		}
		if (result != NONE && fed[result].first == NONE)
			fed[result].first = step;
		if (result != NONE)
			fed[result].last = step;
		step++;
	}
}

static void workers_number(const struct timeline *timeline, struct roles *roles)
{
	for (size_t i = 0; i < timeline->n_threads; i++) {
		const struct timeline_thread *thread = &timeline->threads[i];
		size_t result = roles->n_results;

		if (roles->of[i] != ROLE_WORKER && roles->of[i] != ROLE_HANDOFF)
			continue;
		for (size_t k = 0; k < thread->n_calls && result == roles->n_results; k++)
			if (call_is_pipe_write(&thread->calls[k]))
				result = roles_result(roles, thread->calls[k].inode);
		for (size_t w = 0; result < roles->n_results && w < roles->n_workers; w++)
			if (timeline_same_process(roles->workers[w], thread))
				roles->worker_loaders[w] = roles->result_loaders[result];
	}
}

int roles_find_feeds(const struct timeline *timeline, struct roles *roles)
{
	size_t n = feeds_collect(timeline, roles, NULL);
	struct feed *feeds = calloc(n + 1, sizeof(*feeds));
	struct fed *fed = calloc(roles->n_results + 1, sizeof(*fed));

	roles->result_loaders = calloc(roles->n_results + 1, sizeof(*roles->result_loaders));
	roles->worker_loaders = calloc(roles->n_workers + 1, sizeof(*roles->worker_loaders));
	if (feeds && fed && roles->result_loaders && roles->worker_loaders) {
		feeds_collect(timeline, roles, feeds);
		feeds_count(feeds, n, fed, roles->n_results);
		loaders_number(fed, roles->n_results, roles);
		workers_number(timeline, roles);
	}
	free(feeds);
	free(fed);
	return feeds && fed && roles->result_loaders && roles->worker_loaders ? 0 : -ENOMEM;
}
