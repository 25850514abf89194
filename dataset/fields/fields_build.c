/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/fields.h"

#include <errno.h>
#include <string.h>

#include "lib/text.h"

static const char *printable(const struct field *f, char *text, size_t size)
{
	return text_printable(text, size, f->name, f->name_length);
}

static int check_name(const struct field *f, struct error *err)
{
	char text[160];

	if (!fields_name_is_valid(f->name, f->name_length))
		return error_set(err, -EINVAL, "invalid field name '%s': must be UTF-8, without NUL",
				 printable(f, text, sizeof(text)));
	if (f->name_length == 0 || f->name_length > FIELDS_NAME_MAX)
		return error_set(err, -EINVAL, "invalid field name '%s': must have 1 to %u bytes",
				 printable(f, text, sizeof(text)), FIELDS_NAME_MAX);
	return 0;
}

static int check_value(const struct field *f, struct error *err)
{
	static const size_t lengths[FIELD_N_KINDS] = {
	    [FIELD_INT] = 8, [FIELD_FLOAT] = 8, [FIELD_BOOL] = 1, [FIELD_NONE] = 0};
	char text[160];

	if (f->kind >= FIELD_N_KINDS)
		return error_set(err, -EINVAL, "field '%s' has kind %u, which does not exist",
				 printable(f, text, sizeof(text)), f->kind);
	if (f->kind >= FIELD_INT && f->bytes != lengths[f->kind])
		return error_set(err, -EINVAL, "field '%s' is of kind '%s', which has %zu bytes, not %zu",
				 printable(f, text, sizeof(text)), field_kind_name(f->kind), lengths[f->kind],
				 f->bytes);
	return 0;
}

static bool has_same_name(const struct field *a, const struct field *b)
{
	return a->name_length == b->name_length && memcmp(a->name, b->name, a->name_length) == 0;
}

static size_t align(size_t n)
{
	return (n + FIELDS_ALIGN - 1) / FIELDS_ALIGN * FIELDS_ALIGN;
}

static size_t names_bytes(const struct field *fields, size_t n)
{
	size_t bytes = 0;

	for (size_t i = 0; i < n; i++)
		bytes += fields[i].name_length;
	return bytes;
}

static size_t names_at(size_t n)
{
	return sizeof(struct fields_head) + n * sizeof(struct fields_entry);
}

size_t fields_bytes(const struct field *fields, size_t n)
{
	size_t end = names_at(n) + names_bytes(fields, n);

	for (size_t i = 0; i < n; i++)
		end = align(end) + fields[i].bytes;
	return end;
}

int fields_check(const struct field *fields, size_t n, struct error *err)
{
	uint64_t bytes = 0;
	char text[160];
	int r = 0;

	if (n == 0 || n > FIELDS_MAX)
		return error_set(err, -EINVAL, "a sample must have 1 to %u fields, not %zu", FIELDS_MAX, n);
	for (size_t i = 0; i < n && r == 0; i++) {
		r = check_name(&fields[i], err);
		if (r == 0)
			r = check_value(&fields[i], err);
		for (size_t k = 0; k < i && r == 0; k++)
			if (has_same_name(&fields[k], &fields[i]))
				r = error_set(err, -EEXIST, "field '%s' occurs twice in the sample",
					      printable(&fields[i], text, sizeof(text)));
		if (r == 0 && (fields[i].bytes > CHUNK_SAMPLE_MAX_BYTES ||
			       (bytes += fields[i].bytes) > CHUNK_SAMPLE_MAX_BYTES))
			r = error_set(err, -EFBIG, "a sample can have at most 1 GiB: split it");
	}
	if (r == 0 && names_bytes(fields, n) > UINT16_MAX)
		r = error_set(err, -EINVAL, "the names of the fields must have at most %u bytes together",
			      UINT16_MAX);
	if (r == 0 && fields_bytes(fields, n) > CHUNK_SAMPLE_MAX_BYTES)
		r = error_set(err, -EFBIG, "a sample can have at most 1 GiB: split it");
	return r;
}

void fields_build(const struct field *fields, size_t n, void *sample)
{
	const struct fields_head head = {.magic = FIELDS_MAGIC, .n_fields = (uint32_t)n};
	unsigned char *to = sample;
	size_t name = 0, end = names_at(n) + names_bytes(fields, n);

	memcpy(to, &head, sizeof(head));
	for (size_t i = 0; i < n; i++) {
		const struct field *f = &fields[i];
		const struct fields_entry e = {
		    .offset = (uint32_t)align(end),
		    .bytes = (uint32_t)f->bytes,
		    .name_offset = (uint16_t)name,
		    .name_length = (uint8_t)f->name_length,
		    .kind = (uint8_t)f->kind,
		};

		memcpy(to + names_at(i), &e, sizeof(e));
		memcpy(to + names_at(n) + name, f->name, f->name_length);
		memset(to + end, 0, e.offset - end);
		if (f->bytes)
			memcpy(to + e.offset, f->data, f->bytes);
		name += f->name_length;
		end = e.offset + f->bytes;
	}
}
