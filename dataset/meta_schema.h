/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The tables of meta.db.
 *
 *   state  one row: version, and the pending floor (NULL when no writer is at work)
 *   chunk  one row a chunk, key id
 *   path   one row a live path, key path: where its newest record lies
 */

#include "dataset/meta.h"
#include "sqlite_db.h"

/* Opens the file, checks that it is ours and of a version we know, and makes or replaces it as the mode says.
 * -ENOENT, -EACCES, -EBADMSG, -EPROTONOSUPPORT. */
int meta_schema_open(const char *path, enum meta_mode mode, struct sqlite_db **ret, struct error *err);
