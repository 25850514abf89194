/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The chunk cache of the node: segments within one byte budget, filled by one read a chunk however many
 * sessions want it, verified before anybody sees them. What to read and what to give up is policy.h's.
 *
 * The budget covers segments, batch slots and snapshot copies. Everything here is the loop thread's.
 */

#include "io.h"
#include "job.h"
#include "pool.h"
#include "segment.h"
#include "served.h"

/* A segment belongs to one dataset for life: a client that still maps it must never see another's data. */
struct segment {
	struct shared_memory memory;
	uint32_t id; /* index in cache.segments | generation << 20 */
	struct served_dataset *dataset;
	uint64_t chunk;
};

#define SEGMENT_INDEX_BITS 20
#define SEGMENT_MAX        (1u << SEGMENT_INDEX_BITS)

struct cache_counters {
	uint64_t reads; /* chunk fills started, repeated ones included */
	uint64_t read_bytes;
	uint64_t evictions;
	uint64_t damaged;  /* chunks quarantined */
	uint64_t buffered; /* opened without O_DIRECT */
	uint64_t batches;  /* made ready for clients, of all sessions */
};

struct cache {
	struct io *io;
	struct pool *pool;
	uint64_t budget_bytes;
	uint64_t prefetch_bytes; /* wanted beside what sessions need, see cache_set_needs() */
	uint64_t segment_bytes, slot_bytes, snapshot_bytes;
	uint64_t kept_bytes, keep_limit_bytes;
	struct segment **segments; /* by index */
	uint16_t *generations;
	uint32_t n_segments, size_segments;
	struct served_dataset *datasets;
	uint64_t round; /* of distance marks */
	uint64_t clock; /* for last_use */
	uint32_t n_loading;
	struct cache_counters counters;
	/* A chunk became ready or bad, or memory came free. */
	void (*on_change)(void *user);
	void *user;
};

/* Chunks being filled at one time: enough to keep a disk busy, few enough to bound what a seek wastes. */
#define CACHE_MAX_LOADING 4

void cache_free(struct cache *c); /* nothing loading, nothing pinned */

/* Bytes that segments may take. */
uint64_t cache_segment_limit(const struct cache *c);

/* Recomputes how much is kept for ever; call when sessions, datasets or knobs change. */
void cache_set_needs(struct cache *c, uint32_t prefetch_chunks);

/* Gives up idle datasets (and, over budget, whatever is not needed) until `bytes` more fit.
 * Whether they do. */
bool cache_make_room(struct cache *c, uint64_t bytes);

/* Starts to fill an absent chunk on behalf of a job. -ENOSPC: no segment to be had at this distance
 * (policy.h). */
int cache_load(struct cache *c, struct served_dataset *d, uint64_t chunk, uint32_t distance, struct job *job);

void cache_pin(struct cache *c, struct served_dataset *d, uint64_t chunk);
void cache_unpin(struct served_dataset *d, uint64_t chunk);

/* Marks how soon a session needs the chunk, in this round (++cache.round starts one). */
void cache_mark(struct cache *c, struct served_dataset *d, uint64_t chunk, uint32_t distance);

/* The segment with this id, or NULL. */
struct segment *cache_find_segment(const struct cache *c, uint32_t id);

void cache_add_dataset(struct cache *c, struct served_dataset *d);
struct served_dataset *cache_find_dataset(struct cache *c, const struct served_identity *identity);

/* Used by chunk_load.c. */
struct segment *cache_take_segment(struct cache *c, struct served_dataset *d, uint32_t distance,
				   int *ret_error);
void cache_drop_segment(struct cache *c, struct segment *segment);
void cache_note_ready(struct cache *c, struct served_dataset *d, uint64_t chunk);
