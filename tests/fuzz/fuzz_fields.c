/* SPDX-License-Identifier: Apache-2.0 */
/* Treats arbitrary bytes as a sample of fields; the first byte is the layout. Fields lie inside the sample,
 * and a sample that is built of them has the same fields. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/fields.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t walk(enum chunk_layout layout, const void *sample, size_t bytes, struct field *fields)
{
	struct fields_walk w;
	size_t n = 0;
	int r = fields_begin(&w, layout, sample, bytes);

	while (r == 0 && n < FIELDS_MAX && (r = fields_next(&w, &fields[n])) > 0) {
		const struct field *f = &fields[n++];
		const char *begin = sample, *end = begin + bytes;

		if (f->name < begin || f->name_length > (size_t)(end - f->name) ||
		    (const char *)f->data < begin || f->bytes > (size_t)(end - (const char *)f->data) ||
		    f->kind >= FIELD_N_KINDS)
			abort();
		r = 0;
	}
	return r < 0 ? 0 : n;
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
	enum chunk_layout layout = size && data[0] ? CHUNK_LAYOUT_TAR : CHUNK_LAYOUT_FIELDS;
	size_t n = size ? walk(layout, data + 1, size - 1, fields) : 0;

	if (layout == CHUNK_LAYOUT_FIELDS && n && fields_check(fields, n, NULL) == 0) {
		size_t bytes = fields_bytes(fields, n);
		unsigned char *built = malloc(bytes);

		if (!built)
			return 0;
		fields_build(fields, n, built);
		if (walk(layout, built, bytes, again) != n)
			abort();
		compare(fields, again, n);
		free(built);
	}
	return 0;
}
