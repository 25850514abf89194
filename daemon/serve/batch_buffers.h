/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Batch buffers: shared memory that holds one batch each.
 *
 * A session has its own pool of buffers, or shares one with other sessions of its group (group.h). In a
 * shared pool, a batch that one session decoded serves the others in place, without a copy.
 *
 *   - Each session adds as many buffers to the pool as it has slots, and a slot refers to at most one buffer.
 *     So a free slot always finds a buffer, however many batches other sessions hold and for however long.
 *     Memory in use equals the memory charged to the sessions.
 *   - A buffer keeps its batch after its last user released it, until the buffer is reused. The buffer with
 *     the earliest batch is reused first.
 *
 * Loop thread only, except batch_buffers_prepare().
 */

#include "daemon/cache/cache.h"
#include "daemon/storage/shared_memory.h"

#define BATCH_BUFFER_NONE UINT32_MAX
#define BUFFERS_MEMBERS   8 /* number of sessions of the first one's size for which a pool has space */

enum buffer_state {
	BUFFER_ABSENT, /* has no memory */
	BUFFER_LIVE,
	BUFFER_GOING, /* a worker is returning its memory to the system */
};

/* A complete batch in its buffer, without an error. */
struct buffer_batch {
	uint64_t epoch, index;
	uint32_t n_items;
	uint32_t n_all; /* including damaged samples that are left out; they come last */
	uint32_t n_damaged;
	uint32_t member; /* number of the session that decoded it */
	uint64_t job;    /* number of that session's job */
};

struct batch_buffer {
	struct pool_task task;
	struct buffers *buffers;
	enum buffer_state state;
	uint32_t n_refs;
	bool is_new; /* nothing was written to the buffer yet */
	bool holds;  /* the buffer holds `batch` */
	bool had;    /* the buffer held `batch` when it was taken, and nothing has overwritten it yet */
	struct buffer_batch batch;
};

struct buffers {
	struct cache *cache;
	struct shared_memory memory;
	uint64_t buffer_bytes;
	uint32_t n_buffers; /* buffers that fit in `memory` */
	bool keeps;         /* other sessions may use the batch that a buffer holds */
	uint32_t limit;     /* buffers that its sessions have added */
	uint32_t n_live;    /* at most limit, except while a copy out of a buffer is running */
	uint32_t n_going;
	uint32_t n_members, n_refs; /* sessions; references to buffers */
	uint32_t last_member;
	struct batch_buffer buffer[];
};

/* Creates a pool of n_buffers buffers of buffer_bytes each, a multiple of the page size. keeps: reuse the
 * buffer with the earliest batch first, not one whose memory is warm. The caller must let a session join at
 * once. */
int batch_buffers_new(struct cache *cache, uint64_t buffer_bytes, uint32_t n_buffers, bool keeps,
		      struct buffers **ret);

/* Adds n buffers for a session with n slots. Returns the session's number, from 1, or 0 if they do not
 * fit. */
uint32_t batch_buffers_join(struct buffers *f, uint32_t n);
/* Removes the n buffers of a session that no longer uses any. Frees the pool with the last session. */
void batch_buffers_leave(struct buffers *f, uint32_t n);

/* Returns a buffer for a session's slot, with a reference; its former batch is no longer found.
 * BATCH_BUFFER_NONE: a copy out of a buffer, or a return to the system, must end first; that calls
 * cache.handler.changed(). */
uint32_t batch_buffers_take(struct buffers *f);
/* As batch_buffers_take(), but takes this buffer, which has no reference. The caller must be allowed the
 * memory. */
void batch_buffers_take_this(struct buffers *f, uint32_t buffer);
/* Returns the memory of a buffer without references to the system. */
void batch_buffers_give_back(struct buffers *f, uint32_t buffer);
/* Backs a new buffer with huge pages while these are cheap. The worker that fills the buffer calls this
 * before it writes. */
void batch_buffers_prepare(struct buffers *f, uint32_t buffer);
void batch_buffers_ref(struct buffers *f, uint32_t buffer);
void batch_buffers_unref(struct buffers *f, uint32_t buffer);

/* Records that the buffer now holds this batch. The caller has a reference. */
void batch_buffers_hold(struct buffers *f, uint32_t buffer, const struct buffer_batch *batch);
/* Returns the buffer that holds this batch, or BATCH_BUFFER_NONE. */
uint32_t batch_buffers_find(const struct buffers *f, uint64_t epoch, uint64_t index);

static inline uint8_t *batch_buffers_at(const struct buffers *f, uint32_t buffer)
{
	return f->memory.data + buffer * f->buffer_bytes;
}
