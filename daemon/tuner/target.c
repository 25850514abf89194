/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Computes one job's knobs by the stall model: the formulas of analyzer/model.h with the measured figures. A
 * knob that depends on an unknown figure stays as it is.
 */
#include "state.h"

#include <math.h>

#include "analyzer/model.h"

/* Headroom of every stage that is not meant to be the slowest. Stages whose speeds vary are slower together
 * than the slowest stage by itself. With 8 % the loss is below 2 %, at a cost of at most 1/12 of a resource.
 */
#define MARGIN 1.08
/* A cheaper setting counts as equally good if it gives at least this fraction of the best rate. */
#define AS_GOOD 0.98
/* The trainer's time to take a sample from a worker process, until it is measured. A third of the cost of
 * PyTorch's queues: a useless worker is noticed within seconds, but one that is never tried is never
 * measured. */
#define HANDOFF_S          2e-6
#define HANDOFF_S_PER_BYTE 0.5e-9
/* Largest factor by which bandwidth is expected to rise with depth before that is measured. */
#define DEPTH_TRUST 16.0
/* Ratio of a slow read's time to the mean, if the p95 is not known. */
#define TAIL 1.5
/* If bandwidth exceeds the known limit of storage by this ratio, storage has changed, and the limit is
 * forgotten. */
#define STALE 1.25
/* Largest factor by which depth grows at once: latency under load does not predict latency at a much
 * greater depth. */
#define DEPTH_STEP 4

/* Share of the demand. If the other knobs reach it, decoded copies need no more memory. */
#define NO_WORSE 0.98
/* Share of the expected hits of decoded copies that must be reached before the effect is judged. */
#define FILLED 0.8
/* Minimum growth that is worth a change, as a ratio. */
#define STEP  1.1
#define MIB   0x1p20
#define LEAST 0.05 /* share of the CPU time that decoded copies never save */

/* Returns true if enough is known about the job's decoding for a model. */
static bool decoded_known(const struct job_figures *f)
{
	return f->decoded > 0 && f->fresh_s > 0 && f->daemon_cpu_s > 0;
}

double decoded_all_bytes(const struct job_figures *f)
{
	double stored = f->chunk_bytes / f->samples_per_chunk;

	return model_decoded_memory(f->decoded,
				    f->decoded_size > 0 ? f->decoded_size : MODEL_DECODED_TIMES * stored);
}

double decoded_cover(const struct job_figures *f, double bytes)
{
	return model_decoded_cover(bytes, decoded_all_bytes(f));
}

static double out_of_decoded_s(const struct job_figures *f)
{
	return f->decoded_s > 0 ? f->decoded_s : MODEL_DECODED_PART * f->fresh_s;
}

static double decoded_hit(const struct job_figures *f, double bytes)
{
	return decoded_cover(f, bytes) * (f->decoded_serve >= 0 ? f->decoded_serve : 1);
}

double decoded_daemon_cpu_s(const struct tuner_job *job, const struct job_figures *f, uint64_t bytes)
{
	double decoded_s = out_of_decoded_s(f), to = (double)bytes, then, now;

	if (!decoded_known(f))
		return f->daemon_cpu_s;
	/* Decoded copies of an earlier job stay in memory as long as this knob keeps its value. */
	if (bytes == job->in_force.value[TUNER_DECODED_BYTES] && f->decoded_bytes > to)
		to = f->decoded_bytes;
	then = model_decoded_cpu(f->fresh_s, decoded_s, decoded_hit(f, to));
	now = model_decoded_cpu(f->fresh_s, decoded_s, f->decoded_hit > 0 ? f->decoded_hit : 0);
	return fmax(f->daemon_cpu_s + then - now, LEAST * f->daemon_cpu_s);
}

/* Returns how many bytes of decoded copies the job should have, within the memory left to them. Returns the
 * bytes in force if more would not make the job faster. goal: the best rate of the other knobs. */
static uint64_t decoded_target(const struct tuner_job *job, const struct job_figures *f, double goal)
{
	uint64_t now = job->in_force.value[TUNER_DECODED_BYTES];
	double want;

	if (!decoded_known(f) || !(f->decoded_space > 0) || goal >= f->demand * NO_WORSE)
		return now;
	want = floor(fmin(decoded_all_bytes(f), f->decoded_space) / MIB) * MIB;
	return want > (double)now * STEP ? (uint64_t)want : now;
}

bool decoded_fill(const struct job_figures *f, uint64_t bytes)
{
	return decoded_known(f) && !(f->decoded_hit >= FILLED * decoded_hit(f, (double)bytes));
}

static double sample_bytes(const struct job_figures *f)
{
	return f->chunk_bytes / f->samples_per_chunk;
}

/* Returns the bytes of a cache that can hold chunks: all except slots, snapshot, and the second window of a
 * batch at a window's edge. */
static double chunk_space(const struct job_figures *f, double cache_bytes)
{
	double need = isnan(f->need_bytes) ? 0 : f->need_bytes;

	return cache_bytes - need + fmin(f->window * f->chunk_bytes, need);
}

/* The chunk needed last is evicted first, so chunks that only pass through memory do not reduce an epoch's
 * hits (daemon/cache/policy.h). */
double target_cached_ratio(const struct job_figures *f, double cache_bytes)
{
	double space = chunk_space(f, cache_bytes);

	if (isnan(f->dataset_bytes) || isnan(f->chunk_bytes))
		return NAN;
	return space <= 0 ? 0 : fmin(space / f->dataset_bytes, 1);
}

/* Returns true if reading further ahead puts more reads in flight. It does not if fewer reads are in flight
 * than allowed (something else limits them), or more (windows ask for them). */
static bool depth_limits(const struct job_figures *f, double depth)
{
	return isnan(f->in_flight) || (f->in_flight > 0.6 * depth && f->in_flight < depth + 1);
}

/* Returns true if the limit of storage is known. The limit is unknown again once storage clearly exceeds it.
 */
static bool knows_full(const struct tuner_job *job, const struct job_figures *f)
{
	return job->full_bandwidth > 0 && !(f->bandwidth > job->full_bandwidth * STALE);
}

static double bandwidth_at(const struct tuner_job *job, const struct job_figures *f, double depth)
{
	double now = (double)job->in_force.value[TUNER_PREFETCH_CHUNKS];
	double full = knows_full(job, f) ? job->full_bandwidth : 0, full_depth = (double)job->full_depth;

	if (now < 1)
		now = 1;
	if (depth < 1)
		depth = 1;
	/* Storage is slower than its known limit: other users load it. */
	if (full > 0 && f->bandwidth < full && now >= full_depth)
		full = f->bandwidth;
	if (full > 0)
		return full_depth > depth ? full * depth / full_depth : full;
	if (depth <= now && f->in_flight > now + 1)
		return f->bandwidth;
	if (depth <= now) /* fewer reads in flight give proportionally less, until measured otherwise */
		return f->bandwidth * fmin(depth / (f->in_flight > 0 ? fmin(f->in_flight, now) : now), 1);
	return depth_limits(f, now) ? f->bandwidth * fmin(depth / now, DEPTH_TRUST) : f->bandwidth;
}

/*
 * Returns the fetch rate F with a cached share x and read-ahead of `depth` chunks, for a trainer that takes
 * `rate` when it does not wait. A window of g chunks is needed at once: while one is consumed, `depth` chunks
 * of the next can be read. The trainer waits for the rest, unless ready batches bridge that time.
 */
static double fetch_rate(const struct tuner_job *job, const struct job_figures *f, double x, double depth,
			 double rate)
{
	double seconds = f->chunk_bytes / bandwidth_at(job, f, depth) * (1 - x); /* per chunk, on average */
	double g = f->window < 1 ? 1 : f->window, ahead = fmin(depth, g), late;
	double ready = isnan(f->ready) ? 0 : f->ready;

	if (!(seconds > 0))
		return x >= 1 ? INFINITY : NAN;
	late = fmax((g - ahead) * seconds - ready / rate, 0);
	return g * f->samples_per_chunk / fmax(g * f->samples_per_chunk / rate + late, g * seconds);
}

static double handoff(const struct job_figures *f)
{
	double bytes = sample_bytes(f);

	if (f->handoff_s > 0)
		return f->handoff_s;
	return HANDOFF_S + (isnan(bytes) ? 0 : bytes * HANDOFF_S_PER_BYTE);
}

/* Returns the trainer's rate with n client workers; without any, the trainer does their work itself. */
static double client_rate(const struct job_figures *f, const struct memory_space *space, double n)
{
	double step = f->demand > 0 ? 1 / f->demand : 0;

	if (!(f->client_cpu_s > 0))
		return f->demand;
	if (n < 1)
		return 1 / (f->client_cpu_s + step);
	if (space->cores >= 1 && n > space->cores)
		n = space->cores;
	return fmin(n / f->client_cpu_s, 1 / (handoff(f) + step));
}

static double daemon_rate(double cpu_s, const struct memory_space *space, double n)
{
	return cpu_s > 0 ? model_prep_rate(n, space->cores >= 1 ? space->cores : 0, cpu_s) : INFINITY;
}

/* Returns the rate that the cores allow, which daemon and client workers share. */
static double cpu_rate(const struct job_figures *f, double daemon_cpu_s, const struct memory_space *space)
{
	double cpu_s = (daemon_cpu_s > 0 ? daemon_cpu_s : 0) + (f->client_cpu_s > 0 ? f->client_cpu_s : 0);

	if (!(cpu_s > 0) || !(space->cores >= 1))
		return INFINITY;
	/* The present rate is possible unless it would cost more CPU time. */
	return daemon_cpu_s > f->daemon_cpu_s ? space->cores / cpu_s : fmax(space->cores / cpu_s, f->rate);
}

static bool knows_storage(const struct tuner_job *job, const struct job_figures *f)
{
	return (f->bandwidth > 0 || job->full_bandwidth > 0) && f->chunk_bytes > 0 &&
	       f->samples_per_chunk > 0;
}

double target_rate(const struct tuner_job *job, const struct job_figures *f, const struct memory_space *space,
		   const struct tuner_knobs *knobs)
{
	double cpu_s = decoded_daemon_cpu_s(job, f, knobs->value[TUNER_DECODED_BYTES]);
	double prep = daemon_rate(cpu_s, space, (double)knobs->value[TUNER_DAEMON_WORKERS]);
	double client = client_rate(f, space, (double)knobs->value[TUNER_CLIENT_WORKERS]);
	double depth = (double)knobs->value[TUNER_PREFETCH_CHUNKS], fetch = INFINITY, x;

	if (!(f->demand > 0))
		return NAN;
	if (knows_storage(job, f)) {
		x = target_cached_ratio(f, (double)knobs->value[TUNER_CACHE_BYTES]);
		fetch = fetch_rate(job, f, isnan(x) ? 0 : x, depth, f->demand);
		if (isnan(fetch))
			fetch = INFINITY;
	}
	return fmin(model_speed(fetch, prep, client), cpu_rate(f, cpu_s, space));
}

/* Returns the highest rate that storage can feed within the limits. */
static double best_fetch(const struct tuner_job *job, const struct job_figures *f,
			 const struct memory_space *space)
{
	double best = 0;

	for (uint64_t depth = 1; depth <= space->prefetch; depth *= 2) {
		double x = target_cached_ratio(f, space->cache_bytes);
		double rate = fetch_rate(job, f, isnan(x) ? 0 : x, (double)depth, f->demand);

		best = fmax(best, isnan(rate) ? INFINITY : rate);
	}
	return best;
}

/* Returns the best rate that any knobs within the limits give. */
static double best_rate(const struct tuner_job *job, const struct job_figures *f,
			const struct memory_space *space)
{
	double client = 0, fetch = knows_storage(job, f) ? best_fetch(job, f, space) : INFINITY;

	for (uint64_t n = 0; n <= space->client_workers; n++)
		client = fmax(client, client_rate(f, space, (double)n));
	return fmin(
	    model_speed(fetch, daemon_rate(f->daemon_cpu_s, space, (double)space->daemon_workers), client),
	    cpu_rate(f, f->daemon_cpu_s, space));
}

static uint64_t best_client_workers(const struct job_figures *f, const struct memory_space *space,
				    double goal)
{
	uint64_t most = space->client_workers, best = 0;
	double best_rate = 0;

	if (!(f->client_cpu_s > 0))
		return 0;
	if (space->cores >= 1 && (double)most > ceil(space->cores))
		most = (uint64_t)ceil(space->cores);
	for (uint64_t n = 0; n <= most; n++) {
		/* Workers that are always busy are sometimes late. A trainer without workers does not wait
		 * for any. */
		double busy = n ? (double)n / (f->client_cpu_s * MARGIN) : INFINITY;
		double rate = fmin(fmin(client_rate(f, space, (double)n), goal), busy);

		if (rate > best_rate / AS_GOOD || !n) {
			best_rate = fmax(rate, best_rate);
			best = n;
		}
	}
	return best;
}

/* Returns the read-ahead, in chunks, for `rate` with the share x cached: Little's law for the reads, but
 * at least the need of a window. */
static uint64_t depth_needed(const struct tuner_job *job, const struct job_figures *f, double x, double rate,
			     uint64_t most)
{
	double missing = rate * (1 - x), tail = f->latency_p95_s > 0 ? f->latency_p95_s : f->latency_s * TAIL;
	double g = f->window < 1 ? 1 : f->window, seconds, window, depth = 1, ready = f->ready;
	double now = fmax((double)job->in_force.value[TUNER_PREFETCH_CHUNKS], 2), used;

	if (!(missing > 0))
		return 1;
	used = fmin(missing * sample_bytes(f) * MARGIN / bandwidth_at(job, f, INFINITY), 1);
	/* If more reads in flight do not raise bandwidth, the latency is queueing, and deeper reading only
	 * adds latency. */
	if (knows_full(job, f))
		depth = (double)job->full_depth * used + 1;
	else if (!depth_limits(f, (double)job->in_force.value[TUNER_PREFETCH_CHUNKS]) && f->in_flight >= 1)
		depth = ceil(f->in_flight * used) + 1;
	else if (tail > 0)
		depth = model_prefetch_depth(tail, missing * MARGIN, f->samples_per_chunk);
	seconds = f->chunk_bytes / bandwidth_at(job, f, depth) * (1 - x);
	window = g - (isnan(ready) ? 0 : ready) / (rate * seconds * MARGIN);
	depth = fmax(depth, ceil(fmin(window, g) - 1e-9));
	depth = fmin(depth, fmax(now * DEPTH_STEP, g + now));
	return depth < 1 ? 1 : depth > (double)most ? most : (uint64_t)depth;
}

static double cache_bytes_for(const struct job_figures *f, double x, double depth)
{
	double need = isnan(f->need_bytes) ? 0 : f->need_bytes;
	double other = need - fmin(f->window * f->chunk_bytes, need);

	return fmin(fmax(need + depth * f->chunk_bytes, other + x * f->dataset_bytes),
		    other + f->dataset_bytes);
}

/* Returns the smallest depth that gives the best rate possible in this memory, which may be too small for a
 * deeper read-ahead. */
static uint64_t depth_within(const struct tuner_job *job, const struct job_figures *f, double bytes,
			     uint64_t most)
{
	double best = 0;
	uint64_t found = most;

	for (uint64_t depth = 1; depth <= most; depth += 1 + depth / 16) {
		double x = target_cached_ratio(f, bytes);
		double rate = fetch_rate(job, f, isnan(x) ? 0 : x, (double)depth, f->demand);

		if (rate > best / AS_GOOD) {
			best = rate;
			found = depth;
		}
	}
	return found;
}

/* Returns the read-ahead in chunks that keeps `depth` reads in flight: cached chunks ahead need no read.
 * Spans at most half of the chunks in memory (daemon/cache/policy.h). */
static uint64_t depth_in_visits(const struct job_figures *f, const struct memory_space *space, uint64_t depth)
{
	double x = target_cached_ratio(f, space->cache_bytes);
	double most = chunk_space(f, space->cache_bytes) / f->chunk_bytes / 2 - f->window, visits;

	visits = fmin(fmin((double)depth / (1 - fmin(x, 0.9)), most), (double)space->prefetch);
	return visits > (double)depth ? (uint64_t)visits : depth;
}

/*
 * Cache and depth are one question: uncached chunks must be read, and depth is the cheaper of the two as long
 * as more reads in progress raise the bandwidth. While this is unknown, the cache stays between the sizes for
 * the most optimistic and for the measured bandwidth, until deeper reading has shown which is right.
 */
static void storage_targets(const struct tuner_job *job, const struct job_figures *f,
			    const struct memory_space *space, double goal, struct tuner_knobs *ret)
{
	double now = (double)ret->value[TUNER_CACHE_BYTES], s = sample_bytes(f), chunk = f->chunk_bytes;
	double hope = bandwidth_at(job, f, (double)space->prefetch);
	double sure = knows_full(job, f) ? hope : f->bandwidth;
	double x_hope = model_cache_needed(s, INFINITY, hope, goal * MARGIN);
	double x_sure = model_cache_needed(s, INFINITY, fmin(sure, hope), goal * MARGIN), least, most;
	uint64_t depth;

	if (isnan(f->dataset_bytes) || isnan(x_hope) || isnan(x_sure))
		return;
	depth = depth_needed(job, f, x_hope, goal, space->prefetch);
	if (cache_bytes_for(f, x_hope, (double)depth) > space->cache_bytes)
		depth = depth_in_visits(f, space, depth_within(job, f, space->cache_bytes, depth));
	least = cache_bytes_for(f, x_hope, (double)depth);
	most = cache_bytes_for(f, x_sure, (double)depth);
	now = fmin(fmax(now, least), most);
	now = fmin(ceil(now / chunk) * chunk, space->cache_bytes);
	ret->value[TUNER_CACHE_BYTES] = (uint64_t)fmin(now, 1e18);
	ret->value[TUNER_PREFETCH_CHUNKS] = depth;
}

void target_knobs(const struct tuner_job *job, const struct job_figures *f, const struct memory_space *space,
		  struct tuner_knobs *ret)
{
	double goal;

	*ret = job->in_force;
	if (!(f->demand > 0))
		return;
	goal = best_rate(job, f, space);
	if (!(goal > 0) || isinf(goal))
		return;
	if (f->daemon_cpu_s >= 0) {
		uint64_t n = model_workers_needed(f->daemon_cpu_s * MARGIN, goal);

		ret->value[TUNER_DAEMON_WORKERS] = n < space->daemon_workers ? n : space->daemon_workers;
	}
	ret->value[TUNER_DECODED_BYTES] = decoded_target(job, f, goal);
	if (f->client_cpu_s >= 0)
		ret->value[TUNER_CLIENT_WORKERS] = best_client_workers(f, space, goal);
	if (knows_storage(job, f))
		storage_targets(job, f, space, goal, ret);
}
