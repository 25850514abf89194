/* SPDX-License-Identifier: Apache-2.0 */
/* A job's figures, collected from its sessions and the pool, and its part of the cache. */
#include <stdatomic.h>
#include <stdlib.h>

#include "daemon/cache/decoded.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "serving.h"

void serving_job_counters(const struct serving *s, const struct job *job, struct job_counters *ret)
{
	uint64_t now_ns = clock_monotonic_ns();

	*ret = job->counters;
	ret->cpu_ns = pool_lane_cpu_ns(&job->lane);
	if (job->n_reading > 0)
		ret->reading_ns += now_ns - job->reading_since_ns;
	if (job->n_coming > 0)
		ret->coming_ns += now_ns - job->coming_since_ns;
	for (const struct session *q = s->sessions; q; q = q->next) {
		if (q->job == job)
			session_add_waits(q, now_ns, ret);
	}
}

bool serving_job_decodes(const struct serving *s, const struct job *job)
{
	for (const struct session *q = s->sessions; q; q = q->next) {
		if (q->job == job && q->codecs)
			return true;
	}
	return false;
}

uint32_t serving_job_client_workers(const struct serving *s, const struct job *job)
{
	uint32_t most = 0;

	/* Each session of the job reports all workers of the job. */
	for (const struct session *q = s->sessions; q; q = q->next) {
		uint32_t said = q->job == job ? atomic_load(&q->slots.control->work.n_workers) : 0;

		if (said > most)
			most = said;
	}
	return most;
}

/* ---- consumption reported by clients ---- */

static uint64_t load(const _Atomic uint64_t *word)
{
	return atomic_load_explicit(word, memory_order_relaxed);
}

/* Returns the counters that the session's client reports now. */
static struct session_sensed session_sense(const struct session *q, uint64_t now_ns)
{
	const struct ring_control *control = q->slots.control;
	const struct ring_work *work = &control->work;
	struct job_counters waits = {0};

	session_add_waits(q, now_ns, &waits);
	return (struct session_sensed){
	    .known = true,
	    .consumed = atomic_load_explicit(&control->consumed, memory_order_relaxed),
	    .wait_ns = waits.wait_fetch_ns + waits.wait_prep_ns,
	    .fetch_ns = waits.wait_fetch_ns,
	    .n_samples = load(&work->n_samples),
	    .next_ns = load(&work->next_ns),
	    .handoff_ns = load(&work->handoff_ns),
	    .n_handoffs = load(&work->n_handoffs),
	    .cpu_ns = load(&work->cpu_ns),
	    .busy_ns = load(&work->busy_ns),
	    .n_worked = load(&work->n_worked),
	};
}

/* Returns the growth of a total, 0 if it shrank: a client may write anything, and a wait in progress may
 * be counted under another cause when it ends. */
static uint64_t grown(uint64_t before, uint64_t now)
{
	return now > before && now - before < UINT64_MAX / 2 ? now - before : 0;
}

void session_count_taken(struct session *q, uint64_t now_ns)
{
	struct session_sensed was = q->sensed;
	const struct session_sensed is = session_sense(q, now_ns);
	uint32_t stride = q->order.request.stride ? q->order.request.stride : 1,
		 batches = is.consumed - was.consumed;
	struct job_taken *taken = &q->job->taken;

	q->sensed = is;
	if (batches > is.consumed) /* an honest client's count never decreases */
		return;
	/* Costs of Python work are totals since the session was first opened, perhaps at an earlier
	 * daemon. */
	if (!was.known && is.n_samples > (uint64_t)is.consumed * q->order.batch) {
		was = is;
		was.wait_ns = was.fetch_ns = 0;
	}
	taken->batches += batches;
	taken->samples +=
	    is.n_samples ? grown(was.n_samples, is.n_samples) : (uint64_t)batches * q->order.batch;
	taken->wait_ns += grown(was.wait_ns, is.wait_ns) / stride;
	taken->fetch_ns += grown(was.fetch_ns, is.fetch_ns) / stride;
	taken->next_ns += grown(was.next_ns, is.next_ns) / stride;
	taken->handoff_ns += grown(was.handoff_ns, is.handoff_ns);
	taken->n_handed_samples += grown(was.n_handoffs, is.n_handoffs) * q->order.batch;
	taken->work_cpu_ns += grown(was.cpu_ns, is.cpu_ns);
	taken->work_busy_ns += grown(was.busy_ns, is.busy_ns);
	taken->n_worked += grown(was.n_worked, is.n_worked);
}

/* Returns a figure that a client may have set to anything, as far as JSON has such numbers. */
static uint64_t told(const _Atomic uint64_t *word)
{
	uint64_t value = load(word);

	return value < INT64_MAX ? value : INT64_MAX;
}

/* A loader reports with its next batch: an idle one's latest report may be older than another's of the same
 * checkpoint, which begins before it ends. */
static bool is_newer(const struct ring_checkpoints *r, uint64_t begun, bool writing)
{
	uint64_t n = told(&r->n_begun);

	return n > begun ||
	       (n && n == begun && writing && !atomic_load_explicit(&r->writing, memory_order_relaxed));
}

bool serving_job_checkpoints(const struct serving *s, const struct job *job, struct diesel_checkpoints *ret)
{
	uint64_t most = 0;
	bool writing = false;

	for (const struct session *q = s->sessions; q; q = q->next) {
		const struct ring_checkpoints *r = &q->slots.control->checkpoints;

		if (q->job != job || !is_newer(r, most, writing))
			continue;
		most = told(&r->n_begun);
		writing = atomic_load_explicit(&r->writing, memory_order_relaxed);
		*ret = (struct diesel_checkpoints){
		    .n_begun = most,
		    .n_failed = told(&r->n_failed),
		    .interval_steps = told(&r->interval_steps),
		    .step_ns = told(&r->step_ns),
		    .snapshot_ns = told(&r->snapshot_ns),
		    .slowdown_ns = told(&r->slowdown_ns),
		    .written_ns = told(&r->written_ns),
		    .spent_ns = told(&r->spent_ns),
		    .elapsed_ns = told(&r->elapsed_ns),
		    .newest_ns = told(&r->newest_ns),
		    .writing = writing,
		    .storage = load(&r->storage),
		};
	}
	return most > 0;
}

void serving_note_checkpoints(struct serving *s, uint64_t now_ns)
{
	for (struct session *q = s->sessions; q; q = q->next)
		q->job->writes.n_begun = 0;
	for (struct session *q = s->sessions; q; q = q->next) {
		const struct ring_checkpoints *r = &q->slots.control->checkpoints;
		struct job_writes *w = &q->job->writes;

		if (!is_newer(r, w->n_begun, w->writing))
			continue;
		w->n_begun = told(&r->n_begun);
		w->writing = atomic_load_explicit(&r->writing, memory_order_relaxed);
		w->storage = w->writing ? load(&r->storage) : 0;
	}
	for (struct session *q = s->sessions; q; q = q->next) {
		struct job_writes *w = &q->job->writes;
		uint64_t storage = w->n_begun ? w->storage : 0;

		if (w->held_storage && w->held_storage != storage)
			read_holds_end(&s->cache.holds, q->uid, w->held_storage, q->job->id);
		if (storage)
			read_holds_note(&s->cache.holds, q->uid, storage, q->job->id, now_ns);
		w->held_storage = storage;
	}
}

/* ---- parts of the cache ---- */

/* A dataset, or decoded copies, that the job has open. */
struct job_use {
	const void *what;
	uint64_t bytes; /* bytes of the dataset or copies in memory */
	struct job *job;
};

static int compare(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

static int by_what_and_whose(const void *a, const void *b)
{
	const struct job_use *x = a, *y = b;
	int order = compare((uintptr_t)x->what, (uintptr_t)y->what);

	if (order == 0)
		order = compare(x->job->uid, y->job->uid);
	return order == 0 ? compare(x->job->id, y->job->id) : order;
}

/* Sorts the uses by dataset or set of decoded copies, then by user, and drops duplicates, so that each job
 * appears once in each. */
static size_t sort(struct job_use *uses, size_t n)
{
	size_t n_left = 0;

	qsort(uses, n, sizeof(*uses), by_what_and_whose);
	for (size_t i = 0; i < n; i++)
		if (n_left == 0 || by_what_and_whose(&uses[n_left - 1], &uses[i]) != 0)
			uses[n_left++] = uses[i];
	return n_left;
}

/* Counts the leading uses of the same dataset or decoded copies and, if of_user, of the same user. */
static size_t count(const struct job_use *uses, size_t n, bool of_user)
{
	size_t i = 1;

	while (i < n && uses[i].what == uses->what && (!of_user || uses[i].job->uid == uses->job->uid))
		i++;
	return i;
}

static void share_out(const struct job_use *uses, size_t n)
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
	_cleanup_(freep) struct job_use *uses = NULL;
	size_t n = 0;

	for (const struct session *q = s->sessions; q; q = q->next)
		n += 2;
	uses = calloc(n + 1, sizeof(*uses));
	if (!uses) /* the previous shares continue */
		return;
	for (struct job *j = s->jobs.first; j; j = j->next) {
		j->cache_use.byte_s = job_cache_byte_s(j, now_ns);
		j->cache_use.at_ns = now_ns;
		j->cache_use.bytes = 0;
	}
	n = 0;
	for (const struct session *q = s->sessions; q; q = q->next) {
		q->job->cache_use.bytes += q->cost_bytes;
		uses[n++] =
		    (struct job_use){.what = q->order.dataset,
				     .bytes = q->order.dataset->held_bytes + q->order.dataset->copy.bytes,
				     .job = q->job};
		if (q->decoded_cache)
			uses[n++] = (struct job_use){
			    .what = q->decoded_cache, .bytes = q->decoded_cache->bytes, .job = q->job};
	}
	share_out(uses, sort(uses, n));
}
