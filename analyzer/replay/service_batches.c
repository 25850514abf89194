/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "analyzer/timeline/calls.h"
#include "lib/array.h"
#include "lib/sorted.h"
#include "service.h"

#define HEADER_BYTES 4 /* multiprocessing sends a length before each message */

static int birth_compare(const void *left, const void *right)
{
	const struct service_worker *a = left, *b = right;

	if (a->thread->first_ns != b->thread->first_ns)
		return a->thread->first_ns < b->thread->first_ns ? -1 : 1;
	return a->thread->tid < b->thread->tid ? -1 : a->thread->tid > b->thread->tid;
}

static int batch_add(struct service_worker *worker, const struct service_batch *batch)
{
	if (array_reserve(worker->batches, worker->n_batches, worker->n_allocated) < 0)
		return -ENOMEM;
	worker->batches[worker->n_batches++] = *batch;
	return 0;
}

/* Minimum time between messages. Two messages in quick succession are the end of an epoch, or a wake-up of
 * a persistent worker: nothing was loaded. */
#define BATCH_MIN_NS UINT64_C(20000)
#define WORK_MIN     0.02 /* fraction of the median batch's work; less is not a batch */

static bool writes_results(const struct roles *roles, const struct timeline_thread *thread)
{
	for (size_t i = 0; i < thread->n_calls; i++)
		if (call_is_pipe_write(&thread->calls[i]) && roles_is_result(roles, thread->calls[i].inode))
			return true;
	return false;
}

/* Finds the worker's helper threads. A thread that hands batches over does not count as a helper: its time is
 * in the hand-offs. */
static void helpers_find(const struct service_input *input, const struct timeline_thread *of,
			 struct service *service)
{
	const struct timeline *timeline = input->timeline;

	service->n_helpers = 0;
	for (size_t i = 0; i < timeline->n_threads; i++) {
		const struct timeline_thread *thread = &timeline->threads[i];

		if (thread == of || !timeline_same_process(thread, of) || !thread->n_offs ||
		    writes_results(input->roles, thread))
			continue;
		service->helpers[service->n_helpers++] = thread;
	}
}

static int batches_of_worker(const struct roles *roles, struct service_worker *worker,
			     struct service *service)
{
	const struct timeline_thread *thread = worker->thread;
	uint64_t begin_ns = 0;

	for (size_t i = 0; i < thread->n_calls; i++) {
		const struct timeline_call *call = &thread->calls[i];
		bool reads = call_is_pipe_read(call);

		if ((!reads && !call_is_pipe_poll(call)) || roles_is_result(roles, call->inode))
			continue;
		if (begin_ns && call->begin_ns > begin_ns + BATCH_MIN_NS) {
			struct service_batch batch = {.begin_ns = begin_ns, .end_ns = call->begin_ns};

			if (service_segments_add(thread, begin_ns, call->begin_ns, service, &batch) < 0 ||
			    batch_add(worker, &batch) < 0)
				return -ENOMEM;
		}
		begin_ns = reads && call->result > HEADER_BYTES ? call->end_ns : 0;
	}
	return 0;
}

/* The feeder writes one message per batch, in the batches' order. */
static void publications_find(const struct service_input *input, struct service_worker *worker)
{
	for (size_t i = 0; i < input->timeline->n_threads; i++) {
		const struct timeline_thread *thread = &input->timeline->threads[i];
		size_t k = 0;

		if (!timeline_same_process(thread, worker->thread) || thread == worker->thread)
			continue;
		for (size_t c = 0; c < thread->n_calls && k < worker->n_batches; c++) {
			const struct timeline_call *call = &thread->calls[c];

			if (!call_is_pipe_write(call) || !roles_is_result(input->roles, call->inode))
				continue;
			/* A message from before the first batch belongs to one that was not seen. The feeder
			 * may write before the worker looks for its next index, or only after the worker's
			 * next batch. */
			while (k < worker->n_batches && worker->batches[k].published_ns)
				k++;
			if (k < worker->n_batches && call->end_ns > worker->batches[k].begin_ns)
				worker->batches[k++].published_ns = call->end_ns;
		}
	}
}

static int batches_of_trainer(const struct service_input *input, struct service *service)
{
	const struct data_waits *waits = input->waits;
	struct service_worker *worker = &service->workers[0];

	worker->thread = input->roles->trainer;
	service->n_workers = 1;
	helpers_find(input, worker->thread, service);
	for (size_t i = data_waits_from(waits, input->window->begin_ns); i < waits->n; i++) {
		struct service_batch batch = {.begin_ns = waits->items[i].begin_ns,
					      .end_ns = waits->items[i].end_ns};

		if (batch.begin_ns >= input->window->end_ns)
			break;
		if (service_segments_add(worker->thread, batch.begin_ns, batch.end_ns, service, &batch) < 0 ||
		    batch_add(worker, &batch) < 0)
			return -ENOMEM;
	}
	return 0;
}

static double work_ns(const struct service *service, const struct service_batch *batch)
{
	double ns = 0;

	for (size_t i = 0; i < batch->n_segments; i++) {
		const struct model_segment *segment = &service->segments[batch->first_segment + i];

		ns += segment->compute_ns + segment->fetch_cpu_ns + segment->latency_ns;
	}
	return ns;
}

/* Removes false batches: a persistent worker that is notified of a new epoch answers at once. */
static int batches_weed(struct service *service)
{
	double *work;
	size_t n = 0;

	for (size_t w = 0; w < service->n_workers; w++)
		n += service->workers[w].n_batches;
	work = calloc(n + 1, sizeof(*work));
	if (!work)
		return -ENOMEM;
	n = 0;
	for (size_t w = 0; w < service->n_workers; w++)
		for (size_t i = 0; i < service->workers[w].n_batches; i++)
			work[n++] = work_ns(service, &service->workers[w].batches[i]);
	qsort(work, n, sizeof(*work), compare_double);
	for (size_t w = 0; w < service->n_workers; w++) {
		struct service_worker *worker = &service->workers[w];
		size_t n_kept = 0;

		for (size_t i = 0; i < worker->n_batches; i++)
			if (work_ns(service, &worker->batches[i]) >= WORK_MIN * work[n / 2])
				worker->batches[n_kept++] = worker->batches[i];
		worker->n_batches = n_kept;
	}
	free(work);
	return 0;
}

int service_batches_find(const struct service_input *input, struct service *service)
{
	size_t n = input->roles->n_workers;

	service->workers = calloc(n + 1, sizeof(*service->workers));
	service->helpers = calloc(input->timeline->n_threads + 1, sizeof(const struct timeline_thread *));
	if (!service->workers || !service->helpers)
		return -ENOMEM;
	if (input->waits->loader == LOADER_INLINE)
		return batches_of_trainer(input, service);
	for (size_t i = 0; i < n; i++)
		if (input->roles->worker_loaders[i])
			service->workers[service->n_workers++] = (struct service_worker){
			    .thread = input->roles->workers[i], .loader = input->roles->worker_loaders[i]};
	qsort(service->workers, service->n_workers, sizeof(*service->workers), birth_compare);
	for (size_t i = 0; i < service->n_workers; i++) {
		helpers_find(input, service->workers[i].thread, service);
		if (batches_of_worker(input->roles, &service->workers[i], service) < 0)
			return -ENOMEM;
		publications_find(input, &service->workers[i]);
	}
	return batches_weed(service);
}
