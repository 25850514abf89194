/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks of which some samples alone are read, because few are wanted. Who wants others has the whole chunk
 * read, which then takes the place of the part (chunk_load.c). */
#include "cached_dataset.h"

#include <stdlib.h>

#include "dataset/chunk.h"
#include "dataset/subset.h"
#include "lib/array.h"
#include "net_frame.h"
#include "reader.h"

/* What one more read costs, in bytes that could be read instead: what lies between two samples is read with
 * them up to this length. From a disk of 2 GB/s that delivers 16,000 reads a second and more; storage that is
 * far away has more of both. */
#define READ_COST_BYTES ((uint64_t)128 << 10)

static bool wants_all(const struct cached_want *want)
{
	return !want->subset && !want->samples && !want->bits;
}

/* The first bit from i on that is set; n: none of the n is. */
static uint64_t next_bit(const uint64_t *bits, uint64_t i, uint64_t n)
{
	while (i < n) {
		uint64_t word = bits[i / 64] >> (i % 64);

		if (word) {
			i += (uint64_t)__builtin_ctzll(word);
			return i < n ? i : n;
		}
		i += 64 - i % 64;
	}
	return n;
}

static bool has_all(const uint64_t *part, const uint64_t *bits, uint64_t n)
{
	for (uint64_t i = 0; i < subset_words(n); i++)
		if (bits[i] & ~part[i])
			return false;
	return true;
}

/* Returns the first of the chunk's samples from this one on that is wanted; UINT64_MAX or a number that is
 * none of its samples': none. */
static uint64_t next_wanted(const struct cached_want *want, const struct snapshot_chunk *meta,
			    uint64_t sample)
{
	uint64_t next = UINT64_MAX;

	if (want->bits)
		return meta->first_sample +
		       next_bit(want->bits, sample - meta->first_sample, meta->n_samples);
	if (want->subset)
		return subset_next(want->subset, sample);
	for (uint32_t i = 0; i < want->n; i++)
		if (want->samples[i] >= sample && want->samples[i] < next)
			next = want->samples[i];
	return next;
}

bool cached_has(const struct cached_dataset *d, uint64_t chunk, const struct cached_want *want)
{
	const uint64_t *part = d->chunks[chunk].part;
	struct snapshot_chunk meta;
	uint64_t end;

	if (!part)
		return true;
	if (wants_all(want) || snapshot_chunk_get(d->snapshot, chunk, &meta) < 0)
		return false;
	if (want->bits)
		return has_all(part, want->bits, meta.n_samples);
	end = meta.first_sample + meta.n_samples;
	for (uint64_t i = next_wanted(want, &meta, meta.first_sample); i < end;
	     i = next_wanted(want, &meta, i + 1)) {
		if (!cached_part_has(part, i - meta.first_sample))
			return false;
	}
	return true;
}

/* Adds these bytes, in whole pages. false: they are too many ranges, or not in order. */
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
	for (uint64_t i = next_wanted(want, meta, first); i < end; i = next_wanted(want, meta, i + 1)) {
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

	/* A digest is of all of the file. */
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

/* From a peer all is sent that is more than this part of it. */
#define WHOLE_RATIO 0.75

void cached_part_add(uint64_t *part, const uint64_t *more, uint64_t n_samples)
{
	for (uint64_t i = 0; i < subset_words(n_samples); i++)
		part[i] |= more[i];
}

uint64_t cached_part_bytes(const struct cached_dataset *d, const struct snapshot_chunk *meta,
			   const uint64_t *part)
{
	uint64_t end = (meta->payload_offset + CHUNK_ALIGN - 1) / CHUNK_ALIGN * CHUNK_ALIGN, bytes = end;

	/* They lie in the chunk's order, as what was verified does: one may begin in the page where the last
	 * one ends. */
	for (uint64_t i = next_bit(part, 0, meta->n_samples); i < meta->n_samples;
	     i = next_bit(part, i + 1, meta->n_samples)) {
		struct snapshot_sample s;
		uint64_t from, to;

		if (snapshot_sample_get(d->snapshot, meta->first_sample + i, &s) < 0)
			continue;
		from = s.offset - s.offset % CHUNK_ALIGN;
		to = (s.offset + (uint64_t)s.stored_bytes + CHUNK_ALIGN - 1) / CHUNK_ALIGN * CHUNK_ALIGN;
		from = from > end ? from : end;
		bytes += to > from ? to - from : 0;
		end = to > end ? to : end;
	}
	return bytes;
}

struct ranges {
	struct net_range *at;
	uint32_t n, size;
	uint64_t bytes;
};

/* Adds these bytes. What lies side by side is one range. false: not in order, too many, or no memory. */
static bool extend(struct ranges *r, uint64_t begin, uint64_t end, uint64_t file_bytes)
{
	struct net_range *last = r->n > 0 ? &r->at[r->n - 1] : NULL;
	uint64_t last_end = last ? (uint64_t)last->offset + last->bytes : 0;

	if (begin == end)
		return true;
	if (begin < last_end || end < begin || end > file_bytes || end > UINT32_MAX)
		return false;
	r->bytes += end - begin;
	if (last && begin == last_end) {
		last->bytes += (uint32_t)(end - begin);
		return true;
	}
	if (r->n == NET_MAX_RANGES || array_room(r->at, r->n, r->size) < 0)
		return false;
	r->at[r->n++] = (struct net_range){.offset = (uint32_t)begin, .bytes = (uint32_t)(end - begin)};
	return true;
}

static bool list_ranges(const struct cached_dataset *d, const struct snapshot_chunk *meta,
			const struct cached_want *want, const uint64_t *part, struct ranges *r,
			uint64_t *wanted)
{
	uint64_t first = meta->first_sample, end = first + meta->n_samples;

	if (meta->payload_offset == 0 || !extend(r, 0, meta->payload_offset, meta->file_bytes))
		return false;
	for (uint64_t i = next_wanted(want, meta, first); i < end; i = next_wanted(want, meta, i + 1)) {
		struct snapshot_sample s;

		if (part && cached_part_has(part, i - first))
			continue;
		if (snapshot_sample_get(d->snapshot, i, &s) < 0 ||
		    !extend(r, s.offset, s.offset + (uint64_t)s.stored_bytes, meta->file_bytes))
			return false;
		wanted[(i - first) / 64] |= UINT64_C(1) << ((i - first) % 64);
	}
	return true;
}

uint64_t *cached_plan_ranges(const struct cached_dataset *d, const struct snapshot_chunk *meta,
			     const struct cached_want *want, const uint64_t *part,
			     struct net_range **ret_ranges, uint32_t *ret_n)
{
	struct ranges r = {.n = 0};
	uint64_t *wanted;

	if (wants_all(want) || meta->has_sha256)
		return NULL;
	wanted = calloc(subset_words(meta->n_samples), sizeof(*wanted));
	if (wanted && list_ranges(d, meta, want, part, &r, wanted) &&
	    (double)r.bytes <= WHOLE_RATIO * (double)meta->file_bytes) {
		*ret_ranges = r.at;
		*ret_n = r.n;
		return wanted;
	}
	free(r.at);
	free(wanted);
	return NULL;
}
