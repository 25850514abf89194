/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes samples in, and makes one figure from the last few seconds. Only plausible figures are kept, whatever
 * a sensor reports. An estimate is a median, so that one odd second changes nothing.
 */
#include "state.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

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

/* Returns false if the sample is refused. */
static bool figures_clean(const struct stall_sample *raw, uint64_t now_ns, struct job_figures *ret)
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

/* Figures of which the median is used. The flag is set if a knob changes the figure. */
static const struct {
	size_t offset;
	bool by_knobs;
} fields[] = {
#define FIELD(name, by_knobs)                                                                                \
	{                                                                                                    \
		offsetof(struct job_figures, name), by_knobs                                                 \
	}
    FIELD(rate, true),
    FIELD(wait, true),
    FIELD(fetch_wait, true),
    FIELD(prep_wait, true),
    FIELD(busy, true),
    FIELD(demand, false),
    FIELD(latency_s, true),
    FIELD(latency_p95_s, true),
    FIELD(bandwidth, true),
    FIELD(in_flight, true),
    FIELD(reading, true),
    FIELD(hit, true),
    FIELD(chunk_bytes, false),
    FIELD(samples_per_chunk, false),
    FIELD(window, false),
    FIELD(ready, false),
    FIELD(daemon_cpu_s, false),
    FIELD(client_cpu_s, false),
    FIELD(handoff_s, false),
    FIELD(worker_bytes, false),
    FIELD(daemon_busy, true),
    FIELD(client_busy, true),
    FIELD(dataset_bytes, false),
    FIELD(cached_bytes, true),
    FIELD(need_bytes, false),
    FIELD(decoded, false),
    FIELD(decoded_samples, true),
    FIELD(decoded_bytes, true),
    FIELD(decoded_space, true),
    FIELD(decoded_size, false),
    FIELD(decoded_hit, true),
    FIELD(decoded_serve, false),
    FIELD(fresh_s, false),
    FIELD(decoded_s, false),
#undef FIELD
};

static double *field_of(struct job_figures *f, size_t i)
{
	return (double *)((char *)f + fields[i].offset);
}

static const struct job_figures *seen_at(const struct tuner_job *job, uint32_t back)
{
	return &job->seen[(job->n_seen - 1 - back) % SEEN_MAX];
}

static void job_see(struct tuner_job *job, const struct job_figures *f)
{
	job->seen[job->n_seen++ % SEEN_MAX] = *f;
	if (job->n_seen >= 2 * SEEN_MAX) /* keeps n_seen from overflowing */
		job->n_seen -= SEEN_MAX;
	if (f->handoff_s > 0)
		job->handoff_s = f->handoff_s;
}

static struct tuner_job *find_or_add(struct tuner_state *s, uint64_t id, uint64_t now_ns)
{
	struct tuner_job *job;

	for (uint32_t i = 0; i < s->n_jobs; i++)
		if (s->jobs[i].job == id)
			return &s->jobs[i];
	if (s->n_jobs == TUNER_MAX_JOBS)
		return NULL;
	job = &s->jobs[s->n_jobs++];
	memset(job, 0, sizeof(*job));
	job->job = id;
	job->first_ns = job->phase_ns = job->jump_ns = now_ns;
	/* The first sample may cover the time before this. */
	job->phase_ns = now_ns > 2 * SECOND_NS ? now_ns - 2 * SECOND_NS : 0;
	return job;
}

struct tuner_job *state_see(struct tuner_state *s, const struct stall_sample *raw, uint64_t now_ns)
{
	struct tuner_job *job;
	struct job_figures f;

	if (!figures_clean(raw, now_ns, &f))
		return NULL;
	job = find_or_add(s, raw->job, now_ns);
	if (!job || (job->n_seen && f.at_ns <= seen_at(job, 0)->at_ns))
		return NULL;
	job_see(job, &f);
	return job;
}

static double median(double *x, uint32_t n)
{
	if (!n)
		return NAN;
	for (uint32_t i = 1; i < n; i++) {
		double v = x[i];
		uint32_t k = i;

		for (; k && x[k - 1] > v; k--)
			x[k] = x[k - 1];
		x[k] = v;
	}
	return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

/* Collects a field's values, newest first, at most ESTIMATE_SAMPLES. */
static uint32_t collect(const struct tuner_job *job, size_t field, uint64_t since_ns, double *x)
{
	uint32_t n = job->n_seen < SEEN_MAX ? job->n_seen : SEEN_MAX, found = 0;

	for (uint32_t i = 0; i < n && found < ESTIMATE_SAMPLES; i++) {
		const struct job_figures *f = seen_at(job, i);
		double v = *(const double *)((const char *)f + fields[field].offset);

		if (f->from_ns >= since_ns && !isnan(v))
			x[found++] = v;
	}
	return found;
}

/* Returns all samples consumed, divided by all the time without waits: steadier than a mean of ratios. */
static double demand_of(const struct tuner_job *job, double otherwise)
{
	uint32_t n = job->n_seen < SEEN_MAX ? job->n_seen : SEEN_MAX, found = 0;
	double samples = 0, seconds = 0;

	for (uint32_t i = 0; i < n && found < ESTIMATE_SAMPLES; i++) {
		const struct job_figures *f = seen_at(job, i);
		double covered = (double)(f->at_ns - f->from_ns) / 1e9;

		if (f->from_ns < job->phase_ns || !(f->busy >= BUSY_MIN) || !(f->rate > 0))
			continue;
		samples += f->rate * covered;
		seconds += f->busy * covered;
		found++;
	}
	return found && seconds > 0 ? samples / seconds : otherwise;
}

uint32_t job_estimate(const struct tuner_job *job, uint64_t since_ns, struct job_figures *ret)
{
	struct job_figures f = {0};
	double x[ESTIMATE_SAMPLES];
	uint32_t n = 0;

	if (since_ns < job->phase_ns)
		since_ns = job->phase_ns;
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		uint32_t found = collect(job, i, fields[i].by_knobs ? since_ns : job->phase_ns, x);

		if (i == 0)
			n = found;
		*field_of(&f, i) = median(x, found);
	}
	f.demand = demand_of(job, f.demand);
	if (isnan(f.handoff_s) && job->handoff_s > 0)
		f.handoff_s = job->handoff_s;
	if (job->n_seen) {
		f.at_ns = seen_at(job, 0)->at_ns;
		f.from_ns = seen_at(job, 0)->from_ns;
	}
	*ret = f;
	return n;
}

uint32_t job_stray(const struct tuner_job *job, uint64_t since_ns, double *ret_stray)
{
	uint32_t n = job->n_seen < SEEN_MAX ? job->n_seen : SEEN_MAX, found = 0;
	double sum = 0, squares = 0, variance;

	if (since_ns < job->phase_ns)
		since_ns = job->phase_ns;
	for (uint32_t i = 0; i < n; i++) {
		const struct job_figures *f = seen_at(job, i);

		if (f->from_ns < since_ns || !(f->rate >= 0))
			continue;
		sum += f->rate;
		squares += f->rate * f->rate;
		found++;
	}
	*ret_stray = 0;
	if (found < 2 || !(sum > 0))
		return found;
	variance = (squares - sum * sum / found) / (found - 1);
	*ret_stray = sqrt(fmax(variance, 0)) / (sum / found);
	return found;
}
