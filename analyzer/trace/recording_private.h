/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The recording's database, shared by recording.c (the file), recording_events.c and recording_notes.c. */

#include <sqlite3.h>

#include "analyzer/recording.h"
#include "recording_codec.h"

/* Events that wait to become one block. */
struct recording_buffer {
	size_t n;
	struct event events[RECORDING_BLOB_EVENTS];
};

struct recording {
	sqlite3 *db;
	sqlite3_stmt *insert, *insert_note;
	struct recording_codec *codec;
	char *path;
	bool complete;                        /* reading: what the file says, until damage is met */
	bool writing;                         /* a transaction is open, until the next flush */
	uint64_t slice;                       /* that detail belongs to */
	uint64_t written_bytes, detail_bytes; /* so far; the latter are part of the former */
	struct recording_buffer life, detail;
};

void recording_statement_finalizep(sqlite3_stmt **statement);

/* -errno for a result code of SQLite. */
int recording_errno_of(int code);

/* The same, with the file's name and what is wrong. */
int recording_fail(const struct recording *recording, int code, struct error *err);

/* Before a write: notes and blocks until the next recording_flush() are one transaction. */
int recording_write_begin(struct recording *recording, struct error *err);

int recording_run_sql(const struct recording *recording, const char *sql, struct error *err);
