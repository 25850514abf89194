/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Slots: the batches of a session in shared memory, and which of them its client holds:
 *
 *   free --slots_begin()--> filling --workers--> filled --slots_next(), slots_publish()--> published
 *   --the client gives it back, slots_reap()--> free
 *
 * A slot identifies a batch to the client until the client gives it back. The batch lies in a buffer
 * (batch_buffers.h). Slots are published in the order in which they began to be filled.
 *
 * Loop thread only.
 */

#include "batch.h"
#include "client/ring.h"
#include "batch_buffers.h"

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
	struct batch_decoded decoded; /* result of the worker's last slice */
	uint32_t buffer;              /* buffer that holds its batch, or BATCH_BUFFER_NONE */
	bool lacks_buffer;            /* FILLING, but waits for a free buffer */
	struct batch_slot *awaits;    /* FILLING: gets the batch that decoders write to that slot (group.h) */
	struct buffers *from;         /* FILLING: pool of from_buffer, which is copied; else NULL */
	uint32_t from_buffer;
	struct buffers *keep; /* FILLING: pool of keep_buffer, to which the buffer's former batch is copied
			       * first (group.h); else NULL */
	uint32_t keep_buffer;
	bool is_decoded; /* its decoders have ended, with or without success: no other slot may begin to wait
			    for this batch */
	bool shared;     /* another session decoded its batch */
	uint64_t shared_job; /* job number of the session that decoded it */
	uint64_t decode_ns;  /* CPU time that decoders spent on the batch so far */
};

struct slots {
	struct buffers *buffers; /* NULL: the session has not joined a pool */
	uint32_t member;         /* the session's number in `buffers` */
	struct ring_layout layout;
	uint32_t item_bytes; /* bytes of an item in packed batches; 0: views only */
	bool has_views;      /* clients read samples in chunks, which stay pinned while they hold a batch */
	struct shared_memory memory;
	struct ring_control *control; /* in `memory` */
	struct batch_slot all[RING_MAX_SLOTS];
	uint32_t n;
	uint32_t turns[RING_MAX_SLOTS]; /* slots filling or filled, in the order of their batches */
	uint32_t first_turn, end_turn;
	uint32_t n_filling;
	uint32_t published; /* private count: the client can overwrite the shared one */
	uint32_t generation;
};
uint64_t slots_control_bytes(void);

/* Returns the number of published batches that the client has not taken, by the client's own count. */
uint32_t slots_ready(const struct slots *s);
/* Returns true if the client has taken all batches and workers have none. Relies on a count that the client
 * can falsify. */
bool slots_are_drained(const struct slots *s);
