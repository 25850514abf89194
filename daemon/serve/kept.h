/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Copies of decoded batches that a group (group.h) keeps for members that are behind, in memory that no
 * client maps. A worker makes the copy just before it fills the batch's buffer again. The copy is dropped
 * when no member has yet to get the batch.
 *
 * If memory is short, the copies that are needed soonest stay (Belady). So half of the memory saves half of
 * the decoding, however far apart the members are. All of it is borrowed memory (cache.h) and is evicted
 * before anything else. A lost copy costs its member the decoding of one batch.
 *
 * Loop thread only, except copying into buffers that kept_reserve() returned.
 */

#include "batch_buffers.h"

#define KEPT_FOLLOWERS 16 /* maximum number of followers */

/* A member that still needs batches: the position of its next batch (kept_position()), and its share of an
 * epoch's batches. */
struct kept_follower {
	uint64_t next;
	uint32_t stride, offset;
};

struct kept_followers {
	struct kept_follower all[KEPT_FOLLOWERS];
	uint32_t n;
};

struct kept_place {
	uint64_t position;
	uint32_t buffer;
};

struct kept {
	struct buffers *buffers;   /* NULL: nothing was kept yet */
	uint64_t n_batches;        /* per epoch */
	struct kept_place *places; /* sorted by position, ascending */
	uint32_t n, size;
	uint32_t *warm; /* buffers with memory that hold no batch; copies out of some may still be running */
	uint32_t n_warm, size_warm;
	uint32_t *cold; /* buffers whose memory was returned to the system */
	uint32_t n_cold, size_cold;
	uint32_t n_touched;   /* buffers [0, n_touched) have had memory at least once */
	uint32_t n_copies;    /* buffers that are reserved but not entered yet */
	uint64_t asked_bytes; /* estimated memory to keep everything that followers need */
};

/* Returns the position of a batch in the order of all epochs. */
static inline uint64_t kept_position(uint64_t n_batches, uint64_t epoch, uint64_t index)
{
	return epoch * n_batches + index;
}

static inline uint64_t kept_bytes(const struct kept *k)
{
	return k->buffers ? k->buffers->n_live * k->buffers->buffer_bytes : 0;
}

/* Returns the buffer that holds a copy of the batch, or BATCH_BUFFER_NONE. */
uint32_t kept_find(const struct kept *k, uint64_t epoch, uint64_t index);
/* Returns how many consecutive batches, from this one on, are kept. */
uint64_t kept_run(const struct kept *k, uint64_t epoch, uint64_t index);

/* Returns a buffer of buffer_bytes, with a reference, to copy this batch to. may_grow: more memory may be
 * used if the cache has space. BATCH_BUFFER_NONE: no member needs the batch, it is already kept, or memory
 * is at its limit and all kept batches are needed sooner. */
uint32_t kept_reserve(struct kept *k, struct cache *c, uint64_t n_batches, uint64_t buffer_bytes,
		      const struct buffer_batch *batch, const struct kept_followers *followers,
		      bool may_grow);
/* To be called when the copy is complete. Keeps it if a follower still needs it. */
void kept_enter(struct kept *k, uint32_t buffer, const struct buffer_batch *batch,
		const struct kept_followers *followers);
/* Gives up a reserved buffer. Whoever copies into it drops the reference when the copy has ended. */
void kept_cancel(struct kept *k, uint32_t buffer);

/* To be called when a member has passed this position. */
void kept_pass(struct kept *k, uint64_t position, const struct kept_followers *followers);
/* To be called when members have joined, left or moved. Drops all batches that no follower needs. */
void kept_prune(struct kept *k, const struct kept_followers *followers);

/* Evicts one batch: an unused buffer first, else the batch that is needed last. Returns false if there is
 * none. */
bool kept_give_up(struct kept *k, const struct kept_followers *followers);
/* Drops everything. */
void kept_end(struct kept *k);
/* Asserts, in builds with assertions, that the index matches the buffers. */
void kept_check(const struct kept *k);
