/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The tables of meta.db.
 *
 *   state  one row: version, and the pending floor (NULL when no writer is at work)
 *   chunk  one row per chunk, key id; in versions 2 and 4 with the SHA-256 of its file
 *   path   one row per live path, key path: location of its newest record
 *   log    one row per version, key version (dataset/change.h); missing in files of older programs
 */

#include "dataset/meta.h"
#include "sqlite/db.h"

/* Opens META_SQLITE_FILE in dir_fd (or -errno if it cannot be opened), checks that it is ours and of a known
 * version, and creates or replaces it as the mode says. -ENOENT, -EACCES, -EBADMSG, -EPROTONOSUPPORT. */
int meta_schema_open(int dir_fd, const char *path, enum meta_mode mode, struct sql **ret, struct error *err);

/* Returns whether the tables have digests, and whether chunks may be compressed: versions 1 (neither), 2
 * (digests), 3 (compressed) and 4 (both). So tables stay readable by older programs as long as possible. */
int meta_schema_has(struct sql *db, bool *ret_digests, bool *ret_compressed, struct error *err);
/* Raise the version of tables without digests, or without compressed chunks. Within a transaction. */
int meta_schema_add_digests(struct sql *db, struct error *err);
int meta_schema_add_compressed(struct sql *db, struct error *err);

/* Returns whether the tables have a log. */
int meta_schema_has_log(struct sql *db, bool *ret, struct error *err);
/* Adds a log if there is none, within a transaction. */
int meta_schema_add_log(struct sql *db, struct error *err);

/* Returns the number of paths after the transaction of this version: from the log, which takes no time;
 * without an entry, or with `exactly`, by counting. Errors as sql_execute(). */
int meta_schema_count_paths(struct sql *db, uint64_t version, bool exactly, uint64_t *ret, struct error *err);
