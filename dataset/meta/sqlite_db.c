/* SPDX-License-Identifier: Apache-2.0 */
#include "sqlite_db.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <sqlite3.h>

#define BUSY_TIMEOUT_MS 5000

struct sqlite_db {
	sqlite3 *handle;
	char *path;
};

struct sqlite_statement {
	struct sqlite_db *db;
	sqlite3_stmt *handle;
};

static int errno_of(const struct sqlite_db *db, int code)
{
	int system_errno = db->handle ? sqlite3_system_errno(db->handle) : 0;

	switch (code & 0xff) {
	case SQLITE_BUSY:
	case SQLITE_LOCKED: return -EBUSY;
	case SQLITE_FULL: return -ENOSPC;
	case SQLITE_NOMEM: return -ENOMEM;
	case SQLITE_READONLY:
	case SQLITE_PERM:
	case SQLITE_AUTH: return -EACCES;
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB: return -EBADMSG;
	case SQLITE_CANTOPEN: return system_errno ? -system_errno : -ENOENT;
	case SQLITE_IOERR: return system_errno ? -system_errno : -EIO;
	}
	return -EIO;
}

static int sqlite_error(const struct sqlite_db *db, int code, struct error *err)
{
	int r = errno_of(db, code);
	const char *message = db->handle ? sqlite3_errmsg(db->handle) : "no memory";

	if (r == -EBADMSG)
		return error_set(err, r, "%s is damaged (%s): run `dieselctl rebuild`", db->path, message);
	if (code == SQLITE_READONLY_ROLLBACK)
		return error_set(err, r,
				 "%s was left by an interrupted command and has to be written to be read: "
				 "run the command as its owner",
				 db->path);
	if (r == -EBUSY)
		return error_set(err, r,
				 "%s is in use: another dieselctl writes to this dataset; try again later",
				 db->path);
	return error_errno(err, r, "cannot use %s (%s)", db->path, message);
}

int sqlite_db_open(const char *path, enum sqlite_mode mode, struct sqlite_db **ret, struct error *err)
{
	/* Readers too: to undo what a writer that died has left. SQLite takes less where it must. */
	int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_READWRITE |
		    (mode == SQLITE_MODE_CREATE ? SQLITE_OPEN_CREATE : 0);
	struct sqlite_db *db = calloc(1, sizeof(*db));

	if (!db || !(db->path = strdup(path))) {
		sqlite_db_close(db);
		return error_errno(err, -ENOMEM, "%s", path);
	}
	int code = sqlite3_open_v2(path, &db->handle, flags, NULL);

	if (code != SQLITE_OK) {
		int r = sqlite_error(db, code, err);

		sqlite_db_close(db);
		return r;
	}
	sqlite3_extended_result_codes(db->handle, 1);
	sqlite3_busy_timeout(db->handle, BUSY_TIMEOUT_MS);
	if (mode == SQLITE_MODE_READ)
		sqlite3_exec(db->handle, "PRAGMA query_only = 1", NULL, NULL, NULL);
	*ret = db;
	return 0;
}

void sqlite_db_close(struct sqlite_db *db)
{
	if (!db)
		return;
	sqlite3_close(db->handle);
	free(db->path);
	free(db);
}

const char *sqlite_db_path(const struct sqlite_db *db)
{
	return db->path;
}

int sqlite_db_execute(struct sqlite_db *db, const char *sql, struct error *err)
{
	int code = sqlite3_exec(db->handle, sql, NULL, NULL, NULL);

	return code == SQLITE_OK ? 0 : sqlite_error(db, code, err);
}

int sqlite_db_integer(struct sqlite_db *db, const char *sql, int64_t *ret, struct error *err)
{
	struct sqlite_statement *st = NULL;
	int r = sqlite_prepare(db, sql, &st, err);

	if (r < 0)
		return r;
	r = sqlite_step(st, err);
	if (r == SQLITE_STEP_ROW)
		*ret = sqlite_get_integer(st, 0);
	else if (r == SQLITE_STEP_DONE)
		r = sqlite_error(db, SQLITE_CORRUPT, err);
	sqlite_statement_free(st);
	return r < 0 ? r : 0;
}

bool sqlite_db_rollback(struct sqlite_db *db)
{
	if (sqlite3_get_autocommit(db->handle))
		return false;
	sqlite3_exec(db->handle, "ROLLBACK", NULL, NULL, NULL);
	return true;
}

int sqlite_prepare(struct sqlite_db *db, const char *sql, struct sqlite_statement **ret, struct error *err)
{
	struct sqlite_statement *st = calloc(1, sizeof(*st));

	if (!st)
		return error_errno(err, -ENOMEM, "%s", db->path);
	int code = sqlite3_prepare_v3(db->handle, sql, -1, SQLITE_PREPARE_PERSISTENT, &st->handle, NULL);

	if (code != SQLITE_OK) {
		free(st);
		return sqlite_error(db, code, err);
	}
	st->db = db;
	*ret = st;
	return 0;
}

void sqlite_statement_free(struct sqlite_statement *st)
{
	if (!st)
		return;
	sqlite3_finalize(st->handle);
	free(st);
}

/* Binding fails only for an index out of range, a defect of the caller, or for lack of memory, which the
 * step after it reports. */
void sqlite_bind_integer(struct sqlite_statement *st, int index, int64_t value)
{
	sqlite3_bind_int64(st->handle, index, value);
}

void sqlite_bind_bytes(struct sqlite_statement *st, int index, const void *data, size_t bytes)
{
	sqlite3_bind_blob64(st->handle, index, data, bytes, SQLITE_STATIC);
}

void sqlite_bind_string(struct sqlite_statement *st, int index, const char *text, size_t length)
{
	sqlite3_bind_text64(st->handle, index, text, length, SQLITE_STATIC, SQLITE_UTF8);
}

int sqlite_step(struct sqlite_statement *st, struct error *err)
{
	int code = sqlite3_step(st->handle);

	if (code == SQLITE_ROW)
		return SQLITE_STEP_ROW;
	return code == SQLITE_DONE ? SQLITE_STEP_DONE : sqlite_error(st->db, code, err);
}

void sqlite_reset_statement(struct sqlite_statement *st)
{
	sqlite3_reset(st->handle);
	sqlite3_clear_bindings(st->handle);
}

int sqlite_run(struct sqlite_statement *st, struct error *err)
{
	int r = sqlite_step(st, err);

	sqlite_reset_statement(st);
	return r;
}

int64_t sqlite_get_integer(struct sqlite_statement *st, int column)
{
	return sqlite3_column_int64(st->handle, column);
}

const void *sqlite_get_bytes(struct sqlite_statement *st, int column, size_t *ret_bytes)
{
	/* The pointer first: it may convert, and the length is that of the converted value. */
	const void *data = sqlite3_column_blob(st->handle, column);

	*ret_bytes = (size_t)sqlite3_column_bytes(st->handle, column);
	return data;
}
