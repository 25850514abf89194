/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/fields.h"

#include <errno.h>
#include <string.h>

#include "fields_columns.h"
#include "lib/utf8.h"

/* Members of a tar archive in memory: POSIX.1-1988 (ustar), GNU and pax headers. */
#define BLOCK 512u

struct tar_header {
	char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100], magic[8];
	char user[32], group[32], major[8], minor[8], prefix[155], padding[12];
};

_Static_assert(sizeof(struct tar_header) == BLOCK, "stored");

/* Properties of the next member from extension headers. */
struct extension {
	const char *path; /* NULL: as in its header */
	size_t path_length;
	bool has_bytes; /* the next field is set */
	uint64_t bytes;
};

/* Parses octal digits among spaces, or GNU's binary numbers, which begin with the bit 0x80. */
static int parse_number(const char *text, size_t length, uint64_t *ret)
{
	const unsigned char *at = (const unsigned char *)text, *end = at + length;
	uint64_t value = 0;

	if (*at & 0x80) {
		value = *at++ & 0x7f;
		for (; at < end; at++) {
			if (value >> 55)
				return -EBADMSG;
			value = value << 8 | *at;
		}
		*ret = value;
		return 0;
	}
	while (at < end && *at == ' ')
		at++;
	for (; at < end && *at >= '0' && *at <= '7'; at++)
		value = value << 3 | (uint64_t)(*at - '0'); /* 12 digits fit */
	if (at < end && *at != ' ' && *at != '\0')
		return -EBADMSG;
	*ret = value;
	return 0;
}

/* The header's sum counts its own field as spaces. Some old programs add up signed bytes. */
static bool has_checksum(const struct tar_header *h)
{
	const unsigned char *bytes = (const unsigned char *)h;
	uint64_t wanted;
	int64_t sum = 0, high = 0;

	for (size_t i = 0; i < BLOCK; i++) {
		sum += bytes[i];
		high += bytes[i] >> 7;
	}
	for (size_t i = 0; i < sizeof(h->checksum); i++) {
		sum += ' ' - (unsigned char)h->checksum[i];
		high -= (unsigned char)h->checksum[i] >> 7;
	}
	return parse_number(h->checksum, sizeof(h->checksum), &wanted) == 0 &&
	       ((int64_t)wanted == sum || (int64_t)wanted == sum - 256 * high);
}

static int parse_decimal(const char *text, size_t length, uint64_t *ret)
{
	uint64_t value = 0;

	for (size_t i = 0; i < length; i++) {
		if (text[i] < '0' || text[i] > '9' || value > CHUNK_SAMPLE_MAX_BYTES)
			return -EBADMSG;
		value = 10 * value + (uint64_t)(text[i] - '0');
	}
	if (length == 0)
		return -EBADMSG;
	*ret = value;
	return 0;
}

static bool is_key(const char *record, size_t length, const char *key)
{
	size_t n = strlen(key);

	return length >= n && memcmp(record, key, n) == 0;
}

/* Takes one record of a pax header, "KEY=VALUE". */
static int take_record(const char *record, size_t length, struct extension *x)
{
	if (is_key(record, length, "path=")) {
		x->path = record + 5;
		x->path_length = length - 5;
	} else if (is_key(record, length, "size=")) {
		x->has_bytes = true;
		return parse_decimal(record + 5, length - 5, &x->bytes);
	} else if (is_key(record, length, "GNU.sparse.")) {
		return -EBADMSG;
	}
	return 0;
}

/* A pax header is lines "LENGTH KEY=VALUE\n", whose length counts the whole line. */
static int take_pax(const char *text, size_t bytes, struct extension *x)
{
	while (bytes) {
		const char *space = memchr(text, ' ', bytes);
		size_t digits = space ? (size_t)(space - text) : 0;
		uint64_t length;
		int r = space ? parse_decimal(text, digits, &length) : -EBADMSG;

		if (r == 0 && (length > bytes || length < digits + 2 || text[length - 1] != '\n'))
			r = -EBADMSG;
		if (r == 0)
			r = take_record(space + 1, length - digits - 2, x);
		if (r < 0)
			return r;
		text += length;
		bytes -= length;
	}
	return 0;
}

static bool is_extension(const char *extension, size_t length, const char *const *list)
{
	for (; *list; list++) {
		size_t i = 0;

		while (i < length && (*list)[i] && (extension[i] | 0x20) == (*list)[i])
			i++;
		if (i == length && !(*list)[i])
			return true;
	}
	return false;
}

static enum field_kind kind_of(const char *name, size_t length)
{
	static const char *const images[] = {"jpg", "jpeg", "png",  "webp", "ppm",
					     "bmp", "tif",  "tiff", "gif",  NULL};
	static const char *const texts[] = {"txt", "text", "caption", "transcript", NULL};
	static const char *const json[] = {"json", "jsonl", NULL};
	static const char *const numbers[] = {"cls", "cls2", "index", "inx", "id", "count", NULL};
	static const char *const arrays[] = {"npy", NULL};
	static const struct {
		const char *const *list;
		enum field_kind kind;
	} kinds[] = {{images, FIELD_IMAGE},
		     {texts, FIELD_TEXT},
		     {json, FIELD_JSON},
		     {numbers, FIELD_INT},
		     {arrays, FIELD_ARRAY}};
	const char *dot = memrchr(name, '.', length), *extension = dot ? dot + 1 : name;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (is_extension(extension, length - (size_t)(extension - name), kinds[i].list))
			return kinds[i].kind;
	return FIELD_BYTES;
}

/* Returns false if a member of this path is no field. */
static bool name_field(const char *path, size_t length, struct field *ret)
{
	const char *slash = memrchr(path, '/', length), *base = slash ? slash + 1 : path;
	size_t left = length - (size_t)(base - path);
	const char *dot = memchr(base, '.', left);

	if (!dot || dot == base || dot + 1 == base + left || (left >= 2 && memcmp(base, "__", 2) == 0))
		return false;
	ret->name = dot + 1;
	ret->name_length = left - (size_t)(dot + 1 - base);
	ret->kind = kind_of(ret->name, ret->name_length);
	return true;
}

static int data_bytes(const struct tar_header *h, const struct extension *x, uint64_t *ret)
{
	if (h->type >= '1' && h->type <= '6') { /* links, devices and folders have no data */
		*ret = 0;
		return 0;
	}
	if (x->has_bytes && h->type != 'x' && h->type != 'g' && h->type != 'L' && h->type != 'K') {
		*ret = x->bytes;
		return 0;
	}
	return parse_number(h->size, sizeof(h->size), ret);
}

/* Takes the header and data at w->at. Returns 1 if it is a field. */
static int take_member(struct fields_walk *w, struct extension *x, struct field *ret)
{
	const struct tar_header *h = (const struct tar_header *)(w->sample + w->at);
	const char *data = (const char *)(h + 1);
	size_t left = w->bytes - w->at - BLOCK;
	uint64_t bytes;

	if (!has_checksum(h) || data_bytes(h, x, &bytes) < 0 || bytes > left || h->type == 'S')
		return -EBADMSG;
	w->at += BLOCK + bytes + (BLOCK - bytes % BLOCK) % BLOCK;
	if (w->at > w->bytes)
		w->at = w->bytes; /* the last member's padding may be missing */
	switch (h->type) {
	case 'L':
		x->path = data;
		x->path_length = strnlen(data, bytes);
		return 0;
	case 'x': return take_pax(data, bytes, x);
	case 'K':
	case 'g': return 0;
	default: break;
	}
	bool is_file = h->type == '0' || h->type == '\0' || h->type == '7';
	const char *path = x->path ? x->path : h->name;
	size_t length = x->path ? x->path_length : strnlen(h->name, sizeof(h->name));

	*x = (struct extension){0};
	ret->data = data;
	ret->bytes = bytes;
	return is_file && name_field(path, length, ret);
}

static int fields_tar_next(struct fields_walk *w, struct field *ret)
{
	struct extension x = {0};

	while (w->at < w->bytes) {
		if (w->bytes - w->at < BLOCK)
			return -EBADMSG;
		if (w->sample[w->at] == '\0' &&
		    ((const struct tar_header *)(w->sample + w->at))->checksum[0] == '\0')
			return 0; /* the end of an archive */
		int r = take_member(w, &x, ret);

		if (r != 0)
			return r;
	}
	return 0;
}

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
