/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Groups: sessions that are given the same batches, because everything that decides the bytes of a batch is
 * the same: dataset and its version, order, recipe, and user. What one of them has decoded, the others copy:
 *
 *   a slot of another member holds the batch                -> it is copied, and its chunks are not needed
 *   a slot of another member is being filled by decoders    -> this one waits, then copies
 *   nobody has it                                           -> it is decoded, and others wait for it
 *
 * A slot holds its batch until it is filled again, and the one that was filled first goes first; so members
 * that are no more batches apart than they have slots need each batch decoded once. Each has no more batches
 * with decoders than work at a time: what is behind these is left to whoever comes to it first.
 *
 * Nobody depends on another: a member that ends, seeks or is too slow leaves behind slots that wait, and
 * these decode for themselves. Only batches that decoders completed without an error are shared.
 *
 * Loop thread only.
 */

#include <stdbool.h>
#include <stdint.h>

struct batch;
struct group;
struct session;
struct slot;

/* A session's part in its group. */
struct group_member {
	struct group *group; /* NULL: it is alone for good */
	struct session *next;
	uint32_t n_decoding;  /* slots with decoders */
	uint32_t n_lent;      /* copies under way of its slots */
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

/* Finds or makes its group. Without memory it stays alone. Its user must be known. */
void group_join(struct session *s);
/* Leaves it, and drops what it waits for; those who wait for its decoders go on without. Copies of its slots
 * may be under way still (n_lent). */
void group_leave(struct session *s);

/* The slot of another member that holds this batch, or is being filled with it by decoders; else NULL. */
struct slot *group_find(const struct session *s, const struct batch *b);
/* Returns true if what a slot is filled with must be waited for. */
bool group_is_pending(const struct slot *source);
/* The session's slot, with its batch, is to be filled from that one. */
void group_follow(struct slot *slot, struct slot *source);

/*
 * Returns true if the session may give its decoders nothing more at present: they have enough, or a member
 * that is behind catches up meanwhile. For that it waits 10 s and a tenth of its life at most, 30 s at a
 * time.
 */
bool group_holds_back(struct session *s, uint64_t now_ns);

/* To be called when decoders begin with a slot, and when they stop, with all of its batch or not. */
void group_decode_begins(struct slot *slot);
void group_decode_ended(struct slot *slot);
/* To be called when a slot has been copied into. The session of its source may end here. */
void group_copy_ended(struct slot *slot);
