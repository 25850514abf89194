/* SPDX-License-Identifier: Apache-2.0 */
#include "recording_private.h"

#include "lib/cleanup.h"
#include "lib/error.h"

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
