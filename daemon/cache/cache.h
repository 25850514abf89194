/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The chunk cache of the node: segments within one byte budget, filled by one read a chunk however many
 * sessions want it, verified before anybody sees them. What to read and what to give up is policy.h's.
 *
 * The budget covers segments, batch slots and snapshot copies. Everything here is the loop thread's.
 *
 * Jobs *claim* memory for their datasets (their knob). What datasets hold beyond that, and what is held of
 * datasets that nobody uses, is *borrowed*: it stays as long as nobody wants the room, and is the first to
 * go.
 */

#include "carry.h"
#include "job.h"
#include "policy.h"
#include "pool.h"
#include "reader.h"
#include "shared_memory.h"
#include "cached_dataset.h"

/* A segment belongs to one dataset for life: a client that still maps it must never see another's data. */
struct segment {
	struct shared_memory memory;
	uint32_t id; /* index in cache.segments | generation << 20 */
	struct cached_dataset *dataset;
	uint64_t chunk;
	bool lent;           /* a client may map it: only what is verified is ever written into it */
	bool filling;        /* with a verified chunk, by a worker */
	bool carried;        /* of before a restart: not mapped, never given to anybody, never written to */
	uint32_t carry_slot; /* carry.h's */
	struct access_stamp stamp; /* of the chunk's file, from before it was read */
};

#define SEGMENT_INDEX_BITS 20
#define SEGMENT_MAX        (1u << SEGMENT_INDEX_BITS)

struct cache_counters {
	uint64_t reads; /* chunk fills started, repeated ones included */
	uint64_t read_bytes;
	uint64_t carried; /* chunks of before a restart that took the place of a read */
	uint64_t evictions;
	uint64_t damaged;  /* chunks quarantined */
	uint64_t buffered; /* opened without O_DIRECT */
	uint64_t batches;  /* made ready for clients, of all sessions */
};

struct cache {
	struct readers readers;
	struct load *loads; /* under way: chunk_load.c */
	struct pool *pool;
	struct carry *carry;   /* NULL: chunks end with the daemon */
	uint64_t limit_bytes;  /* the operator's: what sessions may need together */
	uint64_t budget_bytes; /* what it may take: that, but never less than the open sessions need */
	uint64_t unclaimed_bytes;
	uint64_t lend_bytes; /* what chunks may take now beyond what jobs claim: memory nobody else wants */
	uint64_t segment_bytes, slot_bytes, snapshot_bytes;
	uint64_t releasing_bytes; /* given up, on their way back to the system */
	uint64_t kept_bytes, keep_limit_bytes;
	struct segment **segments; /* by index */
	uint16_t *generations;
	uint32_t n_segments, size_segments;
	uint32_t max_segments; /* each is a descriptor */
	struct cached_dataset *datasets;
	uint32_t n_held; /* of these, whose snapshot somebody holds who is not connected any more */
	uint64_t round;  /* of distance marks */
	uint64_t clock;  /* for last_use */
	uint32_t n_loading;
	struct pool_lane release_lane;
	bool needs_changed; /* sessions or datasets: cache_fit() is due */
	bool closing;       /* the daemon stops: memory is left to the clients that map it */
	bool unfit;         /* it takes more than it should, because that is in use now: cache_fit() again */
	struct cache_counters counters;
	/* A chunk became ready or bad, or memory came free. */
	void (*on_change)(void *user);
	/* The limit of log lines that this user may cause. */
	struct log_limit *(*lines_of)(void *user, uint32_t uid);
	void *user;
};

/* Chunks of a dataset being filled at one time: enough to keep a disk busy, few enough to bound what a seek
 * wastes. A dataset whose storage hangs keeps its own from being filled, and no other's. */
#define CACHE_MAX_LOADING READER_MAX_ORDERS

/* Datasets that nobody uses and that stay for the next job: each holds descriptors. */
#define CACHE_MAX_IDLE_DATASETS 16
/* Descriptors of one whose snapshot is held: taken from those for chunks. */
#define CACHE_HELD_FILES 3

void cache_init(struct cache *c, uint64_t bytes); /* as many segments as there can be */
void cache_free(struct cache *c);                 /* nothing loading, nothing pinned */

/* Bytes that segments may take, of a budget. */
uint64_t cache_segment_limit(const struct cache *c, uint64_t budget_bytes);

/* The least that the open sessions can run with. */
uint64_t cache_floor_bytes(const struct cache *c);

/*
 * Makes the cache what it should be after sessions, datasets or limits changed: sets the budget, what each
 * dataset may claim and borrow and how much of it is kept; gives up what is beyond, idle datasets first, then
 * what nobody misses, then what is needed last; what is pinned or waited for stays (and unfit is set). Memory
 * goes back to the system by a worker. What was transient and fits now is kept.
 */
void cache_fit(struct cache *c);

/* Chunks in memory beyond what is claimed. */
uint64_t cache_borrowed_bytes(const struct cache *c);
/* All memory that is taken for somebody: batches, snapshots in use, chunks within the claims. */
uint64_t cache_claimed_bytes(const struct cache *c);
/* From now on no more than so many bytes may be borrowed; what is beyond is given up at once. */
void cache_lend(struct cache *c, uint64_t bytes);

/* Gives up idle datasets (and, over budget, whatever is not needed) until `bytes` more fit into the
 * operator's limit. Returns true if they do. */
bool cache_make_room(struct cache *c, uint64_t bytes);

/* Starts to fill an absent chunk on behalf of a job. -ENOSPC: no segment to be had at this distance
 * (policy.h). The place (it is referred to until then) is where the chunk is opened first. */
int cache_load(struct cache *c, struct cached_dataset *d, uint64_t chunk, uint32_t distance, struct job *job,
	       struct place *place);

void cache_pin(struct cache *c, struct cached_dataset *d, uint64_t chunk);
void cache_unpin(struct cached_dataset *d, uint64_t chunk);

/* Marks how soon a session needs the chunk, in this round (++cache.round starts one). */
void cache_mark(struct cache *c, struct cached_dataset *d, uint64_t chunk, uint32_t distance);

/* The segment with this id, or NULL. */
struct segment *cache_find_segment(const struct cache *c, uint32_t id);
/* Its chunk is in memory and verified. */
bool cache_is_ready(const struct segment *segment);
/* The chunk that it holds, or will; NULL: it waits for one. */
const struct cached_chunk *cache_chunk_of(const struct segment *segment);

/* Finds out which snapshots are still held by somebody who is not connected any more: that memory cannot be
 * given up. */
void cache_find_holders(struct cache *c);

void cache_add_dataset(struct cache *c, struct cached_dataset *d);
struct cached_dataset *cache_find_dataset(struct cache *c, const struct proof_identity *identity);

/* Bytes of chunks under way that were begun for this user's jobs: no storage gives them back before it
 * answers. */
uint64_t cache_loading_bytes(const struct cache *c, uint32_t uid);
/* Of these, those that have been under way for long, beyond what their datasets' sessions need anyway. */
#define CACHE_ANYBODY UINT32_MAX
uint64_t cache_stuck_bytes(const struct cache *c, uint32_t uid);
/* At the end; the readers are closed and nothing is being verified. */
void cache_abandon_loads(struct cache *c);
/* What sessions may need and what cannot be taken away now (pinned, being filled): what is left of a budget
 * is for reading ahead. */
uint64_t cache_taken_bytes(const struct cache *c);
/* How much of it a chunk of this dataset would take when it is read. */
uint64_t cache_take_more(const struct cached_dataset *d, uint64_t bytes);

/* What came back of before a restart: cache_carried.c. Idle until somebody wants it, and given up like it. */
void cache_restore(struct cache *c);
/* The chunk's memory leaves the cache, on its way back to the system, to be copied. Afterwards it is given
 * back, or, as if nothing had been, attached again. */
struct segment *cache_detach_carried(struct cache *c, struct cached_dataset *d, uint64_t chunk);
void cache_attach_carried(struct cache *c, struct segment *s);
void cache_free_carried(struct cache *c, struct segment *s);
/* Makes a segment of this memory, which it takes over. 0 or -ENOMEM. */
int cache_add_segment(struct cache *c, struct cached_dataset *d, const struct shared_memory *memory,
		      struct segment **ret);
/* Whatever is in memory of it goes. Nobody may use it. */
void cache_drop_dataset(struct cache *c, struct cached_dataset *d);

/* Used by chunk_load.c and cache_fit.c. */
struct segment *cache_take_segment(struct cache *c, struct cached_dataset *d, uint64_t chunk,
				   uint32_t distance, int *ret_error);
void cache_drop_segment(struct cache *c, struct segment *segment);
/*
 * A chunk is read and verified in memory that nobody else has. Where the cache is full of memory that clients
 * were given, it then goes into such a segment, of a chunk of the same size that may go for it, and its own
 * is free for the next one; new memory for each chunk would cost several times as much as this copy. NULL: it
 * stays where it is. Ends with cache_fill_done(): whether it was filled.
 */
struct segment *cache_take_lent(struct cache *c, const struct segment *from, uint32_t distance);
void cache_fill_done(struct segment *from, struct segment *to, bool filled);
/* Gives memory that was lent back to the system, which takes a worker some time. */
void cache_release(struct cache *c, struct shared_memory *memory);
/* Over budget, snapshots of datasets that nobody uses and of which nothing is in memory go too. */
void cache_drop_empty(struct cache *c);
/* Returns true if the chunk counts as one that is kept for ever. */
void cache_keep(struct cache *c, struct segment *segment, bool kept);
/* As the choice of a victim sees it. */
struct policy_segment cache_look_at(const struct cache *c, const struct segment *segment);
void cache_note_ready(struct cache *c, struct cached_dataset *d, uint64_t chunk);
