/* SPDX-License-Identifier: Apache-2.0 */
#include "summary.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyzer/timeline/calls.h"
#include "lib/sorted.h"

int summary_waits(struct analysis *analysis)
{
	uint64_t *waits = calloc(analysis->n_steps + 1, sizeof(*waits));
	uint64_t sum_ns = 0;
	size_t n = 0;

	if (!waits)
		return -ENOMEM;
	for (size_t i = 0; i < analysis->n_steps; i++) {
		const uint64_t *share_ns = analysis->steps[i].share_ns;

		if (analysis->steps[i].excluded)
			continue;
		waits[n] = share_ns[SHARE_FETCH_STALL] + share_ns[SHARE_PREP_STALL];
		sum_ns += waits[n++];
	}
	qsort(waits, n, sizeof(*waits), compare_u64);
	if (n) {
		analysis->wait_mean_ns = sum_ns / n;
		analysis->wait_p95_ns = waits[sorted_p95(n)];
	}
	free(waits);
	return 0;
}

struct life {
	uint64_t begin_ns, end_ns;
};

/* Returns the worker's life within the window; empty: none. */
static struct life life_in_window(const struct timeline_thread *worker, const struct analysis *analysis)
{
	struct life life = {.begin_ns = worker->first_ns, .end_ns = worker->last_ns};

	if (life.begin_ns < analysis->window.begin_ns)
		life.begin_ns = analysis->window.begin_ns;
	if (life.end_ns > analysis->window.end_ns)
		life.end_ns = analysis->window.end_ns;
	if (life.end_ns < life.begin_ns)
		life.end_ns = life.begin_ns;
	return life;
}

static bool waits_for_index(const struct timeline_thread *worker, const struct roles *roles, uint64_t at_ns)
{
	const struct timeline_call *call = timeline_call_at(worker, at_ns);

	return call && (call_is_pipe_poll(call) || call_is_pipe_read(call)) &&
	       !roles_is_result(roles, call->inode);
}

/* A loader thread with nothing to do waits at a futex word of its pool's queue. */
static bool is_idle(const struct timeline_thread *worker, const struct roles *roles,
		    const struct timeline_off *off)
{
	const struct timeline_call *call = timeline_call_at(worker, off->begin_ns);

	if (roles->n_workers)
		return waits_for_index(worker, roles, off->begin_ns);
	return call && call_is_lock_wait(call) && !gil_waits(&roles->gil, worker, off);
}

static void worker_add(const struct timeline_thread *worker, const struct roles *roles, struct life life,
		       struct analysis_workers *workers)
{
	for (uint64_t at_ns = life.begin_ns; at_ns < life.end_ns;) {
		struct timeline_piece piece = timeline_piece_at(worker, at_ns, life.end_ns);
		uint64_t ns = piece.end_ns - piece.begin_ns, fetch_ns;

		switch (piece.state) {
		case STATE_UNKNOWN: break;
		case STATE_CPU:
			fetch_ns = walk_fetch_calls(worker, ROLE_WORKER, piece.begin_ns, piece.end_ns);
			workers->fetch_ns += fetch_ns;
			workers->cpu_ns += ns - fetch_ns;
			break;
		case STATE_QUEUE: workers->queue_ns += ns; break;
		case STATE_SLEEP:
		case STATE_BLOCK:
			if ((piece.off->flags & EVENT_FLAG_MAJOR_FAULT) ||
			    walk_fetching(worker, ROLE_WORKER, piece.off->begin_ns))
				workers->fetch_ns += ns;
			else if (is_idle(worker, roles, piece.off))
				workers->idle_ns += ns;
			else
				workers->blocked_ns += ns;
			break;
		}
		at_ns = piece.end_ns;
	}
}

/* Returns the number of a thread's loader; 0: the thread feeds no step, like a validation's workers. */
static uint32_t loader_of(const struct roles *roles, size_t i)
{
	return roles->n_workers ? roles->worker_loaders[i] : 1;
}

/* Returns the maximum number of one loader's workers that live at the same time: the next iterator's
 * workers start while those of the last one end. With a handful of workers per epoch the quadratic loop is
 * cheap enough. */
static uint32_t most_at_once(const struct timeline_thread *const *threads, size_t n_threads,
			     const struct roles *roles, const struct analysis *analysis)
{
	uint32_t most = 0;

	for (size_t i = 0; i < n_threads; i++) {
		struct life life = life_in_window(threads[i], analysis);
		uint32_t n = 0;

		for (size_t k = 0; loader_of(roles, i) && k < n_threads; k++) {
			struct life other = life_in_window(threads[k], analysis);

			n += loader_of(roles, k) == loader_of(roles, i) && other.begin_ns <= life.begin_ns &&
			     life.begin_ns < other.end_ns;
		}
		if (n > most)
			most = n;
	}
	return most;
}

static uint64_t bytes_read(const struct timeline_thread *thread, uint64_t begin_ns, uint64_t end_ns)
{
	uint64_t bytes = 0;

	for (size_t i = timeline_call_from(thread, begin_ns); i < thread->n_calls; i++) {
		if (thread->calls[i].begin_ns >= end_ns)
			break;
		bytes += call_read_bytes(&thread->calls[i]);
	}
	return bytes;
}

void summary_workers(const struct timeline *timeline, const struct roles *roles, struct analysis *analysis)
{
	const struct timeline_thread *const *threads = roles->n_workers ? roles->workers : roles->loaders;
	size_t n_threads = roles->n_workers ? roles->n_workers : roles->n_loaders;
	struct analysis_workers *workers = &analysis->workers;

	for (size_t i = 0; i < n_threads; i++) {
		struct life life = life_in_window(threads[i], analysis);

		if (life.begin_ns >= life.end_ns)
			continue;
		workers->n++;
		worker_add(threads[i], roles, life, workers);
	}
	workers->n_at_once = most_at_once(threads, n_threads, roles, analysis);
	analysis->window.read_bytes_known = true;
	for (size_t i = 0; i < timeline->n_threads; i++) {
		const struct timeline_thread *thread = &timeline->threads[i];
		struct timeline_account account =
		    timeline_account(thread, analysis->window.begin_ns, analysis->window.end_ns);

		analysis->job.busy_ns += account.cpu_ns + account.queue_ns;
		analysis->job.cpu_ns += account.cpu_ns;
		analysis->window.read_bytes +=
		    bytes_read(thread, analysis->window.begin_ns, analysis->window.end_ns);
	}
}

double summary_busy_cores(const struct analysis *analysis)
{
	double wall = (double)analysis->window.observed_ns, busy = (double)analysis->job.busy_ns;

	if (!analysis->job.busy_ns) /* when sampled, this counts one trainer and its workers */
		busy = (double)analysis->workers.cpu_ns + (double)analysis->workers.queue_ns +
		       (double)analysis->share_ns[SHARE_DEVICE] +
		       (double)analysis->share_ns[SHARE_CPU_STARVED];
	return wall > 0 ? busy / wall : 0;
}

double summary_cores_limit(const struct analysis *analysis)
{
	double busy = summary_busy_cores(analysis);

	return analysis->job.n_cpus && busy > 0 ? fmax(1, analysis->job.n_cpus / busy) : INFINITY;
}

static int item_compare(const void *left, const void *right)
{
	const struct tally_item *a = left, *b = right;

	return a->ns > b->ns ? -1 : a->ns < b->ns;
}

/* Returns the time of the trainer's own work, and of its waits for a core, up to the same amount. */
static uint64_t own_prep_ns(const struct tally *tally)
{
	uint64_t work_ns = 0, queue_ns = 0;

	for (size_t i = 0; i < tally->n; i++) {
		const struct tally_item *item = &tally->items[i];

		if (item->role != ROLE_TRAINER || item->fetch || strcmp(item->what, walk_gil_text) == 0 ||
		    strcmp(item->what, walk_daemon_text) == 0)
			continue;
		if (strcmp(item->what, walk_no_core_text) == 0)
			queue_ns += item->ns;
		else
			work_ns += item->ns;
	}
	return work_ns + (queue_ns < work_ns ? queue_ns : work_ns);
}

void summary_evidence(const struct tally *tally, struct analysis *analysis)
{
	struct tally sorted = *tally;

	qsort(sorted.items, sorted.n, sizeof(sorted.items[0]), item_compare);
	for (size_t i = 0; i < sorted.n; i++) {
		if (strcmp(sorted.items[i].what, walk_gil_text) == 0)
			analysis->parts.gil_ns += sorted.items[i].ns;
		else if (strcmp(sorted.items[i].what, walk_daemon_text) == 0)
			analysis->parts.daemon_prep_ns += sorted.items[i].ns;
		else if (strcmp(sorted.items[i].what, walk_peers_text) == 0)
			analysis->parts.peers_ns += sorted.items[i].ns;
	}
	analysis->parts.own_prep_ns = own_prep_ns(tally);
	for (size_t i = 0; i < sorted.n && i < ANALYSIS_EVIDENCE_MAX; i++) {
		struct analysis_evidence *evidence = &analysis->evidence[analysis->n_evidence++];

		snprintf(evidence->role, sizeof(evidence->role), "%s", role_name(sorted.items[i].role));
		snprintf(evidence->what, sizeof(evidence->what), "%s", sorted.items[i].what);
		evidence->ns = sorted.items[i].ns;
		evidence->fetch = sorted.items[i].fetch;
	}
}

void summary_losses(const struct analysis_input *input, struct analysis *analysis)
{
	for (size_t i = 0; i < analysis->n_steps; i++)
		analysis->steps[i].complete = true;
	for (size_t k = 0; k < input->n_losses; k++) {
		const struct analysis_loss *loss = &input->losses[k];

		analysis->recorded.n_lost += loss->n_events;
		for (size_t i = 0; loss->n_events && i < analysis->n_steps; i++)
			if (analysis->steps[i].begin_ns <= loss->end_ns &&
			    loss->begin_ns <= analysis->steps[i].end_ns)
				analysis->steps[i].complete = false;
	}
	for (size_t i = 0; i < analysis->n_steps; i++)
		analysis->n_incomplete += !analysis->steps[i].complete;
	if (analysis->n_steps)
		analysis->recorded.coverage_ratio =
		    1 - (double)analysis->n_incomplete / (double)analysis->n_steps;
}
