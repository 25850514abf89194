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
