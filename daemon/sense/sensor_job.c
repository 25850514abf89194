/* SPDX-License-Identifier: Apache-2.0 */
#include "sensor_job.h"

#include <math.h>

#include "dataset/owner.h"
#include "dataset/shuffle.h"
#include "lib/clock.h"
#include "lib/hash.h"

const struct sensed_reading *sensed_reading_at(const struct sensed_job *sensed, uint64_t age)
{
	if (age >= sensed->n_readings || age >= SENSED_READINGS)
		return NULL;
	return &sensed->readings[(sensed->n_readings - 1 - age) % SENSED_READINGS];
}

void sensed_read(struct sensed_job *sensed, const struct serving *serving, struct job *job, uint64_t now_ns)
{
	struct sensed_reading reading = {.at_ns = now_ns};

	serving_job_counters(serving, job, &reading.counters);
	for (struct session *q = serving->sessions; q; q = q->next) {
		if (q->job == job)
			session_count_taken(q, now_ns);
	}
	reading.taken = job->taken;
	sensed->readings[sensed->n_readings++ % SENSED_READINGS] = reading;
}

/* ---- current state, as opposed to events --------------------------------------------------------------- */

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

#define SAMPLES_MIN 8 /* minimum number of samples to know the size of decoded copies from */

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

void sensed_dataset(const struct serving *serving, const struct job *job, struct stall_sample *sample)
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
