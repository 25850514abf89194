/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Puts chunks into the tables of meta.db: a thread writes their rows while the caller reads the next chunks
 * and builds the snapshot. Call meta_rows_settle() before any other use of the database. A handle belongs to
 * one thread at a time.
 */

#include "dataset/chunk.h"
#include "sqlite/db.h"

#define META_ROWS_BYTES ((size_t)64 << 20) /* maximum bytes of the waiting heads */

struct meta_rows;

/* db is borrowed. -ENOMEM. */
int meta_rows_new(struct sql *db, struct meta_rows **ret);
/* Drops the waiting chunks. Call it before the database is closed. */
void meta_rows_free(struct meta_rows *m);

/* Adds a chunk, whose head is copied. Chunks must come in the order of replay. An error of an earlier chunk
 * is returned, too; then nothing more is written. -ENOMEM, or as sql_execute(). */
int meta_rows_put(struct meta_rows *m, const struct chunk_view *view, struct error *err);
/* Waits until all rows are written. Adds to *n_paths the number of paths added since the last call. */
int meta_rows_settle(struct meta_rows *m, uint64_t *n_paths, struct error *err);
/* Drops the waiting chunks and forgets a failure, for a transaction that is rolled back. */
void meta_rows_drop(struct meta_rows *m);
