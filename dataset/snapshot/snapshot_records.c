/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the parts of a snapshot in storage order: records, and the places and times of each chunk. */
#include "snapshot_parts.h"

#include <errno.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/clock.h"

/* Writer of the records and modification times, and the current chunk. */
struct record_writer {
	struct section_writer records, times;
	struct buffer places; /* uint32_t each */
	struct buffer mtimes; /* uint64_t each */
	uint64_t chunk;       /* number of the chunk before chunks are dropped */
	size_t n_kept;        /* number of earlier chunks with live samples */
	uint64_t n_samples;   /* samples of all chunks so far */
};

static uint8_t bytes_for(uint64_t value)
{
	uint8_t n = 0;

	for (; value; value >>= 8)
		n++;
	return n;
}

/* Chooses how times are stored: whole seconds, as archives keep them, take half the space. */
static void choose_times(struct snapshot_chunk_entry *c, const uint64_t *mtimes, size_t n)
{
	uint64_t last = mtimes[0];
	bool whole = true;

	c->base_ns = mtimes[0];
	for (size_t i = 0; i < n; i++) {
		c->base_ns = mtimes[i] < c->base_ns ? mtimes[i] : c->base_ns;
		last = mtimes[i] > last ? mtimes[i] : last;
	}
	for (size_t i = 0; i < n && whole; i++)
		whole = (mtimes[i] - c->base_ns) % NS_PER_S == 0;
	c->time_unit = whole ? SNAPSHOT_SECONDS : SNAPSHOT_NANOSECONDS;
	c->time_bytes = bytes_for((last - c->base_ns) / (whole ? NS_PER_S : 1));
}

int builder_add_times(struct snapshot_chunk_entry *c, struct section_writer *times,
		      const struct buffer *places, const struct buffer *mtimes)
{
	static const unsigned char zeros[SNAPSHOT_TIMES_ALIGN];
	const uint64_t *ns = (const uint64_t *)mtimes->data;
	size_t n = c->n_samples;
	uint64_t at = times->bytes / SNAPSHOT_TIMES_ALIGN;
	int r = 0;

	choose_times(c, ns, n);
	/* Places ascend: if none is missing, each equals its index. */
	c->has_places = ((const uint32_t *)places->data)[n - 1] != n - 1;
	if (at > UINT32_MAX)
		return -EOVERFLOW;
	c->times_offset = (uint32_t)at;
	if (c->has_places)
		r = section_add(times, places->data, places->bytes);
	for (size_t i = 0; i < n && r == 0 && c->time_bytes; i++) {
		uint64_t time = (ns[i] - c->base_ns) / (c->time_unit == SNAPSHOT_SECONDS ? NS_PER_S : 1);

		r = section_add(times, &time, c->time_bytes);
	}
	return r < 0 ? r : section_add(times, zeros, -times->bytes % SNAPSHOT_TIMES_ALIGN);
}

/* Keeps the chunk, once all of its samples are taken. */
static int end_chunk(struct snapshot_builder *b, struct record_writer *w)
{
	struct snapshot_chunk_entry *chunks = builder_chunks(b), *kept = &chunks[w->n_kept];
	struct digest *digests = (struct digest *)b->digests.data;

	*kept = chunks[w->chunk];
	if (digests)
		digests[w->n_kept] = digests[w->chunk];
	kept->first_sample = w->n_samples - kept->n_samples;
	int r = builder_add_times(kept, &w->times, &w->places, &w->mtimes);

	w->n_kept++;
	w->mtimes.bytes = w->places.bytes = 0;
	return r;
}

/* Takes the next record in storage order. */
static int take_record(struct snapshot_builder *b, struct record_writer *w, uint64_t place,
		       const struct stored_entry *e)
{
	uint64_t sample = w->n_samples;
	uint32_t in_chunk = (uint32_t)place;
	int r = 0;

	if (place >> 32 != w->chunk && sample)
		r = end_chunk(b, w);
	w->chunk = place >> 32;
	w->n_samples++;
	builder_step(b);
	if (r == 0)
		r = section_add(&w->records, &e->record, sizeof(e->record));
	if (r == 0)
		r = buffer_append(&w->places, &in_chunk, sizeof(in_chunk));
	if (r == 0)
		r = buffer_append(&w->mtimes, &e->mtime_ns, sizeof(e->mtime_ns));
	if (r == 0)
		r = spill_sort_add(b->names, e->hash, &sample, sizeof(sample));
	return r < 0 ? r : spill_sort_add(b->tree, e->tree_place, &(uint32_t){(uint32_t)sample}, 4);
}

static int write_in_storage_order(struct snapshot_builder *b, struct record_writer *w)
{
	struct spill_entry e;
	struct stored_entry stored;
	int r;

	while ((r = spill_sort_next(b->stored, &e)) == SPILL_SORT_ENTRY) {
		memcpy(&stored, e.data, sizeof(stored));
		r = take_record(b, w, e.key, &stored);
		if (r < 0)
			return r;
	}
	if (r == 0 && w->n_samples)
		r = end_chunk(b, w);
	b->chunks.bytes = w->n_kept * sizeof(struct snapshot_chunk_entry);
	if (b->digests.bytes)
		b->digests.bytes = w->n_kept * sizeof(struct digest);
	return r;
}

static void record_writer_free(struct record_writer *w)
{
	section_free(&w->records);
	section_free(&w->times);
	buffer_free(&w->places);
	buffer_free(&w->mtimes);
}

int builder_write_records(struct snapshot_builder *b)
{
	_cleanup_(record_writer_free) struct record_writer w = {0};
	int r = builder_begin_section(b, &w.records);

	/* Both sections grow at the same time; the second begins where the first will end, since its length
	 * is known. */
	if (r == 0)
		r = section_begin(&w.times, b->fd,
				  w.records.offset + b->header.n_samples * sizeof(struct snapshot_record));
	if (r == 0)
		r = write_in_storage_order(b, &w);
	if (r == 0)
		r = builder_end_section(b, &w.records, SNAPSHOT_RECORDS);
	if (r == 0)
		r = builder_end_section(b, &w.times, SNAPSHOT_TIMES);
	spill_sort_free(steal_pointer(b->stored));
	return r;
}
