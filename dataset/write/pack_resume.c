/* SPDX-License-Identifier: Apache-2.0 */
#include "pack_resume.h"

#include <errno.h>

#include "lib/cleanup.h"

static struct source_file *find_record(const struct source *source, const struct chunk_view *view, uint32_t i)
{
	const struct chunk_record *r = &view->records[i];

	return source_find(source, (struct path_text){view->names + r->name_offset, r->name_length});
}

/* Returns true if each of the chunk's files is in the source, unchanged, and not in an earlier chunk, and was
 * packed as it is to be now. */
static bool is_current(const struct source *source, const struct chunk_view *view, bool rewrites)
{
	if (view->header->flags & CHUNK_FLAG_TOMBSTONE)
		return false;
	for (uint32_t i = 0; i < view->header->n_records; i++) {
		const struct chunk_record *r = &view->records[i];
		const struct source_file *file = find_record(source, view, i);

		if (!file || file->skip || file->bytes != (rewrites ? r->source_bytes : r->bytes) ||
		    file->mtime_ns != r->mtime_ns || (!rewrites && r->source_bytes))
			return false;
	}
	return true;
}

int pack_resume(struct writer *w, struct source *source, bool rewrites, uint64_t *ret_n_files,
		struct error *err)
{
	size_t n;
	const struct store_object *leftovers = writer_leftovers(w, &n);
	uint64_t n_files = 0;

	for (size_t i = 0; i < n; i++) {
		_cleanup_(freep) void *head = NULL;
		struct chunk_view view;
		int r = store_read_head(writer_store(w), &leftovers[i].id, &head, &view, NULL);

		if (r == -ENOMEM)
			return error_errno(err, r, "cannot go on where the last run stopped");
		if (r < 0 || !is_current(source, &view, rewrites))
			continue; /* its files are packed again */
		r = writer_adopt(w, i, err);
		if (r < 0)
			return r;
		for (uint32_t k = 0; k < view.header->n_records; k++)
			find_record(source, &view, k)->skip = true;
		n_files += view.header->n_records;
	}
	*ret_n_files = n_files;
	return 0;
}
