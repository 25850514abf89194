/* SPDX-License-Identifier: Apache-2.0 */
/* Returns a session's figures, and reports the caller's figures of its Python work to the daemon. */
#include "session.h"

#include "dataset/shuffle.h"

uint64_t diesel_session_n_batches(const struct diesel_session *session)
{
	return session->n_batches;
}

uint64_t diesel_n_batches(uint64_t n_samples, uint32_t world, uint32_t batch, uint32_t flags)
{
	struct shuffle_counts counts;

	if (shuffle_count(n_samples, 0, world, batch, flags & DIESEL_DROP_LAST, &counts) < 0)
		return 0;
	return counts.n_batches;
}

int diesel_first_batch(uint64_t n_samples, uint64_t start, uint32_t world, uint32_t batch, uint32_t flags,
		       uint64_t *ret_batch)
{
	struct shuffle_counts counts;
	int r = shuffle_count(n_samples, start, world, batch, flags & DIESEL_DROP_LAST, &counts);

	if (r == 0)
		*ret_batch = counts.first_batch;
	return r;
}

uint64_t diesel_position(uint64_t n_samples, uint64_t start, uint32_t world, uint32_t batch, uint32_t flags,
			 uint64_t index)
{
	return shuffle_position(n_samples, start, world, batch, flags & DIESEL_DROP_LAST, index);
}

uint32_t diesel_session_window_chunks(const struct diesel_session *session)
{
	return session->request.window_chunks;
}

uint32_t diesel_session_max_held(const struct diesel_session *session)
{
	return session->attachment ? session->attachment->n_slots - 1 : RING_MIN_SLOTS - 1;
}

uint32_t diesel_session_n_held(const struct diesel_session *session)
{
	return session->attachment ? atomic_load(&session->attachment->n_held) : 0;
}

uint32_t diesel_session_ready(const struct diesel_session *session)
{
	const struct attachment *a = session->attachment;

	return a ? ring_ready(a->control, a->consumed) : 0;
}

uint32_t diesel_session_wanted_workers(const struct diesel_session *session)
{
	return session->attachment
		   ? atomic_load_explicit(&session->attachment->control->wanted_workers, memory_order_relaxed)
		   : DIESEL_NO_WISH;
}

const char *diesel_session_error(const struct diesel_session *session)
{
	return session->error;
}

const char *diesel_session_notice(struct diesel_session *session)
{
	if (!session->has_notice)
		return NULL;
	session->has_notice = false;
	return session->notice;
}

void diesel_batch_release(void *lease)
{
	lease_release(lease);
}

static void store(_Atomic uint64_t *to, uint64_t value)
{
	atomic_store_explicit(to, value, memory_order_relaxed);
}

void diesel_session_report(struct diesel_session *session, const struct diesel_work *totals)
{
	if (totals != &session->work)
		session->work = *totals;
	if (!session->attachment)
		return; /* sent when a daemon is back */

	struct ring_work *work = &session->attachment->control->work;

	store(&work->n_batches, totals->n_batches);
	store(&work->n_samples, totals->n_samples);
	store(&work->next_ns, totals->next_ns);
	store(&work->wait_ns, totals->wait_ns);
	store(&work->n_waits, totals->n_waits);
	store(&work->inline_ns, totals->inline_ns);
	store(&work->handoff_ns, totals->handoff_ns);
	store(&work->worker_handoff_ns, totals->worker_handoff_ns);
	store(&work->n_handoffs, totals->n_handoffs);
	store(&work->cpu_ns, totals->cpu_ns);
	store(&work->busy_ns, totals->busy_ns);
	store(&work->n_worked, totals->n_worked);
	store(&work->result_bytes, totals->result_bytes);
	store(&work->worker_bytes, totals->worker_bytes);
	atomic_store_explicit(&work->n_workers, totals->n_workers, memory_order_relaxed);
	atomic_store_explicit(&work->n_deaths, totals->n_deaths, memory_order_relaxed);
	atomic_store_explicit(&work->policy, totals->policy, memory_order_relaxed);
}

void diesel_session_report_checkpoints(struct diesel_session *session,
				       const struct diesel_checkpoints *checkpoints)
{
	if (checkpoints != &session->checkpoints)
		session->checkpoints = *checkpoints;
	if (!session->attachment)
		return;

	struct ring_checkpoints *to = &session->attachment->control->checkpoints;

	store(&to->n_failed, checkpoints->n_failed);
	store(&to->interval_steps, checkpoints->interval_steps);
	store(&to->step_ns, checkpoints->step_ns);
	store(&to->snapshot_ns, checkpoints->snapshot_ns);
	store(&to->slowdown_ns, checkpoints->slowdown_ns);
	store(&to->written_ns, checkpoints->written_ns);
	store(&to->spent_ns, checkpoints->spent_ns);
	store(&to->elapsed_ns, checkpoints->elapsed_ns);
	store(&to->newest_ns, checkpoints->newest_ns);
	store(&to->storage, checkpoints->storage);
	atomic_store_explicit(&to->writing, checkpoints->writing, memory_order_relaxed);
	store(&to->n_begun, checkpoints->n_begun);
}
