/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Chunks on their way into a store: one thread writes and syncs them while the caller fills the next.
 * The caller takes an empty builder, fills it, hands it in; at most PUT_QUEUE_BUILDERS exist. Put in the
 * order handed in. The first failure stops everything: it is what every later call returns.
 *
 * Thread-safety: one thread calls, the queue's own thread puts.
 */

#include "dataset/chunk_builder.h"
#include "dataset/store.h"

#define PUT_QUEUE_BUILDERS 3 /* one being filled, one being written, one waiting */

struct put_queue;

/* store is borrowed. */
int put_queue_new(struct store *store, uint64_t chunk_bytes, struct put_queue **ret, struct error *err);
/* Drops what is not written yet. */
void put_queue_free(struct put_queue *q);

/* From now on: the digest of each chunk, computed of what is written and before it is. */
void put_queue_keep_digests(struct put_queue *q);
/* After put_queue_flush(). false: that chunk was not put with a digest. */
bool put_queue_digest(const struct put_queue *q, const struct chunk_id *id, struct digest *ret);

/* An empty builder (not reset); waits until one is free. */
int put_queue_take(struct put_queue *q, struct chunk_builder **ret, struct error *err);

/* Gives a filled builder back. */
int put_queue_put(struct put_queue *q, struct chunk_builder *b, const struct chunk_id *id,
		  uint64_t created_ns, struct error *err);

/* Waits until everything handed in is durable. */
int put_queue_flush(struct put_queue *q, struct error *err);
