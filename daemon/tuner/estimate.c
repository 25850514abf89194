/* SPDX-License-Identifier: Apache-2.0 */
/* Makes one figure from the last few seconds: a median, so that one odd second changes nothing. */
#include "state.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* If the time without waits is less than this share, consumption over it is mostly noise. */
#define BUSY_MIN 0.02
/* Storage was clearly slower than now if its bandwidth was below this fraction of the present one. */
#define NOISE 0.75
/* Ratio beyond which a figure counts as different. Wider for demand, which is noisy after a long wait. */
#define DIFFERS 1.35
/* Waiting has grown if it rose by more than this share of the time and by more than STRAYS deviations. */
#define WAIT_DIFFERS 0.10
/* Minimum growth of waiting, in multiples of its usual deviation, which exists because windows find more or
 * less in memory. Below 3, because a change adds to the deviation that it is compared with, and must still be
 * noticed. */
#define STRAYS 2.5
/* Ratio for bandwidth, which also depends on the files that are read. */
#define BANDWIDTH_DIFFERS 1.6
#define READING_MIN       0.1 /* minimum share of time spent reading from which to judge storage */

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

void job_see(struct tuner_job *job, const struct job_figures *f)
{
	job->seen[job->n_seen++ % SEEN_MAX] = *f;
	if (job->n_seen >= 2 * SEEN_MAX) /* keeps n_seen from overflowing */
		job->n_seen -= SEEN_MAX;
	if (f->handoff_s > 0)
		job->handoff_s = f->handoff_s;
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

double demand_least(const struct job_figures *f, uint32_t n)
{
	return n >= ESTIMATE_SAMPLES && f->rate > 0 && f->busy < BUSY_MIN ? f->rate / BUSY_MIN : NAN;
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

static bool other(double now, double then, double ratio)
{
	return now > 0 && then > 0 && (now > then * ratio || now < then / ratio);
}

bool job_differs(const struct tuner_job *job, const struct job_figures *now)
{
	const struct job_figures *then = &job->settled;
	double demand = now->busy >= BUSY_MIN ? now->rate / now->busy : now->demand;
	double ratio = DIFFERS + (now->busy > 0 ? fmin(0.1 / now->busy, 1) * 0.5 : 0.5);

	/* Less waiting is the effect of a filling cache, and does not begin another phase. */
	if (now->wait > then->wait + fmax(WAIT_DIFFERS, STRAYS * job->wait_stray))
		return true;
	/* The CPU time that decoded copies save, or cost while they are made, does not make another phase
	 * either. */
	bool decoded_cache = now->decoded_bytes > 0 || then->decoded_bytes > 0;

	return other(demand, then->demand, ratio) ||
	       (!decoded_cache && other(now->daemon_cpu_s, then->daemon_cpu_s, DIFFERS)) ||
	       other(now->client_cpu_s, then->client_cpu_s, DIFFERS) ||
	       (now->reading > READING_MIN && other(now->bandwidth, then->bandwidth, BANDWIDTH_DIFFERS));
}

void job_envelope(const struct tuner_job *job, struct job_figures *f)
{
	double bandwidth = f->bandwidth, latency = 0;

	for (uint32_t i = 0; i < N_ENVELOPE; i++) {
		if (job->worst_bandwidth[i] > 0 && job->worst_bandwidth[i] < bandwidth)
			bandwidth = job->worst_bandwidth[i];
		latency = fmax(latency, job->worst_latency[i]);
	}
	if (!(bandwidth < f->bandwidth * NOISE))
		return;
	f->bandwidth = bandwidth;
	if (latency > f->latency_s)
		f->latency_s = latency;
	if (f->latency_p95_s < f->latency_s)
		f->latency_p95_s = f->latency_s;
}
