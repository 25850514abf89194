/* SPDX-License-Identifier: Apache-2.0 */
/* Fields of samples that are in memory. */
#include "dataset/fields.h"

#include <errno.h>
#include <string.h>

#include "client/diesel.h"

_Static_assert((int)DIESEL_FIELD_NONE == (int)FIELD_NONE && (int)DIESEL_FIELD_INT == (int)FIELD_INT &&
		   (int)DIESEL_FIELD_ENCODED == (int)FIELD_ENCODED && DIESEL_FIELDS_MAX == FIELDS_MAX,
	       "they have the same numbers");

static int begin(struct fields_walk *w, const struct diesel_dataset_info *of, const void *sample,
		 size_t bytes)
{
	const struct columns columns = {of->columns, of->columns_bytes};

	return fields_begin(w, (enum chunk_layout)of->layout, columns, sample, bytes);
}

int diesel_fields_list(const struct diesel_dataset_info *of, const void *sample, size_t bytes,
		       struct diesel_field *fields, uint32_t max, uint32_t *ret_n)
{
	struct fields_walk w;
	struct field f;
	uint32_t n = 0;
	int r = begin(&w, of, sample, bytes);

	while (r == 0 && (r = fields_next(&w, &f)) > 0) {
		if (n < max)
			fields[n] = (struct diesel_field){.name = f.name,
							  .name_length = f.name_length,
							  .data = f.data,
							  .bytes = f.bytes,
							  .kind = f.kind,
							  .encoding = f.encoding,
							  .encoding_length = f.encoding_length};
		n++;
		r = 0;
	}
	if (r == 0)
		*ret_n = n;
	return r;
}

/* The result of a search, in columns of n samples. */
struct fields_found {
	const char *const *names;
	const size_t *name_lengths;
	uint32_t n_names, n;
	const void **values;
	uint32_t *sizes;
	uint8_t *kinds;
};

static void take(const struct fields_found *to, uint32_t i, const struct field *f)
{
	for (uint32_t k = 0; k < to->n_names; k++) {
		size_t at = (size_t)k * to->n + i;

		if (to->kinds[at] != DIESEL_FIELD_MISSING || to->name_lengths[k] != f->name_length ||
		    memcmp(to->names[k], f->name, f->name_length) != 0)
			continue;
		to->values[at] = f->data;
		to->sizes[at] = (uint32_t)f->bytes;
		to->kinds[at] = (uint8_t)f->kind;
	}
}

static int find(const struct fields_found *to, const struct diesel_dataset_info *of, uint32_t i,
		const struct diesel_item *item, uint32_t *ret_n)
{
	struct fields_walk w;
	struct field f;
	/* Without a sample, begin() would walk over the columns. */
	int r = item->data ? begin(&w, of, item->data, item->bytes) : -EBADMSG;

	*ret_n = 0;
	while (r == 0 && (r = fields_next(&w, &f)) > 0) {
		take(to, i, &f);
		++*ret_n;
		r = 0;
	}
	return r;
}

int diesel_fields_find(const struct diesel_dataset_info *of, const struct diesel_item *items, uint32_t n,
		       const char *const *names, const size_t *name_lengths, uint32_t n_names,
		       const void **values, uint32_t *sizes, uint8_t *kinds, uint32_t *n_fields,
		       uint32_t *wrong)
{
	const struct fields_found to = {names, name_lengths, n_names, n, values, sizes, kinds};

	memset(kinds, DIESEL_FIELD_MISSING, (size_t)n * n_names);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t n_found;
		int r = find(&to, of, i, &items[i], &n_found);

		if (r < 0) {
			*wrong = i;
			return r;
		}
		if (n_fields)
			n_fields[i] = n_found;
	}
	return 0;
}

int diesel_fields_gather(const void *const *values, const uint32_t *sizes, uint32_t n, size_t skip,
			 size_t bytes, void *to)
{
	for (uint32_t i = 0; i < n; i++) {
		const char *value = values[i];

		if (sizes[i] != skip + bytes || (skip && memcmp(value, values[0], skip) != 0))
			return -EINVAL;
		if (bytes)
			memcpy((char *)to + i * bytes, value + skip, bytes);
	}
	return 0;
}
