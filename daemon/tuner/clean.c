/* SPDX-License-Identifier: Apache-2.0 */
/* Passes on only plausible figures, whatever a sensor reports. */
#include "state.h"

#include <math.h>

#define OLD_NS    (5 * SECOND_NS) /* maximum age: older samples do not describe the present */
#define FUTURE_NS SECOND_NS       /* maximum lead: a sensor's clock is ours, so more is an error */
/* More than any machine has: the sensor is wrong. */
#define BYTES_MAX   1e18
#define RATE_MAX    1e12 /* samples/s */
#define SECONDS_MAX 3600.0
#define COUNT_MAX   1e6
/* Bounds of the time that a sample may cover, in seconds: less is noise, and more than half a minute is
 * not one second. */
#define COVERED_MIN_S 0.2
#define COVERED_MAX_S 30.0
/* Shares are measured with several clocks, so a little over 1 counts as 1. */
#define SHARE_SLACK 0.05

static double sane(double x, double max)
{
	return x >= 0 && x <= max ? x : NAN; /* NAN fails both comparisons */
}

static double positive(double x, double max)
{
	return x > 0 && x <= max ? x : NAN;
}

static double share(double x)
{
	x = sane(x, 1 + SHARE_SLACK);
	return x > 1 ? 1 : x;
}

static void clean_shares(const struct stall_sample *raw, struct job_figures *f)
{
	double checkpoint = share(raw->shares.checkpoint_stall), device = sane(raw->device_rate, RATE_MAX);

	f->fetch_wait = share(raw->shares.fetch_stall);
	f->prep_wait = share(raw->shares.prep_stall);
	f->wait = raw->source == STALL_SOURCE_NONE ? NAN : share(f->fetch_wait + f->prep_wait);
	if (isnan(f->wait))
		f->fetch_wait = f->prep_wait = NAN;
	f->busy = 1 - f->wait - (isnan(checkpoint) ? 0 : checkpoint);
	if (f->busy < 0)
		f->busy = 0;
	f->demand = device > 0 ? fmax(device, f->rate) : NAN;
}

static void clean_storage(const struct stall_sample *raw, struct job_figures *f)
{
	f->latency_s = positive(raw->chunk_latency_s, SECONDS_MAX);
	f->latency_p95_s = positive(raw->chunk_latency_p95_s, SECONDS_MAX);
	if (f->latency_p95_s < f->latency_s)
		f->latency_p95_s = f->latency_s;
	f->bandwidth = positive(raw->source_bytes_per_s, BYTES_MAX);
	f->in_flight = sane(raw->reads_in_flight, COUNT_MAX);
	f->reading = share(raw->reading_ratio);
	f->hit = share(raw->memory_hit_ratio);
	f->chunk_bytes = positive(raw->chunk_bytes, BYTES_MAX);
	f->samples_per_chunk = positive(raw->samples_per_chunk, BYTES_MAX);
	f->window = raw->window_chunks;
	f->ready = sane(raw->ready_samples, BYTES_MAX);
}

bool figures_clean(const struct stall_sample *raw, uint64_t now_ns, struct job_figures *ret)
{
	struct job_figures f = {.at_ns = raw->at_ns};

	if (!raw->job || !(raw->covered_s >= COVERED_MIN_S && raw->covered_s <= COVERED_MAX_S))
		return false;
	if (raw->at_ns > now_ns + FUTURE_NS || now_ns > raw->at_ns + OLD_NS)
		return false;
	f.rate = sane(raw->samples_per_s, RATE_MAX);
	if (isnan(f.rate))
		return false;
	f.from_ns = (uint64_t)(raw->covered_s * 1e9);
	f.from_ns = f.from_ns < raw->at_ns ? raw->at_ns - f.from_ns : 0;
	clean_shares(raw, &f);
	clean_storage(raw, &f);
	f.daemon_cpu_s = sane(raw->daemon_cpu_s_per_sample, SECONDS_MAX);
	f.client_cpu_s = sane(raw->client_cpu_s_per_sample, SECONDS_MAX);
	f.handoff_s = sane(raw->handoff_s_per_sample, SECONDS_MAX);
	f.worker_bytes = sane(raw->client_worker_bytes, BYTES_MAX);
	f.daemon_busy = sane(raw->daemon_workers_busy, COUNT_MAX);
	f.client_busy = sane(raw->client_workers_busy, COUNT_MAX);
	f.dataset_bytes = positive(raw->dataset_bytes, BYTES_MAX);
	f.cached_bytes = sane(raw->cached_bytes, BYTES_MAX);
	f.need_bytes = sane(raw->need_bytes, BYTES_MAX);
	f.decoded = positive(raw->decoded_cache.usable, BYTES_MAX);
	f.decoded_samples = sane(raw->decoded_cache.samples, BYTES_MAX);
	f.decoded_bytes = sane(raw->decoded_cache.bytes, BYTES_MAX);
	f.decoded_space = sane(raw->decoded_cache.space_bytes, BYTES_MAX);
	f.decoded_size = positive(raw->decoded_cache.sample_bytes, BYTES_MAX);
	f.decoded_hit = share(raw->decoded_cache.hit_ratio);
	f.decoded_serve = share(raw->decoded_cache.serve_ratio);
	f.fresh_s = positive(raw->decoded_cache.fresh_cpu_s_per_sample, SECONDS_MAX);
	f.decoded_s = positive(raw->decoded_cache.cpu_s_per_sample, SECONDS_MAX);
	*ret = f;
	return true;
}
