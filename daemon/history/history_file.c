/* SPDX-License-Identifier: Apache-2.0 */
/* Opening, writing and trimming. history.c reads. */
#include "history_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "history_layout.h"

#define BUSY_MS 2000

/* clang-format off */
#define SCHEMA \
	"BEGIN IMMEDIATE;" \
	"CREATE TABLE IF NOT EXISTS decisions(id INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, job INTEGER NOT " \
	"NULL," \
	" job_name TEXT NOT NULL, uid INTEGER NOT NULL, knob TEXT NOT NULL, rule TEXT NOT NULL, old_value " \
	"INTEGER NOT NULL," \
	" new_value INTEGER NOT NULL, applied INTEGER NOT NULL, rate_before REAL, rate_expected REAL," \
	" wait_before REAL, wait_expected REAL, reason TEXT NOT NULL, sample TEXT, decision INTEGER NOT NULL," \
	" outcome TEXT, outcome_ms INTEGER, rate_after REAL, wait_after REAL, outcome_text TEXT);" \
	"CREATE INDEX IF NOT EXISTS decisions_number ON decisions(decision);" \
	"CREATE TABLE IF NOT EXISTS samples(id INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, job INTEGER NOT NULL," \
	" seconds REAL, rate REAL, wait REAL, fetch_stall REAL, prep_stall REAL, device REAL, cache_bytes " \
	"INTEGER," \
	" prefetch INTEGER, workers INTEGER, client_workers INTEGER);" \
	"CREATE TABLE IF NOT EXISTS configs(id INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, layout INTEGER NOT " \
	"NULL," \
	" data BLOB NOT NULL);" \
	"CREATE TABLE IF NOT EXISTS rounds(id INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, layout INTEGER NOT " \
	"NULL," \
	" config INTEGER NOT NULL, data BLOB NOT NULL);" \
	"CREATE TABLE IF NOT EXISTS state(key TEXT PRIMARY KEY, value BLOB NOT NULL);" \
	"PRAGMA application_id = 1145849905;" \
	"PRAGMA user_version = 1;" \
	"COMMIT;"
/* clang-format on */
#define ADD_COLUMN "ALTER TABLE samples ADD COLUMN form_bytes INTEGER"
static const char *const scripts[] = {SCHEMA, SCHEMA ADD_COLUMN, NULL};
_Static_assert(HISTORY_APPLICATION == 1145849905 && HISTORY_VERSION == 1, "the schema's text holds both");

static const char *const statements[HISTORY_N_STATEMENTS] = {
    [HISTORY_PUT_ENTRY] =
	"INSERT INTO decisions(at_ms, job, job_name, knob, rule, old_value, new_value, applied, rate_before,"
	" rate_expected, wait_before, wait_expected, reason, sample, decision, uid)"
	" VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
    [HISTORY_PUT_VERDICT] =
	"UPDATE decisions SET outcome = ?, outcome_ms = ?, rate_after = ?, wait_after = ?,"
	" outcome_text = ? WHERE id = (SELECT max(id) FROM decisions WHERE decision = ?)",
    [HISTORY_PUT_POINT] =
	"INSERT INTO samples(at_ms, job, seconds, rate, wait, fetch_stall, prep_stall, device,"
	" cache_bytes, prefetch, workers, client_workers, form_bytes) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?)",
    [HISTORY_PUT_CONFIG] = "INSERT INTO configs(at_ms, layout, data) VALUES(?,?,?)",
    [HISTORY_PUT_ROUND] = "INSERT INTO rounds(at_ms, layout, config, data) VALUES(?,?,?,?)",
    [HISTORY_PUT_STATE] = "INSERT OR REPLACE INTO state(key, value) VALUES(?,?)",
};

/* Checks whose file it is. 0: ours, or an empty one that will be; -EPROTONOSUPPORT: another version's;
 * -EEXIST: another program's. */
static int check_identity(struct history_file *f, struct error *err)
{
	int64_t application = 0, version = 0, tables = 0;
	int r = sql_number(f->sql, "SELECT count(1) FROM sqlite_master", &tables, err);

	if (r == 0)
		r = sql_number(f->sql, "PRAGMA application_id", &application, err);
	if (r == 0)
		r = sql_number(f->sql, "PRAGMA user_version", &version, err);
	if (r < 0)
		return r;
	if (tables == 0 && application == 0 && f->max_bytes)
		return 0;
	if (application != HISTORY_APPLICATION)
		return error_set(err, -EEXIST, "%s is not a history of dieseld: name another file", f->path);
	if (version != HISTORY_VERSION)
		return error_set(
		    err, -EPROTONOSUPPORT,
		    "%s was written by another version of dieseld (format %lld, this one knows %d): "
		    "name another file",
		    f->path, (long long)version, HISTORY_VERSION);
	return 0;
}

/* SQLite looks at its first page alone when it opens a file. -EBADMSG: another one is damaged. */
static int check_pages(struct history_file *f, struct error *err)
{
	int64_t n_wrong = 0;
	int r = sql_number(f->sql, "SELECT count(*) FROM pragma_quick_check(1) WHERE quick_check <> 'ok'",
			   &n_wrong, err);

	return r < 0 || !n_wrong ? r : error_set(err, -EBADMSG, "%s is damaged", f->path);
}

/* A file from before there were forms lacks their column. */
static int add_column(struct history_file *f, struct error *err)
{
	int64_t there = 0;
	int r =
	    sql_number(f->sql, "SELECT count(*) FROM pragma_table_info('samples') WHERE name = 'form_bytes'",
		       &there, err);

	return r < 0 || there ? r : sql_execute(f->sql, ADD_COLUMN, err);
}

static int prepare_writing(struct history_file *f, struct error *err)
{
	char limit[64];
	int64_t page_bytes = 0;
	int r = sql_execute(f->sql,
			    "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
			    "PRAGMA journal_size_limit = 1048576; PRAGMA wal_autocheckpoint = 128;"
			    "PRAGMA cache_size = -1024;",
			    err);

	if (r == 0)
		r = sql_execute(f->sql, SCHEMA, err);
	if (r == 0)
		r = add_column(f, err);
	if (r == 0)
		r = sql_number(f->sql, "PRAGMA page_size", &page_bytes, err);
	if (r < 0)
		return r;
	if (page_bytes <= 0)
		return error_set(err, -EIO, "sqlite reports no page size");
	f->page_bytes = (uint64_t)page_bytes;
	snprintf(limit, sizeof(limit), "PRAGMA max_page_count = %llu",
		 (unsigned long long)(f->max_bytes / f->page_bytes));
	r = sql_execute(f->sql, limit, err);
	for (int i = 0; i < HISTORY_N_STATEMENTS && r == 0; i++)
		r = sql_prepare(f->sql, statements[i], &f->st[i], err);
	return r;
}

int history_file_open(const char *path, uint64_t max_bytes, struct history_file **ret, struct error *err)
{
	struct history_file *f = calloc(1, sizeof(*f));
	int r;

	if (!f || !(f->path = strdup(path))) {
		free(f);
		return error_errno(err, -ENOMEM, "%s", path);
	}
	f->max_bytes = max_bytes;
	r = sql_open(path,
		     &(struct sql_options){.mode = max_bytes ? SQL_CREATE : SQL_READ,
					   .busy_ms = BUSY_MS,
					   .shares_log = max_bytes > 0},
		     &f->sql, err);
	if (r == 0)
		r = check_identity(f, err);
	if (r == 0 && max_bytes)
		r = check_pages(f, err);
	if (r == 0 && !max_bytes)
		r = sql_check_tables(f->sql, scripts, err);
	if (r == 0)
		r = max_bytes ? prepare_writing(f, err) : 0;
	if (r < 0) {
		history_file_close(f);
		return r;
	}
	*ret = f;
	return 0;
}

void history_file_close(struct history_file *f)
{
	if (!f)
		return;
	for (int i = 0; i < HISTORY_N_STATEMENTS; i++)
		sql_statement_free(f->st[i]);
	sql_close(f->sql);
	free(f->path);
	free(f);
}

int history_file_begin(struct history_file *f, struct error *err)
{
	return sql_execute(f->sql, "BEGIN IMMEDIATE", err);
}

int history_file_commit(struct history_file *f, struct error *err)
{
	return sql_execute(f->sql, "COMMIT", err);
}

void history_file_rollback(struct history_file *f)
{
	sql_rollback(f->sql);
	f->config_id = 0; /* its row may have been rolled back */
}

int history_file_put_entry(struct history_file *f, const struct history_entry *e, struct error *err)
{
	struct sql_statement *st = f->st[HISTORY_PUT_ENTRY];
	const struct tuner_decision *d = &e->decision;

	sql_bind_integer(st, 1, e->at_ms);
	sql_bind_integer(st, 2, d->job);
	sql_bind_text(st, 3, e->job_name);
	sql_bind_text(st, 4, tuner_knob_name(d->knob));
	sql_bind_text(st, 5, tuner_rule_name(d->rule));
	sql_bind_integer(st, 6, d->old_value);
	sql_bind_integer(st, 7, d->new_value);
	sql_bind_integer(st, 8, e->applied);
	sql_bind_real(st, 9, d->rate_before);
	sql_bind_real(st, 10, d->rate_expected);
	sql_bind_real(st, 11, d->wait_before);
	sql_bind_real(st, 12, d->wait_expected);
	sql_bind_text(st, 13, d->reason);
	sql_bind_text(st, 14, e->sample);
	sql_bind_integer(st, 15, d->id);
	sql_bind_integer(st, 16, e->uid);
	return sql_run(st, err);
}

int history_file_put_verdict(struct history_file *f, uint64_t at_ms, const struct tuner_verdict *v,
			     struct error *err)
{
	struct sql_statement *st = f->st[HISTORY_PUT_VERDICT];

	sql_bind_text(st, 1, tuner_outcome_name(v->outcome));
	sql_bind_integer(st, 2, at_ms);
	sql_bind_real(st, 3, v->rate_after);
	sql_bind_real(st, 4, v->wait_after);
	sql_bind_text(st, 5, v->text);
	sql_bind_integer(st, 6, v->decision);
	return sql_run(st, err);
}

int history_file_put_point(struct history_file *f, const struct history_point *p, struct error *err)
{
	struct sql_statement *st = f->st[HISTORY_PUT_POINT];
	const double figures[] = {p->seconds, p->rate, p->wait, p->fetch_stall, p->prep_stall, p->device};

	sql_bind_integer(st, 1, p->at_ms);
	sql_bind_integer(st, 2, p->job);
	for (int i = 0; i < 6; i++)
		sql_bind_real(st, 3 + i, figures[i]);
	for (int i = 0; i < TUNER_N_KNOBS; i++)
		sql_bind_integer(st, 9 + i, p->knobs.value[i]);
	return sql_run(st, err);
}

static int put_config(struct history_file *f, uint64_t at_ms, const struct tuner_config *config,
		      struct error *err)
{
	struct sql_statement *st = f->st[HISTORY_PUT_CONFIG];
	int r;

	/* A difference in padding costs a row and nothing else.
	 * NOLINTNEXTLINE(bugprone-suspicious-memory-comparison) */
	if (f->config_id && memcmp(&f->config, config, sizeof(*config)) == 0)
		return 0;
	sql_bind_integer(st, 1, at_ms);
	sql_bind_integer(st, 2, HISTORY_LAYOUT);
	sql_bind_bytes(st, 3, config, sizeof(*config));
	r = sql_run(st, err);
	if (r == 0) {
		f->config = *config;
		f->config_id = sql_last_id(f->sql);
	}
	return r;
}

int history_file_put_round(struct history_file *f, uint64_t at_ms, const struct tuner_config *config,
			   const void *data, size_t size, struct error *err)
{
	struct sql_statement *st = f->st[HISTORY_PUT_ROUND];
	int r = put_config(f, at_ms, config, err);

	if (r < 0)
		return r;
	sql_bind_integer(st, 1, at_ms);
	sql_bind_integer(st, 2, HISTORY_LAYOUT);
	sql_bind_integer(st, 3, f->config_id);
	sql_bind_bytes(st, 4, data, size);
	return sql_run(st, err);
}

int history_file_put_end(struct history_file *f, uint64_t at_ms, uint64_t job, struct error *err)
{
	struct sql_statement *st = f->st[HISTORY_PUT_ROUND];

	sql_bind_integer(st, 1, at_ms);
	sql_bind_integer(st, 2, HISTORY_END);
	sql_bind_integer(st, 3, 0);
	sql_bind_bytes(st, 4, &job, sizeof(job));
	return sql_run(st, err);
}

int history_file_put_state(struct history_file *f, const char *key, const void *data, size_t size,
			   struct error *err)
{
	struct sql_statement *st = f->st[HISTORY_PUT_STATE];

	sql_bind_text(st, 1, key);
	sql_bind_bytes(st, 2, data, size);
	return sql_run(st, err);
}

uint64_t history_file_bytes(const struct history_file *f)
{
	return f->bytes;
}

/* *ret_used: bytes in use. Free pages are used again, but never given back. */
static int measure(struct history_file *f, uint64_t *ret_used, struct error *err)
{
	int64_t pages = 0, unused = 0;
	int r = sql_number(f->sql, "PRAGMA page_count", &pages, err);

	if (r == 0)
		r = sql_number(f->sql, "PRAGMA freelist_count", &unused, err);
	if (r < 0)
		return r;
	f->bytes = (uint64_t)pages * f->page_bytes;
	*ret_used = (uint64_t)(pages - unused) * f->page_bytes;
	return 0;
}

static int delete_rows(struct history_file *f, const char *table, const char *which, uint64_t limit,
		       struct error *err)
{
	char text[160];

	snprintf(text, sizeof(text), which, table, table, (unsigned long long)limit);
	return sql_execute(f->sql, text, err);
}

int history_file_trim(struct history_file *f, uint64_t before_ms, struct error *err)
{
	static const char *const tables[] = {"rounds", "samples", "decisions"};
	static const char older[] =
	    "DELETE FROM %s WHERE id IN (SELECT id FROM %s WHERE at_ms < %llu LIMIT 512)";
	static const char oldest[] = "DELETE FROM %s WHERE id IN (SELECT id FROM %s ORDER BY id LIMIT %llu)";
	uint64_t used = 0;
	int r = 0;

	for (size_t i = 0; i < 3 && r == 0; i++)
		r = delete_rows(f, tables[i], older, before_ms, err);
	if (r == 0)
		r = measure(f, &used, err);
	/* What replays read takes most of the room and is missed least. */
	for (size_t i = 0; i < 3 && r == 0 && used > f->max_bytes / 8 * 7; i++) {
		r = delete_rows(f, tables[i], oldest, 512, err);
		if (r == 0)
			r = measure(f, &used, err);
	}
	if (r == 0)
		r = sql_execute(f->sql,
				"DELETE FROM configs WHERE id <"
				" (SELECT ifnull(min(config), 0) FROM rounds WHERE config > 0)",
				err);
	return r;
}
