/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/look_up.h"
#include "dataset/path_order.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/chunk/buffer.h"
#include "dataset/checksum/checksum.h"
#include "dataset/compress.h"
#include "dataset/backend.h"
#include "lib/text.h"

#define SETTLE_FIRST 4096 /* entries */

struct look_up {
	struct place *place;
	struct meta *meta;
	struct store *store;
};

int look_up_open(const char *dataset_path, struct look_up **ret, struct error *err)
{
	struct look_up *l = calloc(1, sizeof(*l));
	struct meta_info info;
	int r;

	if (!l)
		return error_errno(err, -ENOMEM, "%s", dataset_path);
	r = backend_open(dataset_path, BACKEND_READ, &l->place, err);
	if (r == 0)
		r = meta_open_at(l->place->dir_fd, l->place->folder, META_READ, &l->meta, err);
	if (r == 0)
		r = backend_store(l->place, false, &l->store, err);
	if (r == 0)
		r = meta_info(l->meta, &info, err);
	if (r == 0 && info.is_compressed)
		r = store_plain_open(l->store, compress_decode, &l->store, err);
	if (r < 0)
		look_up_close(l);
	else
		*ret = l;
	return r;
}

void look_up_close(struct look_up *l)
{
	if (!l)
		return;
	meta_free(l->meta);
	store_free(l->store);
	backend_close(l->place);
	free(l);
}

int look_up_find(struct look_up *l, const char *path, size_t path_length, struct meta_path *ret,
		 struct error *err)
{
	return meta_find(l->meta, path, path_length, ret, err);
}

int look_up_read(struct look_up *l, const struct meta_path *sample, void *buffer, struct error *err)
{
	const struct chunk_record *record = &sample->record;
	char name[STORE_NAME_MAX], path[160];
	int r;

	text_printable(path, sizeof(path), sample->path, sample->path_length);
	if (record->encoding != CHUNK_ENCODING_RAW || record->bytes != record->stored_bytes)
		return error_errno(err, -EINVAL, "cannot read sample '%s'", path);
	r = store_read(l->store, &sample->chunk, record->offset, buffer, record->stored_bytes, err);
	if (r < 0)
		return r;
	if (!checksum_matches(record->xxh3, true, buffer, record->stored_bytes))
		return error_set(err, -EBADMSG, "%s: sample '%s' at byte %llu is damaged (checksum mismatch)",
				 store_describe(l->store, &sample->chunk, name), path,
				 (unsigned long long)record->offset);
	return 0;
}

struct found {
	size_t offset, length; /* of the path within the text */
	bool is_directory;
	struct meta_path sample;
};

struct look_up_listing {
	struct path_text directory;
	bool recursive;
	struct buffer text;
	struct buffer list; /* struct found */
	size_t settle_at;
};

static int compare_found(const void *a, const void *b, void *text)
{
	const struct found *x = a, *y = b;
	struct path_text p = {(const char *)text + x->offset, x->length},
			 q = {(const char *)text + y->offset, y->length};

	if (x->is_directory != y->is_directory) /* both entries are in the same directory */
		return x->is_directory ? 1 : -1;
	return path_order_compare(p, q);
}

/* Sorts the entries and removes duplicates: a directory was added once for each sample below it. */
static void settle(struct look_up_listing *l)
{
	struct found *list = (struct found *)l->list.data;
	size_t n = l->list.bytes / sizeof(*list), kept = 0;

	if (n)
		qsort_r(list, n, sizeof(*list), compare_found, l->text.data);
	for (size_t i = 0; i < n; i++)
		if (kept == 0 || compare_found(&list[kept - 1], &list[i], l->text.data) != 0)
			list[kept++] = list[i];
	l->list.bytes = kept * sizeof(*list);
	l->settle_at = 2 * kept > SETTLE_FIRST ? 2 * kept : SETTLE_FIRST;
}

static int collect(const struct meta_path *path, void *context)
{
	struct look_up_listing *l = context;
	struct path_text whole = {path->path, path->path_length};
	size_t skip = l->directory.length ? l->directory.length + 1 : 0;
	struct found found = {.offset = l->text.bytes, .length = path->path_length, .sample = *path};
	const char *slash;
	int r;

	if (!path_is_below(whole, l->directory))
		return 0;
	slash = l->recursive ? NULL : memchr(path->path + skip, '/', path->path_length - skip);
	if (slash) {
		size_t n = l->list.bytes / sizeof(found);
		const struct found *last = n ? (const struct found *)l->list.data + (n - 1) : NULL;

		found.is_directory = true;
		found.length = (size_t)(slash - path->path);
		if (last && last->is_directory && last->length == found.length &&
		    !memcmp(l->text.data + last->offset, path->path, found.length))
			return 0;
	}
	r = buffer_append(&l->text, path->path, found.length);
	if (r == 0)
		r = buffer_append(&l->list, &found, sizeof(found));
	if (r == 0 && l->list.bytes / sizeof(found) >= l->settle_at)
		settle(l);
	return r;
}

int look_up_list(struct look_up *l, const char *directory, size_t length, bool recursive,
		 look_up_callback *callback, void *context, struct error *err)
{
	struct look_up_listing listing = {
	    .directory = {directory, length}, .recursive = recursive, .settle_at = SETTLE_FIRST};
	int r = meta_each_path(l->meta, collect, &listing, err);

	if (r == -ENOMEM)
		error_errno(err, r, "cannot list the paths");
	if (r == 0)
		settle(&listing);
	if (r == 0 && listing.list.bytes == 0)
		r = -ENOENT;
	for (size_t i = 0; r == 0 && i < listing.list.bytes / sizeof(struct found); i++) {
		struct found *found = &((struct found *)listing.list.data)[i];
		const char *path = (const char *)listing.text.data + found->offset;
		struct look_up_entry entry = {path, found->length,
					      found->is_directory ? NULL : &found->sample};

		found->sample.path = path;
		r = callback(&entry, context);
	}
	buffer_free(&listing.text);
	buffer_free(&listing.list);
	return r;
}
