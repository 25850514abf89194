/* SPDX-License-Identifier: Apache-2.0 */
/* Computes how fast a simulated job really is. */
#include "sim/sim.h"

#include <math.h>

/* Sharpness of the edge where two stages are equally fast: each then sometimes waits for the other, and the
 * rate is 2^(-1/16) of either, 4 % lower. */
#define SHARP 16

static double chunk_bytes(const struct sim_truth *t)
{
	return t->sample_bytes * t->samples_per_chunk;
}

double sim_need_bytes(const struct sim_truth *t)
{
	return t->window * chunk_bytes(t) + t->ready * t->sample_bytes;
}

static double chunk_space(const struct sim_truth *t, const struct tuner_knobs *k)
{
	return (double)k->value[TUNER_CACHE_BYTES] - t->ready * t->sample_bytes;
}

double sim_cached_ratio(const struct sim_truth *t, const struct tuner_knobs *k)
{
	double space = chunk_space(t, k);

	if (space >= t->dataset_bytes)
		return 1;
	/* The memory of one chunk is always taken by a chunk in flight. */
	return fmax((space - chunk_bytes(t)) / t->dataset_bytes, 0);
}

/* Memory of extents per byte of decoded copies: extents are never quite full. */
#define DECODED_SLACK 1.12
/* Extra CPU cost of making a decoded copy, as a part of decoding. */
#define DECODED_MAKING 0.1

double sim_decoded_ratio(const struct sim_truth *t, double bytes)
{
	double all = t->dataset_bytes / t->sample_bytes * t->decoded_bytes * DECODED_SLACK;

	return all > 0 ? fmin(fmax(bytes / all, 0), 1) : 0;
}

struct sim_truth sim_with_decoded(const struct sim_truth *t, double have, double made)
{
	struct sim_truth with = *t;

	with.daemon_cpu_s *= 1 - have * t->decoded_serve * (1 - t->decoded_part) + made * DECODED_MAKING;
	return with;
}

static double power16(double x)
{
	x *= x;
	x *= x;
	x *= x;
	return x * x;
}

/* Returns a soft minimum of four rates. */
static double slowest(double a, double b, double c, double d)
{
	double least = fmin(fmin(a, b), fmin(c, d));

	if (!(least > 0))
		return 0;
	return least / pow(power16(least / a) + power16(least / b) + power16(least / c) + power16(least / d),
			   1.0 / SHARP);
}

static double fetch_rate(const struct sim_truth *t, const struct tuner_knobs *k, double hit, double bandwidth)
{
	double seconds = chunk_bytes(t) / bandwidth * (1 - hit);
	double ahead = fmin((double)k->value[TUNER_PREFETCH_CHUNKS], t->window), samples, late;

	if (seconds <= 0)
		return INFINITY;
	samples = t->window * t->samples_per_chunk;
	late = fmax((t->window - ahead) * seconds - t->ready / t->device_rate, 0);
	return fmin(samples / (t->window * seconds),
		    late > 0 ? samples / (samples / t->device_rate + late) : INFINITY);
}

static double client_rate(const struct sim_truth *t, double n)
{
	double step = 1 / t->device_rate;

	if (t->client_cpu_s <= 0)
		return INFINITY;
	if (n < 1)
		return 1 / (t->client_cpu_s + step);
	return fmin(n / t->client_cpu_s, 1 / (t->handoff_s + step));
}

struct sim_rates sim_rates(const struct sim_truth *t, double cores, const struct tuner_knobs *k, double hit,
			   double storage)
{
	double depth = fmin(fmax((double)k->value[TUNER_PREFETCH_CHUNKS], 1), t->reads_max), full, fetch,
	       daemon, client, cpu;
	double cpu_s = t->daemon_cpu_s + t->client_cpu_s;
	struct sim_rates r;

	full = t->storage_bytes_per_s * storage;
	r.bandwidth = fmin(full, depth * chunk_bytes(t) / t->latency_s * fmin(storage * 2, 1));
	r.in_flight = depth;
	r.latency_s = depth * chunk_bytes(t) / r.bandwidth;
	fetch = fetch_rate(t, k, hit, r.bandwidth);
	daemon = t->daemon_cpu_s > 0 ? (double)k->value[TUNER_DAEMON_WORKERS] / t->daemon_cpu_s : INFINITY;
	client = client_rate(t, (double)k->value[TUNER_CLIENT_WORKERS]);
	/* All work runs on the node's cores; the trainer takes its own first. */
	cpu = cpu_s > 0 ? fmax(cores - t->trainer_cores, 0.25) / cpu_s : INFINITY;
	r.rate = slowest(fetch, daemon, fmin(client, t->device_rate), cpu);
	r.no_fetch_rate = slowest(INFINITY, daemon, fmin(client, t->device_rate), cpu);
	return r;
}

double sim_steady_rate(const struct sim_scenario *s, const struct sim_truth *t, double cores,
		       const struct tuner_knobs *k)
{
	double hit = sim_cached_ratio(t, k);
	double space = s->memory_bytes - (double)k->value[TUNER_CACHE_BYTES];
	struct sim_truth now =
	    sim_with_decoded(t, sim_decoded_ratio(t, fmin((double)k->value[TUNER_DECODED_BYTES], space)), 0);
	double rate = sim_rates(&now, cores, k, hit, 1).rate;

	return s->burst_period_s > 0 ? (rate + sim_rates(&now, cores, k, hit, s->burst_factor).rate) / 2
				     : rate;
}

double sim_cost(const struct sim_scenario *s, const struct sim_truth *t, const struct tuner_knobs *k)
{
	double workers = (double)(k->value[TUNER_DAEMON_WORKERS] + k->value[TUNER_CLIENT_WORKERS]);
	double bytes =
	    (double)k->value[TUNER_CACHE_BYTES] + (double)k->value[TUNER_CLIENT_WORKERS] * t->worker_bytes;
	double all = t->dataset_bytes + sim_need_bytes(t); /* a larger budget is never filled */

	return workers / s->cores +
	       fmin(bytes, all + (bytes - (double)k->value[TUNER_CACHE_BYTES])) / s->memory_bytes;
}

struct sim_static sim_best_static(const struct sim_scenario *s, const struct sim_truth *t, double cores,
				  double memory_bytes)
{
	static const uint64_t depths[] = {0, 1, 2, 3, 4, 6, 8, 10, 12, 16, 24, 32};
	enum { N_DEPTHS = sizeof(depths) / sizeof(depths[0]), N_SIZES = 24 };
	double need = sim_need_bytes(t), all = fmin(t->dataset_bytes + need, memory_bytes);
	uint64_t most = (uint64_t)s->cores;
	struct sim_static best = {.cheap_cost = INFINITY};

	for (int pass = 0; pass < 2; pass++) {
		for (int i = 0; i <= N_SIZES; i++) {
			for (int d = 0; d < N_DEPTHS; d++) {
				double size = need + (all - need) * i / N_SIZES;

				size =
				    fmin(fmax(size, need + (double)depths[d] * chunk_bytes(t)), memory_bytes);
				for (uint64_t w = 1; w <= most; w++) {
					for (uint64_t c = 0; c <= (t->client_cpu_s > 0 ? most : 0); c++) {
						/* Decoded copies take the rest. */
						struct tuner_knobs k = {
						    .value = {(uint64_t)size, depths[d], w, c,
							      (uint64_t)(memory_bytes - size)}};
						double rate = sim_steady_rate(s, t, cores, &k), cost;

						if (!pass) {
							best.rate = fmax(best.rate, rate);
							continue;
						}
						cost = sim_cost(s, t, &k);
						if (rate < best.rate * 0.98 || cost >= best.cheap_cost)
							continue;
						best.cheap_cost = cost;
						best.cheap_rate = rate;
						best.cheap = k;
					}
				}
			}
		}
	}
	return best;
}
