/* SPDX-License-Identifier: Apache-2.0 */
#include "analyzer/recording.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/array.h"
#include "lib/cleanup.h"
#include "lib/error.h"
#include "recording_private.h"

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

int recording_write_begin(struct recording *recording, struct error *err)
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
		r = recording_write_begin(recording, err);
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
		recording_set_damaged(cursor->recording);
		return 0;
	}
	if (r < 0)
		return r;
	while (sorted < run.n && run.events[sorted].end_ns >= run.events[sorted - 1].end_ns)
		sorted++;
	if (sorted < run.n) {
		recording_set_damaged(cursor->recording);
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
