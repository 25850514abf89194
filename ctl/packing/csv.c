/* SPDX-License-Identifier: Apache-2.0 */
#include "csv.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "lib/array.h"

#define BYTE_ORDER_MARK "\xef\xbb\xbf"

/* Reads a record, with the line breaks in its quotes. c->bytes is 0 at the end of the file. */
static int read_text(struct csv *c, struct error *err)
{
	bool in_quotes = false;
	int byte;

	c->bytes = 0;
	while ((byte = getc_unlocked(c->file)) != EOF) {
		if (byte == '\0')
			return error_set(err, -EINVAL,
					 "%s, line %llu: the line has a NUL byte: the table must be UTF-8",
					 c->name, (unsigned long long)c->n_lines + 1);
		if (array_reserve(c->text, c->bytes, c->text_allocated) < 0)
			return error_errno(err, -ENOMEM, "%s", c->name);
		c->text[c->bytes++] = (char)byte;
		in_quotes ^= byte == '"';
		c->n_lines += byte == '\n';
		if (byte == '\n' && !in_quotes)
			return 0;
	}
	if (ferror(c->file))
		return error_errno(err, -EIO, "cannot read %s", c->name);
	if (in_quotes)
		return error_set(err, -EINVAL, "%s, line %llu: a quote is not closed", c->name,
				 (unsigned long long)c->line);
	return array_reserve(c->text, c->bytes, c->text_allocated) < 0
		   ? error_errno(err, -ENOMEM, "%s", c->name)
		   : 0;
}

static void choose_separator(struct csv *c)
{
	char *mark = c->text;
	size_t at;

	if (c->bytes >= 3 && memcmp(mark, BYTE_ORDER_MARK, 3) == 0)
		memmove(mark, mark + 3, c->bytes -= 3);
	c->text[c->bytes] = '\0';
	at = strcspn(mark, ",;\t");
	c->separator = mark[at] ? mark[at] : ',';
}

/* Cuts a cell, whose quotes are removed in place. Returns the next one; NULL: it was the last. */
static char *cut(char *cell, int separator)
{
	char *to = cell, *from = cell;
	bool in_quotes = false;

	for (; *from && (in_quotes || *from != separator); from++) {
		if (*from != '"') {
			*to++ = *from;
		} else if (in_quotes && from[1] == '"') {
			*to++ = *++from;
		} else {
			in_quotes = !in_quotes;
		}
	}
	bool more = *from != '\0';

	*to = '\0';
	return more ? from + 1 : NULL;
}

int csv_next(struct csv *c, struct error *err)
{
	do {
		c->line = c->n_lines + 1;
		int r = read_text(c, err);

		if (r < 0 || c->bytes == 0)
			return r;
		if (c->bytes && c->text[c->bytes - 1] == '\n')
			c->bytes--;
		if (c->bytes && c->text[c->bytes - 1] == '\r')
			c->bytes--;
		if (!c->separator)
			choose_separator(c);
		c->text[c->bytes] = '\0';
	} while (c->bytes == 0);
	c->n = 0;
	for (char *cell = c->text; cell;) {
		char *next = cut(cell, c->separator);

		if (array_reserve(c->cells, c->n, c->n_allocated) < 0)
			return error_errno(err, -ENOMEM, "%s", c->name);
		c->cells[c->n++] = cell;
		cell = next;
	}
	return 1;
}
