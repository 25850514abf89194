/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "lib/clock.h"
#include "predict.h"
#include "resample.h"

#define HITS_MIN 20 /* fewer reads from memory do not tell how fast they are */

/* Amounts and times, which are resampled together. */
struct ratio {
	double *amount, *ns;
	size_t n;
};

static int ratio_init(struct ratio *ratio, size_t n)
{
	*ratio = (struct ratio){.amount = calloc(n + 1, sizeof(double)), .ns = calloc(n + 1, sizeof(double))};
	return ratio->amount && ratio->ns ? 0 : -ENOMEM;
}

static void ratio_free(struct ratio *ratio)
{
	free(ratio->amount);
	free(ratio->ns);
}

static double per_second(const uint32_t *weight, size_t n, const void *context)
{
	const struct ratio *ratio = context;
	double amount = 0, ns = 0;

	for (size_t i = 0; i < n; i++) {
		amount += weight[i] * ratio->amount[i];
		ns += weight[i] * ratio->ns[i];
	}
	return ns > 0 ? amount / ns * (double)NS_PER_S : NAN;
}

static void scale(struct estimate *estimate, double factor)
{
	estimate->value *= factor;
	estimate->low *= factor;
	estimate->high *= factor;
}

static int device_rate(const struct forecast *forecast, struct estimate *ret_per_s)
{
	struct ratio ratio;
	int r = ratio_init(&ratio, forecast->n);

	for (size_t k = 0; r == 0 && k < forecast->n; k++) {
		const struct model_step *step = &forecast->job.steps[forecast->first + k];

		ratio.amount[k] = 1;
		ratio.ns[k] = step->cpu_ns + step->sleep_ns;
	}
	if (r == 0)
		r = resample(forecast->n, per_second, &ratio, ret_per_s);
	ratio_free(&ratio);
	return r;
}

/* Bytes over the time in which somebody waited for some; if the fit found a shared server, that server's
 * bandwidth. */
static int storage_rate(const struct service *service, struct estimate *ret_bytes_per_s)
{
	struct ratio ratio;
	double until_ns = -INFINITY;
	int r = ratio_init(&ratio, service->n_requests);

	*ret_bytes_per_s = (struct estimate){NAN, NAN, NAN};
	for (size_t i = 0; r == 0 && i < service->n_requests; i++) {
		const struct model_request *request = &service->requests[i].request;
		double from_ns = fmax(request->at_ns, until_ns), to_ns = request->at_ns + request->wait_ns;

		ratio.amount[i] = request->bytes;
		ratio.ns[i] = fmax(0, to_ns - from_ns);
		until_ns = fmax(until_ns, to_ns);
	}
	if (r == 0)
		r = resample(service->n_requests, per_second, &ratio, ret_bytes_per_s);
	if (r == 0 && service->storage.bytes_per_s < INFINITY && ret_bytes_per_s->value > 0)
		scale(ret_bytes_per_s, service->storage.bytes_per_s / ret_bytes_per_s->value);
	ratio_free(&ratio);
	return r;
}

static int memory_rate(const struct service *service, struct estimate *ret_bytes_per_s)
{
	struct ratio ratio;
	size_t n = 0;
	int r = ratio_init(&ratio, service->n_segments);

	*ret_bytes_per_s = (struct estimate){NAN, NAN, NAN};
	for (size_t i = 0; r == 0 && i < service->n_segments; i++) {
		const struct model_segment *segment = &service->segments[i];

		if (segment->latency_ns > 0 || segment->bytes > 0 || !(segment->size_bytes > 0))
			continue;
		ratio.amount[n] = segment->size_bytes;
		ratio.ns[n++] = segment->fetch_cpu_ns;
	}
	if (r == 0 && n >= HITS_MIN)
		r = resample(n, per_second, &ratio, ret_bytes_per_s);
	ratio_free(&ratio);
	return r;
}

static double bytes_per_step(const struct model_job *job)
{
	double bytes = 0;

	for (size_t k = 0; k < job->n_steps; k++)
		for (size_t i = 0; i < job->batches[k].n_segments; i++)
			bytes += job->segments[job->batches[k].first_segment + i].size_bytes;
	return bytes / (double)job->n_steps;
}

int predict_rates(struct forecast *forecast, const struct service *service, struct predictions *predictions)
{
	struct model_scenario fetch = model_scenario_recorded(), prep = fetch;
	double n = service->batch_samples > 0 ? service->batch_samples : 1;
	int r;

	fetch.prep_cost = 0;
	fetch.device_free = true;
	prep.fetch_free = prep.device_free = true;
	predictions->batch_samples = service->batch_samples > 0 ? service->batch_samples : NAN;
	predictions->bytes_per_step = bytes_per_step(&forecast->job);
	r = forecast_rate(forecast, &fetch, &predictions->fetch_rate);
	if (r == 0)
		r = forecast_rate(forecast, &prep, &predictions->prep_rate);
	if (r == 0)
		r = device_rate(forecast, &predictions->device_rate);
	if (r == 0)
		r = storage_rate(service, &predictions->storage_bytes_per_s);
	if (r == 0)
		r = memory_rate(service, &predictions->memory_bytes_per_s);
	scale(&predictions->fetch_rate, n);
	scale(&predictions->prep_rate, n);
	scale(&predictions->device_rate, n);
	return r;
}
