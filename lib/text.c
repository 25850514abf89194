/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/text.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/utf8.h"

#define ELLIPSIS     "..."
#define ESCAPE_BYTES 4

/* Levels of escaped bytes and characters. Each level includes the lower ones. */
enum level { LEVEL_BYTES, LEVEL_CONTROLS, LEVEL_BACKSLASHES };

/* Returns the length of the character at text if it can stay as it is, or 0 if its first byte must be
 * escaped. */
static size_t plain_length(const char *text, size_t left, enum level level)
{
	uint32_t code;
	size_t n = utf8_decode(text, left, &code);

	if (n && level >= LEVEL_CONTROLS && utf8_is_hidden(code))
		return 0;
	return n && level == LEVEL_BACKSLASHES && code == '\\' ? 0 : n;
}

/* Copies text to the buffer, escaped. Returns the number of bytes of text used: fewer than length if the
 * buffer is full. */
static size_t copy(char *buffer, size_t space, const char *text, size_t length, enum level level,
		   size_t *ret_used)
{
	size_t used = 0, i = 0;

	while (i < length) {
		size_t n = plain_length(text + i, length - i, level);
		size_t needed = n ? n : ESCAPE_BYTES;

		if (used + needed > space)
			break;
		if (n)
			memcpy(buffer + used, text + i, n);
		else
			snprintf(buffer + used, ESCAPE_BYTES + 1, TEXT_ESCAPE, (unsigned char)text[i]);
		used += needed;
		i += n ? n : 1;
	}
	buffer[used] = '\0';
	*ret_used = used;
	return i;
}

char *text_printable(char *buffer, size_t size, const char *text, size_t length)
{
	size_t used;

	assert(size >= 8);
	if (copy(buffer, size - 1, text, length, LEVEL_BACKSLASHES, &used) < length) {
		copy(buffer, size - sizeof(ELLIPSIS), text, length, LEVEL_BACKSLASHES, &used);
		memcpy(buffer + used, ELLIPSIS, sizeof(ELLIPSIS));
	}
	return buffer;
}

char *text_line(char *buffer, size_t size, const char *text)
{
	size_t used;

	assert(size >= 8);
	copy(buffer, size - 1, text, strlen(text), LEVEL_CONTROLS, &used);
	return buffer;
}

static char *copy_new(const char *text, enum level level)
{
	size_t length = strlen(text), space = length * ESCAPE_BYTES, used;
	char *new = malloc(space + 1);

	if (new)
		copy(new, space, text, length, level, &used);
	return new;
}

char *text_line_new(const char *text)
{
	return copy_new(text, LEVEL_CONTROLS);
}

char *text_utf8_new(const char *text)
{
	return copy_new(text, LEVEL_BYTES);
}

void text_put_json_escape(FILE *stream, uint32_t code)
{
	if (code >= 0x10000) {
		fprintf(stream, "\\u%04x", (unsigned)(0xd800 + ((code - 0x10000) >> 10)));
		code = 0xdc00 + (code & 0x3ff);
	}
	fprintf(stream, "\\u%04x", (unsigned)code);
}

void text_put_json(FILE *stream, const char *json)
{
	for (size_t n, left = strlen(json); left; json += n, left -= n) {
		uint32_t code = 0;

		n = utf8_decode(json, left, &code);
		if (n == 0)
			fprintf(stream, "\\" TEXT_ESCAPE, (unsigned char)*json);
		else if (code != '\n' && code != '\t' && utf8_is_hidden(code))
			text_put_json_escape(stream, code);
		else
			fwrite(json, 1, n, stream);
		n = n ? n : 1;
	}
	fputc('\n', stream);
}
