/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The session's database, shared by session.c (the file), session_events.c and session_notes.c. */

#include <sqlite3.h>

#include "analyzer/session.h"
#include "session_codec.h"

/* Events that wait to become one block. */
struct session_buffer {
	size_t n;
	struct event events[SESSION_BLOB_EVENTS];
};

struct session {
	sqlite3 *db;
	sqlite3_stmt *insert, *insert_note;
	struct session_codec *codec;
	char *path;
	bool complete;                        /* reading: what the file says, until damage is met */
	bool writing;                         /* a transaction is open, until the next flush */
	uint64_t slice;                       /* that detail belongs to */
	uint64_t written_bytes, detail_bytes; /* so far; the latter are part of the former */
	struct session_buffer life, detail;
};

void session_statement_finalizep(sqlite3_stmt **statement);

/* -errno for a result code of SQLite. */
int session_errno_of(int code);

/* The same, with the file's name and what is wrong. */
int session_fail(const struct session *session, int code, struct error *err);

/* Before a write: notes and blocks until the next session_flush() are one transaction. */
int session_write_begin(struct session *session, struct error *err);

int session_run_sql(const struct session *session, const char *sql, struct error *err);
