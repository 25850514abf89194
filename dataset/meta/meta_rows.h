/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Chunks on their way into the tables of meta.db: a thread puts their rows while the caller reads the next
 * ones and builds the snapshot. Whoever else uses the database calls meta_rows_settle() first. A handle
 * belongs to one thread at a time.
 */

#include "dataset/chunk.h"
#include "sqlite/db.h"

#define META_ROWS_BYTES ((size_t)64 << 20) /* of heads that wait, at most */

struct meta_rows;

/* db is borrowed. -ENOMEM. */
int meta_rows_new(struct sql *db, struct meta_rows **ret);
/* Drops what waits. Before the database is closed. */
void meta_rows_free(struct meta_rows *m);

/* Copies the head. Chunks come in the order of replay. An error of an earlier one is returned, too; nothing
 * more is put then. -ENOMEM, or as sql_execute(). */
int meta_rows_put(struct meta_rows *m, const struct chunk_view *view, struct error *err);
/* Waits until all is put. *n_paths grows by what has been added to the paths since the last call. */
int meta_rows_settle(struct meta_rows *m, uint64_t *n_paths, struct error *err);
/* Drops what waits, and forgets a failure: the transaction is rolled back. */
void meta_rows_drop(struct meta_rows *m);
