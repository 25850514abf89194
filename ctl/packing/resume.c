/* SPDX-License-Identifier: Apache-2.0 */
#include "resume.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/array.h"

/* A sample held until all samples of its chunk have arrived, with its path and bytes. */
struct held {
	struct chunk_sample sample;
	unsigned char *memory;
};

struct resume {
	struct writer *w;
	const struct store_object *leftovers;
	size_t n_leftovers, at; /* at: index of the current chunk; n_leftovers: no chunk is left */
	void *head;             /* header of the current chunk; NULL: none is open */
	struct chunk_view view;
	struct held *held;
	size_t n_held, n_allocated;
	uint64_t count, bytes;
};

static void drop_held(struct resume *r)
{
	for (size_t i = 0; i < r->n_held; i++)
		free(r->held[i].memory);
	r->n_held = 0;
}

/* Opens the next candidate chunk. Skips chunks that cannot be read. */
static void open_chunk(struct resume *r)
{
	free(r->head);
	r->head = NULL;
	for (; r->at < r->n_leftovers; r->at++) {
		if (store_read_head(writer_store(r->w), &r->leftovers[r->at].id, &r->head, &r->view, NULL) <
		    0)
			continue;
		if (!(r->view.header->flags & (CHUNK_FLAG_TOMBSTONE | CHUNK_FLAG_EXTERNAL)) &&
		    chunk_layout_of(r->view.header->flags) == writer_layout(r->w))
			return;
		free(r->head);
		r->head = NULL;
	}
}

int resume_new(struct writer *w, struct resume **ret, struct error *err)
{
	struct resume *r = calloc(1, sizeof(*r));

	if (!r)
		return error_errno(err, -ENOMEM, "cannot continue where the last run stopped");
	r->w = w;
	r->leftovers = writer_leftovers(w, &r->n_leftovers);
	open_chunk(r);
	*ret = r;
	return 0;
}

void resume_free(struct resume *r)
{
	if (!r)
		return;
	drop_held(r);
	free(r->held);
	free(r->head);
	free(r);
}

static bool is_record(const struct chunk_view *view, uint32_t i, const struct chunk_sample *s)
{
	const struct chunk_record *record = &view->records[i];

	return record->name_length == s->path_length &&
	       memcmp(view->names + record->name_offset, s->path, s->path_length) == 0 &&
	       record->bytes == s->bytes && record->mode == s->mode && record->mtime_ns == s->mtime_ns &&
	       record->source_bytes == s->source_bytes &&
	       chunk_verify_record(view, i, s->data, "", NULL) == 0;
}

static int hold(struct resume *r, const struct chunk_sample *s)
{
	struct held held = {*s, malloc(s->path_length + s->bytes)};

	if (!held.memory || array_reserve(r->held, r->n_held, r->n_allocated) < 0) {
		free(held.memory);
		return -ENOMEM;
	}
	memcpy(held.memory, s->path, s->path_length);
	if (s->bytes)
		memcpy(held.memory + s->path_length, s->data, s->bytes);
	held.sample.path = (const char *)held.memory;
	held.sample.data = held.memory + s->path_length;
	r->held[r->n_held++] = held;
	return 0;
}

int resume_take(struct resume *r, const struct chunk_sample *sample, struct error *err)
{
	int result;

	if (!r->head)
		return 0;
	if (!is_record(&r->view, (uint32_t)r->n_held, sample)) {
		result = resume_end(r, err);
		return result;
	}
	if (hold(r, sample) < 0)
		return error_errno(err, -ENOMEM, "a sample of %zu bytes", sample->bytes);
	if (r->n_held < r->view.header->n_records)
		return 1;
	result = writer_adopt(r->w, r->at, err);
	if (result < 0)
		return result;
	r->count += r->n_held;
	for (size_t i = 0; i < r->n_held; i++)
		r->bytes += r->held[i].sample.bytes;
	drop_held(r);
	r->at++;
	open_chunk(r);
	return 1;
}

int resume_end(struct resume *r, struct error *err)
{
	int result = 0;

	for (size_t i = 0; i < r->n_held && result == 0; i++)
		result = writer_add(r->w, &r->held[i].sample, err);
	drop_held(r);
	free(r->head);
	r->head = NULL;
	return result;
}

uint64_t resume_count(const struct resume *r, uint64_t *ret_bytes)
{
	*ret_bytes = r->bytes;
	return r->count;
}
