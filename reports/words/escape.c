/* SPDX-License-Identifier: Apache-2.0 */
#include "escape.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* Bytes of the well-formed UTF-8 character at text; 0: there is none (RFC 3629). */
static size_t character_length(const unsigned char *text)
{
	static const struct {
		unsigned char first_min, first_max, second_min, second_max;
		size_t length;
	} forms[] = {
	    {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3}, {0xe1, 0xec, 0x80, 0xbf, 3},
	    {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4},
	    {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
	};

	if (text[0] < 0x80)
		return 1;
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		if (text[0] < forms[i].first_min || text[0] > forms[i].first_max)
			continue;
		if (text[1] < forms[i].second_min || text[1] > forms[i].second_max)
			return 0;
		for (size_t k = 2; k < forms[i].length; k++)
			if ((text[k] & 0xc0) != 0x80)
				return 0;
		return forms[i].length;
	}
	return 0;
}

/* The harmless form of one ASCII character, or NULL where it is harmless itself. */
typedef const char *(*replace_fn)(char c);

static void escape(FILE *stream, const char *text, replace_fn replace)
{
	while (*text) {
		size_t n = character_length((const unsigned char *)text);
		const char *other = NULL;

		if (n == 1)
			other = replace(*text);
		else if (!n)
			other = REPLACEMENT;
		if (other)
			fputs(other, stream);
		else
			fwrite(text, 1, n, stream);
		text += n ? n : 1;
	}
}

static const char *replace_control(char c)
{
	return (unsigned char)c < 0x20 || c == 0x7f ? REPLACEMENT : NULL;
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
	return replace_control(c);
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
	return replace_control(c);
}

static const char *replace_label(char c)
{
	switch (c) {
	case '"': return "\\\"";
	case '\\': return "\\\\";
	case '\n': return "\\n";
	}
	return replace_control(c);
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

char *escape_utf8(const char *text)
{
	char *copy = NULL;
	size_t size;
	FILE *stream = open_memstream(&copy, &size);

	if (!stream)
		return NULL;
	escape(stream, text, replace_control);
	if (fclose(stream)) {
		free(copy);
		return NULL;
	}
	return copy;
}
