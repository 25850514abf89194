/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The metadata store in one SQLite file.
 *
 * It uses the rollback journal, not WAL, which needs shared memory that network file systems lack. The file
 * is locked from the first change on. Until then, which may take hours, other programs may use it. The later
 * one of two writers finds that the version has changed.
 */
#include "dataset/meta.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dataset/change.h"
#include "dataset/chunk.h"
#include "dataset/chunk_id.h"
#include "lib/cleanup.h"
#include "lib/container_of.h"
#include "lib/thread.h"
#include "sqlite/db.h"

/*
 * The tables of meta.db.
 *
 *   state  one row: version, and the pending floor (NULL when no writer is at work)
 *   chunk  one row per chunk, key id; in versions 2 and 4 with the SHA-256 of its file
 *   path   one row per live path, key path: location of its newest record
 *   log    one row per version, key version (dataset/change.h); missing in files of older programs
 */

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

/* Returns whether the tables have digests, and whether chunks may be compressed: versions 1 (neither), 2
 * (digests), 3 (compressed) and 4 (both). So tables stay readable by older programs as long as possible. */
static int meta_schema_has(struct sql *db, bool *ret_digests, bool *ret_compressed, struct error *err)
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

/* Raise the version of tables without digests, or without compressed chunks. Within a transaction. */
static int meta_schema_add_digests(struct sql *db, struct error *err)
{
	int r = sql_execute(db, ADD_DIGESTS, err);

	return r < 0 ? r : raise_version(db, SCHEMA_DIGESTS - SCHEMA_PLAIN, err);
}

static int meta_schema_add_compressed(struct sql *db, struct error *err)
{
	return raise_version(db, SCHEMA_COMPRESSED, err);
}

/* Returns whether the tables have a log. */
static int meta_schema_has_log(struct sql *db, bool *ret, struct error *err)
{
	int64_t n = 0;
	int r = sql_number(db, "SELECT count(*) FROM sqlite_master WHERE name = 'log'", &n, err);

	if (r == 0)
		*ret = n > 0;
	return r;
}

/* Adds a log if there is none, within a transaction. */
static int meta_schema_add_log(struct sql *db, struct error *err)
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

/* Returns the number of paths after the transaction of this version: from the log, which takes no time;
 * without an entry, or with `exactly`, by counting. Errors as sql_execute(). */
static int meta_schema_count_paths(struct sql *db, uint64_t version, bool exactly, uint64_t *ret,
				   struct error *err)
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

/* Opens META_SQLITE_FILE in dir_fd (or -errno if it cannot be opened), checks that it is ours and of a known
 * version, and creates or replaces it as the mode says. -ENOENT, -EACCES, -EBADMSG, -EPROTONOSUPPORT. */
static int meta_schema_open(int dir_fd, const char *path, enum meta_mode mode, struct sql **ret,
			    struct error *err)
{
	int r = open_checked(dir_fd, path, mode, ret, err);

	if (r != -EBADMSG || mode != META_REPLACE)
		return r;
	r = put_aside(dir_fd, path, err);
	return r < 0 ? r : open_checked(dir_fd, path, mode, ret, err);
}

enum statement {
	SQL_INFO,
	SQL_SET_PENDING,
	SQL_REMOVE_CHUNK,
	SQL_PUT_DIGEST,
	SQL_COMMIT_STATE,
	SQL_FIND,
	SQL_EACH_CHUNK,
	SQL_EACH_CHUNK_DIGEST,
	SQL_EACH_PATH,
	SQL_ADD_CHANGE,
	SQL_EACH_CHANGE,
	/* only the rows' thread uses these: */
	SQL_ADD_CHUNK,
	SQL_ADD_PATH,
	SQL_REPLACE_PATH,
	SQL_DELETE_PATH,
	N_STATEMENTS
};

#define CHUNK_COLUMNS "id, file_bytes, created_ns, head_xxh3, n_records, payload_offset, flags"
#define PATH_VALUES   "?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10"
#define PATH_COLUMNS  "chunk, record, offset, bytes, stored_bytes, encoding, xxh3, mtime_ns, mode"

static const char *const statement_sql[N_STATEMENTS] = {
    [SQL_INFO] = "SELECT version, pending, (SELECT count(1) FROM chunk), (SELECT max(id) FROM chunk)"
		 " FROM state",
    [SQL_SET_PENDING] = "UPDATE state SET pending = ?1",
    [SQL_REMOVE_CHUNK] = "DELETE FROM chunk WHERE id = ?1",
    [SQL_PUT_DIGEST] = "UPDATE chunk SET sha256 = ?2 WHERE id = ?1",
    [SQL_COMMIT_STATE] = "UPDATE state SET version = ?1, pending = NULL",
    [SQL_FIND] = "SELECT " PATH_COLUMNS ", path FROM path WHERE path = ?1",
    [SQL_EACH_CHUNK] = "SELECT " CHUNK_COLUMNS " FROM chunk ORDER BY id",
    [SQL_EACH_CHUNK_DIGEST] = "SELECT " CHUNK_COLUMNS ", sha256 FROM chunk ORDER BY id",
    [SQL_EACH_PATH] = "SELECT " PATH_COLUMNS ", path FROM path",
    [SQL_ADD_CHANGE] = "INSERT OR REPLACE INTO log VALUES (?1, ?2)",
    [SQL_EACH_CHANGE] = "SELECT entry FROM log ORDER BY version",
    [SQL_ADD_CHUNK] = "INSERT INTO chunk (" CHUNK_COLUMNS ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    [SQL_ADD_PATH] = "INSERT OR IGNORE INTO path VALUES (" PATH_VALUES ")",
    [SQL_REPLACE_PATH] = "INSERT OR REPLACE INTO path VALUES (" PATH_VALUES ")",
    [SQL_DELETE_PATH] = "DELETE FROM path WHERE path = ?1",
};

#define ROWS_BYTES ((size_t)64 << 20) /* maximum bytes of the waiting heads */

struct head {
	struct head *next;
	struct chunk_view view;
	size_t bytes;
	_Alignas(struct chunk_header) unsigned char data[];
};

/* Chunks for the tables: a thread writes their rows while the caller reads the next chunks and builds the
 * snapshot. Call settle() before any other use of the database. */
struct meta_rows {
	pthread_t thread;
	bool started;
	pthread_mutex_t lock;
	pthread_cond_t changed; /* signals a change of a field below */
	struct head *first, **last;
	size_t bytes; /* of the waiting heads */
	bool working, stop;
	int64_t n_paths;      /* added */
	struct error failure; /* the first failure */
};

struct meta_sqlite {
	struct meta meta;
	bool begun, changing; /* between meta_begin() and its end; SQLite's transaction is open (from the
				 first change on) */
	bool adds_digests;    /* add digests with the first change */
	uint64_t version;     /* version that meta_begin() found */
	struct sql *db;
	struct sql_statement *statements[N_STATEMENTS];
	struct meta_rows rows;
	bool has_last; /* last: the newest chunk added, ids must ascend */
	struct chunk_id last;
	bool checks;        /* META_CHECK */
	bool is_compressed; /* the transaction may have compressed chunks */
	bool counts;        /* n_paths is known: the count when rows were last settled */
	uint64_t n_paths;
};

static struct meta_sqlite *sqlite_of(struct meta *m)
{
	return container_of(m, struct meta_sqlite, meta);
}

/* Returns a statement that is ready to bind. It is prepared once. */
static int prepare(struct meta_sqlite *s, enum statement which, struct sql_statement **ret, struct error *err)
{
	int r =
	    s->statements[which] ? 0 : sql_prepare(s->db, statement_sql[which], &s->statements[which], err);

	if (r == 0)
		*ret = s->statements[which];
	return r;
}

/* Returns false if the column does not hold bytes of this size. */
static bool column_blob(struct sql_statement *st, int column, void *ret, size_t size)
{
	size_t bytes;
	const void *blob = sql_bytes(st, column, &bytes);

	if (!blob || bytes != size)
		return false;
	memcpy(ret, blob, size);
	return true;
}

static void bind_id(struct sql_statement *st, int index, const struct chunk_id *id)
{
	sql_bind_bytes(st, index, id->bytes, sizeof(id->bytes));
}

static int add_chunk_row(struct meta_sqlite *s, const struct chunk_header *h, struct error *err)
{
	struct sql_statement *st = NULL;
	int r = prepare(s, SQL_ADD_CHUNK, &st, err);

	if (r < 0)
		return r;
	bind_id(st, 1, &h->id);
	sql_bind_integer(st, 2, (int64_t)h->file_bytes);
	sql_bind_integer(st, 3, (int64_t)h->created_ns);
	sql_bind_integer(st, 4, (int64_t)h->head_xxh3);
	sql_bind_integer(st, 5, h->n_records);
	sql_bind_integer(st, 6, h->payload_offset);
	sql_bind_integer(st, 7, h->flags);
	return sql_run(st, err);
}

/* Runs a statement for one record. *ret_n: number of rows that it changed. */
static int put_row(struct meta_sqlite *s, enum statement which, const struct chunk_view *view, uint32_t i,
		   int64_t *ret_n, struct error *err)
{
	const struct chunk_record *record = &view->records[i];
	struct sql_statement *st = NULL;
	int r = prepare(s, which, &st, err);

	if (r < 0)
		return r;
	sql_bind_name(st, 1, view->names + record->name_offset, record->name_length);
	if (which != SQL_DELETE_PATH) {
		bind_id(st, 2, &view->header->id);
		sql_bind_integer(st, 3, i);
		sql_bind_integer(st, 4, (int64_t)record->offset);
		sql_bind_integer(st, 5, record->bytes);
		sql_bind_integer(st, 6, record->stored_bytes);
		sql_bind_integer(st, 7, record->encoding);
		sql_bind_integer(st, 8, (int64_t)record->xxh3);
		sql_bind_integer(st, 9, (int64_t)record->mtime_ns);
		sql_bind_integer(st, 10, record->mode);
	}
	r = sql_run(st, err);
	if (r == 0)
		*ret_n = sql_n_changed(s->db);
	return r;
}

/* Stores or deletes a path. Adds the change of the number of paths to *n_paths. */
static int put_path(struct meta_sqlite *s, const struct chunk_view *view, uint32_t i, int64_t *n_paths,
		    struct error *err)
{
	bool tombstone = view->header->flags & CHUNK_FLAG_TOMBSTONE;
	int64_t n = 0;
	int r = put_row(s, tombstone ? SQL_DELETE_PATH : SQL_ADD_PATH, view, i, &n, err);

	if (r < 0)
		return r;
	*n_paths += tombstone ? -n : n;
	return tombstone || n ? 0 : put_row(s, SQL_REPLACE_PATH, view, i, &n, err);
}

static int put_head(struct meta_sqlite *s, const struct chunk_view *view, int64_t *n_paths, struct error *err)
{
	int r = add_chunk_row(s, view->header, err);

	for (uint32_t i = 0; i < view->header->n_records && r == 0; i++)
		r = put_path(s, view, i, n_paths, err);
	return r;
}

/* Stores the next chunk's rows. Called with the lock held, and releases it while it works. */
static void put_next(struct meta_sqlite *s)
{
	struct meta_rows *rows = &s->rows;
	struct head *head = rows->first;
	struct error err = ERROR_INIT;
	int64_t n_paths = 0;

	rows->first = head->next;
	if (!rows->first)
		rows->last = &rows->first;
	rows->working = true;
	pthread_mutex_unlock(&rows->lock);
	int r = put_head(s, &head->view, &n_paths, &err);

	pthread_mutex_lock(&rows->lock);
	rows->working = false;
	rows->bytes -= head->bytes;
	rows->n_paths += n_paths;
	if (r < 0)
		rows->failure = err;
	free(head);
	pthread_cond_broadcast(&rows->changed);
}

static void *work(void *argument)
{
	struct meta_sqlite *s = argument;
	struct meta_rows *rows = &s->rows;

	pthread_mutex_lock(&rows->lock);
	while (!rows->stop) {
		if (rows->first && !rows->failure.code)
			put_next(s);
		else
			pthread_cond_wait(&rows->changed, &rows->lock);
	}
	pthread_mutex_unlock(&rows->lock);
	return NULL;
}

static struct head *copy_head(const struct chunk_view *view)
{
	size_t bytes = view->header->payload_offset;
	struct head *head = malloc(sizeof(*head) + bytes);

	if (!head)
		return NULL;
	head->next = NULL;
	head->bytes = bytes;
	memcpy(head->data, view->header, bytes);
	head->view = (struct chunk_view){
	    .header = (const struct chunk_header *)head->data,
	    .records = (const struct chunk_record *)(head->data + sizeof(struct chunk_header)),
	    .names = (const char *)head->data + view->header->names_offset,
	};
	return head;
}

static int failure_of(const struct meta_rows *rows, struct error *err)
{
	if (rows->failure.code && err)
		*err = rows->failure;
	return rows->failure.code;
}

static int start_rows(struct meta_sqlite *s)
{
	int r = s->rows.started ? 0 : thread_start(&s->rows.thread, work, s);

	s->rows.started |= r == 0;
	return r;
}

/* Adds a chunk, in the order of replay. Returns an error of an earlier chunk, too; then nothing more is
 * written. */
static int put_rows(struct meta_sqlite *s, const struct chunk_view *view, struct error *err)
{
	struct meta_rows *rows = &s->rows;
	struct head *head = copy_head(view);
	int r = head ? start_rows(s) : -ENOMEM;

	if (r < 0) {
		free(head);
		return error_errno(err, r, "cannot use %s", sql_path(s->db));
	}
	pthread_mutex_lock(&rows->lock);
	while (rows->bytes && rows->bytes + head->bytes > ROWS_BYTES && !rows->failure.code)
		pthread_cond_wait(&rows->changed, &rows->lock);
	r = failure_of(rows, err);
	if (r == 0) {
		*rows->last = head;
		rows->last = &head->next;
		rows->bytes += head->bytes;
		pthread_cond_broadcast(&rows->changed);
	} else {
		free(head);
	}
	pthread_mutex_unlock(&rows->lock);
	return r;
}

/* Waits until all rows are written. */
static int settle(struct meta_sqlite *s, struct error *err)
{
	struct meta_rows *rows = &s->rows;

	pthread_mutex_lock(&rows->lock);
	while ((rows->first && !rows->failure.code) || rows->working)
		pthread_cond_wait(&rows->changed, &rows->lock);
	int r = failure_of(rows, err);

	s->n_paths += (uint64_t)rows->n_paths;
	rows->n_paths = 0;
	pthread_mutex_unlock(&rows->lock);
	return r;
}

/* Drops the waiting chunks and forgets a failure, for a transaction that is rolled back. */
static void drop_rows(struct meta_rows *rows)
{
	pthread_mutex_lock(&rows->lock);
	while (rows->first) {
		struct head *head = rows->first;

		rows->first = head->next;
		rows->bytes -= head->bytes;
		free(head);
	}
	rows->last = &rows->first;
	while (rows->working)
		pthread_cond_wait(&rows->changed, &rows->lock);
	rows->failure = (struct error)ERROR_INIT;
	rows->n_paths = 0;
	pthread_mutex_unlock(&rows->lock);
}

static void stop_rows(struct meta_rows *rows)
{
	drop_rows(rows);
	if (rows->started) {
		pthread_mutex_lock(&rows->lock);
		rows->stop = true;
		pthread_cond_broadcast(&rows->changed);
		pthread_mutex_unlock(&rows->lock);
		pthread_join(rows->thread, NULL);
	}
	pthread_cond_destroy(&rows->changed);
	pthread_mutex_destroy(&rows->lock);
}

static int damaged(const struct meta_sqlite *s, const char *what, struct error *err)
{
	return error_set(err, -EBADMSG, "%s is damaged (%s): run `dieselctl rebuild`", sql_path(s->db), what);
}

static int sqlite_info(struct meta *m, struct meta_info *ret, struct error *err)
{
	struct meta_sqlite *s = sqlite_of(m);
	struct sql_statement *st = NULL;
	struct meta_info info = {0};
	bool has_digests = false, is_compressed = false;
	int r = settle(s, err);

	if (r == 0)
		r = meta_schema_has(s->db, &has_digests, &is_compressed, err);
	if (r == 0)
		r = prepare(s, SQL_INFO, &st, err);
	if (r < 0)
		return r;
	r = sql_step(st, err);
	if (r == SQL_ROW) {
		info = (struct meta_info){
		    .version = (uint64_t)sql_integer(st, 0),
		    .n_chunks = (uint64_t)sql_integer(st, 2),
		    .n_paths = s->n_paths,
		    .has_digests = has_digests,
		    .is_compressed = is_compressed,
		};
		info.has_pending = column_blob(st, 1, &info.pending, sizeof(info.pending));
		info.has_newest = column_blob(st, 3, &info.newest, sizeof(info.newest));
		r = 0;
	} else if (r == SQL_DONE) {
		r = damaged(s, "no state", err);
	}
	sql_reset(st);
	if (r == 0 && !s->counts)
		r = meta_schema_count_paths(s->db, info.version, s->checks, &info.n_paths, err);
	if (r == 0)
		*ret = info;
	return r;
}

static void sqlite_rollback(struct meta *m, bool forget_pending)
{
	struct meta_sqlite *s = sqlite_of(m);

	drop_rows(&s->rows);
	s->counts = false;
	/* A failure leaves the pending floor behind, which the next writer handles. */
	sql_rollback(s->db);
	if (s->begun && forget_pending)
		sql_execute(s->db, "UPDATE state SET pending = NULL", NULL);
	s->begun = s->changing = false;
}

static int set_pending(struct meta_sqlite *s, const struct chunk_id *floor, struct error *err)
{
	struct sql_statement *st = NULL;
	int r = prepare(s, SQL_SET_PENDING, &st, err);

	if (r < 0)
		return r;
	bind_id(st, 1, floor);
	return sql_run(st, err);
}

/* Stores the floor in a separate transaction, because it must be durable before the first chunk is written.
 */
static int sqlite_begin(struct meta *m, const struct chunk_id *floor, struct meta_info *ret,
			struct error *err)
{
	struct meta_sqlite *s = sqlite_of(m);
	struct meta_info info = {0};
	int r = sql_execute(s->db, "BEGIN IMMEDIATE", err);

	if (r < 0)
		return r;
	r = sqlite_info(m, &info, err);
	if (r == 0 && !info.has_pending)
		r = set_pending(s, floor, err);
	if (r == 0)
		r = sql_execute(s->db, "COMMIT", err);
	if (r < 0) {
		sql_rollback(s->db);
		return r;
	}
	s->begun = true;
	s->version = info.version;
	s->has_last = info.has_newest;
	s->last = info.newest;
	*ret = info;
	return 0;
}

/* Begins SQLite's transaction if it is not open. Call it before each change. */
static int start_change(struct meta_sqlite *s, struct error *err)
{
	struct meta_info now = {0};

	if (s->changing)
		return settle(s, err);
	int r = sql_execute(s->db, "BEGIN IMMEDIATE", err);

	if (r < 0)
		return r;
	s->changing = true;
	r = sqlite_info(&s->meta, &now, err);
	if (r == 0 && now.version != s->version)
		r = error_set(err, -EBUSY,
			      "%s was changed by another dieselctl meanwhile; run the same command again",
			      sql_path(s->db));
	if (r == 0 && s->adds_digests && !now.has_digests)
		r = meta_schema_add_digests(s->db, err);
	s->counts = r == 0;
	s->n_paths = now.n_paths;
	s->is_compressed = now.is_compressed;
	return r;
}

static int sqlite_clear(struct meta *m, struct error *err)
{
	struct meta_sqlite *s = sqlite_of(m);
	int r = start_change(s, err);

	if (r == 0)
		r = sql_execute(s->db, "DELETE FROM chunk; DELETE FROM path", err);
	if (r == 0) {
		s->has_last = false;
		s->counts = true;
		s->n_paths = 0;
	}
	return r;
}

static int sqlite_add_chunk(struct meta *m, const struct chunk_view *view, struct error *err)
{
	struct meta_sqlite *s = sqlite_of(m);
	char text[CHUNK_ID_TEXT];

	if (s->has_last && chunk_id_compare(&view->header->id, &s->last) <= 0)
		return error_set(err, -EINVAL,
				 "chunk %s is older than the newest one in %s: run `dieselctl rebuild`",
				 chunk_id_format(&view->header->id, text), sql_path(s->db));
	int r = s->changing ? 0 : start_change(s, err);

	if (r == 0 && (view->header->flags & CHUNK_FORM_FLAGS) && !s->is_compressed) {
		r = settle(s, err);
		if (r == 0)
			r = meta_schema_add_compressed(s->db, err);
		s->is_compressed = true;
	}
	if (r == 0)
		r = put_rows(s, view, err);
	if (r == 0) {
		s->has_last = true;
		s->last = view->header->id;
	}
	return r;
}

static int sqlite_remove_chunk(struct meta *m, const struct chunk_id *id, struct error *err)
{
	struct meta_sqlite *s = sqlite_of(m);
	struct sql_statement *st = NULL;
	int r = start_change(s, err);

	if (r == 0)
		r = prepare(s, SQL_REMOVE_CHUNK, &st, err);
	if (r < 0)
		return r;
	bind_id(st, 1, id);
	return sql_run(st, err);
}

static int sqlite_keep_digests(struct meta *m, struct error *err)
{
	struct meta_sqlite *s = sqlite_of(m);
	bool has = false, is_compressed;
	int r = settle(s, err);

	if (r == 0)
		r = meta_schema_has(s->db, &has, &is_compressed, err);
	s->adds_digests = true;
	return r < 0 || has || !s->changing ? r : meta_schema_add_digests(s->db, err);
}

static int sqlite_put_digest(struct meta *m, const struct chunk_id *id, const struct digest *sha256,
			     struct error *err)
{
	struct meta_sqlite *s = sqlite_of(m);
	struct sql_statement *st = NULL;
	int r = start_change(s, err);

	if (r == 0)
		r = prepare(s, SQL_PUT_DIGEST, &st, err);
	if (r < 0)
		return r;
	bind_id(st, 1, id);
	sql_bind_bytes(st, 2, sha256->bytes, sizeof(sha256->bytes));
	return sql_run(st, err);
}

static int add_change(struct meta_sqlite *s, const struct change *change, struct error *err)
{
	char text[CHANGE_MAX];
	size_t bytes = change_format(change, text);
	struct sql_statement *st = NULL;
	int r = meta_schema_add_log(s->db, err);

	if (r == 0)
		r = prepare(s, SQL_ADD_CHANGE, &st, err);
	if (r < 0)
		return r;
	sql_bind_integer(st, 1, (int64_t)change->version);
	sql_bind_name(st, 2, text, bytes);
	return sql_run(st, err);
}

static int sqlite_put_change(struct meta *m, const struct change *change, struct error *err)
{
	struct meta_sqlite *s = sqlite_of(m);
	int r = start_change(s, err);

	return r < 0 ? r : add_change(s, change, err);
}

static int sqlite_commit(struct meta *m, uint64_t version, const struct change *change, struct error *err)
{
	struct meta_sqlite *s = sqlite_of(m);
	struct sql_statement *st = NULL;
	int r = start_change(s, err);

	if (r == 0 && change)
		r = add_change(s, change, err);
	if (r == 0)
		r = prepare(s, SQL_COMMIT_STATE, &st, err);
	if (r == 0) {
		sql_bind_integer(st, 1, (int64_t)version);
		r = sql_run(st, err);
	}
	if (r == 0)
		r = sql_execute(s->db, "COMMIT", err);
	if (r < 0) {
		drop_rows(&s->rows);
		sql_rollback(s->db);
	}
	s->counts = s->begun = s->changing = false;
	return r;
}

static int read_path_row(const struct meta_sqlite *s, struct sql_statement *st, struct meta_path *ret,
			 struct error *err)
{
	if (!column_blob(st, 0, &ret->chunk, sizeof(ret->chunk)))
		return damaged(s, "path without chunk", err);
	ret->record_index = (uint32_t)sql_integer(st, 1);
	ret->record = (struct chunk_record){
	    .offset = (uint64_t)sql_integer(st, 2),
	    .bytes = (uint32_t)sql_integer(st, 3),
	    .stored_bytes = (uint32_t)sql_integer(st, 4),
	    .encoding = (uint16_t)sql_integer(st, 5),
	    .xxh3 = (uint64_t)sql_integer(st, 6),
	    .mtime_ns = (uint64_t)sql_integer(st, 7),
	    .mode = (uint32_t)sql_integer(st, 8),
	};
	ret->path = sql_bytes(st, 9, &ret->path_length);
	return ret->path ? 0 : damaged(s, "path without name", err);
}

static int sqlite_find(struct meta *m, const char *path, size_t path_length, struct meta_path *ret,
		       struct error *err)
{
	struct meta_sqlite *s = sqlite_of(m);
	struct meta_path found = {0};
	struct sql_statement *st = NULL;
	int r = settle(s, err);

	if (r == 0)
		r = prepare(s, SQL_FIND, &st, err);
	if (r < 0)
		return r;
	sql_bind_name(st, 1, path, path_length);
	r = sql_step(st, err);
	if (r == SQL_ROW)
		r = read_path_row(s, st, &found, err);
	else if (r == SQL_DONE)
		r = -ENOENT;
	sql_reset(st);
	if (r == 0) {
		found.path = path;
		*ret = found;
	}
	return r;
}

static int sqlite_each_chunk(struct meta *m, meta_chunk_callback *callback, void *context, struct error *err)
{
	struct meta_sqlite *s = sqlite_of(m);
	struct sql_statement *st = NULL;
	struct chunk_id last = {0};
	bool has_digests = false, is_compressed = false;
	int r = settle(s, err);

	if (r == 0)
		r = meta_schema_has(s->db, &has_digests, &is_compressed, err);
	if (r == 0)
		r = prepare(s, has_digests ? SQL_EACH_CHUNK_DIGEST : SQL_EACH_CHUNK, &st, err);
	if (r < 0)
		return r;
	while ((r = sql_step(st, err)) == SQL_ROW) {
		struct meta_chunk chunk = {
		    .file_bytes = (uint64_t)sql_integer(st, 1),
		    .created_ns = (uint64_t)sql_integer(st, 2),
		    .head_xxh3 = (uint64_t)sql_integer(st, 3),
		    .n_records = (uint32_t)sql_integer(st, 4),
		    .payload_offset = (uint32_t)sql_integer(st, 5),
		    .flags = (uint32_t)sql_integer(st, 6),
		    .has_sha256 = has_digests,
		};

		if (!column_blob(st, 0, &chunk.id, sizeof(chunk.id)))
			r = damaged(s, "chunk without id", err);
		else if (has_digests && !column_blob(st, 7, &chunk.sha256, sizeof(chunk.sha256)))
			r = damaged(s, "chunk without digest", err);
		else if (chunk_id_compare(&chunk.id, &last) <= 0)
			r = damaged(s, "chunks out of order", err);
		else
			r = callback(&chunk, context);
		last = chunk.id;
		if (r != 0)
			break;
	}
	sql_reset(st);
	return r;
}

static int sqlite_each_path(struct meta *m, meta_path_callback *callback, void *context, struct error *err)
{
	struct meta_sqlite *s = sqlite_of(m);
	struct sql_statement *st = NULL;
	int r = settle(s, err);

	if (r == 0)
		r = prepare(s, SQL_EACH_PATH, &st, err);
	if (r < 0)
		return r;
	while ((r = sql_step(st, err)) == SQL_ROW) {
		struct meta_path path;

		r = read_path_row(s, st, &path, err);
		if (r == 0)
			r = callback(&path, context);
		if (r != 0)
			break;
	}
	sql_reset(st);
	return r;
}

static int sqlite_each_change(struct meta *m, meta_change_callback *callback, void *context,
			      struct error *err)
{
	struct meta_sqlite *s = sqlite_of(m);
	struct sql_statement *st = NULL;
	uint64_t last = 0;
	bool has_log = false;
	int r = settle(s, err);

	if (r == 0)
		r = meta_schema_has_log(s->db, &has_log, err);
	if (r == 0 && has_log)
		r = prepare(s, SQL_EACH_CHANGE, &st, err);
	if (r < 0 || !has_log)
		return r;
	while ((r = sql_step(st, err)) == SQL_ROW) {
		struct change change;
		size_t bytes = 0;
		const char *text = sql_bytes(st, 0, &bytes);

		r = change_parse(text ? text : "", bytes, &change);
		if (r < 0 || change.version <= last) {
			r = damaged(s, "log", err);
			break;
		}
		last = change.version;
		r = callback(&change, context);
		if (r != 0)
			break;
	}
	sql_reset(st);
	return r;
}

static void sqlite_free(struct meta *m)
{
	struct meta_sqlite *s = sqlite_of(m);

	stop_rows(&s->rows);
	for (int i = 0; i < N_STATEMENTS; i++)
		sql_statement_free(s->statements[i]);
	sql_close(s->db);
	free(s);
}

static const struct meta_ops sqlite_ops = {
    .info = sqlite_info,
    .begin = sqlite_begin,
    .clear = sqlite_clear,
    .add_chunk = sqlite_add_chunk,
    .remove_chunk = sqlite_remove_chunk,
    .keep_digests = sqlite_keep_digests,
    .put_digest = sqlite_put_digest,
    .put_change = sqlite_put_change,
    .commit = sqlite_commit,
    .rollback = sqlite_rollback,
    .find = sqlite_find,
    .each_chunk = sqlite_each_chunk,
    .each_path = sqlite_each_path,
    .each_change = sqlite_each_change,
    .free = sqlite_free,
};

int meta_sqlite_open(int dir_fd, const char *dataset_path, enum meta_mode mode, struct meta **ret,
		     struct error *err)
{
	_cleanup_(freep) char *path = NULL;
	struct meta_sqlite *s = calloc(1, sizeof(*s));

	if (!s || asprintf(&path, "%s/" META_SQLITE_FILE, dataset_path) < 0) {
		path = NULL;
		free(s);
		return error_errno(err, -ENOMEM, "%s", dataset_path);
	}
	s->meta.ops = &sqlite_ops;
	s->rows.last = &s->rows.first;
	pthread_mutex_init(&s->rows.lock, NULL);
	pthread_cond_init(&s->rows.changed, NULL);
	s->checks = mode == META_CHECK;
	int r = meta_schema_open(dir_fd, path, mode, &s->db, err);

	if (r < 0) {
		sqlite_free(&s->meta);
		return r;
	}
	*ret = &s->meta;
	return 0;
}
