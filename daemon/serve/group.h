/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Groups: sessions with the same batches, because all parameters that determine the bytes of a batch are
 * equal: dataset and its version, order, recipe, and user. A batch that one member decoded is given to all:
 *
 *   a buffer holds the batch                              -> given in place; its chunks are not needed
 *   decoders are filling another member's slot with it    -> this member waits for that slot
 *   it is kept for members that are behind (kept.h)       -> copied; its chunks are not needed
 *   none of these                                         -> this member decodes it, and others wait for it
 *
 * The members share a pool of buffers (batch_buffers.h). A member that asked for its own memory
 * (DIESEL_PINNABLE), or for which the pool had no space, copies batches out of the others' pool.
 *
 * A buffer holds its batch until it is filled again, and the buffer that was filled first is reused first. So
 * members need each batch decoded once while they are at most as many batches apart as they have buffers.
 * Further apart, a batch that a member has yet to get is copied before its buffer is filled again, as far as
 * the cache has space. A member gives decoders about as many batches as it has workers. It leaves later
 * batches to the member that reaches them first.
 *
 * No member depends on another. If a member ends, seeks or is too slow, slots that wait for it decode the
 * batch themselves. A client that holds batches holds at most as many buffers as its session added. Only
 * batches that decoders completed without an error are shared.
 *
 * Loop thread only.
 */

#include <stdbool.h>
#include <stdint.h>

struct batch;
struct cache;
struct buffers;
struct group;
struct session;
struct batch_slot;

/* A session's part in its group. */
struct group_member {
	struct group *group; /* NULL: the session never shares */
	struct session *next;
	uint32_t n_decoding;  /* number of slots that decoders are filling */
	uint64_t n_shared;    /* batches that other members decoded */
	uint64_t joined_ns;   /* time when it joined; like the other times, of CLOCK_MONOTONIC */
	uint64_t hungry_ns;   /* time when its client last had no batch ready */
	uint64_t progress_ns; /* time when its decoders last started or ended a batch */
	uint64_t batch_ns;    /* average CPU time to decode a batch; 0: unknown */
	uint64_t looked_ns;   /* while it gives way to a slower member: time of the last check; else 0 */
	uint64_t gave_way_ns; /* total time that it gave way */
};

/* Returns a buffer pool of its group with space for a new session's slots. NULL: it needs its own pool. */
struct buffers *group_buffers(const struct session *s);
/* Adds the session to its group, which is created if needed. If memory is short, the session does not share.
 */
void group_join(struct session *s);
/* Removes the session from its group. Drops its waiting slots. Slots of other members that wait for its
 * decoders continue without them. */
void group_leave(struct session *s);

/* Source of a batch that the session need not decode. */
struct group_source {
	struct buffers *buffers; /* pool with the batch in `buffer`, or NULL */
	uint32_t buffer;
	struct batch_slot *slot; /* without buffers: slot into which decoders write the batch */
	bool is_copied; /* no source yet: the batch is being copied to be kept. cache.handler.changed() is
			   called when that ends */
};

/* Returns true if the session need not decode the batch; *ret is its source. */
bool group_find(const struct session *s, const struct batch *b, struct group_source *ret);

/*
 * Returns true if the session must not pass further batches to its decoders at present: they have enough, or
 * a member behind it is catching up. Such waits total at most 10 s plus a tenth of its membership time, and
 * at most 30 s each.
 */
bool group_holds_back(struct session *s, uint64_t now_ns);

/* To be called when a buffer was taken for the slot. If the buffer's former batch is to be kept, sets
 * slot->keep: the worker that fills the slot copies the batch there first. */
void group_keep(struct batch_slot *slot);
/* To be called when the copy to slot->keep is done. */
void group_keep_ended(struct batch_slot *slot);
/* To be called when the session has passed the batch (epoch, index). */
void group_passed(struct session *s, uint64_t epoch, uint64_t index);
/* To be called when the session moves to another position in its order, or stops. */
void group_moved(struct session *s);
/* Returns the bytes of the batches that the group keeps if they are counted for this member; else 0. */
uint64_t group_kept_bytes(const struct session *s);
/* Returns how many consecutive batches, from the session's next one on, are kept. */
uint64_t group_kept_run(const struct session *s);

/* To be called when decoders begin to fill a slot, and when they stop, even if the batch is incomplete. */
void group_decode_begins(struct batch_slot *slot);
void group_decode_ended(struct batch_slot *slot);

/* Asserts the invariants of groups, in builds with assertions. Called at the end of each turn of the event
 * loop. */
#ifdef NDEBUG
static inline void check_groups(const struct cache *c)
{
	(void)c;
}
#else
void check_groups(const struct cache *c);
#endif
