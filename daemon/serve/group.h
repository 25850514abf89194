/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Groups: sessions that are given the same batches, because everything that decides the bytes of a batch is
 * the same: dataset and its version, order, recipe, and user. What one of them has decoded, all are given:
 *
 *   a frame holds the batch                                 -> it is given where it lies, and its chunks are
 *                                                              not needed
 *   a slot of another member is being filled by decoders    -> this one waits for it
 *   it is kept for those that are behind (kept.h)           -> it is copied, and its chunks are not needed
 *   nobody has it                                           -> it is decoded, and others wait for it
 *
 * Frames are memory that the members have together (frames.h). A member that asked for memory of its own
 * (DIESEL_PINNABLE), or for which there was no room, copies what lies in that of the others.
 *
 * A frame holds its batch until it is filled again, and the one that was filled first goes first; so members
 * that are no more batches apart than they have frames need each batch decoded once. Further apart, a batch
 * that a member has yet to get is copied before its frame is filled again, as far as the cache has room. Each
 * has no more batches with decoders than work at a time: what is behind these is left to whoever comes to it
 * first.
 *
 * Nobody depends on another: a member that ends, seeks or is too slow leaves behind slots that wait, and
 * these decode for themselves; one that keeps its batches keeps as many frames as it brought. Only batches
 * that decoders completed without an error are shared.
 *
 * Loop thread only.
 */

#include <stdbool.h>
#include <stdint.h>

struct batch;
struct cache;
struct frames;
struct group;
struct session;
struct batch_slot;

/* A session's part in its group. */
struct group_member {
	struct group *group; /* NULL: it is alone for good */
	struct session *next;
	uint32_t n_decoding;  /* slots with decoders */
	uint64_t n_shared;    /* batches that others decoded */
	uint64_t joined_ns;   /* CLOCK_MONOTONIC, as all that follow */
	uint64_t hungry_ns;   /* when its client was last seen with nothing ready */
	uint64_t progress_ns; /* when its decoders were last seen to start or end something */
	uint64_t batch_ns;    /* CPU time that decoding a batch takes; 0: not known yet */
	uint64_t looked_ns;   /* while it gives way: when that was last decided; else 0 */
	uint64_t gave_way_ns; /* sum */
};

/* Returns true if any batch of the same epoch and index is the same, to the last byte. */
bool group_is_same(const struct session *a, const struct session *b);

/* The frames of its group that have room for a new session's slots, or NULL: it needs its own. */
struct frames *group_frames(const struct session *s);
/* Finds or makes its group. Without memory it stays alone. */
void group_join(struct session *s);
/* Leaves it, and drops what it waits for; those who wait for its decoders go on without. */
void group_leave(struct session *s);

/* Where a batch comes from. */
struct group_source {
	struct frames *frames; /* that it lies in; else NULL... */
	uint32_t frame;
	struct batch_slot *slot; /* ... and another member's decoders fill this slot with it; or NULL */
};

/* Returns true if the batch need not be decoded by the session. */
bool group_find(const struct session *s, const struct batch *b, struct group_source *ret);

/* Returns true if the batch is just being copied, to be kept: cache.handler.changed() is called when it is.
 */
bool group_is_copied(const struct session *s, const struct batch *b);

/*
 * Returns true if the session may give its decoders nothing more at present: they have enough, or a member
 * that is behind catches up meanwhile. For that it waits 10 s and a tenth of its life at most, 30 s at a
 * time.
 */
bool group_holds_back(struct session *s, uint64_t now_ns);

/* The slot's frame was taken, to be filled: what it held is to be copied first, if the slot says so. */
void group_keep(struct batch_slot *slot);
/* That was done. */
void group_keep_ended(struct batch_slot *slot);
/* The session has gone on from the batch (epoch, index)... */
void group_passed(struct session *s, uint64_t epoch, uint64_t index);
/* ... or to another place in its order, or stops. */
void group_moved(struct session *s);
/* Bytes of the batches that are kept, if it is the one of its group that they are counted for. */
uint64_t group_kept_bytes(const struct session *s);
/* How many of the batches from its next one on are kept, in a row. */
uint64_t group_kept_run(const struct session *s);

/* To be called when decoders begin with a slot, and when they stop, with all of its batch or not. */
void group_decode_begins(struct batch_slot *slot);
void group_decode_ended(struct batch_slot *slot);

/* Asserts, in builds with assertions, what groups promise themselves. Called at the end of each turn of the
 * event loop. */
#ifdef NDEBUG
static inline void check_groups(const struct cache *c)
{
	(void)c;
}
#else
void check_groups(const struct cache *c);
#endif
