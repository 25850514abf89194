/* SPDX-License-Identifier: Apache-2.0 */
/* Treats arbitrary bytes as a sample of fields; the first byte is the layout, and with columns the next two
 * are their length. Fields lie inside the sample or the columns, a column that is looked for lies where the
 * walk finds it, and a sample that is built of fields has the same fields. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/columns.h"
#include "dataset/fields.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Bytes in which the parts of fields must lie. */
struct inside {
	const char *begin;
	size_t bytes;
};

static void check_inside(struct inside in, const void *part, size_t bytes)
{
	const char *at = part;

	if (at < in.begin || at > in.begin + in.bytes || bytes > (size_t)(in.begin + in.bytes - at))
		abort();
}

static size_t walk(enum chunk_layout layout, struct columns columns, const void *sample, size_t bytes,
		   struct field *fields)
{
	const struct inside data = {sample, bytes},
			    names = columns.bytes ? (struct inside){columns.data, columns.bytes} : data;
	struct fields_walk w;
	size_t n = 0;
	int r = fields_begin(&w, layout, columns, sample, bytes);

	while (r == 0 && n < FIELDS_MAX && (r = fields_next(&w, &fields[n])) > 0) {
		const struct field *f = &fields[n++];

		check_inside(names, f->name, f->name_length);
		check_inside(data, f->data, f->bytes);
		if (f->encoding)
			check_inside(names, f->encoding, f->encoding_length);
		if (f->kind > (f->encoding ? FIELD_ENCODED : FIELD_N_KINDS - 1))
			abort();
		r = 0;
	}
	return r < 0 ? 0 : n;
}

/* Looks for each column by its name, which two of them may have: then it finds the first one. */
static void find_columns(struct columns columns, const void *sample, size_t bytes, const struct field *fields,
			 size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct column_place place;
		const void *value;
		size_t length;

		if (column_find(columns, fields[i].name, fields[i].name_length, &place) < 0 ||
		    column_value(&place, sample, bytes, &value, &length) < 0)
			abort();
		check_inside((struct inside){sample, bytes}, value, length);
		if (value == fields[i].data && length == fields[i].bytes)
			continue;
		size_t k = 0;

		while (fields[k].name_length != fields[i].name_length ||
		       memcmp(fields[k].name, fields[i].name, fields[i].name_length) != 0)
			k++;
		if (k == i)
			abort();
	}
}

/* Looks for a column in a sample that the walk may have refused. */
static void find_anything(struct columns columns, const void *sample, size_t bytes)
{
	struct column_place place;
	const void *value;
	size_t length;

	if (column_find(columns, "a", 1, &place) == 0 &&
	    column_value(&place, sample, bytes, &value, &length) == 0)
		check_inside((struct inside){sample, bytes}, value, length);
}

static void walk_columns(enum chunk_layout layout, const uint8_t *data, size_t size, struct field *fields)
{
	uint16_t columns_bytes;

	if (size < sizeof(columns_bytes))
		return;
	memcpy(&columns_bytes, data, sizeof(columns_bytes));
	data += sizeof(columns_bytes);
	size -= sizeof(columns_bytes);
	if (columns_bytes == 0 || columns_bytes > size)
		return;
	const struct columns columns = {data, columns_bytes};
	size_t n = walk(layout, columns, data + columns_bytes, size - columns_bytes, fields);

	find_columns(columns, data + columns_bytes, size - columns_bytes, fields, n);
	find_anything(columns, data + columns_bytes, size - columns_bytes);
}

static void compare(const struct field *a, const struct field *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (a[i].kind != b[i].kind || a[i].bytes != b[i].bytes ||
		    a[i].name_length != b[i].name_length ||
		    memcmp(a[i].name, b[i].name, a[i].name_length) != 0 ||
		    (a[i].bytes && memcmp(a[i].data, b[i].data, a[i].bytes) != 0))
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct field fields[FIELDS_MAX], again[FIELDS_MAX];
	enum chunk_layout layout =
	    CHUNK_LAYOUT_FIELDS + (size ? data[0] % (CHUNK_N_LAYOUTS - CHUNK_LAYOUT_FIELDS) : 0);
	size_t n;

	if (size && chunk_layout_has_columns(layout)) {
		walk_columns(layout, data + 1, size - 1, fields);
		return 0;
	}
	n = size ? walk(layout, (struct columns){0}, data + 1, size - 1, fields) : 0;

	if (layout == CHUNK_LAYOUT_FIELDS && n && fields_check(fields, n, NULL) == 0) {
		size_t bytes = fields_bytes(fields, n);
		unsigned char *built = malloc(bytes);

		if (!built)
			return 0;
		fields_build(fields, n, built);
		if (walk(layout, (struct columns){0}, built, bytes, again) != n)
			abort();
		compare(fields, again, n);
		free(built);
	}
	return 0;
}
