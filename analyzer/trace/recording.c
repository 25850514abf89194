/* SPDX-License-Identifier: Apache-2.0 */
#include "recording_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/error.h"
#include "recording_blob.h"
#include "recording_file.h"

#define APPLICATION_ID 0x444c5331
#define BUSY_MS        2000 /* somebody may look at it while it is written */

static const char schema[] =
    "CREATE TABLE info(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE events(id INTEGER PRIMARY KEY, slice INTEGER NOT NULL, min_end_ns INTEGER NOT NULL,"
    " max_end_ns INTEGER NOT NULL, n INTEGER NOT NULL, records BLOB NOT NULL);"
    "CREATE TABLE notes(kind TEXT NOT NULL, key INTEGER NOT NULL, value BLOB NOT NULL, PRIMARY KEY(kind, "
    "key))"
    " WITHOUT ROWID;";

void recording_statement_finalizep(sqlite3_stmt **statement)
{
	sqlite3_finalize(*statement);
}

int recording_errno_of(int code)
{
	switch (code & 0xff) {
	case SQLITE_OK:
	case SQLITE_ROW:
	case SQLITE_DONE: return 0;
	case SQLITE_NOMEM: return -ENOMEM;
	case SQLITE_FULL: return -ENOSPC;
	case SQLITE_READONLY:
	case SQLITE_PERM:
	case SQLITE_AUTH: return -EACCES;
	case SQLITE_BUSY:
	case SQLITE_LOCKED: return -EBUSY;
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
	case SQLITE_FORMAT: return -EBADMSG;
	default: return -EIO;
	}
}

int recording_fail(const struct recording *recording, int code, struct error *err)
{
	int system = sqlite3_system_errno(recording->db);
	int r = recording_errno_of(code);

	if (r == -EIO && system)
		r = -system;
	return error_set(err, r, "%s: %s", recording->path, system ? strerror(system) : sqlite3_errstr(code));
}

int recording_run_sql(const struct recording *recording, const char *sql, struct error *err)
{
	int code = sqlite3_exec(recording->db, sql, NULL, NULL, NULL);

	return code == SQLITE_OK ? 0 : recording_fail(recording, code, err);
}

static int pragma_value(const struct recording *recording, const char *sql, int64_t *ret_value)
{
	_cleanup_(recording_statement_finalizep) sqlite3_stmt *statement = NULL;
	int code = sqlite3_prepare_v2(recording->db, sql, -1, &statement, NULL);

	if (code == SQLITE_OK)
		code = sqlite3_step(statement);
	if (code != SQLITE_ROW)
		return code;
	*ret_value = sqlite3_column_int64(statement, 0);
	return SQLITE_OK;
}

void recording_close(struct recording *recording)
{
	if (!recording)
		return;
	sqlite3_finalize(recording->insert);
	sqlite3_finalize(recording->insert_note);
	sqlite3_close(recording->db);
	recording_codec_free(recording->codec);
	free(recording->path);
	free(recording);
}

static struct recording *recording_new(const char *path)
{
	struct recording *recording = calloc(1, sizeof(*recording));

	if (!recording)
		return NULL;
	recording->slice = 1;
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
	char *path;

	if (!recording)
		return;
	path = steal_pointer(recording->path);
	recording_close(recording);
	recording_file_remove(path);
	free(path);
}

static void recording_closep(struct recording **recording)
{
	recording_close(*recording);
}

int recording_create(const char *path, struct recording **ret_recording, struct error *err)
{
	_cleanup_(recording_closep) struct recording *recording = NULL;
	char sql[96];
	int r = recording_file_make_room(path, err);

	if (r < 0)
		return r;
	recording = recording_new(path);
	if (!recording)
		return error_set(err, -ENOMEM, "no memory for a recording");
	r = sqlite3_open_v2(path, &recording->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL);
	if (r != SQLITE_OK)
		return recording_fail(recording, r, err);
	sqlite3_busy_timeout(recording->db, BUSY_MS);
	/* A rollback journal keeps what was committed readable if the recorder is killed. Not synced: a
	 * recording is no ledger, and a recorder must not wait for the disk it is measuring. */
	snprintf(sql, sizeof(sql), "PRAGMA application_id=%d; PRAGMA user_version=%d;", APPLICATION_ID,
		 RECORDING_VERSION);
	r = recording_run_sql(
	    recording, "PRAGMA page_size=4096; PRAGMA journal_mode=TRUNCATE; PRAGMA synchronous=OFF;", err);
	if (r == 0)
		r = recording_run_sql(recording, "BEGIN;", err);
	if (r == 0)
		r = recording_run_sql(recording, sql, err);
	if (r == 0)
		r = recording_run_sql(recording, schema, err);
	if (r == 0)
		r = recording_run_sql(recording, "COMMIT;", err);
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

/* Reads what is there of a file that was cut off: SQLite refuses a file shorter than its header says unless
 * told that its schema is under repair. */
static int open_database(struct recording *recording, int64_t *ret_id)
{
	int code = sqlite3_open_v2(recording->path, &recording->db, SQLITE_OPEN_READWRITE, NULL);

	if (code == SQLITE_CANTOPEN || code == SQLITE_READONLY || code == SQLITE_PERM) {
		sqlite3_close(recording->db);
		code = sqlite3_open_v2(recording->path, &recording->db, SQLITE_OPEN_READONLY, NULL);
	}
	if (code != SQLITE_OK)
		return code;
	sqlite3_busy_timeout(recording->db, BUSY_MS);
	code = pragma_value(recording, "PRAGMA application_id", ret_id);
	if ((code & 0xff) == SQLITE_CORRUPT) {
		sqlite3_exec(recording->db, "PRAGMA writable_schema=ON", NULL, NULL, NULL);
		code = pragma_value(recording, "PRAGMA application_id", ret_id);
	}
	return code;
}

int recording_open(const char *path, struct recording **ret_recording, struct error *err)
{
	_cleanup_(recording_closep) struct recording *recording = recording_new(path);
	int64_t id = 0, version = 0;
	uint64_t complete;
	int code;

	if (!recording)
		return error_set(err, -ENOMEM, "no memory for a recording");
	if (access(path, R_OK))
		return error_errno(err, -errno, "cannot read recording %s", path);
	recording->complete = !recording_file_is_cut(path);
	code = open_database(recording, &id);
	if (code != SQLITE_OK)
		return recording_errno_of(code) == -EBADMSG ? not_a_recording(path, err)
							    : recording_fail(recording, code, err);
	if (id != APPLICATION_ID)
		return not_a_recording(path, err);
	code = pragma_value(recording, "PRAGMA user_version", &version);
	if (code != SQLITE_OK)
		return recording_fail(recording, code, err);
	if (version < RECORDING_VERSION)
		return error_set(
		    err, -EPROTONOSUPPORT,
		    "%s has recording format %d, which only versions before 0.2 read: record it again", path,
		    (int)version);
	if (version > RECORDING_VERSION)
		return error_set(
		    err, -EPROTONOSUPPORT,
		    "%s has recording format %d, this program knows up to %d: use a newer diesel-analyze",
		    path, (int)version, RECORDING_VERSION);
	if (recording_get_u64(recording, RECORDING_COMPLETE, &complete) || !complete)
		recording->complete = false;
	*ret_recording = steal_pointer(recording);
	return 0;
}

bool recording_complete(const struct recording *recording)
{
	return recording->complete;
}

int recording_set_text(struct recording *recording, const char *key, const char *value, struct error *err)
{
	_cleanup_(recording_statement_finalizep) sqlite3_stmt *statement = NULL;
	int code = sqlite3_prepare_v2(recording->db, "INSERT OR REPLACE INTO info VALUES(?, ?)", -1,
				      &statement, NULL);

	if (code == SQLITE_OK) {
		sqlite3_bind_text(statement, 1, key, -1, SQLITE_STATIC);
		sqlite3_bind_text(statement, 2, value, -1, SQLITE_STATIC);
		code = sqlite3_step(statement);
	}
	return code == SQLITE_DONE ? 0 : recording_fail(recording, code, err);
}

int recording_get_text(struct recording *recording, const char *key, char **ret_value)
{
	_cleanup_(recording_statement_finalizep) sqlite3_stmt *statement = NULL;
	int code =
	    sqlite3_prepare_v2(recording->db, "SELECT value FROM info WHERE key=?", -1, &statement, NULL);
	const char *text;
	char *value;

	if (code == SQLITE_OK) {
		sqlite3_bind_text(statement, 1, key, -1, SQLITE_STATIC);
		code = sqlite3_step(statement);
	}
	if (code == SQLITE_DONE)
		return -ENOENT;
	if (code != SQLITE_ROW)
		return recording_errno_of(code);
	text = (const char *)sqlite3_column_text(statement, 0);
	value = strdup(text ? text : "");
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
		r = recording_run_sql(recording, "PRAGMA journal_mode=DELETE;", err);
	if (r == 0)
		recording->complete = true;
	return r;
}

void recording_set_damaged(struct recording *recording)
{
	recording->complete = false;
}
