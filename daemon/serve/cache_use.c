/* SPDX-License-Identifier: Apache-2.0 */
/* Shares of the cache by job. */
#include <stdlib.h>

#include "daemon/cache/forms.h"
#include "lib/cleanup.h"
#include "serving.h"

/* A dataset, or decoded forms, that the job has open. */
struct use {
	const void *what;
	uint64_t bytes; /* of it in memory */
	struct job *job;
};

static int compare(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

static int by_what_and_whose(const void *a, const void *b)
{
	const struct use *x = a, *y = b;
	int order = compare((uintptr_t)x->what, (uintptr_t)y->what);

	if (order == 0)
		order = compare(x->job->uid, y->job->uid);
	return order == 0 ? compare(x->job->id, y->job->id) : order;
}

/* Leaves each job once for each thing, and the users and jobs of one beside each other. */
static size_t sort(struct use *uses, size_t n)
{
	size_t n_left = 0;

	qsort(uses, n, sizeof(*uses), by_what_and_whose);
	for (size_t i = 0; i < n; i++)
		if (n_left == 0 || by_what_and_whose(&uses[n_left - 1], &uses[i]) != 0)
			uses[n_left++] = uses[i];
	return n_left;
}

/* How many from the first on are of the same thing, and of the same user, too. */
static size_t count(const struct use *uses, size_t n, bool of_user)
{
	size_t i = 1;

	while (i < n && uses[i].what == uses->what && (!of_user || uses[i].job->uid == uses->job->uid))
		i++;
	return i;
}

static void share_out(const struct use *uses, size_t n)
{
	for (size_t i = 0, n_same; i < n; i += n_same) {
		size_t n_users = 0, n_jobs;

		n_same = count(&uses[i], n - i, false);
		for (size_t k = i; k < i + n_same; k += count(&uses[k], i + n_same - k, true))
			n_users++;
		for (size_t k = i; k < i + n_same; k += n_jobs) {
			n_jobs = count(&uses[k], i + n_same - k, true);
			for (size_t j = k; j < k + n_jobs; j++)
				uses[j].job->cache_use.bytes += uses[j].bytes / n_users / n_jobs;
		}
	}
}

double job_cache_byte_s(const struct job *job, uint64_t now_ns)
{
	const struct job_cache_use *use = &job->cache_use;

	return use->byte_s + (double)use->bytes * ((double)(now_ns - use->at_ns) / 1e9);
}

void serving_count_cache(struct serving *s, uint64_t now_ns)
{
	_cleanup_(freep) struct use *uses = NULL;
	size_t n = 0;

	for (const struct session *q = s->sessions; q; q = q->next)
		n += 2;
	uses = calloc(n + 1, sizeof(*uses));
	if (!uses) /* then what it was goes on */
		return;
	for (struct job *j = s->jobs.first; j; j = j->next) {
		j->cache_use.byte_s = job_cache_byte_s(j, now_ns);
		j->cache_use.at_ns = now_ns;
		j->cache_use.bytes = 0;
	}
	n = 0;
	for (const struct session *q = s->sessions; q; q = q->next) {
		q->job->cache_use.bytes += q->cost_bytes;
		uses[n++] = (struct use){.what = q->dataset,
					 .bytes = q->dataset->held_bytes + q->dataset->copy.bytes,
					 .job = q->job};
		if (q->forms)
			uses[n++] = (struct use){.what = q->forms, .bytes = q->forms->bytes, .job = q->job};
	}
	share_out(uses, sort(uses, n));
}
