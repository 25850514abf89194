/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The tables of meta.db.
 *
 *   state  one row: version, and the pending floor (NULL when no writer is at work)
 *   chunk  one row a chunk, key id; in version 2 with the SHA-256 of its file
 *   path   one row a live path, key path: where its newest record lies
 */

#include "dataset/meta.h"
#include "sqlite/db.h"

/* Opens the file, checks that it is ours and of a version we know, and makes or replaces it as the mode says.
 * -ENOENT, -EACCES, -EBADMSG, -EPROTONOSUPPORT. */
int meta_schema_open(const char *path, enum meta_mode mode, struct sql **ret, struct error *err);

/* A dataset without digests stays of version 1, which older programs know. */
int meta_schema_has_digests(struct sql *db, bool *ret, struct error *err);
/* Within a transaction: to version 2. */
int meta_schema_add_digests(struct sql *db, struct error *err);
