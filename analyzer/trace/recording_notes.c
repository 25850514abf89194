/* SPDX-License-Identifier: Apache-2.0 */
#include "recording_private.h"

#include "recording_blob.h"

#include "lib/cleanup.h"
#include "lib/error.h"

#define NOTE_OVERHEAD_BYTES 24 /* its row, and its entry in the index */

int recording_put(struct recording *recording, const char *kind, uint64_t key, const void *data, size_t size,
		  struct error *err)
{
	sqlite3_stmt *statement = recording->insert_note;
	int code = SQLITE_OK, r = recording_write_begin(recording, err);

	if (r < 0)
		return r;
	if (!statement)
		code = sqlite3_prepare_v2(recording->db, "INSERT OR REPLACE INTO notes VALUES(?, ?, ?)", -1,
					  &recording->insert_note, NULL);
	if (code != SQLITE_OK)
		return recording_fail(recording, code, err);
	statement = recording->insert_note;
	sqlite3_bind_text(statement, 1, kind, -1, SQLITE_STATIC);
	sqlite3_bind_int64(statement, 2, (int64_t)key);
	sqlite3_bind_blob64(statement, 3, data, size, SQLITE_STATIC);
	code = sqlite3_step(statement);
	recording->written_bytes += size + NOTE_OVERHEAD_BYTES;
	if (code != SQLITE_DONE)
		r = recording_fail(recording, code, err);
	sqlite3_reset(statement);
	return r;
}

int recording_each(struct recording *recording, const char *kind,
		   int (*visit)(void *user, uint64_t key, const void *data, size_t size), void *user)
{
	_cleanup_(recording_statement_finalizep) sqlite3_stmt *rows = NULL;
	int code = sqlite3_prepare_v2(recording->db, "SELECT key, value FROM notes WHERE kind=? ORDER BY key",
				      -1, &rows, NULL);
	int r = 0;

	if (code != SQLITE_OK) /* written before there were notes */
		return 0;
	sqlite3_bind_text(rows, 1, kind, -1, SQLITE_STATIC);
	while (r == 0 && (code = sqlite3_step(rows)) == SQLITE_ROW)
		r = visit(user, (uint64_t)sqlite3_column_int64(rows, 0), sqlite3_column_blob(rows, 1),
			  (size_t)sqlite3_column_bytes(rows, 1));
	if (r == 0 && code != SQLITE_DONE)
		recording_set_damaged(recording);
	return r;
}
