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
#include "policy.h"
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
	uint64_t limit_bytes;  /* the operator's: what sessions may need together */
	uint64_t wanted_bytes; /* what it should take, at most limit_bytes */
	uint64_t budget_bytes; /* what it may take now: that, but never less than the open sessions need */
	uint64_t segment_bytes, slot_bytes, snapshot_bytes;
	uint64_t releasing_bytes; /* given up, on their way back to the system */
	uint64_t kept_bytes, keep_limit_bytes;
	struct segment **segments; /* by index */
	uint16_t *generations;
	uint32_t n_segments, size_segments;
	struct served_dataset *datasets;
	uint64_t round; /* of distance marks */
	uint64_t clock; /* for last_use */
	uint32_t n_loading;
	struct pool_lane release_lane;
	bool needs_changed; /* sessions or datasets: cache_fit() is due */
	bool closing;       /* cache_free() runs */
	bool unfit;         /* it takes more than it should, because that is in use now: cache_fit() again */
	struct cache_counters counters;
	/* A chunk became ready or bad, or memory came free. */
	void (*on_change)(void *user);
	void *user;
};

/* Chunks being filled at one time: enough to keep a disk busy, few enough to bound what a seek wastes. */
#define CACHE_MAX_LOADING 4

void cache_init(struct cache *c, uint64_t bytes);
void cache_free(struct cache *c); /* nothing loading, nothing pinned */

/* Bytes that segments may take, of a budget. */
uint64_t cache_segment_limit(const struct cache *c, uint64_t budget_bytes);

/* The least that the open sessions can run with. */
uint64_t cache_floor_bytes(const struct cache *c);

/*
 * Makes the cache what it should be after sessions, datasets or limits changed: sets the budget, each
 * dataset's share and how much of it is kept; gives up what is beyond, idle datasets first, then what nobody
 * misses, then what is needed last; what is pinned or waited for stays (and unfit is set). Memory goes back
 * to the system by a worker. What was transient and fits now is kept.
 */
void cache_fit(struct cache *c);

/* Gives up idle datasets (and, over budget, whatever is not needed) until `bytes` more fit into the
 * operator's limit. Whether they do. */
bool cache_make_room(struct cache *c, uint64_t bytes);

/* Gives up datasets that no session uses, if that was so before since_ns. The time of the oldest that is
 * left; 0: none. */
uint64_t cache_drop_idle(struct cache *c, uint64_t since_ns);

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

/* Used by chunk_load.c and cache_fit.c. */
struct segment *cache_take_segment(struct cache *c, struct served_dataset *d, uint64_t chunk,
				   uint32_t distance, int *ret_error);
void cache_drop_segment(struct cache *c, struct segment *segment);
/* Whether the chunk counts as one that is kept for ever. */
void cache_keep(struct cache *c, struct segment *segment, bool kept);
/* As the choice of a victim sees it. */
struct policy_segment cache_look_at(const struct cache *c, const struct segment *segment);
void cache_note_ready(struct cache *c, struct served_dataset *d, uint64_t chunk);
