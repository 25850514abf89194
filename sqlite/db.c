/* SPDX-License-Identifier: Apache-2.0 */
#include "sqlite/db.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <sqlite3.h>

#include "lib/cleanup.h"

struct sql {
	sqlite3 *handle;
	char *path;
	struct sql_options options;
};

struct sql_statement {
	struct sql *sql;
	sqlite3_stmt *handle;
};

static int errno_of(const struct sql *sql, int code)
{
	int system_errno = sql->handle ? sqlite3_system_errno(sql->handle) : 0;

	switch (code & 0xff) {
	case SQLITE_BUSY:
	case SQLITE_LOCKED: return -EBUSY;
	case SQLITE_FULL: return -ENOSPC;
	case SQLITE_NOMEM: return -ENOMEM;
	case SQLITE_READONLY:
	case SQLITE_PERM:
	case SQLITE_AUTH: return -EACCES;
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
	case SQLITE_FORMAT: return -EBADMSG;
	case SQLITE_CANTOPEN: return system_errno ? -system_errno : -ENOENT;
	case SQLITE_IOERR: return system_errno ? -system_errno : -EIO;
	}
	return -EIO;
}

static int failed(const struct sql *sql, int code, struct error *err)
{
	const char *message = sql->handle ? sqlite3_errmsg(sql->handle) : "no memory";
	const char *if_damaged = sql->options.if_damaged, *if_busy = sql->options.if_busy;
	int r = errno_of(sql, code);

	if (r == -EBADMSG)
		return error_set(err, r, "%s is damaged (%s)%s%s", sql->path, message, if_damaged ? ": " : "",
				 if_damaged ? if_damaged : "");
	if (code == SQLITE_READONLY_ROLLBACK)
		return error_set(err, r,
				 "%s was left by an interrupted command and has to be written to be read: "
				 "run the command as its owner",
				 sql->path);
	if (r == -EBUSY)
		return error_set(err, r, "%s is in use%s%s", sql->path, if_busy ? ": " : "",
				 if_busy ? if_busy : "");
	if (r == -ENOSPC)
		return error_errno(err, r, "%s cannot grow (%s)", sql->path, message);
	return error_errno(err, r, "cannot use %s (%s)", sql->path, message);
}

int sql_open(const char *path, const struct sql_options *options, struct sql **ret, struct error *err)
{
	int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_READWRITE |
		    (options->mode == SQL_CREATE ? SQLITE_OPEN_CREATE : 0);
	struct sql *sql = calloc(1, sizeof(*sql));
	int code;

	if (!sql || !(sql->path = strdup(path))) {
		free(sql);
		return error_errno(err, -ENOMEM, "%s", path);
	}
	sql->options = *options;
	code = sqlite3_open_v2(path, &sql->handle, flags, NULL);
	if (code != SQLITE_OK) {
		int r = errno_of(sql, code);

		sql_close(sql);
		return error_errno(err, r, "cannot open %s", path);
	}
	sqlite3_extended_result_codes(sql->handle, 1);
	sqlite3_busy_timeout(sql->handle, options->busy_ms);
	if (options->mode == SQL_READ)
		sqlite3_exec(sql->handle, "PRAGMA query_only = 1", NULL, NULL, NULL);
	*ret = sql;
	return 0;
}

void sql_close(struct sql *sql)
{
	if (!sql)
		return;
	sqlite3_close(sql->handle);
	free(sql->path);
	free(sql);
}

const char *sql_path(const struct sql *sql)
{
	return sql->path;
}

int sql_execute(struct sql *sql, const char *text, struct error *err)
{
	int code = sqlite3_exec(sql->handle, text, NULL, NULL, NULL);

	return code == SQLITE_OK ? 0 : failed(sql, code, err);
}

int sql_number(struct sql *sql, const char *text, int64_t *ret, struct error *err)
{
	_cleanup_(sql_statement_freep) struct sql_statement *st = NULL;
	int r = sql_prepare(sql, text, &st, err);

	if (r < 0)
		return r;
	r = sql_step(st, err);
	if (r == SQL_DONE)
		return failed(sql, SQLITE_CORRUPT, err);
	if (r == SQL_ROW)
		*ret = sql_integer(st, 0);
	return r < 0 ? r : 0;
}

bool sql_rollback(struct sql *sql)
{
	if (sqlite3_get_autocommit(sql->handle))
		return false;
	sqlite3_exec(sql->handle, "ROLLBACK", NULL, NULL, NULL);
	return true;
}

int64_t sql_last_id(const struct sql *sql)
{
	return sqlite3_last_insert_rowid(sql->handle);
}

int64_t sql_n_changed(const struct sql *sql)
{
	return sqlite3_changes(sql->handle);
}

int sql_prepare(struct sql *sql, const char *text, struct sql_statement **ret, struct error *err)
{
	struct sql_statement *st = calloc(1, sizeof(*st));
	int code;

	if (!st)
		return error_errno(err, -ENOMEM, "%s", sql->path);
	st->sql = sql;
	code = sqlite3_prepare_v3(sql->handle, text, -1, SQLITE_PREPARE_PERSISTENT, &st->handle, NULL);
	if (code != SQLITE_OK) {
		free(st);
		return failed(sql, code, err);
	}
	*ret = st;
	return 0;
}

void sql_statement_free(struct sql_statement *st)
{
	if (!st)
		return;
	sqlite3_finalize(st->handle);
	free(st);
}

void sql_statement_freep(struct sql_statement **st)
{
	sql_statement_free(*st);
}

/* Binding fails only for an index out of range, which is a defect of the caller, or for lack of memory, which
 * the next step reports. */
void sql_bind_integer(struct sql_statement *st, int index, int64_t value)
{
	sqlite3_bind_int64(st->handle, index, value);
}

void sql_bind_real(struct sql_statement *st, int index, double value)
{
	sqlite3_bind_double(st->handle, index, value); /* makes a NAN NULL */
}

void sql_bind_text(struct sql_statement *st, int index, const char *text)
{
	sqlite3_bind_text(st->handle, index, text, -1, SQLITE_STATIC);
}

void sql_bind_name(struct sql_statement *st, int index, const char *text, size_t length)
{
	sqlite3_bind_text64(st->handle, index, text, length, SQLITE_STATIC, SQLITE_UTF8);
}

void sql_bind_bytes(struct sql_statement *st, int index, const void *data, size_t size)
{
	sqlite3_bind_blob64(st->handle, index, data, size, SQLITE_STATIC);
}

int sql_step(struct sql_statement *st, struct error *err)
{
	int code = sqlite3_step(st->handle);

	if (code == SQLITE_ROW)
		return SQL_ROW;
	return code == SQLITE_DONE ? SQL_DONE : failed(st->sql, code, err);
}

void sql_reset(struct sql_statement *st)
{
	sqlite3_reset(st->handle);
	sqlite3_clear_bindings(st->handle);
}

int sql_run(struct sql_statement *st, struct error *err)
{
	int r = sql_step(st, err);

	sql_reset(st);
	return r;
}

bool sql_is_null(struct sql_statement *st, int column)
{
	return sqlite3_column_type(st->handle, column) == SQLITE_NULL;
}

int64_t sql_integer(struct sql_statement *st, int column)
{
	return sqlite3_column_int64(st->handle, column);
}

double sql_real(struct sql_statement *st, int column)
{
	return sql_is_null(st, column) ? NAN : sqlite3_column_double(st->handle, column);
}

const char *sql_text(struct sql_statement *st, int column)
{
	const char *text = (const char *)sqlite3_column_text(st->handle, column);

	return text ? text : "";
}

const void *sql_bytes(struct sql_statement *st, int column, size_t *ret_size)
{
	/* The pointer first: asking for it may convert the value, and the length is the converted value's. */
	const void *data = sqlite3_column_blob(st->handle, column);

	*ret_size = (size_t)sqlite3_column_bytes(st->handle, column);
	return data;
}
