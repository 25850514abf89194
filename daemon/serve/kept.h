/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Decoded batches that a group (group.h) keeps for members that are behind: copies, in memory that no client
 * maps. A copy is made when the frame that holds the batch is filled again, by the worker that fills it. It
 * goes when nobody is left who has yet to get the batch.
 *
 * Where there is no room for all of them, those stay that are needed soonest (Belady): so half of the memory
 * saves half of the decoding, however far apart the members are. All of it is borrowed (cache.h) and goes
 * before anything else does; what is lost costs its member a batch of decoding.
 *
 * Loop thread only, but for copies into frames that kept_reserve() gave.
 */

#include "frames.h"

#define KEPT_FOLLOWERS 16 /* at most */

/* A member that goes on: where its next batch is, and which batches of an epoch are its own. */
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
	uint32_t frame;
};

struct kept {
	struct frames *frames;     /* NULL: nothing was kept yet */
	uint64_t n_batches;        /* of an epoch */
	struct kept_place *places; /* by position, ascending */
	uint32_t n, size;
	uint32_t *warm; /* frames with memory that hold nothing any more; some are still copied out of */
	uint32_t n_warm, size_warm;
	uint32_t *cold; /* frames that had memory */
	uint32_t n_cold, size_cold;
	uint32_t n_touched;   /* frames that ever had memory: the first so many */
	uint32_t n_copies;    /* reserved, and not entered yet */
	uint64_t asked_bytes; /* what all that is behind would take */
};

/* A batch's place in the order of all epochs. */
static inline uint64_t kept_position(uint64_t n_batches, uint64_t epoch, uint64_t index)
{
	return epoch * n_batches + index;
}

static inline uint64_t kept_bytes(const struct kept *k)
{
	return k->frames ? k->frames->n_live * k->frames->frame_bytes : 0;
}

/* The frame that a copy of the batch lies in, or FRAME_NONE. */
uint32_t kept_find(const struct kept *k, uint64_t epoch, uint64_t index);
/* How many batches kept in a row begin with this one. */
uint64_t kept_run(const struct kept *k, uint64_t epoch, uint64_t index);

/* A frame, with a reference, to copy this batch to, which has so many bytes; may_grow: there is no other
 * reason against more memory. FRAME_NONE: nobody needs it, or others sooner. */
uint32_t kept_reserve(struct kept *k, struct cache *c, uint64_t n_batches, uint64_t frame_bytes,
		      const struct frame_batch *batch, const struct kept_followers *followers, bool may_grow);
/* The copy is complete. It is kept if somebody still needs it. */
void kept_enter(struct kept *k, uint32_t frame, const struct frame_batch *batch,
		const struct kept_followers *followers);
/* It is not to be kept: who copies drops its reference when that has ended. */
void kept_cancel(struct kept *k, uint32_t frame);

/* A member has gone on from this batch. */
void kept_pass(struct kept *k, uint64_t position, const struct kept_followers *followers);
/* Members have come, gone or moved: drops all that nobody needs. */
void kept_prune(struct kept *k, const struct kept_followers *followers);

/* Gives back the memory of what is needed last. Returns false if there is none that can be had now. */
bool kept_give_up(struct kept *k, const struct kept_followers *followers);
/* Drops everything. */
void kept_end(struct kept *k);
/* Asserts, in builds with assertions, that what is kept is where it says. */
void kept_check(const struct kept *k);
