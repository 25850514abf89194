/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Which chunks have holes, and which nobody needs. */

#include "buffer.h"
#include "dataset/meta.h"
#include "dataset/purge.h"

struct purge_chunk {
	struct meta_chunk known;
	uint32_t n_live; /* records that the newest version has */
	uint32_t n_kept; /* records that the oldest version to be kept has */
	bool goes;
};

/* A sample that has to be copied. */
struct purge_sample {
	uint32_t chunk, record; /* chunk: its place in the plan */
	bool is_copied;
};

struct purge_plan {
	struct buffer chunks;  /* struct purge_chunk, by id */
	struct buffer samples; /* struct purge_sample, by chunk and record */
	struct buffer log;     /* struct change */
	struct meta_info info;
	uint64_t readable; /* the oldest version that can be read now */
	uint64_t oldest;   /* version to be kept; info.version + 1: the one that the purge makes */
};

void purge_plan_free(struct purge_plan *p);
int purge_plan_make(struct purge_plan *p, struct meta *meta, const struct purge_options *o,
		    struct error *err);

static inline struct purge_chunk *purge_chunks(const struct purge_plan *p, size_t *ret_n)
{
	*ret_n = p->chunks.bytes / sizeof(struct purge_chunk);
	return (struct purge_chunk *)p->chunks.data;
}

static inline bool purge_is_tombstone(const struct purge_chunk *c)
{
	return c->known.flags & CHUNK_FLAG_TOMBSTONE;
}

static inline bool purge_is_holed(const struct purge_chunk *c)
{
	return c->n_live && c->n_live < c->known.n_records;
}

/* Returns the place of the chunk, or SIZE_MAX. */
size_t purge_find_chunk(const struct purge_plan *p, const struct chunk_id *id);
/* NULL: it is none of those that have to be copied. */
struct purge_sample *purge_find_sample(const struct purge_plan *p, uint32_t chunk, uint32_t record);
