/* SPDX-License-Identifier: Apache-2.0 */
#include "service.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/sorted.h"

/* What a page-cache hit costs, if the recording has none to learn from: opening, reading and closing a file,
 * and copying from memory that no CPU cache holds. */
#define CACHED_CPU_NS      12000.0
#define CACHED_NS_PER_BYTE 0.2

#define HITS_MIN 20 /* fewer reads from memory are not enough to learn from */

#define PREFETCH 2 /* DataLoader's default */

static int request_compare(const void *left, const void *right)
{
	const struct service_request *a = left, *b = right;

	return a->request.at_ns < b->request.at_ns ? -1 : a->request.at_ns > b->request.at_ns;
}

int service_storage_fit(struct service *service)
{
	struct model_request *requests;
	size_t n = service->n_requests;
	int r;

	service->job.storage.bytes_per_s = service->storage.bytes_per_s = INFINITY;
	if (!n)
		return 0;
	qsort(service->requests, n, sizeof(*service->requests), request_compare);
	requests = calloc(n, sizeof(*requests));
	if (!requests)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		requests[i] = service->requests[i].request;
	r = model_storage_fit(requests, n, &service->storage);
	free(requests);
	return r;
}

/* As service_foreign_queue_ns(), for the trainer outside of its data waits. */
static uint64_t foreign_queue_of_step(const struct service_input *input, const struct service *service,
				      const struct analysis_step *step)
{
	const struct data_waits *waits = input->waits;
	uint64_t at_ns = step->begin_ns, ns = 0;

	for (size_t i = data_waits_from(waits, at_ns); at_ns < step->end_ns; i++) {
		uint64_t from_ns = step->end_ns, to_ns = step->end_ns;

		if (i < waits->n && waits->items[i].begin_ns < step->end_ns) {
			from_ns = waits->items[i].begin_ns;
			to_ns = waits->items[i].end_ns;
		}
		if (from_ns > at_ns)
			ns += service_foreign_queue_ns(service, input->roles->trainer, at_ns, from_ns);
		at_ns = to_ns > at_ns ? to_ns : at_ns;
	}
	return ns;
}

/* The share device is the trainer's computing, except for its sleeps until a device or other ranks are done.
 */
static struct model_step step_measure(const struct service_input *input, const struct service *service,
				      const struct analysis_step *step)
{
	const uint64_t *share_ns = step->share_ns;
	uint64_t spin_ns = 0,
		 sleep_ns = partition_gpu_wait(input->partition, step->begin_ns, step->end_ns, &spin_ns);
	uint64_t fixed_ns = share_ns[SHARE_CHECKPOINT_STALL] + share_ns[SHARE_OTHER] +
			    share_ns[SHARE_COMPILING] +
			    partition_gil_ns(input->partition, step->begin_ns, step->end_ns) +
			    foreign_queue_of_step(input, service, step);

	sleep_ns -= spin_ns < sleep_ns ? spin_ns : sleep_ns;
	sleep_ns += partition_collective_ns(input->partition, step->begin_ns, step->end_ns);
	if (sleep_ns > share_ns[SHARE_DEVICE])
		sleep_ns = share_ns[SHARE_DEVICE];
	return (struct model_step){.cpu_ns = (double)(share_ns[SHARE_DEVICE] - sleep_ns),
				   .sleep_ns = (double)sleep_ns,
				   .fixed_ns = (double)fixed_ns};
}

static void steps_measure(const struct service_input *input, struct service *service)
{
	for (size_t k = 0; k < input->window->n_steps; k++)
		service->steps[k] = step_measure(input, service, &input->window->steps[k]);
}

/* Cores that the trainer's process uses at once while the trainer computes. */
static double gang_measure(const struct service_input *input, const struct service *service)
{
	const struct window *window = input->window;
	double helpers_ns = 0, trainer_ns = 0;

	for (size_t k = 0; k < window->n_steps; k++)
		trainer_ns += service->steps[k].cpu_ns;
	for (size_t i = 0; i < input->timeline->n_threads; i++)
		if (input->roles->of[i] == ROLE_HELPER)
			helpers_ns += (double)timeline_account(&input->timeline->threads[i], window->begin_ns,
							       window->end_ns)
					  .exec_ns;
	/* The batches have their part of it. */
	if (input->waits->loader == LOADER_INLINE)
		helpers_ns = fmax(0, helpers_ns - service->helpers_ns);
	return trainer_ns > 0 ? 1 + helpers_ns / trainer_ns : 1;
}

static int samples_count(struct service *service)
{
	uint32_t *counts;
	size_t n = 0;

	for (size_t w = 0; w < service->n_workers; w++)
		n += service->workers[w].n_batches;
	counts = calloc(n + 1, sizeof(*counts));
	if (!counts)
		return -ENOMEM;
	n = 0;
	for (size_t w = 0; w < service->n_workers; w++)
		for (size_t i = 0; i < service->workers[w].n_batches; i++)
			counts[n++] = service->workers[w].batches[i].n_files;
	qsort(counts, n, sizeof(*counts), compare_u32);
	service->batch_samples = n ? counts[n / 2] : 0;
	free(counts);
	return 0;
}

/* Between two batches a worker that is not ahead looks for its next index. The least that this takes, which
 * the quickest tenth shows, belongs to each batch. */
static int turnaround_add(struct service *service)
{
	double *gaps;
	size_t n = 0;

	for (size_t w = 0; w < service->n_workers; w++)
		n += service->workers[w].n_batches;
	gaps = calloc(n + 1, sizeof(*gaps));
	if (!gaps)
		return -ENOMEM;
	n = 0;
	for (size_t w = 0; w < service->n_workers; w++)
		for (size_t i = 1; i < service->workers[w].n_batches; i++)
			gaps[n++] = (double)(service->workers[w].batches[i].begin_ns -
					     service->workers[w].batches[i - 1].end_ns);
	qsort(gaps, n, sizeof(*gaps), compare_double);
	for (size_t w = 0; n && w < service->n_workers; w++)
		for (size_t i = 0; i < service->workers[w].n_batches; i++)
			if (service->workers[w].batches[i].n_segments)
				service->segments[service->workers[w].batches[i].first_segment].delay_ns +=
				    gaps[n / 10];
	free(gaps);
	return 0;
}

/* Measures what reading from memory costs, from the reads that did not wait, if there are enough. Some of
 * those came from storage that was quick: they cost several times as much, and so would the mean. */
static int cached_cost_measure(struct service *service)
{
	struct model_job *job = &service->job;
	double *costs = calloc(service->n_segments + 1, sizeof(*costs));
	size_t n = 0;

	if (!costs)
		return -ENOMEM;
	for (size_t i = 0; i < service->n_segments; i++) {
		const struct model_segment *segment = &service->segments[i];

		if (!(segment->latency_ns > 0) && segment->size_bytes > 0)
			costs[n++] = segment->fetch_cpu_ns / segment->size_bytes;
	}
	qsort(costs, n, sizeof(*costs), compare_double);
	job->cached_cpu_ns = n >= HITS_MIN ? 0 : CACHED_CPU_NS;
	job->cached_cpu_ns_per_byte = n >= HITS_MIN ? costs[n / 4] : CACHED_NS_PER_BYTE;
	free(costs);
	return 0;
}

static void inline_deal(const struct service_input *input, struct service *service)
{
	const struct service_worker *worker = &service->workers[0];
	size_t i = 0;

	service->epochs[service->job.n_epochs++] = (struct model_epoch){0};
	for (size_t k = 0; k < input->window->n_steps; k++) {
		const struct analysis_step *step = &input->window->steps[k];
		struct model_batch batch = {0};

		/* A batch may have been cut into several waits, whose segments follow each other. */
		while (i < worker->n_batches && worker->batches[i].end_ns <= step->begin_ns)
			i++;
		for (; i < worker->n_batches && worker->batches[i].begin_ns < step->end_ns; i++) {
			if (!batch.n_segments)
				batch.first_segment = worker->batches[i].first_segment;
			batch.n_segments += worker->batches[i].n_segments;
		}
		service->n_matched += batch.n_segments > 0;
		service->batches[k] = batch;
	}
}

static const char *judge(const struct service *service, size_t n_steps)
{
	if (service->n_workers > MODEL_WORKERS_MAX)
		return "too many worker processes";
	if (!service->job.n_epochs)
		return "no batch of a worker was seen whole";
	if (2 * service->n_matched < n_steps)
		return "most batches were not seen";
	return NULL;
}

static int job_assemble(const struct service_input *input, struct service *service)
{
	size_t n_steps = input->window->n_steps;
	struct model_job *job = &service->job;
	int r;

	service->batches = calloc(n_steps + 1, sizeof(*service->batches));
	service->steps = calloc(n_steps + 1, sizeof(*service->steps));
	service->epochs = calloc(n_steps + 1, sizeof(*service->epochs));
	if (!service->batches || !service->steps || !service->epochs)
		return -ENOMEM;
	steps_measure(input, service);
	job->loader.prefetch = PREFETCH;
	job->cores = input->n_cpus ? input->n_cpus : 1;
	job->gang = fmin(gang_measure(input, service), job->cores);
	if (input->waits->loader != LOADER_INLINE)
		service_sharing_measure(input, service);
	r = service_misses_find(input, service);
	if (r == 0)
		r = cached_cost_measure(service);
	if (r == 0)
		r = samples_count(service);
	if (r == 0)
		r = service_storage_fit(service);
	if (r < 0)
		return r;
	if (input->waits->loader == LOADER_INLINE) {
		inline_deal(input, service);
	} else {
		r = service_batches_deal(input, service);
		if (r == 0)
			r = turnaround_add(service);
		if (r == 0)
			r = service_handoffs_measure(input, service);
		if (r < 0)
			return r;
	}
	job->segments = service->segments;
	job->n_segments = service->n_segments;
	job->batches = service->batches;
	job->steps = service->steps;
	job->n_steps = n_steps;
	job->epochs = service->epochs;
	service->why_not = judge(service, n_steps);
	return 0;
}

/* Names loaders whose work lies elsewhere: another recording would say no more. */
static const char *why_no_batches(enum analysis_loader loader)
{
	switch (loader) {
	case LOADER_WORKERS:
	case LOADER_INLINE: return NULL;
	case LOADER_DIESEL:
		return "dieseld serves this job, and what it does is not in the recording: dieselctl why has "
		       "its model's figures while the job runs";
	case LOADER_THREADS:
		return "a queue of the job's own feeds it, and its batches cannot be told apart: only those "
		       "of a "
		       "DataLoader's workers and of the trainer are replayed";
	case LOADER_NONE: break;
	}
	return "no loader was seen";
}

int service_extract(const struct service_input *input, struct service *ret_service)
{
	struct service service = {0};
	int r = 0;

	service.why_not = why_no_batches(input->waits->loader);
	if (service.why_not) {
		/* nothing to extract */
	} else if (!input->window->n_steps) {
		service.why_not = "no whole step was seen";
	} else {
		r = cores_count(input->timeline, input->n_cpus ? input->n_cpus : 1, &service.cores);
		if (r == 0)
			r = service_batches_find(input, &service);
		if (r == 0)
			r = job_assemble(input, &service);
	}
	if (r < 0) {
		service_free(&service);
		return r;
	}
	*ret_service = service;
	return 0;
}

int service_serve(const struct service *service, struct model_job *job, struct model_segment **ret_segments)
{
	struct model_segment *segments;

	if (!(service->storage.bytes_per_s < INFINITY)) {
		*ret_segments = NULL;
		return 0;
	}
	segments = calloc(job->n_segments + 1, sizeof(*segments));
	if (!segments)
		return -ENOMEM;
	for (size_t i = 0; i < job->n_segments; i++) {
		struct model_segment *segment = &segments[i];

		*segment = job->segments[i];
		if (!(segment->latency_ns > 0) || !(segment->size_bytes > 0))
			continue;
		segment->bytes = segment->size_bytes;
		segment->latency_ns = fmin(segment->latency_ns, service->storage.latency_ns);
	}
	job->segments = *ret_segments = segments;
	job->storage = service->storage;
	return 0;
}

void service_free(struct service *service)
{
	for (size_t i = 0; i < service->n_workers; i++)
		free(service->workers[i].batches);
	free(service->workers);
	free(service->helpers);
	cores_free(&service->cores);
	free(service->requests);
	free(service->segments);
	free(service->batches);
	free(service->steps);
	free(service->epochs);
	*service = (struct service){0};
}
