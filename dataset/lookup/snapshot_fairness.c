/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/snapshot.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/cleanup.h"
#include "lib/minmax.h"

#define MIN_CHUNKS    64
#define MAX_CHUNKS    4096
#define CHUNK_SAMPLES 256  /* maximum samples per chunk */
#define ENOUGH        4096 /* wanted number of samples, from MIN_CHUNKS to MAX_CHUNKS chunks */

/* Lists the first samples of a chunk. */
static int look_at(const struct snapshot *s, uint64_t chunk, struct fairness_sample *samples, uint64_t *n)
{
	struct snapshot_chunk c;
	int r = snapshot_chunk_get(s, chunk, &c);

	for (uint64_t i = 0; r == 0 && i < min_u64(c.n_samples, CHUNK_SAMPLES); i++) {
		struct fairness_sample *sample = &samples[*n];
		struct snapshot_sample record;

		r = snapshot_sample_get(s, c.first_sample + i, &record);
		if (r == 0)
			r = snapshot_place(s, c.first_sample + i, &sample->place);
		if (r < 0)
			return r;
		sample->chunk = (uint32_t)chunk;
		sample->class_index = record.class_index;
		(*n)++;
	}
	return r;
}

int snapshot_fairness(const struct snapshot *s, struct fairness *ret)
{
	const struct snapshot_info *info = snapshot_info(s);
	uint64_t wanted = info->n_samples ? ENOUGH * info->n_chunks / info->n_samples : 0, n = 0;
	uint64_t n_chunks = min_u64(info->n_chunks, min_u64(max_u64(wanted, MIN_CHUNKS), MAX_CHUNKS));
	_cleanup_(freep) struct fairness_sample *samples =
	    calloc(n_chunks * CHUNK_SAMPLES + 1, sizeof(*samples));
	int r = samples ? 0 : -ENOMEM;

	/* Shards hold samples in an order of their own, which neither paths nor classes show. */
	if (info->is_external)
		n_chunks = 0;
	for (uint64_t i = 0; r == 0 && i < n_chunks; i++)
		r = look_at(s, i * info->n_chunks / n_chunks, samples, &n);
	return r < 0 ? r : fairness_measure(samples, n, ret);
}
