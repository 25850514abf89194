/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Chunks that outlive the daemon. Descriptors of their memory are in the service manager's store
 * (lib/fd_store.h), together with that of an index that describes them. The next daemon gets them back, and
 * *restores* the chunks (cache_restore()).
 *
 * The index is shared memory of fixed size, so that its contents survive however the process ends:
 *   header, then N datasets, then N chunks; names in the store: "index", "d0" ..., "c0" ...
 * A chunk is in the index from its verification until its memory is freed or about to be reused.
 *
 * Datasets of one owner take at most a user's share (quota.h) of the store, in datasets and in chunks.
 *
 * Returned memory is trusted as little as storage: it must have been made by this user, and its bytes are
 * copied and verified like those of a file. See docs/explanation/security-datasets.md.
 *
 * All functions accept NULL: no store. Loop thread only.
 */

#include <uv.h>

#include "lib/fd_store.h"
#include "daemon/node/quota.h"
#include "daemon/storage/shared_memory.h"
#include "cached_dataset.h"

struct handover;
struct segment;

/* Takes returned descriptors out of items. *ret is NULL if there is no store. Returns 0 or -errno. */
int handover_new(uv_loop_t *loop, const struct quota *quota, struct fd_store_items *items,
		 struct handover **ret);
/* Leaves everything in the store for the next daemon. The loop must run once more. Returns NULL. */
struct handover *handover_free(struct handover *c);

/* Stores this segment, whose chunk has been verified. */
void handover_put(struct handover *c, struct segment *s);
/* Removes the chunk from the index. Call before the segment's memory is reused. */
void handover_forget(struct handover *c, const struct segment *s);
/* Removes the segment from the store. Call before the segment is freed. */
void handover_drop(struct handover *c, struct segment *s);
/* Removes the dataset. Call before the dataset is freed. */
void handover_drop_dataset(struct handover *c, struct cached_dataset *d);
/* Records the latest user who got the dataset's copy (copy.uid). */
void handover_note_user(struct handover *c, const struct cached_dataset *d);
