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
