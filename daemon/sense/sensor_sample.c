/* SPDX-License-Identifier: Apache-2.0 */
#include "sensor_sample.h"

#include <math.h>

#include "analyzer/model.h"
#include "dataset/owner.h"
#include "dataset/shuffle.h"
#include "lib/clock.h"
#include "lib/hash.h"

#define READS_MIN     4  /* minimum number of reads from which to judge a disk */
#define READS_MIN_P95 20 /* minimum for the 95th percentile: with fewer, it is a single read */
#define SAMPLES_MIN   8  /* minimum number of samples to know the size of decoded copies from */

/* ---- current state: knobs, sessions and the dataset ---------------------------------------------------- */

static uint64_t dataset_key(const struct cached_dataset *d)
{
	uint64_t key = hash_number(d->identity.directory_ino);

	key = hash_number(key ^ d->identity.directory_dev);
	return (key ^ d->info.version) | 1;
}

static bool is_same_order(const struct session *a, const struct session *b)
{
	return a->order.dataset == b->order.dataset && a->order.request.world == b->order.request.world &&
	       a->order.request.lanes == b->order.request.lanes &&
	       a->order.request.drift == b->order.request.drift;
}

/* Returns two shares of the session's order: the chunks that this node's ranks need, and the samples that
 * they take. */
static void parts_here(const struct serving *serving, const struct session *s, double *ret_chunks,
		       double *ret_samples)
{
	struct owner_lanes lanes = {.lanes = s->order.request.lanes > 1 ? s->order.request.lanes : 1};
	struct owner_lanes ranks = {.lanes = s->order.request.world};

	*ret_chunks = *ret_samples = 1;
	for (const struct session *q = serving->sessions; q; q = q->next) {
		const struct shuffle_plan *plan = q->order.plans[q->order.epoch & 1].plan;
		uint64_t first, end;

		if (!plan || !is_same_order(q, s))
			continue;
		shuffle_rank_lanes(plan, &first, &end);
		if (first < end)
			owner_lanes_add(&lanes, (uint32_t)first, (uint32_t)end);
		owner_lanes_add(&ranks, q->order.request.rank, q->order.request.rank + 1);
	}
	if (!lanes.n_runs) /* the session has no order, or its ranks take no part of it */
		return;
	*ret_chunks = (double)owner_lanes_count(&lanes) / lanes.lanes;
	*ret_samples = (double)owner_lanes_count(&ranks) / ranks.lanes;
}

/* Returns the size of a sample's decoded copy; NAN: not known. If the copy holds the recipe's result, its
 * size is known before any sample is. */
static double decoded_size(const struct serving *serving, const struct job *job)
{
	const struct codec_prospect *prospect = &job->counters.prospect;
	struct recipe key;

	if (prospect->n >= SAMPLES_MIN)
		return (double)prospect->bytes / (double)prospect->n;
	for (const struct session *q = serving->sessions; q; q = q->next) {
		if (q->job == job && q->decoded_cache &&
		    recipe_decoded(&q->order.request.recipe, &key) == RECIPE_DECODED_MADE)
			return (double)q->order.request.recipe.width * q->order.request.recipe.height * 3;
	}
	return NAN;
}

/* Fills in the figures of decoded copies. part: share of the samples that ranks of this node take epoch after
 * epoch. */
static void decoded_fill(struct stall_sample *sample, const struct serving *serving, const struct job *job,
			 double part)
{
	struct serving_job_memory memory;

	serving_job_memory(serving, job, &memory);
	if (!memory.decoded)
		return;
	sample->decoded_cache.usable = (double)memory.decoded * part;
	sample->decoded_cache.samples = (double)memory.n_decoded_copies;
	sample->decoded_cache.bytes = (double)memory.decoded_cache;
	sample->decoded_cache.space_bytes = (double)serving_decoded_space(serving);
	sample->decoded_cache.sample_bytes = decoded_size(serving, job);
}

/* Fills in the part of the dataset that the job's ranks on this node need, in chunks and in decoded copies,
 * and how much of it is in memory. */
static void sensed_dataset(const struct serving *serving, const struct job *job, struct stall_sample *sample)
{
	const struct session *most = NULL;
	const struct cached_dataset *d;
	double chunks, samples;

	/* If a job has several orders (training, validation), the figures are those of the largest one. */
	for (const struct session *q = serving->sessions; q; q = q->next) {
		if (q->job == job && (!most || q->order.dataset->all_bytes > most->order.dataset->all_bytes ||
				      (q->order.dataset->all_bytes == most->order.dataset->all_bytes &&
				       q->order.n_samples > most->order.n_samples)))
			most = q;
	}
	if (!most)
		return;
	d = most->order.dataset;
	parts_here(serving, most, &chunks, &samples);
	sample->dataset = dataset_key(d);
	sample->dataset_bytes = (double)d->all_bytes * chunks;
	sample->cached_bytes = (double)d->held_bytes;
	sample->chunk_bytes = (double)d->all_bytes / (double)d->info.n_chunks;
	/* If several nodes need parts of a chunk, each must fetch the whole chunk. */
	sample->samples_per_chunk =
	    (double)most->order.n_samples / (double)most->order.n_chunks * fmin(samples / chunks, 1);
	decoded_fill(sample, serving, job, chunks);
}

static void add_session_state(struct stall_sample *sample, const struct session *q)
{
	const struct ring_work *work = &q->slots.control->work;
	uint32_t policy = atomic_load_explicit(&work->policy, memory_order_relaxed);

	sample->need_bytes +=
	    (double)q->cost_bytes + (double)q->need_bytes + (double)q->order.dataset->copy.bytes;
	sample->ready_samples += (double)q->slots.n * q->order.batch;
	if (q->order.batch > sample->batch)
		sample->batch = q->order.batch;
	if (q->order.request.window_chunks > sample->window_chunks)
		sample->window_chunks = q->order.request.window_chunks;
	if (q->decoded_cache)
		sample->tunable |= 1u << TUNER_DECODED_BYTES;
	if (policy == RING_WORK_AUTO)
		sample->tunable |= 1u << TUNER_CLIENT_WORKERS;
	if (atomic_load_explicit(&work->worker_bytes, memory_order_relaxed) > 0)
		sample->client_worker_bytes =
		    (double)atomic_load_explicit(&work->worker_bytes, memory_order_relaxed);
}

/* Fills in the knobs in force. A pin or the tuner may have asked for more than the operator now allows, or
 * less than the sessions need. */
static void knobs_fill(struct stall_sample *sample, const struct serving *serving, const struct job *job)
{
	serving_job_knobs(serving, job, &sample->knobs);
	/* The number of running workers, not the number requested from the job. */
	sample->knobs.value[TUNER_CLIENT_WORKERS] = serving_job_client_workers(serving, job);
}

static void state_fill(struct stall_sample *sample, const struct serving *serving, const struct job *job)
{
	sample->tunable = 1u << TUNER_CACHE_BYTES | 1u << TUNER_PREFETCH_CHUNKS | 1u << TUNER_DAEMON_WORKERS;
	knobs_fill(sample, serving, job);
	if (!job->n_sessions)
		return;
	sample->need_bytes = 0;
	sample->ready_samples = 0;
	for (const struct session *q = serving->sessions; q; q = q->next) {
		if (q->job == job)
			add_session_state(sample, q);
	}
}

/* ---- events: differences of counters ------------------------------------------------------------------- */

/* Returns a reading by its age, 0: the latest; NULL: there is none. */
static const struct sensed_reading *sensed_reading_at(const struct sensed_job *sensed, uint64_t age)
{
	if (age >= sensed->n_readings || age >= SENSED_READINGS)
		return NULL;
	return &sensed->readings[(sensed->n_readings - 1 - age) % SENSED_READINGS];
}

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

/* Fills in what each tier delivers. Call it after sensed_source(), whose memory_hit_ratio it uses. */
static void sensed_flows(const struct sensed_job *sensed, bool shares, struct stall_sample *sample)
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

/* Fills in the figures of arrived chunks, from the latest reading and earlier ones. shares: true if the job
 * has other nodes, whose figures are then filled in, too. */
static void sensed_source(const struct sensed_job *sensed, bool shares, struct stall_sample *sample)
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

/* Fills in the work of daemon workers and client workers between the two readings. */
static void sensed_work(const struct sensed_reading *before, const struct sensed_reading *now,
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

/* Fills in the figures of decoded copies, except those that sensed_dataset() fills in. */
static void sensed_decoded(const struct sensed_reading *before, const struct sensed_reading *now,
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

/* Fills in the shares: the child's if there is a report, else the clients'. */
static void sensed_shares(const struct sensed_job *sensed, const struct sensed_reading *before,
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

/* Fills in fetch_rate, prep_rate and device_rate from the other figures of the sample;
 * docs/explanation/tuning.md has the formulas. pool_threads: size of the daemon's pool, the maximum number of
 * threads that a job can use. */
static void sensed_rates(struct stall_sample *s, double pool_threads)
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

struct stall_sample sensed_sample(const struct sensed_job *sensed, const struct serving *serving,
				  const struct job *job)
{
	const struct sensed_reading *now = sensed_reading_at(sensed, 0);
	const struct sensed_reading *before = sensed_reading_at(sensed, 1);
	struct stall_sample sample = stall_sample_unknown();

	sample.job = job->id;
	state_fill(&sample, serving, job);
	sensed_dataset(serving, job, &sample);
	if (!now || !before || now->at_ns <= before->at_ns)
		return sample;
	sample.at_ns = now->at_ns;
	sample.covered_s = (double)(now->at_ns - before->at_ns) / (double)NS_PER_S;
	sample.run_queue_ratio = sensed->queue_ratio;
	sample.samples_per_s = (double)(now->taken.samples - before->taken.samples) / sample.covered_s;
	sample.n_trainers = job->n_sessions > 0;
	sensed_source(sensed, job->memberships, &sample);
	sensed_flows(sensed, job->memberships, &sample);
	sensed_work(before, now, &sample);
	sensed_decoded(before, now, &sample);
	sensed_shares(sensed, before, now, &sample);
	sensed_rates(&sample, (double)pool_workers(serving->cache.pool));
	return sample;
}
