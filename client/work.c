/* SPDX-License-Identifier: Apache-2.0 */
/* Writes what the caller reports of its Python work to where the daemon's sensing reads it. */
#include "session.h"

static void store(_Atomic uint64_t *to, uint64_t value)
{
	atomic_store_explicit(to, value, memory_order_relaxed);
}

void diesel_session_report(struct diesel_session *session, const struct diesel_work *totals)
{
	if (totals != &session->work)
		session->work = *totals;
	if (!session->attachment)
		return; /* told when the daemon is back */

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
