/* SPDX-License-Identifier: Apache-2.0 */
#include "session.h"

#include <stdatomic.h>

#include "daemon/cache/job.h"

static uint64_t load(const _Atomic uint64_t *word)
{
	return atomic_load_explicit(word, memory_order_relaxed);
}

/* What the session's client reports now. */
static struct session_sensed session_look(const struct session *q, uint64_t now_ns)
{
	const struct ring_control *control = q->control;
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

/* The growth of a total, 0 if it shrank: a client may write anything, and a wait under way may be counted
 * under another cause when it ends. */
static uint64_t grown(uint64_t before, uint64_t now)
{
	return now > before && now - before < UINT64_MAX / 2 ? now - before : 0;
}

void session_count_taken(struct session *q, uint64_t now_ns)
{
	struct session_sensed was = q->sensed;
	const struct session_sensed is = session_look(q, now_ns);
	uint32_t stride = q->request.stride ? q->request.stride : 1, batches = is.consumed - was.consumed;
	struct job_taken *taken = &q->job->taken;

	q->sensed = is;
	if (batches > is.consumed) /* it never goes back in an honest client */
		return;
	/* Costs of Python work are totals since the session was first opened, perhaps at an earlier
	 * daemon. */
	if (!was.known && is.n_samples > (uint64_t)is.consumed * q->batch) {
		was = is;
		was.wait_ns = was.fetch_ns = 0;
	}
	taken->batches += batches;
	taken->samples += is.n_samples ? grown(was.n_samples, is.n_samples) : (uint64_t)batches * q->batch;
	taken->wait_ns += grown(was.wait_ns, is.wait_ns) / stride;
	taken->fetch_ns += grown(was.fetch_ns, is.fetch_ns) / stride;
	taken->next_ns += grown(was.next_ns, is.next_ns) / stride;
	taken->handoff_ns += grown(was.handoff_ns, is.handoff_ns);
	taken->n_handed_samples += grown(was.n_handoffs, is.n_handoffs) * q->batch;
	taken->work_cpu_ns += grown(was.cpu_ns, is.cpu_ns);
	taken->work_busy_ns += grown(was.busy_ns, is.busy_ns);
	taken->n_worked += grown(was.n_worked, is.n_worked);
}
