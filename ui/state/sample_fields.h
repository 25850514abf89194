/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Tables of all fields of the structs in sample.h, by their names in JSON. A new field there needs a row
 * here. */

#include <stddef.h>

#include "sample.h"

enum field_kind {
	FIELD_TEXT,  /* char[size] */
	FIELD_REAL,  /* double; NAN: left out */
	FIELD_COUNT, /* uint64_t; SAMPLE_UNKNOWN: left out */
	FIELD_FLAG,  /* bool */
};

struct sample_field {
	const char *name;
	enum field_kind kind;
	size_t offset, size;
};

struct field_table {
	const char *name; /* key of the object or list in the sample */
	size_t item_size;
	const struct sample_field *fields;
	size_t n_fields;
	/* Offsets in struct top_sample: of a list and its length. An object has only items_offset. */
	size_t items_offset, n_offset;
};

extern const struct field_table sample_lists[SAMPLE_LISTS];

#define SAMPLE_OBJECTS 3
extern const struct field_table sample_objects[SAMPLE_OBJECTS];
