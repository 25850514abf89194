/* SPDX-License-Identifier: Apache-2.0 */
#include "capacity/capacity.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "lib/array.h"

#define MOST 0x1p50 /* upper bound of any plausible figure of a node */

void capacity_init(struct capacity *c)
{
	memset(c, 0, sizeof(*c));
	c->need_bytes = c->dataset_bytes = c->decoded_bytes = NAN;
	c->limit_bytes = c->space_bytes = c->cores = c->cores_busy = NAN;
}

void capacity_free(struct capacity *c)
{
	free(c->datasets);
	c->datasets = NULL;
}

/* Returns 0 for a value that is unknown or absurd. */
static double known(double value)
{
	return value >= 0 && value <= MOST ? value : 0;
}

static int note_dataset(struct capacity *c, uint64_t key, double bytes)
{
	for (size_t i = 0; i < c->n_datasets; i++) {
		if (c->datasets[i].key != key)
			continue;
		c->datasets[i].bytes = fmax(c->datasets[i].bytes, bytes);
		return 0;
	}
	if (array_reserve(c->datasets, c->n_datasets, c->n_allocated) < 0)
		return -ENOMEM;
	c->datasets[c->n_datasets++] = (struct capacity_dataset){.key = key, .bytes = bytes};
	return 0;
}

static bool is_first_of_dataset(const struct stall_sample *samples, size_t i)
{
	for (size_t j = 0; j < i; j++)
		if (samples[j].dataset == samples[i].dataset)
			return false;
	return samples[i].dataset != 0;
}

/* Returns the cores that would serve the job at its device's pace or, if that is not known, at its pace
 * without waits. */
static double cores_wanted(const struct stall_sample *s)
{
	double wait = fmin(known(s->shares.fetch_stall) + known(s->shares.prep_stall), 1);
	double rate = s->device_rate > 0 && s->device_rate <= MOST
			  ? s->device_rate
			  : known(s->samples_per_s) / fmax(1 - wait, 0.05);

	return rate * known(s->daemon_cpu_s_per_sample);
}

static void note_node(struct capacity *c, const struct stall_node *node, double held_bytes)
{
	double headroom = node->memory_headroom_bytes;

	if (known(node->memory_limit_bytes) > 0)
		c->limit_bytes = node->memory_limit_bytes;
	if (known(node->cores) > 0)
		c->cores = node->cores;
	if (headroom >= 0 && headroom <= MOST)
		c->space_bytes = fmin(c->space_bytes, headroom + held_bytes); /* fmin() ignores NAN */
}

int capacity_add(struct capacity *c, const struct stall_node *node, const struct stall_sample *samples,
		 size_t n_samples)
{
	double need = 0, datasets = 0, decoded_cache = 0, held = 0, cores = 0, busy = 0;
	size_t bucket;

	if (!n_samples)
		return 0;
	for (size_t i = 0; i < n_samples; i++) {
		const struct stall_sample *s = &samples[i];

		need += known(s->need_bytes);
		decoded_cache += known(s->decoded_cache.usable) * known(s->decoded_cache.sample_bytes);
		held += known(s->decoded_cache.bytes);
		cores += cores_wanted(s);
		busy += known(s->daemon_workers_busy);
		if (!is_first_of_dataset(samples, i))
			continue;
		datasets += known(s->dataset_bytes);
		held += known(s->cached_bytes);
		if (note_dataset(c, s->dataset, known(s->dataset_bytes)) < 0)
			return -ENOMEM;
	}
	c->n_seconds++;
	c->n_jobs_most = n_samples > c->n_jobs_most ? n_samples : c->n_jobs_most;
	c->need_bytes = fmax(c->need_bytes, need);
	c->dataset_bytes = fmax(c->dataset_bytes, datasets);
	c->decoded_bytes = fmax(c->decoded_bytes, decoded_cache);
	c->cores_busy = fmax(c->cores_busy, busy);
	bucket = (size_t)fmin(ceil(cores * CAPACITY_PER_CORE), CAPACITY_BUCKETS - 1);
	c->seconds_by_cores[bucket]++;
	if (node)
		note_node(c, node, held);
	return 0;
}

static double cores_of_95_percent(const struct capacity *c)
{
	uint64_t n = 0;

	for (size_t i = 0; i < CAPACITY_BUCKETS; i++) {
		n += c->seconds_by_cores[i];
		if (n * 100 >= c->n_seconds * 95)
			return (double)i / CAPACITY_PER_CORE;
	}
	return 0;
}

struct capacity_advice capacity_advise(const struct capacity *c)
{
	double least = fmax(c->need_bytes, CAPACITY_LEAST);
	double want = fmax(c->need_bytes + c->dataset_bytes + c->decoded_bytes, CAPACITY_LEAST);
	double space = c->space_bytes - (double)CAPACITY_RESERVE;
	struct capacity_advice advice = {.cache_bytes = fmin(want, space), .cores = cores_of_95_percent(c)};

	if (advice.cache_bytes < least) {
		advice.lacking_bytes = least - space;
		advice.cache_bytes = 0;
	}
	advice.missing_bytes = want - advice.cache_bytes;
	advice.set_aside_bytes = advice.cache_bytes > 0 ? advice.cache_bytes + (double)CAPACITY_OWN_BYTES : 0;
	for (size_t i = 0; i < c->n_datasets; i++)
		advice.stage_bytes += c->datasets[i].bytes;
	advice.stage_bytes = fmax(advice.stage_bytes, CAPACITY_LEAST);
	return advice;
}
