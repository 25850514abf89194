/* SPDX-License-Identifier: Apache-2.0 */
#include "meta_schema.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "dataset/change.h"
#include "lib/cleanup.h"

#define SCHEMA_VERSION    4 /* newest version that this program supports */
#define SCHEMA_PLAIN      1
#define SCHEMA_DIGESTS    2
#define SCHEMA_COMPRESSED 2          /* added to the version if chunks may be compressed */
#define APPLICATION_ID    0x44534c4d /* "DSLM" */
#define BUSY_MS           5000
#define TEXT_(x)          #x
#define TEXT(x)           TEXT_(x)

/* clang-format off */
#define SCHEMA \
	"PRAGMA application_id = " TEXT(APPLICATION_ID) ";" \
	"CREATE TABLE state (" \
	"  one INTEGER PRIMARY KEY CHECK (one = 1)," \
	"  version INTEGER NOT NULL," \
	"  pending BLOB);" \
	"INSERT INTO state VALUES (1, 0, NULL);" \
	"CREATE TABLE chunk (" \
	"  id BLOB PRIMARY KEY," \
	"  file_bytes INTEGER NOT NULL," \
	"  created_ns INTEGER NOT NULL," \
	"  head_xxh3 INTEGER NOT NULL," \
	"  n_records INTEGER NOT NULL," \
	"  payload_offset INTEGER NOT NULL," \
	"  flags INTEGER NOT NULL) WITHOUT ROWID;" \
	"CREATE TABLE path (" \
	"  path TEXT PRIMARY KEY," \
	"  chunk BLOB NOT NULL," \
	"  record INTEGER NOT NULL," \
	"  offset INTEGER NOT NULL," \
	"  bytes INTEGER NOT NULL," \
	"  stored_bytes INTEGER NOT NULL," \
	"  encoding INTEGER NOT NULL," \
	"  xxh3 INTEGER NOT NULL," \
	"  mtime_ns INTEGER NOT NULL," \
	"  mode INTEGER NOT NULL) WITHOUT ROWID;" \
	"PRAGMA user_version = " TEXT(SCHEMA_PLAIN) ";"
#define ADD_DIGESTS \
	"ALTER TABLE chunk ADD COLUMN sha256 BLOB;"
/* Older programs, which do not know the log, leave it unchanged. */
#define ADD_LOG \
	"CREATE TABLE IF NOT EXISTS log (" \
	"  version INTEGER PRIMARY KEY," \
	"  entry TEXT NOT NULL)"
static const char *const scripts[] = {SCHEMA ADD_LOG, SCHEMA ADD_DIGESTS, NULL};
/* clang-format on */

/* Creates the tables, in a transaction: if two processes do this at the same time, one finds the other's
 * tables. */
static int make_schema(struct sql *db, struct error *err)
{
	int64_t version = 0;
	int r = sql_execute(db, "BEGIN IMMEDIATE", err);

	if (r == 0)
		r = sql_number(db, "PRAGMA user_version", &version, err);
	if (r == 0 && version == 0)
		r = sql_execute(db, SCHEMA, err);
	if (r == 0)
		r = sql_execute(db, "COMMIT", err);
	sql_rollback(db);
	return r;
}

/* Checks that the tables are ours. With create, makes them in a new file. */
static int check_schema(struct sql *db, bool create, struct error *err)
{
	int64_t version = 0, application = 0;
	int r = sql_number(db, "PRAGMA user_version", &version, err);

	if (r == 0)
		r = sql_number(db, "PRAGMA application_id", &application, err);
	if (r < 0)
		return r;
	if (version == 0 && application == 0 && create)
		return make_schema(db, err);
	if (application != APPLICATION_ID || version < 1)
		return error_set(err, -EBADMSG, "%s is not DIESEL metadata: run `dieselctl rebuild`",
				 sql_path(db));
	if (version > SCHEMA_VERSION)
		return error_set(err, -EPROTONOSUPPORT,
				 "%s has metadata version %lld, this program supports up to %d; update it",
				 sql_path(db), (long long)version, SCHEMA_VERSION);
	return sql_check_tables(db, scripts, err);
}

int meta_schema_has(struct sql *db, bool *ret_digests, bool *ret_compressed, struct error *err)
{
	int64_t version = 0;
	int r = sql_number(db, "PRAGMA user_version", &version, err);

	if (r == 0) {
		*ret_digests = version % SCHEMA_COMPRESSED == 0;
		*ret_compressed = version > SCHEMA_DIGESTS;
	}
	return r;
}

/* Adds `by` to the schema version. The number is part of the text, since a pragma takes no parameters. */
static int raise_version(struct sql *db, int64_t by, struct error *err)
{
	int64_t version = 0;
	char text[48];
	int r = sql_number(db, "PRAGMA user_version", &version, err);

	snprintf(text, sizeof(text), "PRAGMA user_version = %lld", (long long)(version + by));
	return r < 0 ? r : sql_execute(db, text, err);
}

int meta_schema_add_digests(struct sql *db, struct error *err)
{
	int r = sql_execute(db, ADD_DIGESTS, err);

	return r < 0 ? r : raise_version(db, SCHEMA_DIGESTS - SCHEMA_PLAIN, err);
}

int meta_schema_add_compressed(struct sql *db, struct error *err)
{
	return raise_version(db, SCHEMA_COMPRESSED, err);
}

int meta_schema_has_log(struct sql *db, bool *ret, struct error *err)
{
	int64_t n = 0;
	int r = sql_number(db, "SELECT count(*) FROM sqlite_master WHERE name = 'log'", &n, err);

	if (r == 0)
		*ret = n > 0;
	return r;
}

int meta_schema_add_log(struct sql *db, struct error *err)
{
	return sql_execute(db, ADD_LOG, err);
}

/* Finds the number of paths in the log. Returns 1 if the log has no entry of this version. */
static int find_count(struct sql *db, uint64_t version, uint64_t *ret, struct error *err)
{
	_cleanup_(sql_statement_freep) struct sql_statement *st = NULL;
	bool has_log = false;
	struct change change;
	size_t bytes = 0;
	int r = meta_schema_has_log(db, &has_log, err);

	if (r < 0 || !has_log)
		return r < 0 ? r : 1;
	r = sql_prepare(db, "SELECT entry FROM log WHERE version = ?1", &st, err);
	if (r < 0)
		return r;
	sql_bind_integer(st, 1, (int64_t)version);
	r = sql_step(st, err);
	if (r < 0)
		return r;
	const char *text = r == SQL_ROW ? sql_bytes(st, 0, &bytes) : NULL;

	if (!text || change_parse(text, bytes, &change) < 0)
		return 1;
	*ret = change.n_samples;
	return 0;
}

int meta_schema_count_paths(struct sql *db, uint64_t version, bool exactly, uint64_t *ret, struct error *err)
{
	int64_t n = 0;
	int r = exactly ? 1 : find_count(db, version, ret, err);

	if (r != 1)
		return r;
	r = sql_number(db, "SELECT count(1) FROM path", &n, err); /* not (*): db.h */
	if (r == 0)
		*ret = (uint64_t)n;
	return r;
}

/* Checks all pages, which may be damaged even in a file that can be opened. */
static int check_pages(struct sql *db, struct error *err)
{
	struct sql_statement *st = NULL;
	const char *text;
	size_t bytes = 0;
	int r = sql_prepare(db, "PRAGMA quick_check(1)", &st, err);

	if (r < 0)
		return r;
	r = sql_step(st, err);
	text = r == SQL_ROW ? sql_bytes(st, 0, &bytes) : NULL;
	if (r >= 0)
		r = text && bytes == 2 && !memcmp(text, "ok", 2)
			? 0
			: error_set(err, -EBADMSG, "%s is damaged: run `dieselctl rebuild`", sql_path(db));
	sql_statement_free(st);
	return r;
}

/* Checks the types of values: to SQLite, a path stored as a blob differs from the same text, and the check of
 * pages does not find that. */
static int check_types(struct sql *db, struct error *err)
{
	int64_t n_wrong = 0;
	int r = sql_number(
	    db,
	    "SELECT (SELECT count(*) FROM path WHERE typeof(path) <> 'text' OR typeof(chunk) <> 'blob' OR "
	    "typeof(record + offset + bytes + stored_bytes + encoding) <> 'integer' OR "
	    "typeof(encoding) <> 'integer' OR typeof(xxh3) <> 'integer' OR typeof(mtime_ns) <> 'integer' OR "
	    "typeof(mode) <> 'integer') + (SELECT count(*) FROM chunk WHERE typeof(id) <> 'blob')",
	    &n_wrong, err);

	if (r == 0 && n_wrong)
		r = error_set(err, -EBADMSG, "%s is damaged: run `dieselctl rebuild`", sql_path(db));
	return r;
}

static int open_checked(int dir_fd, const char *path, enum meta_mode mode, struct sql **ret,
			struct error *err)
{
	static const enum sql_mode modes[] = {
	    [META_READ] = SQL_READ,     [META_CHECK] = SQL_READ,     [META_WRITE] = SQL_WRITE,
	    [META_CREATE] = SQL_CREATE, [META_REPLACE] = SQL_CREATE,
	};
	const struct sql_options options = {
	    .mode = modes[mode],
	    .busy_ms = BUSY_MS,
	    .if_damaged = "run `dieselctl rebuild`",
	    .if_busy = "another dieselctl is writing to this dataset; try again later",
	};
	struct sql *db = NULL;
	int r = dir_fd < 0 ? error_errno(err, dir_fd, "cannot open %s", path)
			   : sql_open_at(dir_fd, path, &options, &db, err);

	if (r < 0)
		return r;
	r = check_schema(db, modes[mode] == SQL_CREATE, err);
	if (r == 0 && (mode == META_REPLACE || mode == META_CHECK))
		r = check_pages(db, err);
	if (r == 0 && mode == META_CHECK)
		r = check_types(db, err);
	if (r < 0) {
		sql_close(db);
		return r;
	}
	*ret = db;
	return 0;
}

/* Keeps the file as PATH.damaged, as evidence, and removes its journal, which must not be applied to the new
 * file. */
static int put_aside(int dir_fd, const char *path, struct error *err)
{
	if (renameat(dir_fd, META_SQLITE_FILE, dir_fd, META_SQLITE_FILE ".damaged") < 0 ||
	    (unlinkat(dir_fd, META_SQLITE_FILE "-journal", 0) < 0 && errno != ENOENT))
		return error_errno(err, -errno, "cannot put %s aside", path);
	return 0;
}

int meta_schema_open(int dir_fd, const char *path, enum meta_mode mode, struct sql **ret, struct error *err)
{
	int r = open_checked(dir_fd, path, mode, ret, err);

	if (r != -EBADMSG || mode != META_REPLACE)
		return r;
	r = put_aside(dir_fd, path, err);
	return r < 0 ? r : open_checked(dir_fd, path, mode, ret, err);
}
