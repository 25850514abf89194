/* SPDX-License-Identifier: Apache-2.0 */
#include "escape.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "lib/text.h"
#include "lib/utf8.h"

/* Returns the replacement of an ASCII character; NULL: the character stays. */
typedef const char *(*replace_fn)(char c);

static void write_ascii(FILE *stream, char c, replace_fn replace)
{
	const char *other = replace(c);

	if (other)
		fputs(other, stream);
	else
		fputc(c, stream);
}

static void write_byte(FILE *stream, char byte, replace_fn replace)
{
	char escape[8];

	snprintf(escape, sizeof(escape), TEXT_ESCAPE, (unsigned char)byte);
	for (const char *c = escape; *c; c++)
		write_ascii(stream, *c, replace);
}

static bool is_control(char c)
{
	return (unsigned char)c < 0x20 || c == 0x7f;
}

/* Writes a hidden character (utf8_is_hidden()) with each byte escaped. */
static void write_hidden(FILE *stream, const char *text, size_t n, replace_fn replace)
{
	for (size_t i = 0; i < n; i++)
		write_byte(stream, text[i], replace);
}

static void escape(FILE *stream, const char *text, replace_fn replace)
{
	while (*text) {
		uint32_t code = 0;
		size_t n = utf8_decode(text, SIZE_MAX, &code);

		if (n > 1 && utf8_is_hidden(code))
			write_hidden(stream, text, n, replace);
		else if (n > 1)
			fwrite(text, 1, n, stream);
		else if (n && (replace(*text) || !is_control(*text)))
			write_ascii(stream, *text, replace);
		else
			write_byte(stream, *text, replace);
		text += n ? n : 1;
	}
}

static const char *replace_html(char c)
{
	switch (c) {
	case '<': return "&lt;";
	case '>': return "&gt;";
	case '&': return "&amp;";
	case '"': return "&quot;";
	case '\'': return "&#39;";
	case '\n':
	case '\t': return " ";
	}
	return NULL;
}

static const char *replace_json(char c)
{
	switch (c) {
	case '<': return "\\u003c";
	case '>': return "\\u003e";
	case '&': return "\\u0026";
	case '"': return "\\\"";
	case '\\': return "\\\\";
	case '\n': return "\\n";
	case '\t': return "\\t";
	}
	return NULL;
}

static const char *replace_label(char c)
{
	switch (c) {
	case '"': return "\\\"";
	case '\\': return "\\\\";
	case '\n': return "\\n";
	}
	return NULL;
}

void escape_html(FILE *stream, const char *text)
{
	escape(stream, text, replace_html);
}

void escape_json(FILE *stream, const char *text)
{
	fputc('"', stream);
	escape(stream, text, replace_json);
	fputc('"', stream);
}

void escape_label(FILE *stream, const char *text)
{
	escape(stream, text, replace_label);
}

static const char *replace_nothing(char c)
{
	return NULL;
}

char *escape_utf8(const char *text)
{
	char *copy = NULL;
	size_t size;
	FILE *stream = open_memstream(&copy, &size);

	if (!stream)
		return NULL;
	escape(stream, text, replace_nothing);
	if (fclose(stream)) {
		free(copy);
		return NULL;
	}
	return copy;
}
