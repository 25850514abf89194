/* SPDX-License-Identifier: Apache-2.0 */
#include "sqlite/db.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "files.h"
#include "lib/cleanup.h"

/*
 * Checks that a database has only the tables that we make. Names are no proof: a view that never ends, or a
 * table whose columns are computed as they are read, can have any name. The type in the list of tables is no
 * proof either, because SQLite ignores it and goes by the SQL statement next to it. So the statement must be
 * one that creates a table, and SQLite is asked for the columns of that table.
 */

#define MAKES_TABLE "CREATE TABLE "
/* Lists the names of columns, each with a blank behind it, and marks computed or hidden columns. */
#define COLUMNS                                                                                              \
	"SELECT ifnull(group_concat(name || ' ' || CASE hidden WHEN 0 THEN '' ELSE 'hidden ' END, ''), '')"  \
	" FROM pragma_table_xinfo(?1)"
#define INDEX "SELECT sql FROM sqlite_master WHERE type = 'index' AND name = ?1"

static void sqlite_closep(sqlite3 **db)
{
	sqlite3_close(*db);
}

static void finalizep(sqlite3_stmt **st)
{
	sqlite3_finalize(*st);
}

/* Returns true if two texts differ only in blanks. */
static bool is_same(const char *a, const char *b)
{
	for (;; a++, b++) {
		while (isspace((unsigned char)*a))
			a++;
		while (isspace((unsigned char)*b))
			b++;
		if (*a != *b)
			return false;
		if (!*a)
			return true;
	}
}

/* Returns 1 if the script creates an entry of this name for which the query returns the same text, 0 if not,
 * or -ENOMEM. */
static int makes_same(const char *script, const char *query, const char *name, const char *text)
{
	_cleanup_(sqlite_closep) sqlite3 *db = NULL;
	_cleanup_(finalizep) sqlite3_stmt *own = NULL;

	if (sqlite3_open(":memory:", &db) != SQLITE_OK ||
	    sqlite3_exec(db, script, NULL, NULL, NULL) != SQLITE_OK ||
	    sqlite3_prepare_v2(db, query, -1, &own, NULL) != SQLITE_OK)
		return -ENOMEM;
	sqlite3_bind_text(own, 1, name, -1, SQLITE_STATIC);
	if (sqlite3_step(own) != SQLITE_ROW || !sqlite3_column_text(own, 0))
		return 0;
	return is_same((const char *)sqlite3_column_text(own, 0), text);
}

static int is_in_any(const char *const *scripts, const char *query, const char *name, const char *text)
{
	int is = 0;

	for (const char *const *script = scripts; *script && is == 0; script++)
		is = makes_same(*script, query, name, text);
	return is;
}

struct sql {
	sqlite3 *handle;
	struct sql_files *files; /* NULL: SQLite's own VFS opens the file */
	char *path;
	struct sql_options options;
	uint64_t rounds, max_rounds; /* of the current statement, if it only reads: rounds of ROUND_STEPS
					steps, and their limit */
};

struct sql_statement {
	struct sql *sql;
	sqlite3_stmt *handle;
};

/* Returns 1 if the table has the columns of our table of this name, 0 if not, or a negative errno. */
static int is_our_table(struct sql *sql, const char *name, const char *const *scripts, struct error *err)
{
	_cleanup_(sql_statement_freep) struct sql_statement *columns = NULL;
	int r = sql_prepare(sql, COLUMNS, &columns, err);

	if (r < 0)
		return r;
	sql_bind_text(columns, 1, name);
	r = sql_step(columns, err);
	if (r != SQL_ROW || !sql_text(columns, 0)[0])
		return r < 0 ? r : 0;
	return is_in_any(scripts, COLUMNS, name, sql_text(columns, 0));
}

/* row: name and SQL statement of an entry of sqlite_master. SQLite's own indexes for the keys of tables have
 * no statement. */
static int is_ours(struct sql *sql, struct sql_statement *row, const char *const *scripts, struct error *err)
{
	const char *name = sql_text(row, 0), *statement = sql_text(row, 1);

	if (!statement[0])
		return 1;
	if (strncasecmp(statement, MAKES_TABLE, sizeof(MAKES_TABLE) - 1) == 0)
		return is_our_table(sql, name, scripts, err);
	return is_in_any(scripts, INDEX, name, statement);
}

/* Returns the options' if_damaged, or NULL. */
static const char *sql_advice(const struct sql *sql)
{
	return sql->options.if_damaged;
}

int sql_check_tables(struct sql *sql, const char *const *scripts, struct error *err)
{
	_cleanup_(sql_statement_freep) struct sql_statement *rows = NULL;
	const char *advice = sql_advice(sql);
	int r = sql_prepare(sql, "SELECT name, sql FROM sqlite_master", &rows, err), is = 1;

	while (r >= 0 && is == 1 && (r = sql_step(rows, err)) == SQL_ROW)
		is = is_ours(sql, rows, scripts, err);
	if (r < 0 || is == 1)
		return r;
	if (is < 0)
		return is;
	return error_set(err, -EBADMSG, "%s has tables or other content that DIESEL does not create%s%s",
			 sql_path(sql), advice ? ": " : "", advice ? advice : "");
}

/* Maximum size of a value, in bytes: far more than we ever store. */
#define MAX_BYTES (64 << 20)
/* Steps of SQLite's virtual machine between two checks of a statement's work. A crafted tree of pages that
 * share their children can be endless. So the work is limited to STEPS_FOR_BYTE steps per byte of the file,
 * and to MIN_ROUNDS rounds for a small one. */
#define ROUND_STEPS    1000000
#define MIN_ROUNDS     20
#define STEPS_FOR_BYTE 64

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
	case SQLITE_FORMAT:
	case SQLITE_INTERRUPT: return -EBADMSG;
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

	if (code == SQLITE_INTERRUPT)
		message = "a query does not end";
	if (r == -EBADMSG)
		return error_set(err, r, "%s is damaged (%s)%s%s", sql->path, message, if_damaged ? ": " : "",
				 if_damaged ? if_damaged : "");
	if (code == SQLITE_READONLY_ROLLBACK)
		return error_set(
		    err, r, "another command was interrupted while it changed %s: run this command again",
		    sql->path);
	if (r == -EBUSY)
		return error_set(err, r, "%s is in use%s%s", sql->path, if_busy ? ": " : "",
				 if_busy ? if_busy : "");
	if (r == -ENOSPC)
		return error_errno(err, r, "%s cannot grow (%s)", sql->path, message);
	return error_errno(err, r, "cannot use %s (%s)", sql->path, message);
}

static int count_round(void *context)
{
	struct sql *sql = context;

	return ++sql->rounds > sql->max_rounds;
}

static void restrict_work(struct sql *sql)
{
	static const struct {
		int which, value;
	} limits[] = {
	    {SQLITE_LIMIT_LENGTH, MAX_BYTES}, {SQLITE_LIMIT_SQL_LENGTH, 1 << 16}, {SQLITE_LIMIT_COLUMN, 100},
	    {SQLITE_LIMIT_EXPR_DEPTH, 50},    {SQLITE_LIMIT_COMPOUND_SELECT, 10}, {SQLITE_LIMIT_ATTACHED, 0},
	    {SQLITE_LIMIT_TRIGGER_DEPTH, 1},  {SQLITE_LIMIT_WORKER_THREADS, 0},
	};
	static const struct {
		int which, value;
	} settings[] = {
	    {SQLITE_DBCONFIG_DEFENSIVE, 1},
	    {SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0},
	    {SQLITE_DBCONFIG_ENABLE_TRIGGER, 0},
	    {SQLITE_DBCONFIG_ENABLE_VIEW, 0},
	    {SQLITE_DBCONFIG_DQS_DDL, 0},
	    {SQLITE_DBCONFIG_DQS_DML, 0},
	    {SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0},
	};

	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
		sqlite3_limit(sql->handle, limits[i].which, limits[i].value);
	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
		sqlite3_db_config(sql->handle, settings[i].which, settings[i].value, NULL);
}

/* Sets options of the connection. None of them reads the file. */
static void configure(struct sql *sql)
{
	bool looks = sql->options.mode == SQL_READ;

	sqlite3_extended_result_codes(sql->handle, 1);
	sqlite3_busy_timeout(sql->handle, sql->options.busy_ms);
	restrict_work(sql);
	sqlite3_exec(sql->handle, "PRAGMA cell_size_check = 1", NULL, NULL, NULL);
	if (sql->files)
		sqlite3_exec(sql->handle, "PRAGMA temp_store = MEMORY", NULL, NULL, NULL);
	if (looks)
		sqlite3_exec(sql->handle, "PRAGMA query_only = 1", NULL, NULL, NULL);
	if (looks && sql->files->are_copies) /* lets SQLite read a log without shared memory */
		sqlite3_exec(sql->handle, "PRAGMA locking_mode = EXCLUSIVE", NULL, NULL, NULL);
	if (looks) {
		sql->max_rounds =
		    MIN_ROUNDS + (uint64_t)sql->files->main.st_size / (ROUND_STEPS / STEPS_FOR_BYTE);
		sqlite3_progress_handler(sql->handle, ROUND_STEPS, count_round, sql);
	}
}

/* Registers the VFS only while the connection is opened: SQLite looks it up by name only then. */
static int open_files(struct sql *sql)
{
	sqlite3_vfs *vfs = &sql->files->vfs;
	bool writes = sql->options.mode != SQL_READ || sql->files->are_copies;
	int code = sqlite3_vfs_register(vfs, 0);

	if (code != SQLITE_OK)
		return code;
	code = sqlite3_open_v2(SQL_FILES_NAME, &sql->handle,
			       SQLITE_OPEN_NOMUTEX | (writes ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY),
			       vfs->zName);
	sqlite3_vfs_unregister(vfs);
	return code;
}

int sql_open(const char *path, const struct sql_options *options, struct sql **ret, struct error *err)
{
	return sql_open_at(AT_FDCWD, path, options, ret, err);
}

int sql_open_at(int dir_fd, const char *path, const struct sql_options *options, struct sql **ret,
		struct error *err)
{
	const struct sql_files_options files = {
	    .writes = options->mode != SQL_READ,
	    .creates = options->mode == SQL_CREATE || options->mode == SQL_NEW,
	    .is_new = options->mode == SQL_NEW,
	    .takes_cut = options->takes_cut,
	    .busy_ms = options->busy_ms,
	};
	struct sql *sql = calloc(1, sizeof(*sql));
	int code, r = 0;

	if (!sql || !(sql->path = strdup(path))) {
		free(sql);
		return error_errno(err, -ENOMEM, "%s", path);
	}
	sql->options = *options;
	if (!options->shares_log)
		r = sql_files_open(dir_fd, path, &files, &sql->files, err);
	if (r < 0) {
		sql_close(sql);
		return r;
	}
	code = sql->files
		   ? open_files(sql)
		   : sqlite3_open_v2(path, &sql->handle,
				     SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL);
	if (code != SQLITE_OK) {
		r = errno_of(sql, code);
		sql_close(sql);
		return error_errno(err, r, "cannot open %s", path);
	}
	configure(sql);
	*ret = sql;
	return 0;
}

void sql_close(struct sql *sql)
{
	if (!sql)
		return;
	sqlite3_close(sql->handle);
	sql_files_close(sql->files);
	free(sql->path);
	free(sql);
}

const char *sql_path(const struct sql *sql)
{
	return sql->path;
}

bool sql_is_cut(const struct sql *sql)
{
	return sql->files && sql->files->is_cut;
}

int sql_execute(struct sql *sql, const char *text, struct error *err)
{
	sql->rounds = 0;
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
	sql->rounds = 0;
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
	sqlite3_bind_double(st->handle, index, value); /* stores a NAN as NULL */
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
	st->sql->rounds = 0;
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
	/* Gets the pointer first: that may convert the value, and the length is the converted value's. */
	const void *data = sqlite3_column_blob(st->handle, column);

	*ret_size = (size_t)sqlite3_column_bytes(st->handle, column);
	return data;
}
