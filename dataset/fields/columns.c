/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/columns.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fields_columns.h"
#include "lib/text.h"

/* Encodings whose values are of a kind as they are. */
static const struct {
	enum chunk_layout layout;
	const char *encoding;
	enum field_kind kind;
} kinds[] = {
    {CHUNK_LAYOUT_MDS, "bytes", FIELD_BYTES},      {CHUNK_LAYOUT_MDS, "str", FIELD_TEXT},
    {CHUNK_LAYOUT_MDS, "int", FIELD_INT},          {CHUNK_LAYOUT_MDS, "int64", FIELD_INT},
    {CHUNK_LAYOUT_MDS, "float64", FIELD_FLOAT},    {CHUNK_LAYOUT_MDS, "jpeg", FIELD_IMAGE},
    {CHUNK_LAYOUT_MDS, "png", FIELD_IMAGE},        {CHUNK_LAYOUT_MDS, "json", FIELD_JSON},
    {CHUNK_LAYOUT_LITDATA, "bytes", FIELD_BYTES},  {CHUNK_LAYOUT_LITDATA, "file", FIELD_BYTES},
    {CHUNK_LAYOUT_LITDATA, "str", FIELD_TEXT},     {CHUNK_LAYOUT_LITDATA, "text", FIELD_TEXT},
    {CHUNK_LAYOUT_LITDATA, "int", FIELD_INT},      {CHUNK_LAYOUT_LITDATA, "integer", FIELD_INT},
    {CHUNK_LAYOUT_LITDATA, "float", FIELD_FLOAT},  {CHUNK_LAYOUT_LITDATA, "bool", FIELD_BOOL},
    {CHUNK_LAYOUT_LITDATA, "boolean", FIELD_BOOL}, {CHUNK_LAYOUT_LITDATA, "jpeg", FIELD_IMAGE},
    {CHUNK_LAYOUT_LITDATA, "image", FIELD_IMAGE},
};

/* Behind a colon, encodings have parameters. */
static enum field_kind kind_of(enum chunk_layout layout, const char *encoding, size_t length)
{
	const char *colon = memchr(encoding, ':', length);
	size_t n = colon ? (size_t)(colon - encoding) : length;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (kinds[i].layout == layout && strlen(kinds[i].encoding) == n &&
		    memcmp(kinds[i].encoding, encoding, n) == 0)
			return kinds[i].kind;
	return FIELD_ENCODED;
}

/* Returns the length of values of this kind; 0: any. */
static size_t length_of(enum field_kind kind)
{
	return kind == FIELD_INT || kind == FIELD_FLOAT ? 8 : kind == FIELD_BOOL ? 1 : 0;
}

static bool is_image(const unsigned char *data, size_t bytes)
{
	static const struct {
		const char *text;
		size_t length;
	} begins[] = {{"\xff\xd8\xff", 3}, {"\x89PNG\r\n\x1a\n", 8},
		      {"GIF87a", 6},       {"GIF89a", 6},
		      {"BM", 2},           {"II*\0", 4},
		      {"MM\0*", 4}};

	for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++)
		if (bytes >= begins[i].length && memcmp(data, begins[i].text, begins[i].length) == 0)
			return true;
	return bytes >= 12 && memcmp(data, "RIFF", 4) == 0 && memcmp(data + 8, "WEBP", 4) == 0;
}

static int read_head(struct columns c, struct columns_head *ret)
{
	if (c.bytes < sizeof(*ret))
		return -EBADMSG;
	memcpy(ret, c.data, sizeof(*ret));
	return ret->n == 0 || ret->n > FIELDS_MAX ||
		       c.bytes - sizeof(*ret) < ret->n * sizeof(struct columns_entry)
		   ? -EBADMSG
		   : 0;
}

static struct columns_entry read_entry(struct columns c, size_t i)
{
	struct columns_entry e;

	memcpy(&e, (const char *)c.data + sizeof(struct columns_head) + i * sizeof(e), sizeof(e));
	return e;
}

/* Takes the name and the encoding of a column. *text: offset of the name; then that of the next one. */
static int take_texts(struct columns c, const struct columns_entry *e, size_t *text, struct field *ret)
{
	size_t left = c.bytes - *text;

	if (e->name_length == 0 || e->name_length > left || e->encoding_length > left - e->name_length)
		return -EBADMSG;
	ret->name = (const char *)c.data + *text;
	ret->name_length = e->name_length;
	ret->encoding = ret->name + ret->name_length;
	ret->encoding_length = e->encoding_length;
	*text += (size_t)e->name_length + e->encoding_length;
	return 0;
}

int fields_columns_begin(struct fields_walk *w)
{
	struct columns_head head;
	size_t n_lengths = 0;
	int r = read_head(w->columns, &head);

	if (r < 0)
		return r;
	for (uint32_t i = 0; i < head.n; i++)
		n_lengths += read_entry(w->columns, i).bytes == COLUMN_DIFFERS;
	w->n_left = w->n_fields = head.n;
	w->text = sizeof(head) + head.n * sizeof(struct columns_entry);
	w->at = n_lengths * sizeof(uint32_t);
	return w->sample && w->at > w->bytes ? -EBADMSG : 0;
}

/* Takes the next value, and the length in front of the values if it has one. */
static int take_value(struct fields_walk *w, const struct columns_entry *e, struct field *ret)
{
	uint32_t length = e->bytes;

	if (length == COLUMN_DIFFERS) {
		/* Another process may have changed the entries since they were counted. */
		if (w->length_at + sizeof(length) > w->bytes)
			return -EBADMSG;
		memcpy(&length, w->sample + w->length_at, sizeof(length));
		w->length_at += sizeof(length);
	}
	if (length > w->bytes - w->at)
		return -EBADMSG;
	const unsigned char *value = w->sample + w->at;
	size_t wanted = length_of(ret->kind);

	if (wanted && wanted != length)
		return -EBADMSG;
	w->at += length;
	ret->data = value;
	ret->bytes = length;
	if (ret->kind == FIELD_BYTES && is_image(value, length))
		ret->kind = FIELD_IMAGE;
	return 0;
}

int fields_columns_next(struct fields_walk *w, struct field *ret)
{
	struct columns_entry e;
	int r;

	if (w->n_left == 0)
		return w->sample && w->at != w->bytes ? -EBADMSG : 0;
	e = read_entry(w->columns, w->n_fields - w->n_left);
	w->n_left--;
	if (e.kind > FIELD_ENCODED)
		return -EBADMSG;
	ret->kind = (enum field_kind)e.kind;
	r = take_texts(w->columns, &e, &w->text, ret);
	if (r == 0)
		r = w->sample ? take_value(w, &e, ret) : 0;
	if (r == 0)
		r = fields_name_is_valid(ret->name, ret->name_length) ? 1 : -EBADMSG;
	return r;
}

static bool is_same_name(const struct field *a, const struct field *b)
{
	return a->name_length == b->name_length && memcmp(a->name, b->name, a->name_length) == 0;
}

static int check_column(enum chunk_layout layout, const struct field *fields, size_t i, struct error *err)
{
	const struct field *f = &fields[i];
	size_t wanted = length_of(kind_of(layout, f->encoding, f->encoding_length));
	char text[160], encoding[80];

	text_printable(text, sizeof(text), f->name, f->name_length);
	text_printable(encoding, sizeof(encoding), f->encoding, f->encoding_length);
	if (f->name_length == 0 || f->name_length > FIELDS_NAME_MAX ||
	    !fields_name_is_valid(f->name, f->name_length) || f->encoding_length > UINT16_MAX)
		return error_set(err, -EINVAL,
				 "invalid column '%s': its name must have 1 to %u bytes of UTF-8", text,
				 FIELDS_NAME_MAX);
	if (f->bytes != COLUMN_DIFFERS &&
	    (f->bytes > CHUNK_SAMPLE_MAX_BYTES || (wanted && f->bytes != wanted)))
		return error_set(err, -EINVAL,
				 "column '%s' has values of %zu bytes, which its encoding '%s' does not have",
				 text, f->bytes, encoding);
	for (size_t k = 0; k < i; k++)
		if (is_same_name(&fields[k], f))
			return error_set(err, -EEXIST, "column '%s' occurs twice", text);
	return 0;
}

static uint64_t columns_bytes(const struct field *fields, size_t n)
{
	uint64_t bytes = sizeof(struct columns_head) + n * sizeof(struct columns_entry);

	for (size_t i = 0; i < n; i++)
		bytes += fields[i].name_length + fields[i].encoding_length;
	return bytes;
}

int columns_make(enum chunk_layout layout, const struct field *fields, size_t n, struct columns *ret,
		 struct error *err)
{
	uint64_t bytes = columns_bytes(fields, n);
	char *made, *to, *text;
	int r =
	    n == 0 || n > FIELDS_MAX || bytes > COLUMNS_MAX_BYTES
		? error_set(err, -EINVAL,
			    "samples must have 1 to %u columns, with names and encodings of at most %u bytes",
			    FIELDS_MAX, COLUMNS_MAX_BYTES)
		: 0;

	for (size_t i = 0; i < n && r == 0; i++)
		r = check_column(layout, fields, i, err);
	if (r < 0)
		return r;
	made = malloc(bytes);
	if (!made)
		return error_errno(err, -ENOMEM, "columns");
	const struct columns_head head = {(uint32_t)bytes, (uint32_t)n};

	memcpy(made, &head, sizeof(head));
	to = made + sizeof(head);
	text = to + n * sizeof(struct columns_entry);
	for (size_t i = 0; i < n; i++) {
		const struct field *f = &fields[i];
		const struct columns_entry e = {
		    .bytes = (uint32_t)f->bytes,
		    .encoding_length = (uint16_t)f->encoding_length,
		    .name_length = (uint8_t)f->name_length,
		    .kind = (uint8_t)kind_of(layout, f->encoding, f->encoding_length),
		};

		memcpy(to, &e, sizeof(e));
		to += sizeof(e);
		memcpy(text, f->name, f->name_length);
		memcpy(text + f->name_length, f->encoding, f->encoding_length);
		text += f->name_length + f->encoding_length;
	}
	*ret = (struct columns){made, bytes};
	return 0;
}

int column_find(struct columns columns, const char *name, size_t length, struct column_place *ret)
{
	struct fields_walk w = {.columns = columns}; /* without a sample */
	struct column_place p = {0};
	bool is_found = false;
	struct field f;
	int r = fields_columns_begin(&w);

	while (r == 0 && (r = fields_columns_next(&w, &f)) > 0) {
		uint32_t bytes = read_entry(columns, w.n_fields - w.n_left - 1).bytes;

		r = 0;
		if (!is_found && f.name_length == length && memcmp(f.name, name, length) == 0) {
			is_found = true;
			p.bytes = bytes;
		} else if (!is_found) {
			p.n_before += bytes == COLUMN_DIFFERS;
			p.bytes_before += bytes == COLUMN_DIFFERS ? 0 : bytes;
		}
		p.n_lengths += bytes == COLUMN_DIFFERS;
	}
	if (r < 0 || !is_found)
		return r < 0 ? r : -ENOENT;
	*ret = p;
	return 0;
}

int column_value(const struct column_place *p, const void *sample, size_t bytes, const void **ret,
		 size_t *ret_bytes)
{
	uint64_t at = (uint64_t)p->n_lengths * sizeof(uint32_t);
	uint64_t n = (uint64_t)p->n_before + (p->bytes == COLUMN_DIFFERS);
	uint32_t length = p->bytes;

	if (at > bytes || n > p->n_lengths)
		return -EBADMSG;
	at += p->bytes_before;
	for (uint64_t i = 0; i < n; i++) {
		uint32_t read;

		memcpy(&read, (const char *)sample + i * sizeof(read), sizeof(read));
		if (i < p->n_before)
			at += read;
		else
			length = read;
	}
	if (at > bytes || length > bytes - at)
		return -EBADMSG;
	*ret = (const char *)sample + at;
	*ret_bytes = length;
	return 0;
}
