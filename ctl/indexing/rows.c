/* SPDX-License-Identifier: Apache-2.0 */
#include "rows.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/external.h"
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
	char *source;
};

int rows_open(const char *name, struct row_reader **ret, struct error *err)
{
	struct row_reader *r = calloc(1, sizeof(*r));

	if (!r)
		return error_errno(err, -ENOMEM, "%s", name);
	r->file = strcmp(name, "-") == 0 ? stdin : fopen(name, "re");
	if (!r->file) {
		int code = -errno;

		free(r);
		return error_errno(err, code, "cannot read %s", name);
	}
	*ret = r;
	return 0;
}

void rows_free(struct row_reader *r)
{
	if (!r)
		return;
	if (r->file != stdin)
		fclose(r->file);
	free(r->line);
	free(r->source);
	free(r);
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

/* Returns 1, or 0 at the end. */
static int read_row(struct row_reader *r, struct error *err)
{
	ssize_t n;
	char text[100];

	if (r->has_row)
		return 1;
	errno = 0;
	n = getline(&r->line, &r->line_allocated, r->file);
	if (n < 0)
		return ferror(r->file) || errno == ENOMEM ? error_errno(err, -errno, "cannot read the rows")
							  : 0;
	r->number++;
	if (n == 0 || r->line[n - 1] != '\n')
		return error_set(err, -EINVAL, "row %llu is cut off: it has no newline at its end",
				 r->number);
	r->line[--n] = '\0';
	text_printable(text, sizeof(text), r->line, (size_t)n);
	if (strlen(r->line) != (size_t)n || !parse(r->line, &r->row))
		return error_set(
		    err, -EINVAL,
		    "row %llu, '%s', is not an absolute path, an offset, a length and the path of a "
		    "sample, separated by tabs, with or without the source's stamp behind them",
		    r->number, text);
	r->has_row = true;
	return 1;
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
	r->source = strdup(r->row.source);
	if (!r->source)
		return error_errno(err, -ENOMEM, "the rows");
	result = external_stat(r->source, &to->source_bytes, &to->stamp, err);
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
	int result = external_stat(r->source, &bytes, &stamp, err);

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
	*ret_source = r->source;
	return 1;
}
