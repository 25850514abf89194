/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A thin wrapper of SQLite for this folder, and the one user of its header here: errno results, error
 * texts that name the file and what to do, statements prepared once. Not thread-safe.
 */

#include "lib/error.h"

#include <stddef.h>
#include <stdint.h>

struct sqlite_db;
struct sqlite_statement;

enum sqlite_mode { SQLITE_MODE_READ, SQLITE_MODE_WRITE, SQLITE_MODE_CREATE };

/* -ENOENT, -EACCES; -EBADMSG shows only at the first use. */
int sqlite_db_open(const char *path, enum sqlite_mode mode, struct sqlite_db **ret, struct error *err);
/* Rolls an open transaction back. All statements of it must have been freed. */
void sqlite_db_close(struct sqlite_db *db);
const char *sqlite_db_path(const struct sqlite_db *db);

/* One or more statements without results. -EBUSY, -ENOSPC, -EACCES, -EBADMSG: damaged; -EIO, ... */
int sqlite_db_execute(struct sqlite_db *db, const char *sql, struct error *err);
int sqlite_db_integer(struct sqlite_db *db, const char *sql, int64_t *ret, struct error *err);
/* ROLLBACK; false: no transaction was open. */
bool sqlite_db_rollback(struct sqlite_db *db);

int sqlite_prepare(struct sqlite_db *db, const char *sql, struct sqlite_statement **ret, struct error *err);
void sqlite_statement_free(struct sqlite_statement *st);

/* Parameters count from 1; bound memory is borrowed until the statement has run. */
void sqlite_bind_integer(struct sqlite_statement *st, int index, int64_t value);
void sqlite_bind_bytes(struct sqlite_statement *st, int index, const void *data, size_t bytes);
void sqlite_bind_string(struct sqlite_statement *st, int index, const char *text, size_t length);

enum sqlite_step_result {
	SQLITE_STEP_DONE = 0,
	SQLITE_STEP_ROW = 1, /* read its columns, then step on or reset */
};

int sqlite_step(struct sqlite_statement *st, struct error *err);
void sqlite_reset_statement(struct sqlite_statement *st);
/* For a statement without rows: step and reset. */
int sqlite_run(struct sqlite_statement *st, struct error *err);

/* Columns count from 0. The bytes are valid until the next step or reset; NULL for SQL's NULL. */
int64_t sqlite_get_integer(struct sqlite_statement *st, int column);
const void *sqlite_get_bytes(struct sqlite_statement *st, int column, size_t *ret_bytes);
