/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A quick disk delivers a file's bytes before the reader looks for them, so nobody sleeps for them. Single
 * reads do not show this. The kernel's count of pages that came into its cache says how many such bytes there
 * were; they belong to the reads that took most CPU time, because each of those had pages to make.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "service.h"

#define INSTANT_NS 1.0 /* marks a miss that took no time as a miss */

struct quick {
	double cost; /* CPU ns per byte */
	size_t request;
};

static int quick_compare(const void *left, const void *right)
{
	const struct quick *a = left, *b = right;

	return a->cost > b->cost ? -1 : a->cost < b->cost;
}

/* Takes the costliest reads until the bytes are found. */
static void misses_take(struct service *service, const struct quick *quick, size_t n, double bytes)
{
	for (size_t i = 0; i < n; i++) {
		const struct service_request *request = &service->requests[quick[i].request];

		if (bytes < request->request.bytes / 2)
			return;
		bytes -= request->request.bytes;
		service->segments[request->segment].latency_ns = INSTANT_NS;
	}
}

static void hits_leave(struct service *service)
{
	size_t n = 0;

	for (size_t i = 0; i < service->n_requests; i++)
		if (service->segments[service->requests[i].segment].latency_ns > 0)
			service->requests[n++] = service->requests[i];
	service->n_requests = n;
}

int service_misses_find(const struct service_input *input, struct service *service)
{
	struct quick *quick = calloc(service->n_requests + 1, sizeof(*quick));
	double missed_bytes = input->cold_bytes;
	size_t n = 0;

	if (!quick)
		return -ENOMEM;
	for (size_t i = 0; i < service->n_requests; i++) {
		const struct service_request *request = &service->requests[i];
		const struct model_segment *segment = &service->segments[request->segment];

		if (request->request.at_ns < (double)input->window->begin_ns ||
		    request->request.at_ns >= (double)input->window->end_ns)
			continue;
		if (request->request.wait_ns > 0)
			missed_bytes -= request->request.bytes;
		else
			quick[n++] = (struct quick){segment->fetch_cpu_ns / segment->size_bytes, i};
	}
	qsort(quick, n, sizeof(*quick), quick_compare);
	if (!isnan(missed_bytes))
		misses_take(service, quick, n, missed_bytes);
	free(quick);
	hits_leave(service);
	return 0;
}
