/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The columns of samples with the layouts CHUNK_LAYOUT_MDS and CHUNK_LAYOUT_LITDATA: names and encodings,
 * which MosaicML Streaming and LitData keep in an index.json, once for all samples. The head of each chunk
 * and the snapshot have them (struct columns). Little endian:
 *
 *   0      struct columns_head
 *   8      n x struct columns_entry
 *   ...    texts: name and encoding of each column in turn, UTF-8 without NUL, no terminators
 *
 * A sample is the lengths that differ, uint32_t, then the values. fields.h walks over them.
 * All lengths are in bytes. Columns may come from anybody: every function checks every bound.
 */

#include "dataset/fields.h"

#include <string.h>

#define COLUMNS_MAX_BYTES (64u << 10)
#define COLUMN_DIFFERS    UINT32_MAX /* as a length: each sample has its own */

struct columns_head {
	uint32_t bytes; /* of all columns with this head */
	uint32_t n;     /* 1 .. FIELDS_MAX */
};

struct columns_entry {
	uint32_t bytes; /* of each value, or COLUMN_DIFFERS */
	uint16_t encoding_length;
	uint8_t name_length; /* 1 .. FIELDS_NAME_MAX */
	uint8_t kind;        /* enum field_kind */
};

_Static_assert(sizeof(struct columns_head) == 8, "stored");
_Static_assert(sizeof(struct columns_entry) == 8, "stored");

/* Makes columns in new memory. fields: names, encodings and lengths; the kinds follow from the encodings.
 * -EINVAL: a name or a length is invalid; -EEXIST: a name occurs twice; -ENOMEM. err names the column. */
int columns_make(enum chunk_layout layout, const struct field *fields, size_t n, struct columns *ret,
		 struct error *err);

static inline bool columns_equal(struct columns a, struct columns b)
{
	return a.bytes == b.bytes && (a.bytes == 0 || memcmp(a.data, b.data, a.bytes) == 0);
}

/* Where the values of one column lie in samples, for a program that looks for no other. */
struct column_place {
	uint32_t n_lengths, n_before; /* lengths in a sample, and those of earlier columns */
	uint64_t bytes_before;        /* of earlier values that have one length in all samples */
	uint32_t bytes;               /* of the value, or COLUMN_DIFFERS */
};

/* -ENOENT: there is no such column; -EBADMSG. */
int column_find(struct columns columns, const char *name, size_t length, struct column_place *ret);
/* Finds the value in a sample. -EBADMSG: it lies outside. */
int column_value(const struct column_place *place, const void *sample, size_t bytes, const void **ret,
		 size_t *ret_bytes);
