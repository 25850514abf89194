/* SPDX-License-Identifier: Apache-2.0 */
#include "analyzer/recording.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "lib/array.h"
#include "lib/cleanup.h"
#include "lib/error.h"
#include "lib/file_open.h"
#include "recording_codec.h"
#include "sqlite/db.h"

/* Events that wait to become one block. */
struct recording_buffer {
	size_t n;
	struct event events[RECORDING_BLOB_EVENTS];
};

struct recording {
	struct sql *db;
	int dir_fd;                                     /* when writing: the recording's folder */
	struct sql_statement *insert, *insert_metadata; /* prepared on first use */
	struct recording_codec *codec;
	char *path;
	int lock_fd;    /* when writing: the file, locked until it is closed */
	bool under_way; /* when reading: another process is writing the file */
	bool complete;  /* when reading: the file's flag; false after damage was found */
	bool writing;   /* a transaction is open, until the next flush */
	uint64_t slice; /* the slice to which new detail belongs */
	uint64_t written_bytes, detail_bytes; /* so far; written_bytes includes detail_bytes */
	struct recording_buffer life, detail;
};

/* Records that a part could not be read: recording_complete() is false from now on. */
static void set_damaged(struct recording *recording)
{
	recording->complete = false;
}

/* The recording's events: buffered, packed into blocks, read back. */

struct recording_blob {
	int64_t id;
	uint64_t min_end_ns;
};

static int compare_end(const void *a, const void *b)
{
	const struct event *left = a, *right = b;

	if (left->end_ns != right->end_ns)
		return left->end_ns < right->end_ns ? -1 : 1;
	return (left->start_ns > right->start_ns) - (left->start_ns < right->start_ns);
}

static int insert_prepare(struct recording *recording, struct error *err)
{
	static const char sql[] =
	    "INSERT INTO events(slice, min_end_ns, max_end_ns, n, records) VALUES(?, ?, ?, ?, ?)";

	return recording->insert ? 0 : sql_prepare(recording->db, sql, &recording->insert, err);
}

/* Writes a buffer's events as one block. */
static int buffer_flush(struct recording *recording, struct recording_buffer *buffer, uint64_t slice,
			size_t *ret_bytes, struct error *err)
{
	size_t n = buffer->n, size = 0;
	const void *block = NULL;
	int r;

	if (!n) {
		*ret_bytes = 0;
		return 0;
	}
	qsort(buffer->events, n, sizeof(*buffer->events), compare_end);
	r = recording_codec_encode(recording->codec, buffer->events, n, &block, &size);
	buffer->n = 0;
	if (r < 0)
		return error_errno(err, r, "cannot pack %zu events", n);
	r = insert_prepare(recording, err);
	if (r < 0)
		return r;
	sql_bind_integer(recording->insert, 1, (int64_t)slice);
	sql_bind_integer(recording->insert, 2, (int64_t)buffer->events[0].end_ns);
	sql_bind_integer(recording->insert, 3, (int64_t)buffer->events[n - 1].end_ns);
	sql_bind_integer(recording->insert, 4, (int64_t)n);
	sql_bind_bytes(recording->insert, 5, block, size);
	r = sql_run(recording->insert, err);
	if (r == 0)
		*ret_bytes = size;
	return r;
}

/* Opens a transaction unless one is open; call it before a write. All writes until the next recording_flush()
 * are one transaction. */
static int write_begin(struct recording *recording, struct error *err)
{
	int r = recording->writing ? 0 : sql_execute(recording->db, "BEGIN;", err);

	if (r == 0)
		recording->writing = true;
	return r;
}

int recording_flush(struct recording *recording, struct error *err)
{
	size_t life_bytes = 0, detail_bytes = 0;
	int r = 0, commit;

	if (recording->life.n || recording->detail.n)
		r = write_begin(recording, err);
	if (r == 0)
		r = buffer_flush(recording, &recording->life, 0, &life_bytes, err);
	if (r == 0)
		r = buffer_flush(recording, &recording->detail, recording->slice, &detail_bytes, err);
	recording->detail_bytes += detail_bytes;
	recording->written_bytes += life_bytes + detail_bytes;
	if (!recording->writing)
		return r;
	recording->writing = false;
	/* If the disk is full, keeps the blocks that fit instead of rolling back. */
	commit = sql_execute(recording->db, "COMMIT;", r < 0 ? NULL : err);
	return r < 0 ? r : commit;
}

/* Returns true for events that are recorded only in slices. */
static bool is_detail(const struct event *event)
{
	switch ((enum event_type)event->type) {
	case EVENT_STEP:
	case EVENT_MARK:
	case EVENT_FORK:
	case EVENT_EXEC:
	case EVENT_EXIT:
	case EVENT_NAME:
	case EVENT_LIBRARY:
	case EVENT_ALIVE:
	case EVENT_TOTALS:
	case EVENT_GPU_TOTALS:
	case EVENT_GAP:
	case EVENT_LOSS: return false;
	default: return true;
	}
}

int recording_append(struct recording *recording, const struct event *event, struct error *err)
{
	struct recording_buffer *buffer = is_detail(event) ? &recording->detail : &recording->life;

	buffer->events[buffer->n++] = *event;
	return buffer->n == RECORDING_BLOB_EVENTS ? recording_flush(recording, err) : 0;
}

uint64_t recording_written_bytes(const struct recording *recording, uint64_t *ret_detail_bytes)
{
	*ret_detail_bytes = recording->detail_bytes;
	return recording->written_bytes;
}

int recording_slice_begin(struct recording *recording, uint64_t slice, struct error *err)
{
	int r = recording_flush(recording, err);

	recording->slice = slice;
	return r;
}

int recording_slice_drop(struct recording *recording, uint64_t slice, struct error *err)
{
	char sql[64];

	snprintf(sql, sizeof(sql), "DELETE FROM events WHERE slice=%" PRIu64, slice);
	return sql_execute(recording->db, sql, err);
}

/* Lists all blobs, in the order of writing; the caller frees the list. Reads only the index: the blobs
 * themselves are not touched. */
static int recording_blobs(struct recording *recording, struct recording_blob **ret_blobs, size_t *ret_n)
{
	_cleanup_(sql_statement_freep) struct sql_statement *rows = NULL;
	_cleanup_(freep) struct recording_blob *blobs = NULL;
	size_t n = 0, capacity = 0;
	int r = sql_prepare(recording->db, "SELECT id, min_end_ns FROM events", &rows, NULL);

	while (r == 0 && (r = sql_step(rows, NULL)) == SQL_ROW) {
		int64_t id = sql_integer(rows, 0);

		/* In a damaged file, pages that share a child repeat its rows. */
		if (n && id <= blobs[n - 1].id) {
			r = -EBADMSG;
			break;
		}
		if (array_reserve(blobs, n, capacity) < 0)
			return -ENOMEM;
		blobs[n++] = (struct recording_blob){id, (uint64_t)sql_integer(rows, 1)};
		r = 0;
	}
	if (r < 0)
		recording->complete = false; /* truncated here: use the blobs found so far */
	*ret_blobs = steal_pointer(blobs);
	*ret_n = n;
	return 0;
}

/* Reads a blob's events; the caller frees them. -EBADMSG: this blob is damaged. */
static int recording_blob_read(struct recording *recording, int64_t id, struct event **ret_events,
			       size_t *ret_n)
{
	_cleanup_(sql_statement_freep) struct sql_statement *row = NULL;
	int r = sql_prepare(recording->db, "SELECT records FROM events WHERE id=?", &row, NULL);
	const void *block;
	size_t size;

	if (r < 0)
		return r;
	sql_bind_integer(row, 1, id);
	r = sql_step(row, NULL);
	if (r != SQL_ROW)
		return r == SQL_DONE ? -EBADMSG : r;
	block = sql_bytes(row, 0, &size);
	return recording_codec_decode(recording->codec, block, size, ret_events, ret_n);
}

/* A blob that is being read. */
struct blob_run {
	struct event *events;
	size_t at, n;
};

struct recording_cursor {
	struct recording *recording;
	struct recording_filter filter;
	struct recording_blob *blobs; /* sorted by min_end_ns */
	size_t n_blobs, next_blob;
	struct blob_run *runs; /* the open blobs: few, because blobs hardly overlap in time */
	size_t n_runs, capacity;
};

static int compare_blobs(const void *a, const void *b)
{
	const struct recording_blob *left = a, *right = b;

	if (left->min_end_ns != right->min_end_ns)
		return left->min_end_ns < right->min_end_ns ? -1 : 1;
	return (left->id > right->id) - (left->id < right->id);
}

int recording_cursor_open(struct recording *recording, const struct recording_filter *filter,
			  struct recording_cursor **ret_cursor, struct error *err)
{
	struct recording_cursor *cursor;
	int r = recording_flush(recording, err);

	if (r < 0)
		return r;
	cursor = calloc(1, sizeof(*cursor));
	if (!cursor)
		return error_set(err, -ENOMEM, "no memory to read the recording");
	cursor->recording = recording;
	if (filter)
		cursor->filter = *filter;
	r = recording_blobs(recording, &cursor->blobs, &cursor->n_blobs);
	if (r < 0) {
		recording_cursor_close(cursor);
		return error_errno(err, r, "cannot read the recording");
	}
	if (cursor->n_blobs)
		qsort(cursor->blobs, cursor->n_blobs, sizeof(*cursor->blobs), compare_blobs);
	*ret_cursor = cursor;
	return 0;
}

static int add_run(struct recording_cursor *cursor, struct blob_run run)
{
	if (array_reserve(cursor->runs, cursor->n_runs, cursor->capacity) < 0)
		return -ENOMEM;
	cursor->runs[cursor->n_runs++] = run;
	return 0;
}

/* Opens the next blob. Skips a damaged blob; uses only the sorted part of a blob whose order is broken. */
static int open_next(struct recording_cursor *cursor)
{
	struct blob_run run = {0};
	size_t sorted = 1;
	int r = recording_blob_read(cursor->recording, cursor->blobs[cursor->next_blob++].id, &run.events,
				    &run.n);

	if (r == -EBADMSG) {
		set_damaged(cursor->recording);
		return 0;
	}
	if (r < 0)
		return r;
	while (sorted < run.n && run.events[sorted].end_ns >= run.events[sorted - 1].end_ns)
		sorted++;
	if (sorted < run.n) {
		set_damaged(cursor->recording);
		run.n = sorted;
	}
	r = add_run(cursor, run);
	if (r < 0)
		free(run.events);
	return r;
}

static void close_run(struct recording_cursor *cursor, size_t i)
{
	free(cursor->runs[i].events);
	cursor->runs[i] = cursor->runs[--cursor->n_runs];
}

static void close_ended(struct recording_cursor *cursor)
{
	for (size_t i = 0; i < cursor->n_runs;) {
		if (cursor->runs[i].at == cursor->runs[i].n)
			close_run(cursor, i);
		else
			i++;
	}
}

/* Returns the run whose next event ends first; NULL: there is none. */
static struct blob_run *earliest(struct recording_cursor *cursor)
{
	struct blob_run *best = NULL;

	for (size_t i = 0; i < cursor->n_runs; i++) {
		struct blob_run *run = &cursor->runs[i];

		if (!best || run->events[run->at].end_ns < best->events[best->at].end_ns)
			best = run;
	}
	return best;
}

static bool matches(const struct recording_filter *filter, const struct event *event)
{
	if (filter->tid && event->tid != filter->tid)
		return false;
	return !filter->type_mask || (event->type < 32 && (filter->type_mask & 1U << event->type));
}

int recording_cursor_next(struct recording_cursor *cursor, const struct event **ret_event)
{
	for (;;) {
		const struct event *event;
		struct blob_run *run;

		close_ended(cursor);
		run = earliest(cursor);
		if (cursor->next_blob < cursor->n_blobs &&
		    (!run || cursor->blobs[cursor->next_blob].min_end_ns <= run->events[run->at].end_ns)) {
			int r = open_next(cursor);

			if (r < 0)
				return r;
			continue;
		}
		if (!run)
			return 0;
		event = &run->events[run->at++];
		if (matches(&cursor->filter, event)) {
			*ret_event = event;
			return 1;
		}
	}
}

void recording_cursor_close(struct recording_cursor *cursor)
{
	if (!cursor)
		return;
	while (cursor->n_runs > 0)
		close_run(cursor, cursor->n_runs - 1);
	free(cursor->runs);
	free(cursor->blobs);
	free(cursor);
}

/* The recording as a file, without its database. dir_fd: the folder that contains the last component of
 * path. */

/* Like recording_open(), but does not follow a symbolic link. */
static int recording_open_in(int dir_fd, const char *path, struct recording **ret_recording,
			     struct error *err);

static const char *name_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* Removes the file and its journal. */
static void recording_file_remove(int dir_fd, const char *path)
{
	_cleanup_(freep) char *journal = NULL;

	unlinkat(dir_fd, name_of(path), 0);
	if (asprintf(&journal, "%s-journal", name_of(path)) < 0)
		journal = NULL;
	else
		unlinkat(dir_fd, journal, 0);
}

/* Removes an older recording. Refuses to remove any other file (-EEXIST), in case -o was mistyped. */
static int recording_file_make_space(int dir_fd, const char *path, struct error *err)
{
	struct recording *old = NULL;
	struct error why = ERROR_INIT;
	int r;

	if (faccessat(dir_fd, name_of(path), F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	r = recording_open_in(dir_fd, path, &old, &why);
	recording_close(old);
	if (r == -EACCES || r == -EPERM || r == -EIO || r == -ENOMEM || r == -EMFILE || r == -ENFILE)
		return error_set(err, r, "%s: choose another -o or remove the file", why.text);
	if (r < 0 && r != -EPROTONOSUPPORT)
		return error_set(err, -EEXIST,
				 "%s exists and is not a recording: choose another -o or remove it", path);
	if (faccessat(dir_fd, name_of(path), W_OK, 0) < 0)
		return error_errno(err, -errno, "cannot replace %s", path);
	recording_file_remove(dir_fd, path);
	return 0;
}

#define APPLICATION_ID 0x444c5331
#define BUSY_MS        2000 /* maximum wait for other users of the database */

static const char schema[] =
    "CREATE TABLE info(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE events(id INTEGER PRIMARY KEY, slice INTEGER NOT NULL, min_end_ns INTEGER NOT NULL,"
    " max_end_ns INTEGER NOT NULL, n INTEGER NOT NULL, records BLOB NOT NULL);"
    "CREATE TABLE notes(kind TEXT NOT NULL, key INTEGER NOT NULL, value BLOB NOT NULL, PRIMARY KEY(kind, "
    "key))"
    " WITHOUT ROWID;";

void recording_close(struct recording *recording)
{
	if (!recording)
		return;
	sql_statement_free(recording->insert);
	sql_statement_free(recording->insert_metadata);
	sql_close(recording->db);
	closep(&recording->lock_fd); /* after the database: closing a file drops SQLite's locks */
	recording_codec_free(recording->codec);
	closep(&recording->dir_fd);
	free(recording->path);
	free(recording);
}

static struct recording *recording_new(const char *path)
{
	struct recording *recording = calloc(1, sizeof(*recording));

	if (!recording)
		return NULL;
	recording->slice = 1;
	recording->dir_fd = recording->lock_fd = -EBADF;
	recording->path = strdup(path);
	recording->codec = recording_codec_new();
	if (!recording->path || !recording->codec) {
		recording_close(recording);
		return NULL;
	}
	return recording;
}

void recording_discard(struct recording *recording)
{
	if (!recording)
		return;
	recording_file_remove(recording->dir_fd, recording->path);
	recording_close(recording);
}

int recording_create(const char *path, struct recording **ret_recording, struct error *err)
{
	_cleanup_(recording_closep) struct recording *recording = NULL;
	const char *name;
	char sql[96];
	int r;

	recording = recording_new(path);
	if (!recording)
		return error_set(err, -ENOMEM, "no memory to create the recording");
	recording->dir_fd = file_folder(path, true, &name);
	if (recording->dir_fd < 0)
		return file_error(err, recording->dir_fd, "write", path);
	r = recording_file_make_space(recording->dir_fd, path, err);
	if (r == 0)
		r = sql_open_at(recording->dir_fd, path,
				&(struct sql_options){.mode = SQL_NEW, .busy_ms = BUSY_MS}, &recording->db,
				err);
	if (r < 0)
		return r;
	recording->lock_fd = openat(recording->dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (recording->lock_fd >= 0)
		(void)flock(recording->lock_fd,
			    LOCK_EX | LOCK_NB); /* shows readers that it is being written */
	/* With a rollback journal, committed data stays readable if the recorder is killed. Not synced: a
	 * recording may be lost in a crash, and a recorder must not wait for the disk that it measures. */
	snprintf(sql, sizeof(sql), "PRAGMA application_id=%d; PRAGMA user_version=%d;", APPLICATION_ID,
		 RECORDING_VERSION);
	r = sql_execute(recording->db,
			"PRAGMA page_size=4096; PRAGMA journal_mode=TRUNCATE; PRAGMA synchronous=OFF;", err);
	if (r == 0)
		r = sql_execute(recording->db, "BEGIN;", err);
	if (r == 0)
		r = sql_execute(recording->db, sql, err);
	if (r == 0)
		r = sql_execute(recording->db, schema, err);
	if (r == 0)
		r = sql_execute(recording->db, "COMMIT;", err);
	if (r == 0)
		r = recording_set_u64(recording, RECORDING_COMPLETE, 0, err);
	if (r < 0)
		return r;
	*ret_recording = steal_pointer(recording);
	return 0;
}

static int not_a_recording(const char *path, struct error *err)
{
	return error_set(err, -EBADMSG, "%s is not a recording of diesel-analyze", path);
}

/* Opens the database; also reads the rest of a truncated file. */
static int open_database(struct recording *recording, int dir_fd, int64_t *ret_id, struct error *err)
{
	const struct sql_options options = {.mode = SQL_READ, .busy_ms = BUSY_MS, .takes_cut = true};
	int r = sql_open_at(dir_fd, recording->path, &options, &recording->db, err);

	if (r < 0)
		return r;
	recording->complete = !sql_is_cut(recording->db);
	return sql_number(recording->db, "PRAGMA application_id", ret_id, err);
}

/* Returns true if another process is writing the file: the recorder holds a lock, which the kernel
 * releases when it exits. */
static bool is_locked(int dir_fd, const char *path)
{
	_cleanup_(closep) int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	return fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
}

static int recording_open_in(int dir_fd, const char *path, struct recording **ret_recording,
			     struct error *err)
{
	static const char *const scripts[] = {schema, NULL};
	_cleanup_(recording_closep) struct recording *recording = recording_new(path);
	int64_t id = 0, version = 0;
	uint64_t complete;
	int r;

	if (!recording)
		return error_set(err, -ENOMEM, "no memory to open the recording");
	r = open_database(recording, dir_fd, &id, err);
	if (r == -EBADMSG || (r == 0 && id != APPLICATION_ID))
		return not_a_recording(path, err);
	if (r == 0)
		r = sql_number(recording->db, "PRAGMA user_version", &version, err);
	if (r < 0)
		return r;
	if (version != RECORDING_VERSION)
		return error_set(err, -EPROTONOSUPPORT,
				 "%s has recording format %d, but this diesel-analyze reads format %d. "
				 "Use the version that wrote the file, or record again",
				 path, (int)version, RECORDING_VERSION);
	r = sql_check_tables(recording->db, scripts, err);
	if (r < 0)
		return r;
	if (recording_get_u64(recording, RECORDING_COMPLETE, &complete) || !complete)
		recording->complete = false;
	recording->under_way = !recording->complete && is_locked(dir_fd, path);
	*ret_recording = steal_pointer(recording);
	return 0;
}

int recording_open(const char *path, struct recording **ret_recording, struct error *err)
{
	return recording_open_in(AT_FDCWD, path, ret_recording, err);
}

bool recording_complete(const struct recording *recording)
{
	return recording->complete;
}

bool recording_under_way(const struct recording *recording)
{
	return !recording->complete && recording->under_way;
}

int recording_set_text(struct recording *recording, const char *key, const char *value, struct error *err)
{
	_cleanup_(sql_statement_freep) struct sql_statement *statement = NULL;
	int r = sql_prepare(recording->db, "INSERT OR REPLACE INTO info VALUES(?, ?)", &statement, err);

	if (r < 0)
		return r;
	sql_bind_text(statement, 1, key);
	sql_bind_text(statement, 2, value);
	return sql_run(statement, err);
}

int recording_get_text(struct recording *recording, const char *key, char **ret_value)
{
	_cleanup_(sql_statement_freep) struct sql_statement *statement = NULL;
	int r = sql_prepare(recording->db, "SELECT value FROM info WHERE key=?", &statement, NULL);
	char *value;

	if (r < 0)
		return r;
	sql_bind_text(statement, 1, key);
	r = sql_step(statement, NULL);
	if (r != SQL_ROW)
		return r == SQL_DONE ? -ENOENT : r;
	value = strdup(sql_text(statement, 0));
	if (!value)
		return -ENOMEM;
	*ret_value = value;
	return 0;
}

int recording_finish(struct recording *recording, struct error *err)
{
	int r = recording_flush(recording, err);

	if (r == 0)
		r = recording_set_u64(recording, RECORDING_COMPLETE, 1, err);
	if (r == 0)
		r = sql_execute(recording->db, "PRAGMA journal_mode=DELETE;", err);
	if (r == 0)
		recording->complete = true;
	return r;
}

/* Numbers are stored as text, so that any tool can read them and 64 unsigned bits fit. */

int recording_set_u64(struct recording *recording, const char *key, uint64_t value, struct error *err)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, value);
	return recording_set_text(recording, key, text, err);
}

int recording_get_u64(struct recording *recording, const char *key, uint64_t *ret_value)
{
	_cleanup_(freep) char *text = NULL;
	uint64_t value;
	char *end;
	int r = recording_get_text(recording, key, &text);

	if (r < 0)
		return r;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno || end == text || *end)
		return -EBADMSG;
	*ret_value = value;
	return 0;
}

#define NOTE_OVERHEAD_BYTES 24 /* overhead per entry: its row, and its index entry */

int recording_put(struct recording *recording, const char *kind, uint64_t key, const void *data, size_t size,
		  struct error *err)
{
	int r = write_begin(recording, err);

	if (r == 0 && !recording->insert_metadata)
		r = sql_prepare(recording->db, "INSERT OR REPLACE INTO notes VALUES(?, ?, ?)",
				&recording->insert_metadata, err);
	if (r < 0)
		return r;
	sql_bind_text(recording->insert_metadata, 1, kind);
	sql_bind_integer(recording->insert_metadata, 2, (int64_t)key);
	sql_bind_bytes(recording->insert_metadata, 3, data, size);
	recording->written_bytes += size + NOTE_OVERHEAD_BYTES;
	return sql_run(recording->insert_metadata, err);
}

int recording_each(struct recording *recording, const char *kind,
		   int (*visit)(void *user, uint64_t key, const void *data, size_t size), void *user)
{
	_cleanup_(sql_statement_freep) struct sql_statement *rows = NULL;
	int step = SQL_DONE, r = 0;
	bool is_first = true;
	int64_t last = 0;

	if (sql_prepare(recording->db, "SELECT key, value FROM notes WHERE kind=? ORDER BY key", &rows,
			NULL) < 0)
		return 0; /* recorded by a version without metadata */
	sql_bind_text(rows, 1, kind);
	while (r == 0 && (step = sql_step(rows, NULL)) == SQL_ROW) {
		size_t size;
		const void *data = sql_bytes(rows, 1, &size);
		int64_t key = sql_integer(rows, 0);

		if (!is_first && key <= last) { /* a damaged file can repeat rows, as in recording_blobs() */
			step = -EBADMSG;
			break;
		}
		is_first = false;
		last = key;
		r = visit(user, (uint64_t)key, data, size);
	}
	if (r == 0 && step < 0)
		set_damaged(recording);
	return r;
}
