/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Definitions that the accessors, the tree and the verifier of one mapped snapshot share. */

#include <stdatomic.h>
#include <string.h>

#include "dataset/path_order.h"
#include "lib/clock.h"
#include "snapshot_format.h"

struct snapshot {
	const unsigned char *map;
	uint64_t map_bytes;
	char *origin;
	struct snapshot_info info;
	struct snapshot_header header; /* a copy */
	const struct snapshot_chunk_entry *chunks;
	const struct snapshot_record *records;
	const struct snapshot_bucket *buckets;
	uint64_t n_all_buckets; /* n_buckets and the overflow buckets after them */
	const uint32_t *tree;
	const char *paths;
	uint64_t paths_bytes;
	const struct snapshot_class *classes;
	const struct digest *digests; /* NULL: none */
	const unsigned char *times;
	uint64_t times_bytes;
	atomic_bool is_checked; /* snapshot_check_lookups() has passed */
};

/* The unpacked fields of a record. */
struct snapshot_fields {
	uint64_t xxh3;
	uint64_t offset;
	uint64_t path_offset;
	uint32_t bytes;
	uint32_t stored_bytes;
	uint32_t mode;
	uint16_t path_length;
	uint16_t encoding;
};

#define SNAPSHOT_LOW_BITS(n) ((UINT64_C(1) << (n)) - 1)

static inline struct snapshot_fields snapshot_unpack(const struct snapshot_record *r)
{
	uint32_t bytes = (uint32_t)(r->stored & SNAPSHOT_LOW_BITS(SNAPSHOT_BYTES_BITS));

	return (struct snapshot_fields){
	    .xxh3 = r->xxh3,
	    .offset = r->stored >> SNAPSHOT_BYTES_BITS & SNAPSHOT_LOW_BITS(SNAPSHOT_OFFSET_BITS),
	    .path_offset = r->path & SNAPSHOT_LOW_BITS(SNAPSHOT_PATH_OFFSET_BITS),
	    .bytes = bytes,
	    .stored_bytes = bytes,
	    .mode = (uint32_t)(r->stored >> 60 << 12 | r->path >> 52),
	    .path_length = r->path >> SNAPSHOT_PATH_OFFSET_BITS & CHUNK_NAME_MAX,
	    .encoding = CHUNK_ENCODING_RAW,
	};
}

/* Returns the fields of a sample < n_samples. */
static inline struct snapshot_fields snapshot_fields(const struct snapshot *s, uint64_t sample)
{
	return snapshot_unpack(&s->records[sample]);
}

/* Returns the record's path. Its text is NULL if the record is out of bounds. */
static inline struct path_text snapshot_fields_path(const struct snapshot *s, const struct snapshot_fields *f)
{
	if (f->path_offset > s->paths_bytes || f->path_length > s->paths_bytes - f->path_offset)
		return (struct path_text){0};
	return (struct path_text){s->paths + f->path_offset, f->path_length};
}

/* Returns the path of a sample. Its text is NULL if the number or the record is out of bounds. */
static inline struct path_text snapshot_path(const struct snapshot *s, uint64_t sample)
{
	if (sample >= s->info.n_samples)
		return (struct path_text){0};
	const struct snapshot_fields f = snapshot_fields(s, sample);

	return snapshot_fields_path(s, &f);
}

/* Returns the places of a chunk, if it has any, followed by its times. NULL if they lie outside the section.
 */
static inline const unsigned char *snapshot_places(const struct snapshot *s,
						   const struct snapshot_chunk_entry *c)
{
	uint64_t offset = (uint64_t)c->times_offset * SNAPSHOT_TIMES_ALIGN;
	uint64_t bytes = c->n_samples * ((c->has_places ? sizeof(uint32_t) : 0) + (uint64_t)c->time_bytes);

	return offset <= s->times_bytes && bytes <= s->times_bytes - offset ? s->times + offset : NULL;
}

/* Returns the time of the i-th sample of a chunk: places as above, i < n_samples, time_bytes <= 8. */
static inline uint64_t snapshot_time(const struct snapshot_chunk_entry *c, const unsigned char *places,
				     uint64_t i)
{
	uint64_t time = 0;

	memcpy(&time, places + (c->has_places ? c->n_samples * sizeof(uint32_t) : 0) + i * c->time_bytes,
	       c->time_bytes);
	return c->base_ns + time * (c->time_unit == SNAPSHOT_SECONDS ? NS_PER_S : 1);
}

#define SNAPSHOT_DAMAGED "run `dieselctl snapshot` to rebuild it (if frozen, run `dieselctl rebuild`)"
