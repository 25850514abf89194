/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the head of a chunk from a store. */
#include "dataset/store.h"

#include <errno.h>
#include <stdlib.h>

#include "dataset/chunk_id.h"
#include "lib/cleanup.h"

/* Most heads are shorter than this, so one read is enough for them. */
#define FIRST_READ_BYTES (64u << 10)

int store_parse_head(struct store *s, const struct store_object *object, const void *head, size_t head_bytes,
		     struct chunk_view *ret_view, uint64_t *needed, struct error *err)
{
	char name[STORE_NAME_MAX];
	struct chunk_view view;
	int r = chunk_parse_head(head, head_bytes, object->bytes, store_describe(s, &object->id, name), &view,
				 needed, err);

	if (r < 0)
		return r;
	if (chunk_id_compare(&view.header->id, &object->id) != 0)
		return error_set(err, -EBADMSG,
				 "%s holds a different chunk than its name says; restore the file", name);
	*ret_view = view;
	return 0;
}

int store_read_head(struct store *s, const struct chunk_id *id, void **ret_head, struct chunk_view *ret_view,
		    struct error *err)
{
	struct store_object object = {.id = *id};
	size_t likely = 0;
	int r = store_size(s, id, &object.bytes, err);

	return r < 0 ? r : store_read_head_of(s, &object, &likely, ret_head, ret_view, err);
}

int store_read_head_of(struct store *s, const struct store_object *object, size_t *likely, void **ret_head,
		       struct chunk_view *ret_view, struct error *err)
{
	_cleanup_(freep) void *head = NULL;
	char name[STORE_NAME_MAX];
	struct chunk_view view;
	uint64_t needed = 0;
	uint64_t n = *likely > FIRST_READ_BYTES ? *likely : FIRST_READ_BYTES;
	int r = -EAGAIN;

	store_describe(s, &object->id, name);
	for (size_t head_bytes = 0; r == -EAGAIN; head_bytes = n, n = needed) {
		if (n > object->bytes)
			n = object->bytes;
		void *grown = realloc(head, n ? n : 1);

		if (!grown)
			return error_errno(err, -ENOMEM, "%s", name);
		head = grown;
		r = store_read(s, &object->id, head_bytes, (char *)head + head_bytes, n - head_bytes, err);
		if (r == 0)
			r = store_parse_head(s, object, head, n, &view, &needed, err);
	}
	if (r < 0)
		return r;
	*likely = view.header->payload_offset;
	*ret_head = steal_pointer(head);
	*ret_view = view;
	return 0;
}
