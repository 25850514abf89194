/* SPDX-License-Identifier: Apache-2.0 */
/* Reads only some samples of a chunk, if few are needed. When a job needs other samples later, the whole
 * chunk is read and replaces the part (load.c). */
#include "daemon/cache/cached_dataset.h"

#include <stdlib.h>

#include "dataset/chunk.h"
#include "dataset/subset.h"
#include "daemon/sandboxed/reader.h"

/* Cost of one more read, in bytes that could be read instead: a gap between two samples is read with them up
 * to this length. Fits a disk of 2 GB/s with at least 16,000 reads per second; for remote storage, both costs
 * are higher. */
#define READ_COST_BYTES ((uint64_t)128 << 10)

static bool wants_all(const struct cached_want *want)
{
	return !want->subset && !want->samples;
}

/* Returns the first wanted sample at or after this one. If there is none: UINT64_MAX, or a sample of a
 * later chunk. */
static uint64_t next_wanted(const struct cached_want *want, uint64_t sample)
{
	uint64_t next = UINT64_MAX;

	if (want->subset)
		return subset_next(want->subset, sample);
	for (uint32_t i = 0; i < want->n; i++)
		if (want->samples[i] >= sample && want->samples[i] < next)
			next = want->samples[i];
	return next;
}

static bool has(const struct cached_dataset *d, uint64_t chunk, const struct cached_want *want)
{
	const uint64_t *part = d->chunks[chunk].part;
	struct snapshot_chunk meta;
	uint64_t end;

	if (!part)
		return true;
	if (wants_all(want) || snapshot_chunk_get(d->snapshot, chunk, &meta) < 0)
		return false;
	end = meta.first_sample + meta.n_samples;
	for (uint64_t i = next_wanted(want, meta.first_sample); i < end; i = next_wanted(want, i + 1)) {
		if (!cached_part_has(part, i - meta.first_sample))
			return false;
	}
	return true;
}

bool cached_lacks(const struct cached_dataset *d, uint64_t chunk, const struct cached_want *want)
{
	const struct cached_chunk *k = &d->chunks[chunk];

	return cached_is_missing(k) || (k->state == CHUNK_READY && !has(d, chunk, want));
}

/* Adds these bytes, in whole pages. Returns false if there are too many ranges, or if they are not in
 * order. */
static bool add_range(struct reader_order *o, uint64_t begin, uint64_t end)
{
	struct reader_range *last = &o->ranges[o->n_ranges - 1];
	uint64_t last_end = last->offset + last->bytes;

	begin -= begin % CHUNK_ALIGN;
	end = (end + CHUNK_ALIGN - 1) / CHUNK_ALIGN * CHUNK_ALIGN;
	if (begin < last->offset || end > o->bytes)
		return false;
	if (begin <= last_end + READ_COST_BYTES) {
		last->bytes = (end > last_end ? end : last_end) - last->offset;
		return true;
	}
	if (o->n_ranges == READER_MAX_RANGES)
		return false;
	o->ranges[o->n_ranges++] = (struct reader_range){begin, end - begin};
	return true;
}

static bool plan(const struct cached_dataset *d, const struct snapshot_chunk *meta,
		 const struct cached_want *want, struct reader_order *o, uint64_t *part)
{
	uint64_t first = meta->first_sample, end = first + meta->n_samples;

	o->ranges[0] = (struct reader_range){0, meta->payload_offset};
	o->n_ranges = 1;
	if (meta->payload_offset == 0 || meta->payload_offset % CHUNK_ALIGN != 0 ||
	    meta->payload_offset > o->bytes)
		return false;
	for (uint64_t i = next_wanted(want, first); i < end; i = next_wanted(want, i + 1)) {
		struct snapshot_sample s;

		if (snapshot_sample_get(d->snapshot, i, &s) < 0 || s.offset > o->bytes ||
		    s.stored_bytes > o->bytes - s.offset ||
		    !add_range(o, s.offset, s.offset + s.stored_bytes))
			return false;
		part[(i - first) / 64] |= UINT64_C(1) << ((i - first) % 64);
	}
	return true;
}

uint64_t *cached_plan_part(const struct cached_dataset *d, const struct snapshot_chunk *meta,
			   const struct cached_want *want, struct reader_order *order, uint64_t *ret_bytes)
{
	uint64_t bytes = 0, *part;

	/* A digest covers the whole file. */
	if (wants_all(want) || meta->has_sha256)
		return NULL;
	part = calloc(subset_words(meta->n_samples), sizeof(*part));
	if (part && plan(d, meta, want, order, part)) {
		for (uint32_t i = 0; i < order->n_ranges; i++)
			bytes += order->ranges[i].bytes;
		if (bytes + order->n_ranges * READ_COST_BYTES <= meta->file_bytes / 2) {
			*ret_bytes = bytes;
			return part;
		}
	}
	order->n_ranges = 0;
	free(part);
	return NULL;
}
