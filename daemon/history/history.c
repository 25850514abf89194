/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file, the queue in front of it, and the thread behind it: a disk that hangs must not hold up serving.
 *
 * Locks: one, for the queue and the status. Nobody holding it writes to the disk or takes another lock, so
 * the loop waits for it only for the time of copying a few fields.
 */
#include "history/history.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/file_safety.h"
#include "sqlite/db.h"

#define HISTORY_APPLICATION 0x444c4831 /* "DLH1" */

/* Rounds are stored as structs in their memory layout, so other struct sizes are another layout. */
#define HISTORY_LAYOUT                                                                                       \
	((uint64_t)sizeof(struct stall_sample) | (uint64_t)sizeof(struct stall_node) << 16 |                 \
	 (uint64_t)sizeof(struct tuner_config) << 32)

/* Stored instead of a layout, which is never this small. */
#define HISTORY_END 1

enum history_statement {
	HISTORY_PUT_ENTRY,
	HISTORY_PUT_VERDICT,
	HISTORY_PUT_POINT,
	HISTORY_PUT_CONFIG,
	HISTORY_PUT_ROUND,
	HISTORY_PUT_STATE,
	HISTORY_N_STATEMENTS,
};

struct history_file {
	struct sql *sql;
	struct sql_statement *st[HISTORY_N_STATEMENTS];
	char *path;
	uint64_t max_bytes, page_bytes, bytes;
	int64_t config_id; /* row with `config`; 0: this process has not written one yet */
	struct tuner_config config;
};

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
	" prefetch INTEGER, workers INTEGER, client_workers INTEGER, decoded_bytes INTEGER);" \
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
static const char *const scripts[] = {SCHEMA, NULL};
_Static_assert(HISTORY_APPLICATION == 1145849905 && HISTORY_VERSION == 1,
	       "the text of the schema contains both numbers");

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
	" cache_bytes, prefetch, workers, client_workers, decoded_bytes) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?)",
    [HISTORY_PUT_CONFIG] = "INSERT INTO configs(at_ms, layout, data) VALUES(?,?,?)",
    [HISTORY_PUT_ROUND] = "INSERT INTO rounds(at_ms, layout, config, data) VALUES(?,?,?,?)",
    [HISTORY_PUT_STATE] = "INSERT OR REPLACE INTO state(key, value) VALUES(?,?)",
};

/* Checks which program and version made the file. 0: ours, or empty; -EPROTONOSUPPORT: another version's;
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
		return error_set(err, -EPROTONOSUPPORT,
				 "%s was written by another version of dieseld (format %lld, this version "
				 "reads %d): name another file",
				 f->path, (long long)version, HISTORY_VERSION);
	return 0;
}

/* Checks the whole file: SQLite checks only the first page when it opens a file. -EBADMSG: another page is
 * damaged. */
static int check_pages(struct history_file *f, struct error *err)
{
	int64_t n_wrong = 0;
	int r = sql_number(f->sql, "SELECT count(*) FROM pragma_quick_check(1) WHERE quick_check <> 'ok'",
			   &n_wrong, err);

	return r < 0 || !n_wrong ? r : error_set(err, -EBADMSG, "%s is damaged", f->path);
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

static void history_file_close(struct history_file *f)
{
	if (!f)
		return;
	for (int i = 0; i < HISTORY_N_STATEMENTS; i++)
		sql_statement_free(f->st[i]);
	sql_close(f->sql);
	free(f->path);
	free(f);
}

/* max_bytes 0: opens for reading only. -EBADMSG: damaged, or not a database; -EEXIST: another program's
 * database. Other errors are those of history_open(). */
static int history_file_open(const char *path, uint64_t max_bytes, struct history_file **ret,
			     struct error *err)
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

/* Begins a batch of writes: all of them take effect, or none. */
static int history_file_begin(struct history_file *f, struct error *err)
{
	return sql_execute(f->sql, "BEGIN IMMEDIATE", err);
}

/* Ends a batch of writes, all of which take effect. */
static int history_file_commit(struct history_file *f, struct error *err)
{
	return sql_execute(f->sql, "COMMIT", err);
}

/* Ends a batch of writes, none of which take effect. */
static void history_file_rollback(struct history_file *f)
{
	sql_rollback(f->sql);
	f->config_id = 0; /* its row may have been rolled back */
}

static int history_file_put_entry(struct history_file *f, const struct history_entry *e, struct error *err)
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

static int history_file_put_verdict(struct history_file *f, uint64_t at_ms, const struct tuner_verdict *v,
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

static int history_file_put_point(struct history_file *f, const struct history_point *p, struct error *err)
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

/* Adds a round. Writes a row for config only if config differs from that of the last round. data: as
 * described in history.h. */
static int history_file_put_round(struct history_file *f, uint64_t at_ms, const struct tuner_config *config,
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

static int history_file_put_end(struct history_file *f, uint64_t at_ms, uint64_t job, struct error *err)
{
	struct sql_statement *st = f->st[HISTORY_PUT_ROUND];

	sql_bind_integer(st, 1, at_ms);
	sql_bind_integer(st, 2, HISTORY_END);
	sql_bind_integer(st, 3, 0);
	sql_bind_bytes(st, 4, &job, sizeof(job));
	return sql_run(st, err);
}

/* Stores the data under this key, as described in history.h. */
static int history_file_put_state(struct history_file *f, const char *key, const void *data, size_t size,
				  struct error *err)
{
	struct sql_statement *st = f->st[HISTORY_PUT_STATE];

	sql_bind_text(st, 1, key);
	sql_bind_bytes(st, 2, data, size);
	return sql_run(st, err);
}

static uint64_t history_file_bytes(const struct history_file *f)
{
	return f->bytes;
}

/* Finds the bytes in use. SQLite reuses free pages, but never returns them to the file system. */
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

/* Deletes records older than before_ms and, while the file exceeds its limit, the oldest ones. */
static int history_file_trim(struct history_file *f, uint64_t before_ms, struct error *err)
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
	/* Delete rounds first: they take most of the space, and only replays read them. */
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

enum record_kind { RECORD_ENTRY, RECORD_VERDICT, RECORD_POINT, RECORD_ROUND, RECORD_END, RECORD_STATE };

struct record {
	struct record *next;
	enum record_kind kind;
	uint64_t at_ms;
	union {
		struct history_entry entry;
		struct tuner_verdict verdict;
		struct history_point point;
		struct tuner_config config; /* configuration of a round */
		uint64_t job;               /* job whose end this records */
		char key[32];               /* key of a state */
	};
	size_t size;
	char data[]; /* entry: the text of its sample; round and state: their bytes */
};

struct history {
	struct history_options options;
	char *path;
	int lock_fd;
	struct history_file *file; /* belongs to the thread once that runs; NULL after damage */
	pthread_t thread;
	bool started;
	pthread_mutex_t mutex; /* protects the fields below */
	pthread_cond_t wake;   /* CLOCK_MONOTONIC */
	struct record *first, **last;
	uint32_t n_queued;
	bool urgent, closing, done;
	struct history_status status;
};

/* ---- functions for other threads ---- */

/* Maximum number of queued records: some minutes of a busy hour. If the queue is full, the disk hangs. */
#define QUEUE_MAX    2048
#define CLOSE_WAIT_S 3

static struct record *record_new(enum record_kind kind, uint64_t at_ms, size_t size)
{
	struct record *q = calloc(1, sizeof(*q) + size);

	if (q) {
		q->kind = kind;
		q->at_ms = at_ms;
		q->size = size;
	}
	return q;
}

/* Takes ownership of the record; NULL (no memory) counts as dropped. */
static void enqueue(struct history *h, struct record *q, bool urgent)
{
	pthread_mutex_lock(&h->mutex);
	if (!q || h->n_queued >= QUEUE_MAX) {
		h->status.n_dropped++;
		free(q);
	} else {
		*h->last = q;
		h->last = &q->next;
		h->n_queued++;
		h->urgent |= urgent;
		if (h->n_queued == 1 || urgent)
			pthread_cond_signal(&h->wake);
	}
	pthread_mutex_unlock(&h->mutex);
}

void history_add_entry(struct history *h, const struct history_entry *entry)
{
	size_t size = entry->sample ? strlen(entry->sample) + 1 : 0;
	struct record *q = record_new(RECORD_ENTRY, entry->at_ms, size);

	if (q) {
		q->entry = *entry;
		q->entry.sample = NULL;
		if (size)
			memcpy(q->data, entry->sample, size);
	}
	enqueue(h, q, true);
}

void history_add_verdict(struct history *h, uint64_t at_ms, const struct tuner_verdict *verdict)
{
	struct record *q = record_new(RECORD_VERDICT, at_ms, 0);

	if (q)
		q->verdict = *verdict;
	enqueue(h, q, true);
}

void history_add_point(struct history *h, const struct history_point *point)
{
	struct record *q = record_new(RECORD_POINT, point->at_ms, 0);

	if (q)
		q->point = *point;
	enqueue(h, q, false);
}

void history_add_round(struct history *h, const struct history_round *round)
{
	size_t head = sizeof(uint64_t) + sizeof(*round->node);
	struct record *q =
	    record_new(RECORD_ROUND, round->at_ms, head + round->n_samples * sizeof(*round->samples));

	if (q) {
		q->config = *round->config;
		memcpy(q->data, &round->now_ns, sizeof(uint64_t));
		memcpy(q->data + sizeof(uint64_t), round->node, sizeof(*round->node));
		memcpy(q->data + head, round->samples, round->n_samples * sizeof(*round->samples));
	}
	enqueue(h, q, false);
}

void history_add_end(struct history *h, uint64_t at_ms, uint64_t job)
{
	struct record *q = record_new(RECORD_END, at_ms, 0);

	if (q)
		q->job = job;
	enqueue(h, q, false);
}

void history_set_state(struct history *h, const char *key, const void *data, size_t size)
{
	struct record *q = record_new(RECORD_STATE, 0, size);

	if (q) {
		snprintf(q->key, sizeof(q->key), "%s", key);
		memcpy(q->data, data, size);
	}
	enqueue(h, q, true);
}

void history_status_get(struct history *h, struct history_status *ret)
{
	pthread_mutex_lock(&h->mutex);
	*ret = h->status;
	pthread_mutex_unlock(&h->mutex);
}

/* Returns false if the disk hangs: the thread and its memory then stay until the process ends. */
static bool end_thread(struct history *h)
{
	struct timespec until;
	bool done;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += CLOSE_WAIT_S;
	pthread_mutex_lock(&h->mutex);
	h->closing = true;
	pthread_cond_broadcast(&h->wake);
	while (!h->done)
		if (pthread_cond_timedwait(&h->wake, &h->mutex, &until) == ETIMEDOUT)
			break;
	done = h->done;
	pthread_mutex_unlock(&h->mutex);
	if (done)
		pthread_join(h->thread, NULL);
	else
		pthread_detach(h->thread);
	return done;
}

void history_close(struct history *h)
{
	if (!h || (h->started && !end_thread(h)))
		return;
	history_file_close(h->file);
	closep(&h->lock_fd);
	pthread_cond_destroy(&h->wake);
	pthread_mutex_destroy(&h->mutex);
	free(h->path);
	free(h);
}

/* ---- opening the file, and the thread ---- */

/* The functions below read the file, of which nothing is trusted: it may have been edited or damaged. */

/* Reads the data that history_file_put_state() wrote. *ret_data: the caller frees it. */
static int history_file_get_state(struct history_file *f, const char *key, void **ret_data, size_t *ret_size,
				  struct error *err)
{
	struct sql_statement *st;
	const void *data;
	void *copy;
	size_t size;
	int r = sql_prepare(f->sql, "SELECT value FROM state WHERE key = ?", &st, err);

	if (r < 0)
		return r;
	sql_bind_text(st, 1, key);
	r = sql_step(st, err);
	if (r == 1) {
		data = sql_bytes(st, 0, &size);
		copy = malloc(size + 1);
		if (copy) {
			memcpy(copy, data ? data : "", size);
			((char *)copy)[size] = '\0'; /* terminated, for callers that store text */
			*ret_data = copy;
			*ret_size = size;
		}
		r = copy ? 0 : error_errno(err, -ENOMEM, "%s", f->path);
	} else if (r == 0) {
		r = -ENOENT;
	}
	sql_statement_free(st);
	return r;
}

static int find_name(const char *text, int n, const char *(*name)(int))
{
	for (int i = 0; i < n; i++)
		if (strcmp(text, name(i)) == 0)
			return i;
	return -1;
}

static const char *rule_name(int i)
{
	return tuner_rule_name((enum tuner_rule)i);
}

static const char *outcome_name(int i)
{
	return tuner_outcome_name((enum tuner_outcome)i);
}

static void copy_text(char *to, size_t size, const char *from)
{
	snprintf(to, size, "%s", from);
}

/* Returns false for a row with names that this program does not know. */
static bool read_entry(struct sql_statement *st, struct history_entry *e)
{
	struct tuner_decision *d = &e->decision;
	struct tuner_verdict *v = &e->verdict;
	int rule = find_name(sql_text(st, 4), TUNER_RULE_IDLE + 1, rule_name), outcome;
	enum tuner_knob knob;

	*e = (struct history_entry){.at_ms = sql_integer(st, 0),
				    .applied = sql_integer(st, 7) != 0,
				    .uid = (uint32_t)sql_integer(st, 20)};
	if (rule < 0 || tuner_knob_parse(sql_text(st, 3), &knob) < 0)
		return false;
	copy_text(e->job_name, sizeof(e->job_name), sql_text(st, 2));
	*d = (struct tuner_decision){.id = sql_integer(st, 14),
				     .job = sql_integer(st, 1),
				     .knob = knob,
				     .rule = (enum tuner_rule)rule,
				     .old_value = sql_integer(st, 5),
				     .new_value = sql_integer(st, 6),
				     .rate_before = sql_real(st, 8),
				     .rate_expected = sql_real(st, 9),
				     .wait_before = sql_real(st, 10),
				     .wait_expected = sql_real(st, 11)};
	copy_text(d->reason, sizeof(d->reason), sql_text(st, 12));
	if (!sql_is_null(st, 13))
		e->sample = strdup(sql_text(st, 13));
	outcome = sql_is_null(st, 15) ? -1 : find_name(sql_text(st, 15), TUNER_NOT_APPLIED + 1, outcome_name);
	if (outcome < 0)
		return true;
	e->has_verdict = true;
	e->verdict_ms = sql_integer(st, 16);
	*v = (struct tuner_verdict){.decision = d->id,
				    .job = d->job,
				    .knob = d->knob,
				    .outcome = (enum tuner_outcome)outcome,
				    .rate_before = d->rate_before,
				    .wait_before = d->wait_before,
				    .rate_after = sql_real(st, 17),
				    .wait_after = sql_real(st, 18)};
	copy_text(v->text, sizeof(v->text), sql_text(st, 19));
	return true;
}

static int history_file_each_entry(struct history_file *f, uint32_t max,
				   void (*visit)(void *user, struct history_entry *entry), void *user,
				   struct error *err)
{
	static const char query[] =
	    "SELECT * FROM (SELECT at_ms, job, job_name, knob, rule, old_value, new_value, applied, "
	    "rate_before,"
	    " rate_expected, wait_before, wait_expected, reason, sample, decision, outcome, outcome_ms,"
	    " rate_after, wait_after, outcome_text, uid, id FROM decisions ORDER BY id DESC LIMIT ?) ORDER "
	    "BY id";
	struct sql_statement *st;
	struct history_entry entry;
	int r = sql_prepare(f->sql, query, &st, err);

	if (r < 0)
		return r;
	sql_bind_integer(st, 1, max);
	while ((r = sql_step(st, err)) == SQL_ROW)
		if (read_entry(st, &entry))
			visit(user, &entry);
	sql_statement_free(st);
	return r;
}

struct round_reader {
	struct tuner_config config;
	struct stall_node node;
	struct stall_sample samples[TUNER_MAX_JOBS];
	struct history_round round;
	uint64_t ended;
};

static bool read_end(struct sql_statement *st, struct round_reader *reader)
{
	size_t size;
	const void *data = sql_bytes(st, 3, &size);

	if (size != sizeof(reader->ended))
		return false;
	memcpy(&reader->ended, data, size);
	reader->round = (struct history_round){.at_ms = sql_integer(st, 0), .ended = &reader->ended};
	return true;
}

/* Returns false if the row is not a round of this layout. */
static bool read_round(struct sql_statement *st, struct round_reader *reader)
{
	size_t config_size, size, head = sizeof(uint64_t) + sizeof(struct stall_node);
	const void *config = sql_bytes(st, 2, &config_size);
	const char *data = sql_bytes(st, 3, &size);
	struct history_round *round = &reader->round;

	if (sql_integer(st, 1) == HISTORY_END)
		return read_end(st, reader);
	if (!config || sql_integer(st, 1) != HISTORY_LAYOUT || config_size != sizeof(reader->config) ||
	    size < head || (size - head) % sizeof(struct stall_sample) != 0 ||
	    (size - head) / sizeof(struct stall_sample) > TUNER_MAX_JOBS)
		return false;
	*round = (struct history_round){.at_ms = sql_integer(st, 0),
					.config = &reader->config,
					.node = &reader->node,
					.samples = reader->samples,
					.n_samples = (size - head) / sizeof(struct stall_sample)};
	memcpy(&reader->config, config, config_size);
	memcpy(&round->now_ns, data, sizeof(uint64_t));
	memcpy(&reader->node, data + sizeof(uint64_t), sizeof(reader->node));
	memcpy(reader->samples, data + head, size - head);
	return reader->config.n_pins <= TUNER_MAX_PINS;
}

static int history_file_each_round(struct history_file *f,
				   int (*visit)(void *user, const struct history_round *round), void *user,
				   uint64_t *ret_n_foreign, struct error *err)
{
	static const char query[] =
	    "SELECT rounds.at_ms, rounds.layout, configs.data, rounds.data FROM rounds"
	    " LEFT JOIN configs ON configs.id = rounds.config ORDER BY rounds.id";
	struct round_reader *reader = malloc(sizeof(*reader));
	struct sql_statement *st;
	uint64_t n_foreign = 0;
	int r;

	if (!reader)
		return error_errno(err, -ENOMEM, "%s", f->path);
	r = sql_prepare(f->sql, query, &st, err);
	if (r < 0) {
		free(reader);
		return r;
	}
	while ((r = sql_step(st, err)) == SQL_ROW) {
		if (!read_round(st, reader)) {
			n_foreign++;
			continue;
		}
		r = visit(user, &reader->round);
		if (r != 0)
			break;
	}
	sql_statement_free(st);
	free(reader);
	if (r == 0)
		*ret_n_foreign = n_foreign;
	return r;
}

/* Seconds between writes of queued records. A decision is written at once, with all others. */
#define GULP_S 5
/* Pause after a failure, before records are written again. */
#define RETRY_NS   (10 * NS_PER_S)
#define TRIM_EVERY 64 /* gulps */

/* Checks that others cannot change the folder: SQLite, which follows links, and we use other names in it. */
static int check_folder(const char *path, struct error *err)
{
	char real[PATH_MAX], at[PATH_MAX];
	struct stat st;
	int r = file_safety_around(path, real, at, &st);

	if (r < 0)
		return error_errno(err, r, "cannot open %s", path);
	if (r == FILE_SAFE && lstat(path, &st) == 0 && file_safety(&st) != FILE_SAFE) {
		snprintf(at, sizeof(at), "%s", path);
		r = FILE_OF_OTHERS;
	}
	return r == FILE_SAFE ? 0
			      : error_set(err, -EPERM,
					  "the history %s is not used: others can change %s. Restrict it "
					  "(chown, chmod go-w), or name another file",
					  path, at);
}

static int lock_history(struct history *h, struct error *err)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s.lock", h->path);
	h->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (h->lock_fd < 0)
		return error_errno(err, -errno, "cannot make %s", path);
	if (flock(h->lock_fd, LOCK_EX | LOCK_NB) < 0)
		return error_set(err, -EBUSY,
				 "another dieseld keeps its history in %s: name another --history", h->path);
	return 0;
}

/* Returns true if the file was once a history. Only then may it be renamed: a wrong --history must not
 * destroy a file. The magic is SQLite's, the application's number is at byte 68, big endian. */
static bool was_history(const char *path)
{
	static const char magic[16] = "SQLite format 3";
	static const unsigned char application[4] = {'D', 'L', 'H', '1'};
	char head[72] = "";
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	bool is;

	if (fd < 0)
		return false;
	is = pread(fd, head, sizeof(head), 0) == (ssize_t)sizeof(head) &&
	     memcmp(head, magic, sizeof(magic)) == 0 &&
	     memcmp(head + 68, application, sizeof(application)) == 0;
	close(fd);
	return is;
}

/* Sets a damaged history aside, and removes the files that SQLite keeps next to it: SQLite would apply its
 * journal to the new file. */
static int set_aside(const char *path, char notice[256], struct error *err)
{
	static const char *const suffixes[] = {"-wal", "-shm"};
	char damaged[4096], name[4096];

	if (!was_history(path))
		return error_set(err, -EEXIST, "%s is not a history of dieseld: name another file", path);
	snprintf(damaged, sizeof(damaged), "%s.damaged", path);
	if (access(damaged, F_OK) == 0)
		return error_set(err, -EBADMSG,
				 "the history %s is damaged, and so is an earlier one (%s): examine both, "
				 "then remove them",
				 path, damaged);
	if (rename(path, damaged) < 0)
		return error_errno(err, -errno, "the history %s is damaged and cannot be renamed", path);
	for (size_t i = 0; i < 2; i++) {
		snprintf(name, sizeof(name), "%s%s", path, suffixes[i]);
		(void)unlink(name);
	}
	snprintf(notice, 256,
		 "the history %s is damaged: dieseld renamed it to %s.damaged and starts a new one without "
		 "earlier settings",
		 path, path);
	return 0;
}

static struct history *new_history(const struct history_options *options)
{
	struct history *h = calloc(1, sizeof(*h));
	pthread_condattr_t attributes;

	if (!h || !(h->path = strdup(options->path))) {
		free(h);
		return NULL;
	}
	h->options = *options;
	h->options.path = h->path;
	h->lock_fd = -EBADF;
	h->last = &h->first;
	pthread_mutex_init(&h->mutex, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&h->wake, &attributes);
	pthread_condattr_destroy(&attributes);
	return h;
}

int history_open(const struct history_options *options, struct history **ret, char notice[256],
		 struct error *err)
{
	struct history *h = new_history(options);
	int r;

	notice[0] = '\0';
	if (!h)
		return error_errno(err, -ENOMEM, "%s", options->path);
	r = check_folder(h->path, err);
	if (r == 0)
		r = lock_history(h, err);
	if (r == 0)
		r = history_file_open(h->path, options->max_bytes, &h->file, err);
	if (r == -EBADMSG) {
		r = set_aside(h->path, notice, err);
		if (r == 0)
			r = history_file_open(h->path, options->max_bytes, &h->file, err);
	}
	if (r < 0) {
		history_close(h);
		return r;
	}
	*ret = h;
	return 0;
}

int history_open_read(const char *path, struct history **ret, struct error *err)
{
	const struct history_options options = {.path = path};
	struct history *h = new_history(&options);
	int r;

	if (!h)
		return error_errno(err, -ENOMEM, "%s", path);
	r = history_file_open(path, 0, &h->file, err);
	if (r < 0) {
		history_close(h);
		return r;
	}
	*ret = h;
	return 0;
}

int history_load_state(struct history *h, const char *key, void **ret_data, size_t *ret_size,
		       struct error *err)
{
	return history_file_get_state(h->file, key, ret_data, ret_size, err);
}

int history_load_entries(struct history *h, uint32_t max,
			 void (*visit)(void *user, struct history_entry *entry), void *user,
			 struct error *err)
{
	return history_file_each_entry(h->file, max, visit, user, err);
}

int history_load_rounds(struct history *h, int (*visit)(void *user, const struct history_round *round),
			void *user, uint64_t *ret_n_foreign, struct error *err)
{
	return history_file_each_round(h->file, visit, user, ret_n_foreign, err);
}

static int write_record(struct history_file *f, struct record *q, struct error *err)
{
	switch (q->kind) {
	case RECORD_ENTRY:
		q->entry.sample = q->size ? q->data : NULL;
		return history_file_put_entry(f, &q->entry, err);
	case RECORD_VERDICT: return history_file_put_verdict(f, q->at_ms, &q->verdict, err);
	case RECORD_POINT: return history_file_put_point(f, &q->point, err);
	case RECORD_ROUND: return history_file_put_round(f, q->at_ms, &q->config, q->data, q->size, err);
	case RECORD_END: return history_file_put_end(f, q->at_ms, q->job, err);
	case RECORD_STATE: return history_file_put_state(f, q->key, q->data, q->size, err);
	}
	return -EINVAL;
}

static int write_gulp(struct history *h, struct record *first, bool trim, struct error *err)
{
	uint64_t now_ms = clock_realtime_ns() / NS_PER_MS, age_ms = h->options.max_age_s * 1000;
	int r = history_file_begin(h->file, err);

	for (struct record *q = first; q && r == 0; q = q->next)
		r = write_record(h->file, q, err);
	if (r == 0 && trim)
		r = history_file_trim(h->file, now_ms > age_ms ? now_ms - age_ms : 0, err);
	if (r == 0)
		r = history_file_commit(h->file, err);
	if (r < 0)
		history_file_rollback(h->file);
	return r;
}

/* Frees space in a full file, so that a write that failed for lack of space may succeed. */
static int make_space(struct history *h, struct error *err)
{
	int r = history_file_begin(h->file, err);

	if (r == 0)
		r = history_file_trim(h->file, 0, err);
	if (r == 0)
		r = history_file_commit(h->file, err);
	if (r < 0)
		history_file_rollback(h->file);
	return r;
}

static int reopen(struct history *h, struct error *err)
{
	char notice[256];
	int r = history_file_open(h->path, h->options.max_bytes, &h->file, err);

	if (r != -EBADMSG)
		return r;
	r = set_aside(h->path, notice, err);
	if (r < 0)
		return r;
	pthread_mutex_lock(&h->mutex);
	memcpy(h->status.aside, notice, sizeof(notice));
	pthread_mutex_unlock(&h->mutex);
	return history_file_open(h->path, h->options.max_bytes, &h->file, err);
}

struct history_writer {
	uint64_t retry_ns, n_gulps;
};

/* Writes the records, and frees them even if writing failed. */
static void handle_gulp(struct history *h, struct history_writer *w, struct record *first, uint32_t n)
{
	struct error err = ERROR_INIT;
	uint64_t now = clock_monotonic_ns();
	int r = 0;

	if (now < w->retry_ns) {
		r = -EAGAIN;
	} else {
		if (!h->file)
			r = reopen(h, &err);
		if (r == 0)
			r = write_gulp(h, first, w->n_gulps++ % TRIM_EVERY == 0, &err);
		if (r == -ENOSPC && make_space(h, &(struct error){.code = 0}) == 0)
			r = write_gulp(h, first, false, &err);
		if (r == -EBADMSG) {
			history_file_close(h->file);
			h->file = NULL;
		}
		if (r < 0)
			w->retry_ns = now + RETRY_NS;
	}
	pthread_mutex_lock(&h->mutex);
	if (r == 0) {
		h->status.n_written += n;
		h->status.error[0] = '\0';
		h->status.bytes = history_file_bytes(h->file);
	} else {
		h->status.n_dropped += n;
		if (err.text[0])
			snprintf(h->status.error, sizeof(h->status.error), "%s", err.text);
	}
	pthread_mutex_unlock(&h->mutex);
	while (first) {
		struct record *next = first->next;

		free(first);
		first = next;
	}
}

static void wait_for_records(struct history *h)
{
	struct timespec until;

	while (!h->first && !h->closing)
		pthread_cond_wait(&h->wake, &h->mutex);
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += GULP_S;
	while (!h->urgent && !h->closing)
		if (pthread_cond_timedwait(&h->wake, &h->mutex, &until) == ETIMEDOUT)
			return;
}

static void *writer_main(void *user)
{
	struct history *h = user;
	struct history_writer w = {0};
	bool done = false;

	while (!done) {
		struct record *first;
		uint32_t n;

		pthread_mutex_lock(&h->mutex);
		wait_for_records(h);
		first = h->first;
		n = h->n_queued;
		h->first = NULL;
		h->last = &h->first;
		h->n_queued = 0;
		h->urgent = false;
		done = h->closing;
		pthread_mutex_unlock(&h->mutex);
		if (first)
			handle_gulp(h, &w, first, n);
	}
	history_file_close(h->file);
	h->file = NULL;
	pthread_mutex_lock(&h->mutex);
	h->done = true;
	pthread_cond_broadcast(&h->wake);
	pthread_mutex_unlock(&h->mutex);
	return NULL;
}

int history_start(struct history *h, struct error *err)
{
	int code = pthread_create(&h->thread, NULL, writer_main, h);

	if (code)
		return error_errno(err, -code, "cannot start the thread that writes %s", h->path);
	h->started = true;
	return 0;
}
