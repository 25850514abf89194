/* SPDX-License-Identifier: Apache-2.0 */
/* Commits samples that cannot be packed again, because they came from a program or a pipe. */
#include "dataset/pack.h"

#include <errno.h>
#include <stdlib.h>

#include "dataset/chunk/buffer.h"
#include "dataset/chunk_id.h"
#include "dataset/backend.h"
#include "dataset/writer.h"
#include "lib/cleanup.h"
#include "lib/clock.h"

#define MAX_TRIES 16
/* longest pause after two writers have collided */
#define MAX_PAUSE_NS (400 * NS_PER_MS)

static int add_records(struct writer *w, const struct chunk_view *view, const unsigned char *file,
		       const char *name, struct error *err)
{
	int r = 0;

	for (uint32_t i = 0; i < view->header->n_records && r == 0; i++) {
		const struct chunk_record *record = &view->records[i];
		const struct chunk_sample sample = {
		    .path = view->names + record->name_offset,
		    .path_length = record->name_length,
		    .data = file + record->offset,
		    .bytes = record->bytes,
		    .mode = record->mode,
		    .mtime_ns = record->mtime_ns,
		    .source_bytes = record->source_bytes,
		};

		r = chunk_verify_record(view, i, sample.data, name, err);
		if (r == 0)
			r = writer_add(w, &sample, err);
	}
	return r;
}

/* Writes the samples of a chunk again, because the other writer's newer version would hide this chunk. */
static int add_again(struct writer *w, const struct chunk_id *id, struct error *err)
{
	_cleanup_(freep) unsigned char *file = NULL;
	_cleanup_(freep) void *plain = NULL;
	char name[STORE_NAME_MAX];
	struct chunk_view view;
	struct store_object object = {.id = *id};
	uint64_t needed;
	int r = store_size(writer_store(w), id, &object.bytes, err);

	if (r < 0)
		return r;
	file = malloc(object.bytes);
	if (!file)
		return error_errno(err, -ENOMEM, "%s", store_describe(writer_store(w), id, name));
	r = store_read(writer_store(w), id, 0, file, object.bytes, err);
	if (r == 0)
		r = store_parse_head(writer_store(w), &object, file, object.bytes, &view, &needed, err);
	if (r == -EAGAIN)
		return error_set(err, -EBADMSG, "%s is damaged: its head is longer than the file",
				 store_describe(writer_store(w), id, name));
	if (r == 0 && (view.header->flags & CHUNK_FLAG_EXTERNAL))
		return error_set(err, -EBUSY,
				 "another writer has published to the dataset: run the command "
				 "again");
	if (r == 0 && (view.header->flags & CHUNK_FLAG_COMPRESSED))
		r = chunk_make_plain(file, store_describe(writer_store(w), id, name), &plain, NULL, err);
	if (r == 0)
		r = writer_set_layout_of(w, view.header, err);
	return r < 0 ? r
		     : add_records(w, &view, plain ? plain : file, store_describe(writer_store(w), id, name),
				   err);
}

/* Takes over the chunks of the previous writer, which lost against another one. ids: the ids of these chunks.
 */
static int take_over(struct writer *w, const struct chunk_id *ids, size_t n, struct error *err)
{
	_cleanup_(buffer_free) struct buffer adopted = {0};
	size_t n_leftovers;
	const struct store_object *leftovers = writer_leftovers(w, &n_leftovers);
	int r = 0;

	for (size_t i = 0; i < n_leftovers && r == 0; i++) {
		if (!chunk_id_is_among(ids, n, &leftovers[i].id))
			continue;
		if (buffer_append(&adopted, &leftovers[i].id, sizeof(*ids)) < 0)
			return error_errno(err, -ENOMEM, "cannot continue from the other writer's version");
		r = writer_adopt(w, i, err);
	}
	for (size_t i = 0; i < n && r == 0; i++)
		if (!chunk_id_is_among((const struct chunk_id *)adopted.data, adopted.bytes / sizeof(*ids),
				       &ids[i]))
			r = add_again(w, &ids[i], err);
	return r;
}

static int open_again(const struct pack_options *o, struct writer **w, struct error *err)
{
	_cleanup_(buffer_free) struct buffer ids = {0};
	size_t n;
	const struct chunk_id *chunks = writer_chunks(*w, &n);

	if (buffer_append(&ids, chunks, n * sizeof(*chunks)) < 0)
		return error_errno(err, -ENOMEM, "%s", o->dataset);
	writer_free(*w);
	*w = NULL;
	writer_pause(MAX_PAUSE_NS);
	int r = pack_open(o, w, err);

	return r < 0 ? r : take_over(*w, (const struct chunk_id *)ids.data, n, err);
}

int pack_commit(const struct pack_options *o, struct writer **w, struct writer_result *ret, struct error *err)
{
	int r = writer_commit(*w, ret, err);

	for (unsigned i = 1; r == -EBUSY && i < MAX_TRIES && backend_is_elsewhere(o->dataset); i++) {
		r = open_again(o, w, err);
		if (r == 0)
			r = writer_commit(*w, ret, err);
	}
	return r;
}
