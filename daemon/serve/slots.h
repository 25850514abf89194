/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Where a session's batches lie in shared memory, and what its client has of them:
 *
 *   free --slots_begin()--> filling --workers--> filled --slots_next(), slot_publish()--> published
 *   --the client gives it back, slots_reap()--> free
 *
 * A slot is what the client knows a batch by, until it gives it back; the batch lies in a frame (frames.h).
 * Slots are published in the order in which they began to be filled.
 *
 * Loop thread only.
 */

#include "batch.h"
#include "client/ring.h"
#include "frames.h"

enum slot_state {
	SLOT_FREE,
	SLOT_FILLING,
	SLOT_FILLED, /* waits for its turn to be published */
	SLOT_PUBLISHED,
};

struct session;

struct batch_slot {
	struct pool_task task;
	struct session *session;
	enum slot_state state;
	uint32_t generation;
	struct batch batch;
	struct batch_decoded decoded; /* what the worker did last */
	uint32_t frame;               /* where its batch lies; FRAME_NONE */
	bool lacks_frame;             /* FILLING, as soon as there is one */
	struct batch_slot *awaits;    /* FILLING, by what decoders fill this one with (group.h) */
	struct frames *from;          /* FILLING, by a copy of this frame; else NULL */
	uint32_t from_frame;
	struct frames *keep; /* FILLING: what its frame held is copied there first (group.h); else NULL */
	uint32_t keep_frame;
	bool is_decoded;     /* FILLING, and its decoders have ended: nobody may wait for them */
	bool shared;         /* another session decoded its batch... */
	uint64_t shared_job; /* ... which was of the job with this number */
	uint64_t decode_ns;  /* CPU time of decoders so far */
};

struct slots {
	struct frames *frames; /* NULL: not joined */
	uint32_t member;       /* its number there */
	struct ring_layout layout;
	uint32_t item_bytes; /* of packed batches; 0: views */
	struct shared_memory memory;
	struct ring_control *control; /* in it */
	struct batch_slot all[RING_MAX_SLOTS];
	uint32_t n;
	uint32_t turns[RING_MAX_SLOTS]; /* slots filling or filled, in the order of their batches */
	uint32_t first_turn, end_turn;
	uint32_t n_filling;
	uint32_t published; /* our own count: the client can spoil the shared one */
	uint32_t generation;
};

/* Allocates n slots and their control memory; layout, frames, and the number there are set. n_chunks: of the
 * dataset. -ENOMEM, ... ; slots_close() all the same. */
int slots_open(struct slots *s, struct session *session, uint32_t batch, uint64_t n_chunks);
/* No worker is at work on any. */
void slots_close(struct slots *s);
uint64_t slots_control_bytes(void);

/* Takes back what the client released. */
void slots_reap(struct slots *s);
/* A free slot, or NULL. */
struct batch_slot *slots_free_one(struct slots *s);
/* The batch takes the slot's place in the order: it is filled from now on. */
void slots_begin(struct slots *s, struct batch_slot *slot);
/* The slot is filled, or what it is filled with is to be dropped. */
void slots_filled(struct batch_slot *slot);
/* Takes the slot whose turn it is to be published out of the order; NULL: it is not filled yet. */
struct batch_slot *slots_next(struct slots *s);
/* n_items: that the client is told of. */
void slots_publish(struct slots *s, struct batch_slot *slot, uint32_t n_items);
void slots_drop(struct slots *s, struct batch_slot *slot);

/* Batches that are published and that the client has not taken, as it says. */
uint32_t slots_ready(const struct slots *s);
/* Returns true if the client has no batch left, nor one that workers are at. It can spoil what tells. */
bool slots_are_drained(const struct slots *s);
/* Takes back what the client has not taken yet. Returns how many batches it has. */
uint32_t slots_revoke(struct slots *s);
/* Two slots never stand for one frame: who holds a batch may write to it, and its mapping has one copy of a
 * page. */
bool slots_have_frame(const struct slots *s, uint32_t frame);
/* Asserts, in builds with assertions, what slots promise each other. */
void slots_check(const struct slots *s);
