/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "calls.h"
#include "lib/array.h"
#include "service.h"

/*
 * How long handing a batch over takes, with the worker's main thread computing (it has the interpreter's
 * lock, and gives it up for a moment every 5 ms) and without. Both are solved from sums over all hand-offs:
 * each is one unit of work, done at one of two speeds at any time. Where workers compute all the time, none
 * shows what it takes without: then that is the CPU time of both its ends.
 */
#define MOSTLY_IDLE 0.2
#define IDLE_MIN    5 /* fewer hand-offs beside an idle worker are not enough to learn from */

struct handoff {
	double busy_ns, idle_ns; /* parts of its time */
	double cpu_ns;           /* of its ends; 0: not known */
};

struct handoffs {
	struct handoff *items;
	size_t n, n_allocated;
};

/* Computing, or waiting for a core or a lock: the lock is the interpreter's, which the hand-off has then. */
static double busy_between_ns(const struct timeline_thread *worker, uint64_t begin_ns, uint64_t end_ns)
{
	struct timeline_account account = timeline_account(worker, begin_ns, end_ns);
	const struct timeline_off *off = timeline_off_before(worker, end_ns);
	uint64_t locked_ns = 0;

	for (; off && off >= worker->offs && off->waking_ns > begin_ns; off--) {
		const struct timeline_call *call =
		    off->state ? timeline_call_at(worker, off->begin_ns) : NULL;
		uint64_t from_ns = off->begin_ns > begin_ns ? off->begin_ns : begin_ns,
			 to_ns = off->waking_ns < end_ns ? off->waking_ns : end_ns;

		if (call && call->kind == CALL_FUTEX && from_ns < to_ns)
			locked_ns += to_ns - from_ns;
	}
	return (double)(account.cpu_ns + account.queue_ns + locked_ns);
}

/* worker NULL: not known. */
static int handoff_add(struct handoffs *handoffs, const struct timeline_thread *worker, double cpu_ns,
		       uint64_t begin_ns, uint64_t end_ns)
{
	double busy_ns =
	    worker ? fmin(busy_between_ns(worker, begin_ns, end_ns), (double)(end_ns - begin_ns)) : 0;

	if (array_room(handoffs->items, handoffs->n, handoffs->n_allocated) < 0)
		return -ENOMEM;
	handoffs->items[handoffs->n++] = (struct handoff){
	    .busy_ns = busy_ns, .idle_ns = (double)(end_ns - begin_ns) - busy_ns, .cpu_ns = cpu_ns};
	return 0;
}

static int whole_compare(const void *left, const void *right)
{
	const struct handoff *a = left, *b = right;
	double x = a->busy_ns + a->idle_ns, y = b->busy_ns + b->idle_ns;

	return x < y ? -1 : x > y;
}

static void handoffs_solve(struct handoffs *handoffs, double *ret_idle_ns, double *ret_busy_ns)
{
	double busy_ns = 0, idle_ns = 0, cpu_ns = 0, alone_ns, left;
	size_t n = handoffs->n, n_idle = 0, k = 0;

	*ret_idle_ns = *ret_busy_ns = 0;
	if (!n)
		return;
	qsort(handoffs->items, n, sizeof(*handoffs->items), whole_compare);
	for (size_t i = 0; i < n; i++) {
		const struct handoff *item = &handoffs->items[i];

		busy_ns += item->busy_ns;
		idle_ns += item->idle_ns;
		cpu_ns += item->cpu_ns;
		n_idle += item->busy_ns <= MOSTLY_IDLE * (item->busy_ns + item->idle_ns);
	}
	/* The median of those beside an idle worker; if there are too few, what the quickest tenth takes, or
	 * the CPU time. */
	alone_ns = handoffs->items[n / 10].busy_ns + handoffs->items[n / 10].idle_ns;
	if (cpu_ns > 0)
		alone_ns = fmin(alone_ns, cpu_ns / (double)n);
	for (size_t i = 0; n_idle >= IDLE_MIN && i < n; i++) {
		const struct handoff *item = &handoffs->items[i];

		if (item->busy_ns <= MOSTLY_IDLE * (item->busy_ns + item->idle_ns) && k++ == n_idle / 2)
			alone_ns = item->busy_ns + item->idle_ns;
	}
	if (alone_ns < 1)
		alone_ns = 1;
	left = (double)n - idle_ns / alone_ns;
	*ret_idle_ns = alone_ns;
	*ret_busy_ns = left > 0 ? fmax(alone_ns, busy_ns / left) : alone_ns;
}

static int publications_measure(struct service *service)
{
	struct model_loader *loader = &service->job.loader;
	struct handoffs handoffs = {0};
	int r = 0;

	for (size_t w = 0; w < service->n_workers; w++) {
		const struct service_worker *worker = &service->workers[w];

		for (size_t i = 0; r == 0 && i < worker->n_batches; i++) {
			const struct service_batch *batch = &worker->batches[i];

			if (batch->published_ns)
				r = handoff_add(&handoffs, worker->thread, 0, batch->end_ns,
						batch->published_ns > batch->end_ns ? batch->published_ns
										    : batch->end_ns);
		}
	}
	if (r == 0)
		handoffs_solve(&handoffs, &loader->publish_idle_ns, &loader->publish_busy_ns);
	free(handoffs.items);
	return r;
}

/* The worker whose thread, *ret_thread, answered on a socket meanwhile; NULL: none was seen. */
static const struct timeline_thread *giver(const struct service_input *input, const struct service *service,
					   uint64_t begin_ns, uint64_t end_ns,
					   const struct timeline_thread **ret_thread)
{
	for (size_t i = 0; i < input->timeline->n_threads; i++) {
		const struct timeline_thread *thread = &input->timeline->threads[i];
		size_t k;

		if (input->roles->of[i] != ROLE_HANDOFF || thread->first_ns >= end_ns ||
		    thread->last_ns <= begin_ns)
			continue;
		k = timeline_call_from(thread, begin_ns);
		while (k < thread->n_calls && thread->calls[k].end_ns <= end_ns &&
		       !call_is_socket(&thread->calls[k]))
			k++;
		if (k == thread->n_calls || thread->calls[k].end_ns > end_ns)
			continue;
		for (size_t w = 0; w < service->n_workers; w++)
			if (service->workers[w].thread->tgid == thread->tgid) {
				*ret_thread = thread;
				return service->workers[w].thread;
			}
	}
	return NULL;
}

/* When the trainer could first know of the batch: when it was woken for it, unless the batch was there
 * already. */
static uint64_t known_ns(const struct timeline_thread *trainer, const struct data_wait *wait)
{
	const struct timeline_off *off = timeline_off_before(trainer, wait->ready_ns);

	if (!off || !off->state || off->waking_ns <= wait->begin_ns || off->waking_ns > wait->ready_ns)
		return wait->begin_ns;
	return off->waking_ns;
}

static int handovers_measure(const struct service_input *input, struct service *service)
{
	struct model_loader *loader = &service->job.loader;
	const struct data_waits *waits = input->waits;
	struct handoffs handoffs = {0};
	int r = 0;

	for (size_t i = data_waits_from(waits, input->window->begin_ns); r == 0 && i < waits->n; i++) {
		const struct data_wait *wait = &waits->items[i];
		const struct timeline_thread *worker, *thread;
		double cpu_ns = 0;
		uint64_t from_ns;

		if (wait->begin_ns >= input->window->end_ns)
			break;
		if (wait->ready_ns <= wait->begin_ns || wait->ready_ns >= wait->end_ns)
			continue;
		from_ns = known_ns(input->roles->trainer, wait);
		worker = giver(input, service, wait->ready_ns, wait->end_ns, &thread);
		if (worker)
			cpu_ns =
			    (double)(timeline_account(input->roles->trainer, from_ns, wait->end_ns).cpu_ns +
				     timeline_account(thread, from_ns, wait->end_ns).cpu_ns);
		r = handoff_add(&handoffs, worker, cpu_ns, from_ns, wait->end_ns);
	}
	if (r == 0)
		handoffs_solve(&handoffs, &loader->handover_idle_ns, &loader->handover_busy_ns);
	free(handoffs.items);
	return r;
}

int service_handoffs_measure(const struct service_input *input, struct service *service)
{
	int r = publications_measure(service);

	return r == 0 ? handovers_measure(input, service) : r;
}
