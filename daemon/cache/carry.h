/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Chunks that outlive the daemon: descriptors of their memory lie in the service manager's store
 * (lib/fd_store.h), together with that of an index that says what they are. The next daemon gets them back:
 * chunks are *carried* over the restart (cache_restore()).
 *
 * The index is shared memory of fixed size, so that what is written into it survives however the process
 * ends:
 *   header, then N datasets, then N chunks; names in the store: "index", "d0" ..., "c0" ...
 * A chunk is in it from its verification until its memory is about to hold something else, or goes.
 *
 * Datasets of one owner take no more of the store than a user's share (quota.h), in datasets and in chunks.
 *
 * What comes back is trusted as little as storage: its memory must have been made by this user, and its bytes
 * are copied and verified like those of a file. See docs/explanation/security.md.
 *
 * All functions accept NULL: there is no store. Loop thread only.
 */

#include <uv.h>

#include "lib/fd_store.h"
#include "daemon/node/quota.h"
#include "daemon/storage/shared_memory.h"
#include "cached_dataset.h"

struct carry;
struct segment;

/* Takes what came back out of items. *ret is NULL where there is no store. 0 or -errno. */
int carry_new(uv_loop_t *loop, const struct quota *quota, struct fd_store_items *items, struct carry **ret);
/* Leaves everything in the store to the next daemon. The loop must run once more. Returns NULL. */
struct carry *carry_free(struct carry *c);

/* The chunk in this segment is verified: stores it. */
void carry_put(struct carry *c, struct segment *s);
/* The segment's memory is about to hold something else. */
void carry_forget(struct carry *c, const struct segment *s);
/* The segment goes. */
void carry_drop(struct carry *c, struct segment *s);
/* The dataset goes. */
void carry_drop_dataset(struct carry *c, struct cached_dataset *d);
/* A client got its copy. */
void carry_note_user(struct carry *c, const struct cached_dataset *d);
