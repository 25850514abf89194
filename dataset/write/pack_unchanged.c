/* SPDX-License-Identifier: Apache-2.0 */
#include "pack_unchanged.h"

#include <errno.h>
#include <stdlib.h>

#include "dataset/chunk/buffer.h"
#include "dataset/checksum/checksum.h"
#include "dataset/chunk_id.h"
#include "dataset/pack.h"
#include "lib/cleanup.h"

/* A sample whose length is not the file's: either the file changed, or it was rewritten when it was packed.
 * Only the chunk knows. */
struct doubt {
	struct chunk_id chunk;
	uint32_t record;
	size_t file;
};

static int compare_doubts(const void *a, const void *b)
{
	const struct doubt *x = a, *y = b;

	return chunk_id_compare(&x->chunk, &y->chunk);
}

static int look_up(struct writer *w, struct pack_source *source, struct buffer *doubts, uint64_t *n_files,
		   struct error *err)
{
	for (size_t i = 0; i < source->n_files; i++) {
		struct source_file *file = &source->files[i];
		struct path_text path = source_path(source, file);
		struct meta_path known;

		if (file->skip)
			continue;
		int r = meta_find(writer_meta(w), path.text, path.length, &known, err);

		if (r == -ENOENT || (r == 0 && known.record.mtime_ns != file->mtime_ns))
			continue;
		if (r < 0)
			return r;
		struct doubt doubt = {known.chunk, known.record_index, i};

		if (known.record.bytes != file->bytes) {
			if (buffer_append(doubts, &doubt, sizeof(doubt)) < 0)
				return error_errno(err, -ENOMEM, "%s", source->root);
			continue;
		}
		file->skip = true;
		++*n_files;
	}
	return 0;
}

/* n doubts about samples of one chunk. Files of a chunk that cannot be read are packed again. */
static int settle(struct writer *w, struct pack_source *source, const struct doubt *doubts, size_t n,
		  uint64_t *n_files, struct error *err)
{
	_cleanup_(freep) void *head = NULL;
	struct chunk_view view;
	int r = store_read_head(writer_store(w), &doubts->chunk, &head, &view, NULL);

	if (r < 0)
		return r == -ENOMEM ? error_errno(err, r, "%s", source->root) : 0;
	for (size_t i = 0; i < n; i++) {
		struct source_file *file = &source->files[doubts[i].file];

		if (doubts[i].record >= view.header->n_records ||
		    view.records[doubts[i].record].source_bytes != file->bytes)
			continue;
		file->skip = true;
		++*n_files;
	}
	return 0;
}

int pack_unchanged(struct writer *w, struct pack_source *source, uint64_t *ret_n_files, struct error *err)
{
	struct buffer buffer = {0};
	uint64_t n_files = 0;
	int r = writer_info(w)->n_paths ? look_up(w, source, &buffer, &n_files, err) : 0;
	struct doubt *doubts = (struct doubt *)buffer.data;
	size_t n = buffer.bytes / sizeof(*doubts);

	if (n)
		qsort(doubts, n, sizeof(*doubts), compare_doubts);
	for (size_t i = 0, end; i < n && r == 0; i = end) {
		for (end = i + 1; end < n && compare_doubts(&doubts[i], &doubts[end]) == 0; end++)
			continue;
		r = settle(w, source, doubts + i, end - i, &n_files, err);
	}
	buffer_free(&buffer);
	if (r == 0)
		*ret_n_files = n_files;
	return r;
}

int pack_has(struct writer *w, const struct chunk_sample *sample, struct error *err)
{
	struct meta_path known;
	int r = meta_find(writer_meta(w), sample->path, sample->path_length, &known, err);

	if (r < 0)
		return r == -ENOENT ? 0 : r;
	return known.record.bytes == sample->bytes && known.record.mtime_ns == sample->mtime_ns &&
	       known.record.mode == sample->mode &&
	       known.record.xxh3 == checksum_xxh3(sample->data, sample->bytes);
}
