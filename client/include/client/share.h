/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Batches of a session in worker processes, for a language binding that transforms samples in processes of
 * its own. These processes read the batches of the session and return their results, without a copy of either
 * through a pipe. The session stays the trainer's, and so do its leases and its order: a worker only sees
 * memory.
 *
 *   trainer                                            worker
 *   diesel_session_memory()      -- descriptor -->     diesel_mirror_open()
 *   diesel_batch_segments(),
 *   diesel_session_segment()     -- descriptors ->     diesel_mirror_segment()
 *   a batch, held                -- buffer, n_items -> diesel_mirror_batch(), work, diesel_mirror_release()
 *   diesel_result_map()         <-- descriptor --      diesel_result_new(), written, diesel_result_borrow()
 *   diesel_result_free()                               diesel_result_is_free(): used again
 *   diesel_batch_release()
 *
 * diesel_session_map_pinnable() is for a trainer that passes batches on to a device.
 *
 * The descriptors travel however the binding likes (SCM_RIGHTS); each is needed until it is mapped.
 * Results: 0 or negative errno. Threads: one at a time per object, but diesel_result_free() from any.
 */

#include "client/diesel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Data that another process needs to read the batches of a session. */
struct diesel_memory {
	uint64_t life; /* 1, 2, ...: grows after the daemon was lost; see diesel_batch_life() */
	uint32_t n_buffers;
	uint32_t batch;      /* samples that fit in a buffer */
	uint32_t item_bytes; /* size of items of packed batches, else 0 */
	uint32_t has_views;  /* 1: items point to stored samples */
};

/* Returns the memory of this life in *ret_fd, which stays the session's, and is valid until the session's
 * next call. -ENOTCONN: the daemon has been lost. */
int diesel_session_memory(const struct diesel_session *session, struct diesel_memory *ret, int *ret_fd);

/* Returns a new descriptor of a chunk segment, for the caller to close. -ENOTCONN: the daemon is lost;
 * otherwise the daemon's answer. */
int diesel_session_segment(struct diesel_session *session, uint32_t segment, int *ret_fd,
			   uint64_t *ret_bytes);

uint64_t diesel_batch_life(const void *lease);
uint32_t diesel_batch_buffer(const void *lease);

/* Writes the segments that hold the items of a held batch, each once, to ret, which has space for n_items.
 * Returns their number; 0 for a packed batch without views. Trainer's thread. */
uint32_t diesel_batch_segments(const struct diesel_batch *batch, uint32_t *ret);

/*
 * In a child after fork(): closes the inherited descriptors and, if no batch was held, unmaps the inherited
 * memory, so that memory that the daemon drops is freed at once. The child cannot use the session afterwards.
 */
void diesel_session_forget(struct diesel_session *session);

/*
 * A second mapping of a session's packed batches, for a device (a GPU) that reads from it directly: shared
 * and read-only. The bytes at offset x of the session's own mapping are also at data + x, as the daemon
 * wrote them, until the batch is released. Stays mapped when the session is closed.
 *
 * The session's own mapping is private copy-on-write: a driver that locks its pages for a device makes the
 * kernel copy them, and later batches do not reach the copies. The mapping is read-only because the
 * descriptor allows nothing else: CUDA registers such memory only with cudaHostRegisterReadOnly.
 */
struct diesel_pinnable {
	uint64_t life; /* life of the batches in it; see diesel_batch_life() */
	const uint8_t *data;
	uint64_t bytes;
	const uint8_t *buffers;
};

/* Maps the memory of a session opened with DIESEL_PINNABLE; otherwise -EBUSY, because memory shared with
 * other sessions comes and goes with them, while pages that a device has locked would stay behind. -ENOTCONN:
 * the daemon is lost now; -ENOMEM and other errors of mmap(2). */
int diesel_session_map_pinnable(const struct diesel_session *session, struct diesel_pinnable *ret);
/* Unmaps that memory. No read from it may be in progress, and nobody may have it locked. */
void diesel_pinnable_unmap(const uint8_t *data, uint64_t bytes);

/* A worker's view of one life of a session. */
struct diesel_mirror;

/* Maps the memory behind fd, which the caller keeps. -EPROTO: the memory is too small for `memory`, or a
 * number in `memory` is too large. */
int diesel_mirror_open(const struct diesel_memory *memory, int fd, struct diesel_mirror **ret);
void diesel_mirror_close(struct diesel_mirror *mirror);

/* Makes a segment known; fd stays the caller's. */
int diesel_mirror_segment(struct diesel_mirror *mirror, uint32_t segment, int fd, uint64_t bytes);

/*
 * Returns the batch in a buffer, as diesel_session_next() does, without lease, epoch and index. Its items are
 * valid until the next call, and their data as long as the trainer holds the batch. -EPROTO: no such buffer,
 * or an item outside the known segments.
 */
int diesel_mirror_batch(struct diesel_mirror *mirror, uint32_t buffer, uint32_t n_items,
			struct diesel_batch *ret);

/* Drops this process's writes to a packed batch. Call it before the trainer releases the batch. */
void diesel_mirror_release(struct diesel_mirror *mirror, uint32_t buffer);

/* Size of the state at the start of a result's memory, in bytes; the binding uses the rest. */
#define DIESEL_RESULT_HEADER 64

/* Makes new shared memory for results, marked as lent. The caller closes *ret_fd. */
int diesel_result_new(uint64_t bytes, uint8_t **ret_data, int *ret_fd);
/* Maps a result that another process made; fd stays the caller's. -EPROTO: it has less than `bytes`. */
int diesel_result_map(int fd, uint64_t bytes, uint8_t **ret_data);
void diesel_result_unmap(uint8_t *data, uint64_t bytes);

void diesel_result_borrow(uint8_t *data);
/* Marks the result as free: its reader has finished. Any thread, either process. */
void diesel_result_free(uint8_t *data);
int diesel_result_is_free(const uint8_t *data);

#ifdef __cplusplus
}
#endif
