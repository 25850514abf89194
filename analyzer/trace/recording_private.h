/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The recording's database, shared by recording.c (the file) and recording_events.c. */

#include "analyzer/recording.h"
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

/* Opens a transaction unless one is open; call it before a write. All writes until the next recording_flush()
 * are one transaction. */
int recording_write_begin(struct recording *recording, struct error *err);

/* Records that a part could not be read: recording_complete() is false from now on. */
void recording_set_damaged(struct recording *recording);
