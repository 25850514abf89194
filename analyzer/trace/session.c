/* SPDX-License-Identifier: Apache-2.0 */
#include "session_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/error.h"
#include "session_blob.h"
#include "session_file.h"

#define APPLICATION_ID 0x444c5331
#define BUSY_MS        2000 /* somebody may look at a session that is being recorded */

static const char schema[] =
    "CREATE TABLE info(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE events(id INTEGER PRIMARY KEY, slice INTEGER NOT NULL, min_end_ns INTEGER NOT NULL,"
    " max_end_ns INTEGER NOT NULL, n INTEGER NOT NULL, records BLOB NOT NULL);"
    "CREATE TABLE notes(kind TEXT NOT NULL, key INTEGER NOT NULL, value BLOB NOT NULL, PRIMARY KEY(kind, "
    "key))"
    " WITHOUT ROWID;";

void session_statement_finalizep(sqlite3_stmt **statement)
{
	sqlite3_finalize(*statement);
}

int session_errno_of(int code)
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

int session_fail(const struct session *session, int code, struct error *err)
{
	int system = sqlite3_system_errno(session->db);
	int r = session_errno_of(code);

	if (r == -EIO && system)
		r = -system;
	return error_set(err, r, "%s: %s", session->path, system ? strerror(system) : sqlite3_errstr(code));
}

int session_run_sql(const struct session *session, const char *sql, struct error *err)
{
	int code = sqlite3_exec(session->db, sql, NULL, NULL, NULL);

	return code == SQLITE_OK ? 0 : session_fail(session, code, err);
}

static int pragma_value(const struct session *session, const char *sql, int64_t *ret_value)
{
	_cleanup_(session_statement_finalizep) sqlite3_stmt *statement = NULL;
	int code = sqlite3_prepare_v2(session->db, sql, -1, &statement, NULL);

	if (code == SQLITE_OK)
		code = sqlite3_step(statement);
	if (code != SQLITE_ROW)
		return code;
	*ret_value = sqlite3_column_int64(statement, 0);
	return SQLITE_OK;
}

void session_close(struct session *session)
{
	if (!session)
		return;
	sqlite3_finalize(session->insert);
	sqlite3_finalize(session->insert_note);
	sqlite3_close(session->db);
	session_codec_free(session->codec);
	free(session->path);
	free(session);
}

static struct session *session_new(const char *path)
{
	struct session *session = calloc(1, sizeof(*session));

	if (!session)
		return NULL;
	session->slice = 1;
	session->path = strdup(path);
	session->codec = session_codec_new();
	if (!session->path || !session->codec) {
		session_close(session);
		return NULL;
	}
	return session;
}

void session_discard(struct session *session)
{
	char *path;

	if (!session)
		return;
	path = steal_pointer(session->path);
	session_close(session);
	session_file_remove(path);
	free(path);
}

static void session_closep(struct session **session)
{
	session_close(*session);
}

int session_create(const char *path, struct session **ret_session, struct error *err)
{
	_cleanup_(session_closep) struct session *session = NULL;
	char sql[96];
	int r = session_file_make_room(path, err);

	if (r)
		return r;
	session = session_new(path);
	if (!session)
		return error_set(err, -ENOMEM, "no memory for a session");
	r = sqlite3_open_v2(path, &session->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL);
	if (r != SQLITE_OK)
		return session_fail(session, r, err);
	sqlite3_busy_timeout(session->db, BUSY_MS);
	/* A rollback journal keeps what was committed readable if the recorder is killed. Not synced: a
	 * session is no ledger, and a recorder must not wait for the disk it is measuring. */
	snprintf(sql, sizeof(sql), "PRAGMA application_id=%d; PRAGMA user_version=%d;", APPLICATION_ID,
		 SESSION_VERSION);
	r = session_run_sql(
	    session, "PRAGMA page_size=4096; PRAGMA journal_mode=TRUNCATE; PRAGMA synchronous=OFF;", err);
	if (!r)
		r = session_run_sql(session, "BEGIN;", err);
	if (!r)
		r = session_run_sql(session, sql, err);
	if (!r)
		r = session_run_sql(session, schema, err);
	if (!r)
		r = session_run_sql(session, "COMMIT;", err);
	if (!r)
		r = session_set_u64(session, SESSION_COMPLETE, 0, err);
	if (r)
		return r;
	*ret_session = steal_pointer(session);
	return 0;
}

static int not_a_session(const char *path, struct error *err)
{
	return error_set(err, -EBADMSG, "%s is not a session recorded by diesel-analyze", path);
}

/* Reads what is there of a file that was cut off: SQLite refuses a file shorter than its header says unless
 * told that its schema is under repair. */
static int open_database(struct session *session, int64_t *ret_id)
{
	int code = sqlite3_open_v2(session->path, &session->db, SQLITE_OPEN_READWRITE, NULL);

	if (code == SQLITE_CANTOPEN || code == SQLITE_READONLY || code == SQLITE_PERM) {
		sqlite3_close(session->db);
		code = sqlite3_open_v2(session->path, &session->db, SQLITE_OPEN_READONLY, NULL);
	}
	if (code != SQLITE_OK)
		return code;
	sqlite3_busy_timeout(session->db, BUSY_MS);
	code = pragma_value(session, "PRAGMA application_id", ret_id);
	if ((code & 0xff) == SQLITE_CORRUPT) {
		sqlite3_exec(session->db, "PRAGMA writable_schema=ON", NULL, NULL, NULL);
		code = pragma_value(session, "PRAGMA application_id", ret_id);
	}
	return code;
}

int session_open(const char *path, struct session **ret_session, struct error *err)
{
	_cleanup_(session_closep) struct session *session = session_new(path);
	int64_t id = 0, version = 0;
	uint64_t complete;
	int code;

	if (!session)
		return error_set(err, -ENOMEM, "no memory for a session");
	if (access(path, R_OK))
		return error_errno(err, -errno, "cannot read session %s", path);
	session->complete = !session_file_is_cut(path);
	code = open_database(session, &id);
	if (code != SQLITE_OK)
		return session_errno_of(code) == -EBADMSG ? not_a_session(path, err)
							  : session_fail(session, code, err);
	if (id != APPLICATION_ID)
		return not_a_session(path, err);
	code = pragma_value(session, "PRAGMA user_version", &version);
	if (code != SQLITE_OK)
		return session_fail(session, code, err);
	if (version < SESSION_VERSION)
		return error_set(
		    err, -EPROTONOSUPPORT,
		    "%s has session format %d, which only versions before 0.2 read: record it again", path,
		    (int)version);
	if (version > SESSION_VERSION)
		return error_set(
		    err, -EPROTONOSUPPORT,
		    "%s has session format %d, this program knows up to %d: use a newer diesel-analyze", path,
		    (int)version, SESSION_VERSION);
	if (session_get_u64(session, SESSION_COMPLETE, &complete) || !complete)
		session->complete = false;
	*ret_session = steal_pointer(session);
	return 0;
}

bool session_complete(const struct session *session)
{
	return session->complete;
}

int session_set_text(struct session *session, const char *key, const char *value, struct error *err)
{
	_cleanup_(session_statement_finalizep) sqlite3_stmt *statement = NULL;
	int code =
	    sqlite3_prepare_v2(session->db, "INSERT OR REPLACE INTO info VALUES(?, ?)", -1, &statement, NULL);

	if (code == SQLITE_OK) {
		sqlite3_bind_text(statement, 1, key, -1, SQLITE_STATIC);
		sqlite3_bind_text(statement, 2, value, -1, SQLITE_STATIC);
		code = sqlite3_step(statement);
	}
	return code == SQLITE_DONE ? 0 : session_fail(session, code, err);
}

int session_get_text(struct session *session, const char *key, char **ret_value)
{
	_cleanup_(session_statement_finalizep) sqlite3_stmt *statement = NULL;
	int code =
	    sqlite3_prepare_v2(session->db, "SELECT value FROM info WHERE key=?", -1, &statement, NULL);
	const char *text;
	char *value;

	if (code == SQLITE_OK) {
		sqlite3_bind_text(statement, 1, key, -1, SQLITE_STATIC);
		code = sqlite3_step(statement);
	}
	if (code == SQLITE_DONE)
		return -ENOENT;
	if (code != SQLITE_ROW)
		return session_errno_of(code);
	text = (const char *)sqlite3_column_text(statement, 0);
	value = strdup(text ? text : "");
	if (!value)
		return -ENOMEM;
	*ret_value = value;
	return 0;
}

int session_finish(struct session *session, struct error *err)
{
	int r = session_flush(session, err);

	if (!r)
		r = session_set_u64(session, SESSION_COMPLETE, 1, err);
	if (!r)
		r = session_run_sql(session, "PRAGMA journal_mode=DELETE;", err);
	if (!r)
		session->complete = true;
	return r;
}

void session_set_damaged(struct session *session)
{
	session->complete = false;
}
