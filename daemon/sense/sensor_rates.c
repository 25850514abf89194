/* SPDX-License-Identifier: Apache-2.0 */
/* Computes a sample's figures from differences of counters. Pure. */
#include "sensor_job.h"

#include <math.h>

#include "analyzer/model.h"
#include "lib/clock.h"

#define READS_MIN     4  /* minimum number of reads from which to judge a disk */
#define READS_MIN_P95 20 /* minimum for the 95th percentile: with fewer, it is a single read */

static double ratio(uint64_t part, uint64_t whole)
{
	return whole ? (double)part / (double)whole : NAN;
}

static double clamp01(double value)
{
	return value < 0 ? 0 : value > 1 ? 1 : value;
}

/* Returns the number of chunks that arrived from storage or other nodes. */
static uint64_t n_came(const struct sensed_reading *reading)
{
	return reading->counters.n_read + reading->counters.peer_chunks;
}

/* Returns the newest reading after which enough chunks arrived; else the oldest one after which any
 * arrived; NULL: none arrived. */
static const struct sensed_reading *base_of(const struct sensed_job *sensed)
{
	const struct sensed_reading *now = sensed_reading_at(sensed, 0), *base = NULL;

	for (uint64_t age = 1; age < SENSED_READINGS; age++) {
		const struct sensed_reading *r = sensed_reading_at(sensed, age);

		if (!r)
			break;
		if (n_came(now) == n_came(r))
			continue; /* no chunk has arrived since */
		base = r;
		if (n_came(now) - n_came(r) >= READS_MIN)
			break;
	}
	return base;
}

/* Returns the oldest reading that is kept; NULL: there is only one. */
static const struct sensed_reading *first_reading(const struct sensed_job *sensed)
{
	const struct sensed_reading *first = NULL, *r;

	for (uint64_t age = 1; (r = sensed_reading_at(sensed, age)); age++)
		first = r;
	return first;
}

/* Returns the share of visited chunks that were in memory, and the share that other nodes delivered. Uses
 * all readings, because chunks are read before they are visited. */
static void hit_ratios(const struct sensed_job *sensed, double *ret_memory, double *ret_peers)
{
	const struct sensed_reading *now = sensed_reading_at(sensed, 0), *first = first_reading(sensed);
	uint64_t visits, reads, peers;

	if (!first || now->counters.chunk_visits == first->counters.chunk_visits)
		return;
	visits = now->counters.chunk_visits - first->counters.chunk_visits;
	reads = now->counters.chunk_reads - first->counters.chunk_reads;
	peers = now->counters.peer_chunks - first->counters.peer_chunks;
	*ret_memory = clamp01(1 - ratio(reads + peers, visits));
	*ret_peers = fmin(clamp01(ratio(peers, visits)), 1 - *ret_memory);
}

static double a_second(uint64_t now, uint64_t then, double seconds)
{
	return seconds > 0 && now >= then ? (double)(now - then) / seconds : NAN;
}

void sensed_flows(const struct sensed_job *sensed, bool shares, struct stall_sample *sample)
{
	const struct sensed_reading *now = sensed_reading_at(sensed, 0), *first = first_reading(sensed);
	const struct job_counters *n, *was;
	double seconds, visits;

	if (!first)
		return;
	n = &now->counters;
	was = &first->counters;
	seconds = (double)(now->at_ns - first->at_ns) / (double)NS_PER_S;
	visits = a_second(n->chunk_visits, was->chunk_visits, seconds);
	sample->tiers.storage =
	    (struct stall_flow){a_second(n->chunk_reads, was->chunk_reads, seconds),
				a_second(n->read_bytes, was->read_bytes, seconds),
				ratio(n->read_ns - was->read_ns, n->n_read - was->n_read) / (double)NS_PER_S};
	if (shares)
		sample->tiers.peer = (struct stall_flow){
		    a_second(n->peer_chunks, was->peer_chunks, seconds),
		    a_second(n->peer_bytes, was->peer_bytes, seconds),
		    ratio(n->peer_ns - was->peer_ns, n->peer_chunks - was->peer_chunks) / (double)NS_PER_S};
	/* Visits are counted when windows begin, but reads earlier. memory_hit_ratio accounts for the
	 * difference. */
	sample->tiers.memory.chunks_per_s = visits > 0 ? visits * sample->memory_hit_ratio : visits;
	sample->tiers.memory.bytes_per_s =
	    a_second(n->bytes, was->bytes, seconds) * (visits > 0 ? sample->memory_hit_ratio : 1);
}

void sensed_source(const struct sensed_job *sensed, bool shares, struct stall_sample *sample)
{
	const struct sensed_reading *now = sensed_reading_at(sensed, 0);
	const struct sensed_reading *before = sensed_reading_at(sensed, 1);
	const struct sensed_reading *base = base_of(sensed);
	double peer_hit_ratio = NAN;

	hit_ratios(sensed, &sample->memory_hit_ratio, &peer_hit_ratio);
	if (shares) /* without other nodes this share is unknown, not 0 */
		sample->tiers.peer_hit_ratio = peer_hit_ratio;
	sample->reading_ratio =
	    clamp01(ratio(now->counters.coming_ns - before->counters.coming_ns, now->at_ns - before->at_ns));
	if (!base)
		return;

	const struct job_counters *n = &now->counters, *was = &base->counters;
	uint64_t coming_ns = n->coming_ns - was->coming_ns;
	uint64_t took_ns = n->read_ns - was->read_ns + n->peer_ns - was->peer_ns;

	sample->chunk_latency_s = ratio(took_ns, n_came(now) - n_came(base)) / (double)NS_PER_S;
	sample->chunk_latency_p95_s =
	    read_latency_quantile_s(&n->came, &first_reading(sensed)->counters.came, 0.95, READS_MIN_P95);
	sample->source_bytes_per_s =
	    ratio(n->read_bytes - was->read_bytes + n->peer_bytes - was->peer_bytes, coming_ns) *
	    (double)NS_PER_S;
	sample->reads_in_flight = ratio(took_ns, coming_ns);
}

void sensed_work(const struct sensed_reading *before, const struct sensed_reading *now,
		 struct stall_sample *sample)
{
	uint64_t covered_ns = now->at_ns - before->at_ns;
	uint64_t cpu_ns = now->counters.cpu_ns - before->counters.cpu_ns;
	uint64_t busy_ns = now->taken.work_busy_ns - before->taken.work_busy_ns;
	uint64_t n_worked = now->taken.n_worked - before->taken.n_worked;

	sample->daemon_cpu_s_per_sample =
	    ratio(cpu_ns, now->counters.samples - before->counters.samples) / (double)NS_PER_S;
	sample->daemon_workers_busy = ratio(cpu_ns, covered_ns);
	sample->client_cpu_s_per_sample =
	    ratio(now->taken.work_cpu_ns - before->taken.work_cpu_ns, n_worked) / (double)NS_PER_S;
	if (n_worked)
		sample->client_workers_busy = ratio(busy_ns, covered_ns);
	if (sample->knobs.value[TUNER_CLIENT_WORKERS] > 0)
		sample->handoff_s_per_sample =
		    ratio(now->taken.handoff_ns - before->taken.handoff_ns,
			  now->taken.n_handed_samples - before->taken.n_handed_samples) /
		    (double)NS_PER_S;
}

/* Returns the mean CPU time per sample over the job's life: it depends only on images and recipe. */
static double cost_s(const struct codec_cost *cost)
{
	return ratio(cost->cpu_ns, cost->n) / (double)NS_PER_S;
}

void sensed_decoded(const struct sensed_reading *before, const struct sensed_reading *now,
		    struct stall_sample *sample)
{
	const struct codec_cost *ways = now->counters.ways, *then = before->counters.ways;
	uint64_t from = ways[CODEC_FROM_DECODED].n - then[CODEC_FROM_DECODED].n;
	uint64_t others = ways[CODEC_FRESH].n - then[CODEC_FRESH].n + ways[CODEC_EXCLUDED].n -
			  then[CODEC_EXCLUDED].n + ways[CODEC_MADE_DECODED].n - then[CODEC_MADE_DECODED].n;
	const struct codec_prospect *prospect = &now->counters.prospect;

	sample->decoded_cache.hit_ratio = ratio(from, from + others);
	sample->decoded_cache.serve_ratio = ratio(prospect->n_served, prospect->n);
	sample->decoded_cache.fresh_cpu_s_per_sample = cost_s(&ways[CODEC_FRESH]);
	sample->decoded_cache.cpu_s_per_sample = cost_s(&ways[CODEC_FROM_DECODED]);
	if (isnan(sample->decoded_cache.cpu_s_per_sample))
		sample->decoded_cache.cpu_s_per_sample = cost_s(&ways[CODEC_OUT_OF_IT]);
}

/* Returns the waits that clients reported: the share of time in which they waited, and the part of it for
 * chunks. A client that reports nothing has not waited. */
static void client_waits(const struct sensed_reading *before, const struct sensed_reading *now,
			 double *ret_wait, double *ret_fetch)
{
	uint64_t covered_ns = now->at_ns - before->at_ns,
		 slept_ns = now->taken.wait_ns - before->taken.wait_ns;
	uint64_t next_ns = now->taken.next_ns - before->taken.next_ns;

	*ret_wait = clamp01(ratio(next_ns > slept_ns ? next_ns : slept_ns, covered_ns));
	*ret_fetch =
	    fmin(clamp01(ratio(now->taken.fetch_ns - before->taken.fetch_ns, covered_ns)), *ret_wait);
}

void sensed_shares(const struct sensed_job *sensed, const struct sensed_reading *before,
		   const struct sensed_reading *now, struct stall_sample *sample)
{
	const struct sensor_report *report = &sensed->report;
	double wait, fetch;

	client_waits(before, now, &wait, &fetch);
	if (!sensed->has_report || !report->n_trainers) {
		/* A job without a session has no client that reports. */
		if (!sample->n_trainers)
			return;
		sample->source = STALL_SOURCE_CLIENT;
		sample->shares.fetch_stall = fetch;
		sample->shares.prep_stall = wait - fetch;
		sample->steps_per_s =
		    (double)(now->taken.batches - before->taken.batches) / sample->covered_s;
		return;
	}
	sample->source = STALL_SOURCE_BPF;
	sample->n_trainers = report->n_trainers;
	sample->steps_per_s = report->steps_per_s;
	sample->step_p50_s = report->step_p50_s;
	sample->step_p95_s = report->step_p95_s;
	sample->shares = report->shares;
	if (isfinite(report->wait)) {
		/* libdiesel counts how long it slept for chunks, second by second. */
		sample->shares.fetch_stall = fmin(fetch, report->wait);
		sample->shares.prep_stall = report->wait - sample->shares.fetch_stall;
	}
}

/* Returns the lower of the rates of the daemon's workers and of the client's workers. */
static double prep_rate(const struct stall_sample *s, double pool_threads)
{
	uint64_t n_daemon = s->knobs.value[TUNER_DAEMON_WORKERS],
		 n_client = s->knobs.value[TUNER_CLIENT_WORKERS];
	double rate = INFINITY, client;

	if (s->daemon_cpu_s_per_sample > 0)
		rate = fmin((double)(n_daemon ? n_daemon : 1), pool_threads) / s->daemon_cpu_s_per_sample;
	if (s->client_cpu_s_per_sample > 0) {
		client = (double)(n_client ? n_client : 1) / s->client_cpu_s_per_sample;
		rate = fmin(rate, client);
	}
	return isfinite(s->daemon_cpu_s_per_sample) || isfinite(s->client_cpu_s_per_sample) ? rate : NAN;
}

void sensed_rates(struct stall_sample *s, double pool_threads)
{
	double sample_bytes = s->chunk_bytes / s->samples_per_chunk;
	double wait = s->shares.fetch_stall + s->shares.prep_stall, working = 1 - wait;

	if (s->memory_hit_ratio >= 1)
		s->fetch_rate = INFINITY;
	else if (isfinite(s->memory_hit_ratio) && s->source_bytes_per_s > 0)
		s->fetch_rate =
		    model_fetch_rate(s->memory_hit_ratio, sample_bytes, INFINITY, s->source_bytes_per_s);
	s->prep_rate = prep_rate(s, pool_threads);
	/* Uses the trainer's time outside waits. A second spent only waiting says nothing. */
	if (s->samples_per_s > 0 && working > 0.01)
		s->device_rate = s->samples_per_s / working;
}
