/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/store.h"

#include <errno.h>

#include "dataset/chunk_id.h"
#include "lib/cleanup.h"

int store_open(const char *dataset_path, bool create, struct store **ret, struct error *err)
{
	return store_posix_open(dataset_path, create, ret, err);
}

void store_free(struct store *s)
{
	if (s)
		s->ops->free(s);
}

int store_put(struct store *s, const struct chunk_id *id, const struct iovec *parts, int n_parts,
	      struct error *err)
{
	return s->ops->put(s, id, parts, n_parts, err);
}

int store_size(struct store *s, const struct chunk_id *id, uint64_t *ret_bytes, struct error *err)
{
	return s->ops->size(s, id, ret_bytes, err);
}

int store_read(struct store *s, const struct chunk_id *id, uint64_t offset, void *buffer, size_t bytes,
	       struct error *err)
{
	return s->ops->read(s, id, offset, buffer, bytes, err);
}

int store_open_fd(struct store *s, const struct chunk_id *id, int flags, int *ret_fd, struct error *err)
{
	return s->ops->open_fd(s, id, flags, ret_fd, err);
}

int store_list(struct store *s, const struct chunk_id *after, struct store_object **ret, size_t *ret_n,
	       struct error *err)
{
	return s->ops->list(s, after, ret, ret_n, err);
}

int store_remove(struct store *s, const struct chunk_id *id, struct error *err)
{
	return s->ops->remove(s, id, err);
}

int store_sweep(struct store *s, struct error *err)
{
	return s->ops->sweep(s, err);
}

char *store_describe(const struct store *s, const struct chunk_id *id, char text[STORE_NAME_MAX])
{
	s->ops->describe(s, id, text, STORE_NAME_MAX);
	return text;
}

/* Most heads are shorter than this, so one read is enough for them. */
#define FIRST_READ_BYTES (64u << 10)

int store_parse_head(struct store *s, const struct chunk_id *id, const void *head, size_t head_bytes,
		     uint64_t file_bytes, struct chunk_view *ret_view, uint64_t *needed, struct error *err)
{
	char name[STORE_NAME_MAX];
	struct chunk_view view;
	int r =
	    chunk_parse_head(head, head_bytes, file_bytes, store_describe(s, id, name), &view, needed, err);

	if (r < 0)
		return r;
	if (chunk_id_compare(&view.header->id, id) != 0)
		return error_set(err, -EBADMSG, "%s holds another chunk than its name says; restore the file",
				 name);
	*ret_view = view;
	return 0;
}

int store_read_head(struct store *s, const struct chunk_id *id, void **ret_head, struct chunk_view *ret_view,
		    struct error *err)
{
	_cleanup_(freep) void *head = NULL;
	char name[STORE_NAME_MAX];
	struct chunk_view view;
	uint64_t file_bytes, needed;
	int r = store_size(s, id, &file_bytes, err);

	if (r < 0)
		return r;
	store_describe(s, id, name);
	for (size_t head_bytes = 0, n = FIRST_READ_BYTES;; n = needed) {
		if (n > file_bytes)
			n = file_bytes;
		void *grown = realloc(head, n ? n : 1);

		if (!grown)
			return error_errno(err, -ENOMEM, "%s", name);
		head = grown;
		r = store_read(s, id, head_bytes, (char *)head + head_bytes, n - head_bytes, err);
		if (r < 0)
			return r;
		head_bytes = n;
		r = store_parse_head(s, id, head, head_bytes, file_bytes, &view, &needed, err);
		if (r != -EAGAIN)
			break;
	}
	if (r < 0)
		return r;
	*ret_head = steal_pointer(head);
	*ret_view = view;
	return 0;
}

#define DIGEST_READ_BYTES (4u << 20)

int store_digest(struct store *s, const struct chunk_id *id, struct digest *ret, struct error *err)
{
	_cleanup_(freep) void *buffer = malloc(DIGEST_READ_BYTES);
	struct digest_stream *stream = NULL;
	char name[STORE_NAME_MAX];
	uint64_t bytes = 0;
	int r = buffer ? digest_stream_new(&stream) : -ENOMEM;

	if (r < 0)
		return error_errno(err, r, "cannot compute the SHA-256 of %s", store_describe(s, id, name));
	r = store_size(s, id, &bytes, err);
	for (uint64_t offset = 0; offset < bytes && r == 0;) {
		size_t n = bytes - offset < DIGEST_READ_BYTES ? bytes - offset : DIGEST_READ_BYTES;

		r = store_read(s, id, offset, buffer, n, err);
		if (r == 0 && digest_stream_add(stream, buffer, n) < 0)
			r = error_errno(err, -ENOTSUP, "cannot compute the SHA-256 of %s",
					store_describe(s, id, name));
		offset += n;
	}
	if (r == 0 && digest_stream_finish(stream, ret) < 0)
		r = error_errno(err, -ENOTSUP, "cannot compute the SHA-256 of %s",
				store_describe(s, id, name));
	digest_stream_free(stream);
	return r;
}
