/* SPDX-License-Identifier: Apache-2.0 */
#include "recording_private.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "analyzer/recording.h"
#include "lib/cleanup.h"
#include "lib/error.h"
#include "lib/file_open.h"

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

static void recording_closep(struct recording **recording)
{
	recording_close(*recording);
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

void recording_set_damaged(struct recording *recording)
{
	recording->complete = false;
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
	int r = recording_write_begin(recording, err);

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
		recording_set_damaged(recording);
	return r;
}
