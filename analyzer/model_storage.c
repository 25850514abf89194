/* SPDX-License-Identifier: Apache-2.0 */
#include "analyzer/model.h"

#define NS_PER_S 1e9

/* Of these bursts the best is taken: a throttled volume keeps a slice of 100 ms, a cloud's volume seconds. */
static const double bursts_ns[] = {0,     10e6,  20e6,  35e6,  50e6,   75e6,  100e6,
				   150e6, 200e6, 300e6, 500e6, 1000e6, 3000e6};

#define N_BURSTS (sizeof(bursts_ns) / sizeof(bursts_ns[0]))

#define FIT_REQUESTS_MAX 4000 /* more say nothing new */
#define RATE_STEPS       40   /* of the search for the bandwidth */
#define RATE_SPAN        4.0  /* around the first guess, factor up and down */

/* A server must explain waits clearly better than each request's own latency before waits are blamed on
 * other readers' requests. */
#define LATENCY_FACTOR 1.25

double model_storage_wait(const struct model_storage *storage, double *state, double at_ns, double bytes)
{
	double done_ns;

	if (!(storage->bytes_per_s < INFINITY) || bytes <= 0)
		return 0;
	/* *state is when the bytes so far will have passed; tokens are time that it lies in the past. */
	if (*state < at_ns - storage->burst_ns)
		*state = at_ns - storage->burst_ns;
	done_ns = *state + bytes / storage->bytes_per_s * NS_PER_S;
	*state = done_ns;
	return done_ns > at_ns ? done_ns - at_ns : 0;
}

double model_storage_expect(const struct model_storage *storage, double *state,
			    const struct model_request *request)
{
	double ns = model_storage_wait(storage, state, request->at_ns, request->bytes);

	/* When somebody waited the server's backlog is known: errors do not add up over requests. */
	if (request->wait_ns > 0)
		*state = request->at_ns + request->wait_ns;
	return ns;
}

static double fit_error(const struct model_request *requests, size_t n, const struct model_storage *storage)
{
	double state = -INFINITY, error = 0;

	for (size_t i = 0; i < n; i++)
		error += fabs(model_storage_expect(storage, &state, &requests[i]) - requests[i].wait_ns);
	return error;
}

/* Bytes over the time in which somebody waited for some: what the server gave when it was asked. */
static double busy_rate(const struct model_request *requests, size_t n)
{
	double bytes = 0, busy_ns = 0, until_ns = -INFINITY;

	for (size_t i = 0; i < n; i++) {
		double from_ns = fmax(requests[i].at_ns, until_ns);
		double to_ns = requests[i].at_ns + requests[i].wait_ns;

		bytes += requests[i].bytes;
		if (to_ns > from_ns) {
			busy_ns += to_ns - from_ns;
			until_ns = to_ns;
		}
	}
	return busy_ns > 0 ? bytes / busy_ns * NS_PER_S : 0;
}

/* What is left when each request waits for its own time only: so long a byte, the same for all. */
static double latency_error(const struct model_request *requests, size_t n)
{
	double bytes = 0, wait_ns = 0, error = 0;

	for (size_t i = 0; i < n; i++) {
		bytes += requests[i].bytes;
		wait_ns += requests[i].wait_ns;
	}
	for (size_t i = 0; i < n && bytes > 0; i++)
		error += fabs(requests[i].bytes * wait_ns / bytes - requests[i].wait_ns);
	return error;
}

struct model_storage model_storage_fit(const struct model_request *requests, size_t n_requests)
{
	struct model_storage best = {.bytes_per_s = INFINITY};
	size_t n = n_requests < FIT_REQUESTS_MAX ? n_requests : FIT_REQUESTS_MAX;
	double guess = busy_rate(requests, n);
	double best_error = LATENCY_FACTOR * latency_error(requests, n);

	if (!(guess > 0))
		return best;
	for (size_t b = 0; b < N_BURSTS; b++)
		for (int k = -RATE_STEPS; k <= RATE_STEPS; k++) {
			struct model_storage storage = {.bytes_per_s =
							    guess * pow(RATE_SPAN, (double)k / RATE_STEPS),
							.burst_ns = bursts_ns[b]};
			double error = fit_error(requests, n, &storage);

			if (error < best_error) {
				best_error = error;
				best = storage;
			}
		}
	return best;
}
