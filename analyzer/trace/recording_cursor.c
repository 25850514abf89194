/* SPDX-License-Identifier: Apache-2.0 */
#include "analyzer/recording.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/array.h"
#include "lib/error.h"
#include "recording_blob.h"

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
	struct blob_run *runs; /* few, as blobs hardly overlap in time */
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
