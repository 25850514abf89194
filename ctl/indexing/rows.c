/* SPDX-License-Identifier: Apache-2.0 */
#include "rows.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/columns.h"
#include "dataset/external.h"
#include "lib/array.h"
#include "lib/cleanup.h"
#include "lib/text.h"

struct file_row {
	char *source, *path;
	uint64_t offset, bytes;
	bool has_stamp;
	uint64_t stamp; /* of the source when the row was made */
};

struct row_reader {
	FILE *file;
	char *line; /* of the row that was read last, whose texts point into it */
	size_t line_allocated;
	unsigned long long number;
	bool has_row; /* the row belongs to the next source */
	struct file_row row;
	char *source; /* as the rows name it */
	char *name;   /* as the dataset names it */
	enum chunk_layout layout;
	struct columns columns;
};

void rows_free(struct row_reader *r)
{
	if (!r)
		return;
	if (r->file && r->file != stdin)
		fclose(r->file);
	free(r->line);
	free(r->source);
	free((void *)r->columns.data);
	free(r->name);
	free(r);
}

enum chunk_layout rows_layout(const struct row_reader *r, struct columns *ret)
{
	*ret = r->columns;
	return r->layout;
}

/* Replaces the escapes of a name in place. Returns false if one is unknown. */
static bool unescape(char *text)
{
	char *to = text;

	for (const char *from = text; *from; from++) {
		char c = *from;

		if (c == '\\') {
			c = *++from == 't' ? '\t' : *from == 'n' ? '\n' : *from == '\\' ? '\\' : '\0';
			if (!c)
				return false;
		}
		*to++ = c;
	}
	*to = '\0';
	return true;
}

static bool parse_number(const char *text, uint64_t *ret)
{
	char *end;

	errno = 0;
	*ret = strtoull(text, &end, 10);
	return errno == 0 && *text >= '0' && *text <= '9' && *end == '\0';
}

static bool parse(char *line, struct file_row *ret)
{
	char *words[4], *at = line;

	for (int i = 0; i < 4; i++) {
		words[i] = strsep(&at, "\t");
		if (!words[i])
			return false;
	}
	ret->has_stamp = at;
	if ((at && !parse_number(at, &ret->stamp)) || !unescape(words[0]) || !unescape(words[3]) ||
	    (words[0][0] != '/' && !external_is_registered(words[0])) ||
	    !parse_number(words[1], &ret->offset) || !parse_number(words[2], &ret->bytes))
		return false;
	ret->source = words[0];
	ret->path = words[3];
	return true;
}

/* Returns the length of the next line, or 0 at the end. */
static ssize_t read_line(struct row_reader *r, struct error *err)
{
	ssize_t n;

	errno = 0;
	n = getline(&r->line, &r->line_allocated, r->file);
	if (n < 0)
		return ferror(r->file) || errno == ENOMEM ? error_errno(err, -errno, "cannot read the rows")
							  : 0;
	r->number++;
	if (n == 0 || r->line[n - 1] != '\n')
		return error_set(err, -EINVAL, "row %llu is cut off: it has no newline at its end",
				 r->number);
	r->line[n - 1] = '\0';
	return n;
}

/* Parses the line, of n bytes, as a row. Returns 1. */
static int take_row(struct row_reader *r, ssize_t n, struct error *err)
{
	char text[100];

	text_printable(text, sizeof(text), r->line, (size_t)n - 1);
	if (strlen(r->line) != (size_t)n - 1 || !parse(r->line, &r->row))
		return error_set(
		    err, -EINVAL,
		    "row %llu, '%s', is not an absolute path, an offset, a length and the path of a "
		    "sample, separated by tabs, with or without the source's stamp behind them",
		    r->number, text);
	r->has_row = true;
	return 1;
}

/* Returns 1, or 0 at the end. */
static int read_row(struct row_reader *r, struct error *err)
{
	ssize_t n = r->has_row ? 0 : read_line(r, err);

	if (r->has_row)
		return 1;
	return n <= 0 ? (int)n : take_row(r, n, err);
}

/* Returns the layout that the row of a column begins with. CHUNK_LAYOUT_PLAIN: it is another row. */
static enum chunk_layout layout_of(const char *line)
{
	size_t n = strcspn(line, "\t");

	for (enum chunk_layout layout = 0; layout < CHUNK_N_LAYOUTS; layout++) {
		const char *name = chunk_layout_name(layout);

		if (chunk_layout_has_columns(layout) && strlen(name) == n && memcmp(line, name, n) == 0)
			return layout;
	}
	return CHUNK_LAYOUT_PLAIN;
}

struct column_rows {
	struct field *fields;
	char **lines; /* that the fields point into */
	size_t n, n_allocated, n_lines_allocated;
};

static void column_rows_free(struct column_rows *c)
{
	for (size_t i = 0; i < c->n; i++)
		free(c->lines[i]);
	free(c->lines);
	free(c->fields);
}

/* Takes the row of a column, which begins with the layout. */
static int take_column(struct row_reader *r, struct column_rows *to, struct error *err)
{
	char *at = r->line, *words[4];
	uint64_t bytes = COLUMN_DIFFERS;

	for (int i = 0; i < 4; i++)
		words[i] = at ? strsep(&at, "\t") : NULL;
	if (!words[3] || at || !unescape(words[1]) || !unescape(words[2]) ||
	    (words[3][0] && !parse_number(words[3], &bytes)) || (to->n && r->layout != layout_of(words[0])))
		return error_set(
		    err, -EINVAL,
		    "row %llu is not the layout, the name, the encoding and the length of a column, "
		    "separated by tabs",
		    r->number);
	if (array_reserve(to->fields, to->n, to->n_allocated) < 0 ||
	    array_reserve(to->lines, to->n, to->n_lines_allocated) < 0)
		return error_errno(err, -ENOMEM, "the rows");
	r->layout = layout_of(words[0]);
	to->fields[to->n] = (struct field){.name = words[1],
					   .name_length = strlen(words[1]),
					   .encoding = words[2],
					   .encoding_length = strlen(words[2]),
					   .bytes = bytes};
	to->lines[to->n++] = r->line;
	r->line = NULL;
	r->line_allocated = 0;
	return 0;
}

/* Reads the columns in front of the samples, and the first sample's row. */
static int read_columns(struct row_reader *r, struct error *err)
{
	_cleanup_(column_rows_free) struct column_rows found = {0};
	ssize_t n;
	int result;

	while ((n = read_line(r, err)) > 0 && layout_of(r->line) != CHUNK_LAYOUT_PLAIN) {
		result = take_column(r, &found, err);
		if (result < 0)
			return result;
	}
	result = n <= 0 ? (int)n : take_row(r, n, err);
	if (result < 0 || found.n == 0)
		return result < 0 ? result : 0;
	return columns_make(r->layout, found.fields, found.n, &r->columns, err);
}

int rows_open(const char *name, struct row_reader **ret, struct error *err)
{
	struct row_reader *r = calloc(1, sizeof(*r));
	int result;

	if (!r)
		return error_errno(err, -ENOMEM, "%s", name);
	r->file = strcmp(name, "-") == 0 ? stdin : fopen(name, "re");
	result = r->file ? read_columns(r, err) : error_errno(err, -errno, "cannot read %s", name);
	if (result < 0) {
		rows_free(r);
		return result;
	}
	*ret = r;
	return 0;
}

static int changed(const struct row_reader *r, struct error *err)
{
	return error_set(err, -ESTALE, "%s changed while it was being indexed: run the command again",
			 r->source);
}

static int begin(struct row_reader *r, struct scanned *to, struct error *err)
{
	int result;

	free(r->source);
	free(r->name);
	r->source = strdup(r->row.source);
	r->name = r->source ? external_find_name(r->source) : NULL;
	if (!r->name)
		return error_errno(err, -errno, "the rows");
	result = external_stat(r->name, &to->source_bytes, &to->stamp, err);
	return result == 0 && r->row.has_stamp && r->row.stamp != to->stamp ? changed(r, err) : result;
}

static int take(struct row_reader *r, struct scanned *to, struct error *err)
{
	const struct file_row *row = &r->row;
	uint64_t least = to->n ? to->samples[to->n - 1].offset : 0;

	if (row->offset < least || row->offset > to->source_bytes ||
	    row->bytes > to->source_bytes - row->offset)
		return error_set(err, -EINVAL,
				 "row %llu lies outside %s, which has %llu bytes, or before the row above it",
				 r->number, r->source, (unsigned long long)to->source_bytes);
	const struct scanned_sample sample = {.offset = row->offset, .bytes = row->bytes};

	r->has_row = false;
	return scanned_add(to, &sample, row->path, strlen(row->path)) < 0
		   ? error_errno(err, -ENOMEM, "the rows")
		   : 0;
}

static int check_unchanged(const struct row_reader *r, const struct scanned *s, struct error *err)
{
	uint64_t bytes, stamp;
	int result = external_stat(r->name, &bytes, &stamp, err);

	return result == 0 && (bytes != s->source_bytes || stamp != s->stamp) ? changed(r, err) : result;
}

int rows_next(struct row_reader *r, struct scanned *ret, const char **ret_source, struct error *err)
{
	struct scanned found = {0};
	int more = read_row(r, err), result;

	if (more <= 0)
		return more;
	result = begin(r, &found, err);
	while (result == 0 && (more = read_row(r, err)) > 0 && strcmp(r->row.source, r->source) == 0)
		result = take(r, &found, err);
	if (result == 0 && more < 0)
		result = more;
	if (result == 0)
		result = check_unchanged(r, &found, err);
	if (result < 0) {
		scanned_free(&found);
		return result;
	}
	*ret = found;
	*ret_source = r->name;
	return 1;
}
