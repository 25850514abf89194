/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A queue of chunks for a store: threads write and sync chunks while the caller fills the next one. The
 * caller takes an empty builder, fills it and hands it in; at most PUT_QUEUE_BUILDERS exist. Two chunks are
 * written at a time, because a disk is idle, and a bucket nearly so, while one is synced and renamed. The
 * first failure stops everything, and every later call returns it.
 *
 * Thread-safety: one thread calls; the queue's own threads put.
 */

#include "dataset/chunk_builder.h"
#include "dataset/store.h"
#include "writer_lock.h"

#define PUT_QUEUE_THREADS 2
/* the two being written, one being filled, one waiting */
#define PUT_QUEUE_BUILDERS (PUT_QUEUE_THREADS + 2)

struct put_queue;

/* Creates a queue. store and lock_file are borrowed. Once the lock is lost, nothing is written. */
int put_queue_new(struct store *store, struct writer_lock *lock_file, uint64_t chunk_bytes,
		  struct put_queue **ret, struct error *err);
/* Drops chunks that are not written yet. */
void put_queue_free(struct put_queue *q);

/* From now on, computes the digest of each chunk from memory before it is written. */
void put_queue_keep_digests(struct put_queue *q);
/* Call it after put_queue_flush(). Returns false if that chunk was not put with a digest. */
bool put_queue_digest(const struct put_queue *q, const struct chunk_id *id, struct digest *ret);

/* Takes a builder, which the caller resets; waits until one is free. */
int put_queue_take(struct put_queue *q, struct chunk_builder **ret, struct error *err);

/* Hands a filled builder in. */
int put_queue_put(struct put_queue *q, struct chunk_builder *b, const struct chunk_id *id,
		  uint64_t created_ns, struct error *err);

/* Waits until everything handed in is durable. */
int put_queue_flush(struct put_queue *q, struct error *err);
