/* SPDX-License-Identifier: Apache-2.0 */
#include "analyzer/model.h"

#include <errno.h>
#include <stdlib.h>

#define NS_PER_S 1e9

/* The burst that fits best is taken. Linux's throttle keeps one or two slices of 100 ms; in a recording of
 * a minute, a burst of some seconds cannot be distinguished from more bandwidth. */
static const double bursts_ns[] = {0, 20e6, 50e6, 100e6, 150e6, 200e6, 300e6, 500e6};

#define N_BURSTS (sizeof(bursts_ns) / sizeof(bursts_ns[0]))

#define FIT_REQUESTS_MAX 3000 /* maximum number of requests to fit; more add no information */
#define FIT_REQUESTS_MIN 16
#define HALVINGS         18   /* steps of the search for the bandwidth */
#define RATE_SPAN        64.0 /* range of the search: factor above and below the first guess */
#define GROUP            8    /* requests compared as one sum: a throttle works in time slices */

/* Quantile for the latency that all requests have, whatever the load. */
#define LATENCY_QUANTILE 0.1

/* If the latency that all requests have makes up more than this part of their waits, there is no queue to
 * speak of. */
#define LATENCY_MAX 0.8

/* The time in which one reader waited and the time in which several did can be compared only if each is more
 * than this part of the other. */
#define SEEN_MIN 0.05

double model_storage_wait(const struct model_storage *storage, double *state, double at_ns, double bytes)
{
	double done_ns;

	if (!(storage->bytes_per_s < INFINITY) || bytes <= 0)
		return 0;
	/* *state is the time at which the bytes so far will have passed. If it is in the past, the
	 * difference is unused bandwidth, saved up. */
	if (*state < at_ns - storage->burst_ns)
		*state = at_ns - storage->burst_ns;
	done_ns = *state + bytes / storage->bytes_per_s * NS_PER_S;
	*state = done_ns;
	return done_ns > at_ns ? done_ns - at_ns : 0;
}

/* The requests that a fit replays, each reader's in its order. The time between two requests is the reader's
 * own. */
struct fit {
	const struct model_request *requests;
	size_t n;
	double *gap_ns;   /* time since the reader's previous request ended; the first: since the start */
	size_t *next;     /* the reader's next request; n: none */
	size_t *heads;    /* each reader's first request */
	double *ready_ns; /* in a run, the time of each reader's next request */
	size_t *turn;
	size_t n_readers;
	double *wait_ns;             /* in a run, the wait of each request */
	double *recorded, *replayed; /* waits in groups, sorted */
	double latency_ns;
};

static void fit_free(struct fit *fit)
{
	free(fit->gap_ns);
	free(fit->next);
	free(fit->heads);
	free(fit->ready_ns);
	free(fit->turn);
	free(fit->wait_ns);
	free(fit->recorded);
	free(fit->replayed);
}

static int value_compare(const void *left, const void *right)
{
	const double *a = left, *b = right;

	return *a < *b ? -1 : *a > *b;
}

/* Links the requests of each reader. Reader numbers need not be contiguous. */
static void fit_link(struct fit *fit)
{
	size_t *last = fit->turn;

	for (size_t i = 0; i < fit->n; i++) {
		const struct model_request *request = &fit->requests[i];
		size_t w = 0;

		while (w < fit->n_readers && fit->requests[fit->heads[w]].reader != request->reader)
			w++;
		fit->next[i] = fit->n;
		if (w == fit->n_readers) {
			fit->heads[fit->n_readers++] = i;
			fit->gap_ns[i] = request->at_ns - fit->requests[0].at_ns;
		} else {
			const struct model_request *before = &fit->requests[last[w]];

			fit->next[last[w]] = i;
			fit->gap_ns[i] = fmax(0, request->at_ns - before->at_ns - before->wait_ns);
		}
		last[w] = i;
	}
}

static int fit_init(struct fit *fit, const struct model_request *requests, size_t n)
{
	*fit = (struct fit){
	    .requests = requests,
	    .n = n,
	    .gap_ns = calloc(n, sizeof(double)),
	    .next = calloc(n, sizeof(size_t)),
	    .heads = calloc(n, sizeof(size_t)),
	    .ready_ns = calloc(n, sizeof(double)),
	    .turn = calloc(n, sizeof(size_t)),
	    .wait_ns = calloc(n, sizeof(double)),
	    .recorded = calloc(n, sizeof(double)),
	    .replayed = calloc(n, sizeof(double)),
	};
	if (!fit->gap_ns || !fit->next || !fit->heads || !fit->ready_ns || !fit->turn || !fit->wait_ns ||
	    !fit->recorded || !fit->replayed)
		return -ENOMEM;
	fit_link(fit);
	for (size_t i = 0; i < n; i++)
		fit->wait_ns[i] = requests[i].wait_ns;
	qsort(fit->wait_ns, n, sizeof(double), value_compare);
	fit->latency_ns = fit->wait_ns[(size_t)(LATENCY_QUANTILE * (double)n)];
	return 0;
}

/* Runs the readers' requests again at this server. Returns the sum of all waits. */
static double fit_run(struct fit *fit, const struct model_storage *storage)
{
	double state = -INFINITY, sum_ns = 0;

	for (size_t w = 0; w < fit->n_readers; w++) {
		fit->turn[w] = fit->heads[w];
		fit->ready_ns[w] = fit->gap_ns[fit->heads[w]];
	}
	for (size_t k = 0; k < fit->n; k++) {
		size_t first = fit->n_readers, i;
		double wait_ns;

		for (size_t w = 0; w < fit->n_readers; w++)
			if (fit->turn[w] < fit->n &&
			    (first == fit->n_readers || fit->ready_ns[w] < fit->ready_ns[first]))
				first = w;
		i = fit->turn[first];
		wait_ns = storage->latency_ns +
			  model_storage_wait(storage, &state, fit->ready_ns[first], fit->requests[i].bytes);
		fit->wait_ns[i] = wait_ns;
		sum_ns += wait_ns;
		fit->turn[first] = fit->next[i];
		if (fit->next[i] < fit->n)
			fit->ready_ns[first] += wait_ns + fit->gap_ns[fit->next[i]];
	}
	return sum_ns;
}

/* Returns the distance between the waits of the last run and the recorded ones, as distributions. */
static double fit_distance(struct fit *fit)
{
	size_t n_groups = (fit->n + GROUP - 1) / GROUP;
	double distance = 0;

	for (size_t g = 0; g < n_groups; g++)
		fit->recorded[g] = fit->replayed[g] = 0;
	for (size_t i = 0; i < fit->n; i++) {
		fit->recorded[i / GROUP] += fit->requests[i].wait_ns;
		fit->replayed[i / GROUP] += fit->wait_ns[i];
	}
	qsort(fit->recorded, n_groups, sizeof(double), value_compare);
	qsort(fit->replayed, n_groups, sizeof(double), value_compare);
	for (size_t g = 0; g < n_groups; g++)
		distance += fabs(fit->recorded[g] - fit->replayed[g]);
	return distance;
}

/* Finds the bandwidth at which the readers wait as long as recorded, in sum. */
static struct model_storage fit_rate(struct fit *fit, double burst_ns, double guess, double wait_ns)
{
	struct model_storage storage = {.burst_ns = burst_ns, .latency_ns = fit->latency_ns};
	double low = guess / RATE_SPAN, high = guess * RATE_SPAN;

	for (int i = 0; i < HALVINGS; i++) {
		storage.bytes_per_s = sqrt(low * high);
		if (fit_run(fit, &storage) > wait_ns)
			low = storage.bytes_per_s;
		else
			high = storage.bytes_per_s;
	}
	return storage;
}

/* The start or end of a wait for a request. */
struct edge {
	double at_ns, bytes_per_ns;
	int readers; /* +1, -1 */
};

static int edge_compare(const void *left, const void *right)
{
	const struct edge *a = left, *b = right;

	return a->at_ns < b->at_ns ? -1 : a->at_ns > b->at_ns;
}

/* The load while one reader waits, and while several wait. Bytes are spread evenly over the waits. */
struct load {
	double bytes[2], ns[2];
	double reader_ns; /* time with several waiting readers, times their number */
};

static void load_measure(struct edge *edges, size_t n, struct load *load)
{
	double bytes_per_ns = 0;
	int readers = 0;

	qsort(edges, n, sizeof(*edges), edge_compare);
	for (size_t i = 0; i + 1 < n; i++) {
		double ns = edges[i + 1].at_ns - edges[i].at_ns;

		readers += edges[i].readers;
		bytes_per_ns += edges[i].bytes_per_ns;
		if (readers < 1)
			continue;
		load->ns[readers > 1] += ns;
		load->bytes[readers > 1] += bytes_per_ns * ns;
		load->reader_ns += readers > 1 ? readers * ns : 0;
	}
}

/* Finds out whether the readers share one server, or each waits only for its own requests. If the data do not
 * suffice, assumes a shared server, so that no gain is promised that more readers may not get. */
static int is_shared(const struct model_request *requests, size_t n, bool *ret_shared)
{
	struct edge *edges = calloc(2 * n, sizeof(*edges));
	struct load load = {0};
	size_t n_edges = 0;

	if (!edges)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		double rate = requests[i].wait_ns > 0 ? requests[i].bytes / requests[i].wait_ns : 0;

		if (!(requests[i].wait_ns > 0))
			continue;
		edges[n_edges++] = (struct edge){requests[i].at_ns, rate, 1};
		edges[n_edges++] = (struct edge){requests[i].at_ns + requests[i].wait_ns, -rate, -1};
	}
	load_measure(edges, n_edges, &load);
	free(edges);
	*ret_shared = true;
	if (load.ns[0] > SEEN_MIN * load.ns[1] && load.ns[1] > SEEN_MIN * load.ns[0] && load.bytes[0] > 0) {
		double gain = load.bytes[1] / load.ns[1] / (load.bytes[0] / load.ns[0]);

		*ret_shared = gain < 1 + (load.reader_ns / load.ns[1] - 1) / 2;
	}
	return 0;
}

/* Returns the bandwidth that the readers got while they waited: start value of the search. */
static double busy_rate(const struct model_request *requests, size_t n, double *ret_wait_ns)
{
	double bytes = 0, wait_ns = 0;

	for (size_t i = 0; i < n; i++) {
		bytes += requests[i].bytes;
		wait_ns += requests[i].wait_ns;
	}
	*ret_wait_ns = wait_ns;
	return wait_ns > 0 ? bytes / wait_ns * NS_PER_S : 0;
}

int model_storage_fit(const struct model_request *requests, size_t n_requests,
		      struct model_storage *ret_storage)
{
	struct model_storage best = {.bytes_per_s = INFINITY};
	size_t n = n_requests < FIT_REQUESTS_MAX ? n_requests : FIT_REQUESTS_MAX;
	double wait_ns, guess = busy_rate(requests, n, &wait_ns), best_distance = INFINITY;
	bool shared = false;
	struct fit fit;
	int r = 0;

	if (n >= FIT_REQUESTS_MIN && guess > 0)
		r = is_shared(requests, n, &shared);
	if (r < 0)
		return r;
	if (!shared) {
		*ret_storage = best;
		return 0;
	}
	r = fit_init(&fit, requests, n);
	for (size_t b = 0; r == 0 && b < N_BURSTS; b++) {
		struct model_storage storage = fit_rate(&fit, bursts_ns[b], guess, wait_ns);
		double distance;

		fit_run(&fit, &storage);
		distance = fit_distance(&fit);
		if (distance < best_distance) {
			best_distance = distance;
			best = storage;
		}
	}
	if (r == 0 && (double)n * fit.latency_ns > LATENCY_MAX * wait_ns)
		best = (struct model_storage){.bytes_per_s = INFINITY};
	fit_free(&fit);
	if (r == 0)
		*ret_storage = best;
	return r;
}
