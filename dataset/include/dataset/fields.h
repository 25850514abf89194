/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The fields of a sample, whose bytes have a layout with fields (enum chunk_layout). All lengths are in
 * bytes. The bytes of a sample may come from anybody: every bound is checked.
 *
 * CHUNK_LAYOUT_FIELDS, little endian, offsets from the sample's first byte:
 *
 *   0      magic, number of fields (struct fields_head)
 *   8      n_fields x struct fields_entry
 *   ...    names: UTF-8 without NUL, no terminators, each once
 *   ...    values, each at a multiple of FIELDS_ALIGN
 *
 * CHUNK_LAYOUT_TAR: members of a tar archive, headers and data (ustar, GNU or pax). The name of a field is
 * the part of the member's base name after its first dot. Members without such a name, or whose base name
 * begins with "__", and members that are no files, are no fields. The kind follows from the last extension.
 * Numbers are decimal text.
 *
 * CHUNK_LAYOUT_MDS, CHUNK_LAYOUT_LITDATA: columns.h. Bytes that begin as an image file are an image.
 *
 * Thread-safety: a walk belongs to one thread; samples are only read.
 */

#include "dataset/chunk.h"

#define FIELDS_MAGIC    0x31465344u /* "DSF1" */
#define FIELDS_MAX      1024u
#define FIELDS_ALIGN    16u
#define FIELDS_NAME_MAX 255u

enum field_kind {
	FIELD_BYTES,
	FIELD_TEXT, /* UTF-8 */
	FIELD_JSON,
	FIELD_IMAGE, /* a file: JPEG, PNG, WebP, ... */
	FIELD_ARRAY, /* a .npy file */
	FIELD_INT,   /* int64 */
	FIELD_FLOAT, /* float64 */
	FIELD_BOOL,  /* 1 byte */
	FIELD_NONE,  /* 0 bytes */
	FIELD_N_KINDS,
	FIELD_ENCODED = FIELD_N_KINDS /* in an encoding of the format that the sample comes from */
};

struct fields_head {
	uint32_t magic;
	uint32_t n_fields; /* 1 .. FIELDS_MAX */
};

struct fields_entry {
	uint32_t offset; /* of the value */
	uint32_t bytes;
	uint16_t name_offset; /* from the end of the entries */
	uint8_t name_length;  /* 1 .. FIELDS_NAME_MAX */
	uint8_t kind;         /* enum field_kind */
};

_Static_assert(sizeof(struct fields_head) == 8, "stored");
_Static_assert(sizeof(struct fields_entry) == 12, "stored");

struct field {
	const char *name; /* name_length bytes, not terminated */
	size_t name_length;
	const void *data; /* of any alignment */
	size_t bytes;
	enum field_kind kind;
	const char *encoding; /* of columns (columns.h), such as "ndarray:float32"; encoding_length bytes */
	size_t encoding_length;
};

/* Returns "bytes", "text", ...; "unknown" for other numbers. */
const char *field_kind_name(enum field_kind kind);

/* The state of a walk over the fields of one sample. */
struct fields_walk {
	const unsigned char *sample;
	size_t bytes;
	enum chunk_layout layout;
	struct columns columns;
	size_t at;                 /* of the next entry, member or value */
	size_t text, length_at;    /* of the next column's name and length */
	uint32_t n_left, n_fields; /* entries */
};

/* Begins a walk. columns: of the dataset; sample NULL: walks over the columns themselves, whose fields have
 * no data. -EBADMSG: this is no sample of that layout; -EINVAL: the layout has no fields. */
int fields_begin(struct fields_walk *w, enum chunk_layout layout, struct columns columns, const void *sample,
		 size_t bytes);
/* Returns 1 and the next field, which points into the sample, or 0 at the end. -EBADMSG: damaged. A damaged
 * sample may have two fields of one name. */
int fields_next(struct fields_walk *w, struct field *ret);

bool fields_name_is_valid(const char *name, size_t length);

/* Checks that a sample can be built of these fields. -EINVAL: the number of fields, a name or a value is
 * invalid; -EEXIST: a name occurs twice; -EFBIG: longer than CHUNK_SAMPLE_MAX_BYTES. err names the field. */
int fields_check(const struct field *fields, size_t n, struct error *err);
/* Returns the length of the sample. */
size_t fields_bytes(const struct field *fields, size_t n);
/* Writes the sample, of fields_bytes() bytes, from fields that were checked. */
void fields_build(const struct field *fields, size_t n, void *sample);
