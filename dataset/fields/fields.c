/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/fields.h"

#include <errno.h>
#include <string.h>

#include "fields_columns.h"
#include "fields_tar.h"
#include "lib/utf8.h"

const char *field_kind_name(enum field_kind kind)
{
	static const char *const names[] = {"bytes", "text",  "json", "image", "array",
					    "int",   "float", "bool", "none",  "encoded"};

	return kind <= FIELD_ENCODED ? names[kind] : "unknown";
}

int fields_begin(struct fields_walk *w, enum chunk_layout layout, struct columns columns, const void *sample,
		 size_t bytes)
{
	struct fields_head head;

	*w = (struct fields_walk){.sample = sample, .bytes = bytes, .layout = layout, .columns = columns};
	if (chunk_layout_has_columns(layout))
		return fields_columns_begin(w);
	if (layout == CHUNK_LAYOUT_TAR)
		return bytes ? 0 : -EBADMSG;
	if (layout != CHUNK_LAYOUT_FIELDS)
		return -EINVAL;
	if (bytes < sizeof(head) || bytes > CHUNK_SAMPLE_MAX_BYTES)
		return -EBADMSG;
	memcpy(&head, sample, sizeof(head));
	if (head.magic != FIELDS_MAGIC || head.n_fields == 0 || head.n_fields > FIELDS_MAX ||
	    bytes - sizeof(head) < head.n_fields * sizeof(struct fields_entry))
		return -EBADMSG;
	w->at = sizeof(head);
	w->n_left = w->n_fields = head.n_fields;
	return 0;
}

bool fields_name_is_valid(const char *name, size_t length)
{
	while (length) {
		size_t n = utf8_decode(name, length, NULL);

		if (n == 0 || *name == '\0')
			return false;
		name += n;
		length -= n;
	}
	return true;
}

static bool has_length(enum field_kind kind, size_t bytes)
{
	switch (kind) {
	case FIELD_INT:
	case FIELD_FLOAT: return bytes == 8;
	case FIELD_BOOL: return bytes == 1;
	case FIELD_NONE: return bytes == 0;
	default: return kind < FIELD_N_KINDS;
	}
}

static int next_entry(struct fields_walk *w, struct field *ret)
{
	size_t names = sizeof(struct fields_head) + w->n_fields * sizeof(struct fields_entry);
	struct fields_entry e;

	if (w->n_left == 0)
		return 0;
	memcpy(&e, w->sample + w->at, sizeof(e));
	w->at += sizeof(e);
	w->n_left--;
	if (e.name_length == 0 || e.name_offset > w->bytes - names ||
	    e.name_length > w->bytes - names - e.name_offset || e.offset % FIELDS_ALIGN ||
	    e.offset > w->bytes || e.bytes > w->bytes - e.offset)
		return -EBADMSG;
	const struct field f = {
	    .name = (const char *)w->sample + names + e.name_offset,
	    .name_length = e.name_length,
	    .data = w->sample + e.offset,
	    .bytes = e.bytes,
	    .kind = (enum field_kind)e.kind,
	};

	if (!has_length(f.kind, f.bytes) || !fields_name_is_valid(f.name, f.name_length))
		return -EBADMSG;
	*ret = f;
	return 1;
}

int fields_next(struct fields_walk *w, struct field *ret)
{
	*ret = (struct field){0};
	if (chunk_layout_has_columns(w->layout))
		return fields_columns_next(w, ret);
	return w->layout == CHUNK_LAYOUT_TAR ? fields_tar_next(w, ret) : next_entry(w, ret);
}
