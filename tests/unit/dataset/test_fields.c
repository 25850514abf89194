/* SPDX-License-Identifier: Apache-2.0 */
/* Samples of fields. tests/integration/fields reads tar samples that Python's tarfile makes. */
#include "tests/support.h"

#include "dataset/columns.h"
#include "dataset/fields.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIELD(NAME, KIND, DATA, BYTES)                                                                       \
	{                                                                                                    \
		.name = NAME, .name_length = strlen(NAME), .kind = KIND, .data = DATA, .bytes = BYTES        \
	}

/* Returns the sample in memory of its exact length, so that sanitizers notice a read past its end. */
static unsigned char *build(const struct field *fields, size_t n, size_t *ret_bytes)
{
	struct error err = ERROR_INIT;

	if (fields_check(fields, n, &err) < 0)
		fail_msg("%s", err.text);
	*ret_bytes = fields_bytes(fields, n);
	unsigned char *sample = malloc(*ret_bytes);

	assert_non_null(sample);
	fields_build(fields, n, sample);
	return sample;
}

/* for walk(), of layouts that have columns */
static struct columns columns;

/* Returns the number of fields, or the error. */
static int walk(enum chunk_layout layout, const void *sample, size_t bytes, struct field *ret, size_t max)
{
	struct fields_walk w;
	struct field f;
	size_t n = 0;
	int r = fields_begin(&w, layout, columns, sample, bytes);

	while (r == 0 && (r = fields_next(&w, &f)) > 0) {
		if (n < max)
			ret[n] = f;
		n++;
		r = 0;
	}
	return r < 0 ? r : (int)n;
}

TEST(a_sample_has_the_fields_that_it_was_built_of)
{
	static const int64_t number = -5;
	static const double real = 0.1;
	const struct field fields[] = {
	    FIELD("image", FIELD_IMAGE, "\xff\xd8\xff", 3),
	    FIELD("caf\xc3\xa9", FIELD_TEXT, "text", 4),
	    FIELD("n", FIELD_INT, &number, 8),
	    FIELD("x", FIELD_FLOAT, &real, 8),
	    FIELD("ok", FIELD_BOOL, "\1", 1),
	    FIELD("none", FIELD_NONE, NULL, 0),
	    FIELD("", FIELD_BYTES, NULL, 0),
	};
	enum { N = sizeof(fields) / sizeof(fields[0]) - 1 };
	struct field found[N];
	size_t bytes;
	unsigned char *sample = build(fields, N, &bytes);

	assert_int_equal(walk(CHUNK_LAYOUT_FIELDS, sample, bytes, found, N), N);
	for (size_t i = 0; i < N; i++) {
		assert_int_equal(found[i].kind, fields[i].kind);
		assert_int_equal(found[i].name_length, fields[i].name_length);
		assert_memory_equal(found[i].name, fields[i].name, fields[i].name_length);
		assert_int_equal(found[i].bytes, fields[i].bytes);
		if (found[i].bytes)
			assert_memory_equal(found[i].data, fields[i].data, fields[i].bytes);
		assert_int_equal(((const unsigned char *)found[i].data - sample) % FIELDS_ALIGN, 0);
	}
	free(sample);
}

/* The format of one small sample, so that it cannot change by accident. */
TEST(the_bytes_of_a_sample_never_change)
{
	static const unsigned char wanted[] = {
	    'D', 'S', 'F', '1', 2, 0, 0, 0,                      /* magic, count */
	    48,  0,   0,   0,   3, 0, 0, 0, 0, 0, 1, FIELD_TEXT, /* "a" */
	    64,  0,   0,   0,   1, 0, 0, 0, 1, 0, 2, FIELD_BOOL, /* "bc" */
	    'a', 'b', 'c', 0,   0, 0, 0, 0, 0, 0, 0, 0,          0, 0, 0, 0, 'x',
	    'y', 'z', 0,   0,   0, 0, 0, 0, 0, 0, 0, 0,          0, 0, 0, 1};
	const struct field fields[] = {FIELD("a", FIELD_TEXT, "xyz", 3), FIELD("bc", FIELD_BOOL, "\1", 1)};
	size_t bytes;
	unsigned char *sample = build(fields, 2, &bytes);

	assert_int_equal(bytes, sizeof(wanted));
	assert_memory_equal(sample, wanted, sizeof(wanted));
	free(sample);
}

TEST(invalid_fields_are_refused)
{
	static struct field many[FIELDS_MAX + 1];
	static char names[FIELDS_MAX + 1][8], long_names[FIELDS_MAX][FIELDS_NAME_MAX + 1];
	struct error err = ERROR_INIT;
	const struct {
		struct field fields[2];
		size_t n;
		int result;
		const char *text;
	} cases[] = {
	    {.n = 0, .result = -EINVAL, .text = "1 to 1024"},
	    {{FIELD("", FIELD_BYTES, NULL, 0)}, 1, -EINVAL, "1 to 255 bytes"},
	    {{FIELD("\xff", FIELD_BYTES, NULL, 0)}, 1, -EINVAL, "UTF-8"},
	    {{{.name = "a\0b", .name_length = 3}}, 1, -EINVAL, "NUL"},
	    {{FIELD("n", FIELD_INT, "1234", 4)}, 1, -EINVAL, "'int', which has 8 bytes, not 4"},
	    {{FIELD("n", FIELD_NONE, "1", 1)}, 1, -EINVAL, "'none'"},
	    {{FIELD("n", FIELD_N_KINDS, NULL, 0)}, 1, -EINVAL, "kind 9"},
	    {{FIELD("a", FIELD_BYTES, NULL, 0), FIELD("a", FIELD_TEXT, NULL, 0)},
	     2,
	     -EEXIST,
	     "'a' occurs twice"},
	    {{FIELD("a", FIELD_BYTES, NULL, CHUNK_SAMPLE_MAX_BYTES)}, 1, -EFBIG, "1 GiB"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(fields_check(cases[i].fields, cases[i].n, &err), cases[i].result);
		assert_non_null(strstr(err.text, cases[i].text));
	}
	for (size_t i = 0; i <= FIELDS_MAX; i++) {
		snprintf(names[i], sizeof(names[i]), "%zu", i);
		many[i] = (struct field)FIELD(names[i], FIELD_NONE, NULL, 0);
	}
	assert_int_equal(fields_check(many, FIELDS_MAX, &err), 0);
	assert_int_equal(fields_check(many, FIELDS_MAX + 1, &err), -EINVAL);
	for (size_t i = 0; i < FIELDS_MAX; i++) {
		snprintf(long_names[i], sizeof(long_names[i]), "%0255zu", i);
		many[i] = (struct field)FIELD(long_names[i], FIELD_NONE, NULL, 0);
	}
	assert_int_equal(fields_check(many, 257, &err), 0);
	assert_int_equal(fields_check(many, 258, &err), -EINVAL);
}

/* Every truncation and every changed byte gives fields inside the sample, or is refused. */
static void hurt(enum chunk_layout layout, const unsigned char *sample, size_t bytes)
{
	struct field found[8];

	for (size_t cut = 0; cut < bytes; cut++) {
		unsigned char *copy = malloc(cut ? cut : 1);

		memcpy(copy, sample, cut);
		walk(layout, copy, cut, found, 8);
		free(copy);
	}
	for (size_t at = 0; at < bytes; at++) {
		for (unsigned value = 0; value < 256; value += value % 16 == 15 ? 1 : 5) {
			unsigned char *copy = malloc(bytes);

			memcpy(copy, sample, bytes);
			copy[at] = (unsigned char)value;
			int n = walk(layout, copy, bytes, found, 8);

			for (int i = 0; i < n && i < 8; i++) {
				const unsigned char *data = found[i].data;

				assert_true(data >= copy && found[i].bytes <= (size_t)(copy + bytes - data));
			}
			free(copy);
		}
	}
}

TEST(damaged_samples_stay_inside_their_memory)
{
	const struct field fields[] = {FIELD("a", FIELD_TEXT, "xyz", 3), FIELD("bc", FIELD_BOOL, "\1", 1)};
	size_t bytes;
	unsigned char *sample = build(fields, 2, &bytes);
	struct field found[2];

	hurt(CHUNK_LAYOUT_FIELDS, sample, bytes);
	assert_int_equal(walk(CHUNK_LAYOUT_FIELDS, sample, bytes - 1, found, 2), -EBADMSG);
	assert_int_equal(walk(CHUNK_LAYOUT_PLAIN, sample, bytes, found, 2), -EINVAL);
	assert_int_equal(walk(CHUNK_LAYOUT_TAR, sample, bytes, found, 2), -EBADMSG);
	free(sample);
}

/* A member with this type, path and data, and a right checksum. */
static size_t add_member(unsigned char *to, char type, const char *path, const char *data)
{
	size_t bytes = strlen(data);
	unsigned sum = 0;
	char *header = (char *)to;

	memset(to, 0, 1024);
	memcpy(header, path, strlen(path));
	snprintf(header + 124, 12, "%011zo", bytes);
	header[156] = type;
	memcpy(header + 257, "ustar", 6);
	memset(header + 148, ' ', 8);
	for (size_t i = 0; i < 512; i++)
		sum += to[i];
	snprintf(header + 148, 8, "%06o", sum);
	memcpy(to + 512, data, bytes);
	return bytes ? 1024 : 512;
}

static void check_name(const struct field *f, const char *name, enum field_kind kind)
{
	assert_int_equal(f->name_length, strlen(name));
	assert_memory_equal(f->name, name, f->name_length);
	assert_int_equal(f->kind, kind);
}

TEST(members_of_a_tar_are_fields)
{
	static unsigned char sample[16 * 1024];
	struct field found[8];
	size_t n = 0;

	n += add_member(sample + n, '5', "folder.d/", "");
	n += add_member(sample + n, '0', "a.b/key.JPG", "image");
	n += add_member(sample + n, 'L', "././@LongLink", "a/very.long/key.seg.png");
	n += add_member(sample + n, '0', "a/very.short", "mask");
	n += add_member(sample + n, 'x', "PaxHeader", "11 mtime=1\n22 path=a/key.caption\n10 size=3\n");
	n += add_member(sample + n, '0', "a/other.jpg", "textile");
	n += add_member(sample + n, '\0', "key.cls", "7");
	n += add_member(sample + n, '0', "__key__.json", "{}");
	n += add_member(sample + n, '0', "none", "{}");
	n += add_member(sample + n, '0', ".hidden", "{}");
	n += add_member(sample + n, '2', "link.txt", "");
	assert_int_equal(walk(CHUNK_LAYOUT_TAR, sample, n, found, 8), 4);
	check_name(&found[0], "JPG", FIELD_IMAGE);
	check_name(&found[1], "seg.png", FIELD_IMAGE);
	assert_memory_equal(found[1].data, "mask", 4);
	check_name(&found[2], "caption", FIELD_TEXT);
	assert_int_equal(found[2].bytes, 3);
	check_name(&found[3], "cls", FIELD_INT);
	assert_int_equal(walk(CHUNK_LAYOUT_TAR, sample, n + 1024, found, 8), 4); /* the end of an archive */
	hurt(CHUNK_LAYOUT_TAR, sample + 2048, 3 * 1024);
}

TEST(damaged_members_are_refused)
{
	static unsigned char sample[1024];
	struct field found[1];
	static const char *const pax[] = {
	    "5 a=1\n", "8 path=1\n",  "99999999999999999999 path=a\n", "-1 a=b\n",
	    " a=b\n",  "10 size=x\n", "21 GNU.sparse.major=\n"};

	add_member(sample, '0', "key.txt", "text");
	assert_int_equal(walk(CHUNK_LAYOUT_TAR, sample, 516, found, 1), 1); /* without padding */
	assert_int_equal(walk(CHUNK_LAYOUT_TAR, sample, 515, found, 1), -EBADMSG);
	sample[0] ^= 1; /* the checksum is wrong */
	assert_int_equal(walk(CHUNK_LAYOUT_TAR, sample, 1024, found, 1), -EBADMSG);
	add_member(sample, 'S', "key.txt", "text");
	assert_int_equal(walk(CHUNK_LAYOUT_TAR, sample, 1024, found, 1), -EBADMSG);
	for (size_t i = 0; i < sizeof(pax) / sizeof(pax[0]); i++) {
		add_member(sample, 'x', "PaxHeader", pax[i]);
		assert_int_equal(walk(CHUNK_LAYOUT_TAR, sample, 1024, found, 1), -EBADMSG);
	}
	assert_int_equal(walk(CHUNK_LAYOUT_TAR, sample, 0, found, 1), -EBADMSG);
}

#define COLUMN(NAME, ENCODING, BYTES)                                                                        \
	{                                                                                                    \
		.name = NAME, .name_length = strlen(NAME), .encoding = ENCODING,                             \
		.encoding_length = strlen(ENCODING), .bytes = BYTES                                          \
	}

static void make_columns(enum chunk_layout layout)
{
	const struct field made[] = {COLUMN("text", "str", COLUMN_DIFFERS), COLUMN("n", "int", 8),
				     COLUMN("array", "ndarray:uint8:3", 3),
				     COLUMN("raw", "bytes", COLUMN_DIFFERS)};
	struct error err = ERROR_INIT;

	if (columns_make(layout, made, 4, &columns, &err) < 0)
		fail_msg("%s", err.text);
}

static void free_columns(void)
{
	free((void *)columns.data);
	columns = (struct columns){0};
}

/* The lengths of text and raw, then all values. */
static const char row[] = "\2\0\0\0\4\0\0\0hi\7\0\0\0\0\0\0\0abc\xff\xd8\xff\1";
#define ROW_BYTES (sizeof(row) - 1)

TEST(columns_name_the_values_of_a_sample)
{
	struct column_place place;
	struct field found[4];
	struct fields_walk w;
	const void *value;
	size_t bytes;

	make_columns(CHUNK_LAYOUT_MDS);
	assert_int_equal(walk(CHUNK_LAYOUT_MDS, row, ROW_BYTES, found, 4), 4);
	assert_int_equal(found[0].kind, FIELD_TEXT);
	assert_memory_equal(found[0].data, "hi", 2);
	assert_int_equal(found[1].kind, FIELD_INT);
	assert_int_equal(found[2].kind, FIELD_ENCODED);
	assert_memory_equal(found[2].encoding, "ndarray:uint8:3", found[2].encoding_length);
	assert_int_equal(found[3].kind, FIELD_IMAGE); /* bytes that begin as a JPEG file */
	for (int i = 0; i < 4; i++) {
		assert_int_equal(column_find(columns, found[i].name, found[i].name_length, &place), 0);
		assert_int_equal(column_value(&place, row, ROW_BYTES, &value, &bytes), 0);
		assert_ptr_equal(value, found[i].data);
		assert_int_equal(bytes, found[i].bytes);
	}
	assert_int_equal(column_find(columns, "none", 4, &place), -ENOENT);
	assert_int_equal(fields_begin(&w, CHUNK_LAYOUT_MDS, columns, NULL, 0), 0); /* only the columns */
	assert_int_equal(fields_next(&w, &found[0]), 1);
	assert_null(found[0].data);
	free_columns();
}

TEST(damaged_samples_of_columns_stay_inside_their_memory)
{
	struct column_place place;
	struct field found[4];
	const void *value;
	size_t bytes;

	make_columns(CHUNK_LAYOUT_LITDATA);
	hurt(CHUNK_LAYOUT_LITDATA, (const unsigned char *)row, ROW_BYTES);
	assert_int_equal(walk(CHUNK_LAYOUT_LITDATA, row, ROW_BYTES - 1, found, 4), -EBADMSG);
	assert_int_equal(column_find(columns, "raw", 3, &place), 0);
	assert_int_equal(column_value(&place, row, ROW_BYTES - 1, &value, &bytes), -EBADMSG);
	/* Columns are foreign, too. */
	for (size_t cut = 0; cut < columns.bytes; cut++) {
		struct columns part = {malloc(cut ? cut : 1), cut}, whole = columns;

		memcpy((void *)part.data, columns.data, cut);
		columns = part;
		walk(CHUNK_LAYOUT_LITDATA, row, ROW_BYTES, found, 4);
		free_columns();
		columns = whole;
	}
	free_columns();
	assert_int_equal(walk(CHUNK_LAYOUT_LITDATA, row, ROW_BYTES, found, 4), -EBADMSG);
}

TEST(columns_that_no_writer_makes_are_refused)
{
	static const struct {
		struct field columns[2];
		int r;
		const char *says;
	} cases[] = {
	    {{COLUMN("n", "int", 4), COLUMN("m", "int", 8)}, -EINVAL, "column 'n' has values of 4 bytes"},
	    {{COLUMN("n", "int", 8), COLUMN("n", "str", COLUMN_DIFFERS)}, -EEXIST, "column 'n' occurs twice"},
	    {{COLUMN("n", "int", 8), COLUMN("", "str", COLUMN_DIFFERS)}, -EINVAL, "invalid column ''"},
	    {{COLUMN("n", "int", 8), COLUMN("\xff", "str", COLUMN_DIFFERS)}, -EINVAL, "UTF-8"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct error err = ERROR_INIT;

		assert_int_equal(columns_make(CHUNK_LAYOUT_MDS, cases[i].columns, 2, &columns, &err),
				 cases[i].r);
		assert_non_null(strstr(err.text, cases[i].says));
	}
}
