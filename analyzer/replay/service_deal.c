/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "service.h"

#include "lib/sorted.h"

/* Workers [first, end) of one loader that live at the same time. */
struct generation {
	size_t first, end;
	uint64_t begin_ns; /* its first batch */
	size_t *n_dealt;   /* of each worker's batches, by index in service->workers */
};

static uint64_t first_begin_ns(const struct service_worker *worker)
{
	return worker->n_batches ? worker->batches[0].begin_ns : UINT64_MAX;
}

static struct generation generation_at(const struct service *service, size_t first, size_t *n_dealt)
{
	struct generation generation = {
	    .first = first, .end = first, .begin_ns = UINT64_MAX, .n_dealt = n_dealt};
	uint64_t last_ns = UINT64_MAX;

	while (generation.end < service->n_workers) {
		const struct service_worker *worker = &service->workers[generation.end];
		uint64_t begin_ns = first_begin_ns(worker);

		if (worker->loader != service->workers[first].loader ||
		    (worker->n_batches && begin_ns > last_ns))
			break;
		if (worker->n_batches) {
			uint64_t end_ns = worker->batches[worker->n_batches - 1].end_ns;

			if (begin_ns < generation.begin_ns)
				generation.begin_ns = begin_ns;
			if (last_ns == UINT64_MAX || end_ns > last_ns)
				last_ns = end_ns;
		}
		generation.end++;
	}
	return generation;
}

/* Adds an epoch: how long after its first wait its workers took their first index in it. */
static void epoch_add(struct service *service, const struct generation *generation, size_t first_step,
		      uint64_t wait_ns)
{
	size_t n = generation->end - generation->first;
	struct model_epoch *epoch = &service->epochs[service->job.n_epochs++];
	uint64_t first_ns = UINT64_MAX, last_ns = 0;

	*epoch = (struct model_epoch){.first_step = first_step};
	for (size_t w = generation->first; w < generation->end; w++) {
		const struct service_worker *worker = &service->workers[w];
		uint64_t begin_ns;

		if (generation->n_dealt[w] >= worker->n_batches)
			continue;
		begin_ns = worker->batches[generation->n_dealt[w]].begin_ns;
		first_ns = begin_ns < first_ns ? begin_ns : first_ns;
		last_ns = begin_ns > last_ns ? begin_ns : last_ns;
	}
	if (first_ns == UINT64_MAX)
		return;
	first_ns = first_ns > wait_ns ? first_ns : wait_ns;
	epoch->start_ns = (double)(first_ns - wait_ns);
	if (last_ns > first_ns && n > 1)
		epoch->spacing_ns = (double)(last_ns - first_ns) / (double)(n - 1);
}

/* Steps [first_step, end_step) get the generation's next batches, in turn; if a worker was seen with fewer
 * batches, it gives those it has again. */
static void batches_deal(struct service *service, const struct generation *generation, size_t first_step,
			 size_t end_step)
{
	size_t n = generation->end - generation->first;

	for (size_t k = first_step; k < end_step; k++) {
		size_t w = generation->first + (k - first_step) % n;
		const struct service_worker *worker = &service->workers[w];
		size_t i = generation->n_dealt[w]++;

		if (!worker->n_batches)
			continue;
		service->n_matched += i < worker->n_batches;
		i %= worker->n_batches;
		service->batches[k] =
		    (struct model_batch){worker->batches[i].first_segment, worker->batches[i].n_segments};
	}
}

/* How many batches the generation had begun before at_ns. */
static size_t n_begun(const struct service *service, const struct generation *generation, uint64_t at_ns)
{
	size_t n = 0;

	for (size_t w = generation->first; w < generation->end; w++) {
		const struct service_worker *worker = &service->workers[w];

		n += sorted_count(worker->n_batches, i, worker->batches[i].begin_ns < at_ns);
	}
	return n;
}

/*
 * The step in [step, end) before which the generation pauses: everything it had begun was consumed, and there
 * is more to come. A loader that has indices left is ahead by the time of the backward pass; one that stays
 * for the next epoch (persistent workers) begins anew. end: none. Counting needs a generation that was seen
 * from its birth.
 */
static size_t epoch_end(const struct service_input *input, const struct service *service,
			const struct generation *generation, size_t first, size_t step, size_t end)
{
	const struct analysis_step *steps = input->window->steps;

	if (!service->workers[generation->first].thread->born_ns)
		return end;
	for (size_t k = step; k + 1 < end; k++)
		if (n_begun(service, generation, steps[k].backward_ns) == k + 1 - first)
			return k + 1;
	return end;
}

static void generation_deal(const struct service_input *input, struct service *service,
			    const struct generation *generation, size_t first, size_t end)
{
	uint32_t n = (uint32_t)(generation->end - generation->first);

	for (size_t step = first; step < end;) {
		size_t next = epoch_end(input, service, generation, first, step, end);

		epoch_add(service, generation, step, input->window->steps[step].begin_ns);
		/* Workers that were there when the recording began may have been there for long. */
		service->epochs[service->job.n_epochs - 1].fresh =
		    step == first && service->workers[generation->first].thread->born_ns;
		batches_deal(service, generation, step, next);
		step = next;
	}
	if (n > service->job.loader.n_workers)
		service->job.loader.n_workers = n;
}

int service_batches_deal(const struct service_input *input, struct service *service)
{
	const struct window *window = input->window;
	size_t *n_dealt = calloc(service->n_workers + 1, sizeof(*n_dealt)), step = 0;
	struct generation generation;

	if (!n_dealt)
		return -ENOMEM;
	generation = generation_at(service, 0, n_dealt);
	while (step < window->n_steps && generation.first < generation.end) {
		struct generation next = generation_at(service, generation.end, n_dealt);
		size_t end = step;

		/* A step belongs to the last workers that had begun when its wait was over. */
		while (end < window->n_steps &&
		       (next.first == next.end || next.begin_ns >= window->steps[end].backward_ns))
			end++;
		if (end > step)
			generation_deal(input, service, &generation, step, end);
		step = end;
		generation = next;
	}
	free(n_dealt);
	return 0;
}
