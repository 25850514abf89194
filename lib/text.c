/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/text.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define ELLIPSIS "..."

static bool is_escaped(unsigned char c)
{
	return c < 0x20 || c == 0x7f || c == '\\';
}

static size_t printed_length(const char *text, size_t length)
{
	size_t printed = 0;

	for (size_t i = 0; i < length; i++)
		printed += is_escaped((unsigned char)text[i]) ? 4 : 1;
	return printed;
}

char *text_printable(char *buffer, size_t size, const char *text, size_t length)
{
	assert(size >= 8);
	bool cut = printed_length(text, length) >= size;
	size_t room = cut ? size - sizeof(ELLIPSIS) : size - 1, used = 0;

	for (size_t i = 0; i < length; i++) {
		unsigned char c = (unsigned char)text[i];
		size_t needed = is_escaped(c) ? 4 : 1;

		if (used + needed > room)
			break;
		if (needed == 4)
			snprintf(buffer + used, 5, "\\x%02x", c);
		else
			buffer[used] = (char)c;
		used += needed;
	}
	memcpy(buffer + used, cut ? ELLIPSIS : "", cut ? sizeof(ELLIPSIS) : 1);
	return buffer;
}

/* Bytes of the UTF-8 character that begins here, as Unicode 15, table 3-7, has them; 0: none does. */
static size_t character_length(const unsigned char *c)
{
	unsigned char low = 0x80, high = 0xbf;
	size_t length = c[0] < 0x80   ? 1
			: c[0] < 0xc2 ? 0
			: c[0] < 0xe0 ? 2
			: c[0] < 0xf0 ? 3
			: c[0] < 0xf5 ? 4
				      : 0;

	switch (c[0]) {
	case 0xe0: low = 0xa0; break;
	case 0xed: high = 0x9f; break;
	case 0xf0: low = 0x90; break;
	case 0xf4: high = 0x8f; break;
	}
	for (size_t i = 1; i < length; i++) {
		if (c[i] < (i == 1 ? low : 0x80) || c[i] > (i == 1 ? high : 0xbf))
			return 0;
	}
	return length;
}

static bool is_control(const unsigned char *c)
{
	return c[0] < 0x20 || c[0] == 0x7f || (c[0] == 0xc2 && c[1] < 0xa0);
}

char *text_line(char *buffer, size_t size, const char *text)
{
	const unsigned char *c = (const unsigned char *)text;
	size_t used = 0;

	assert(size >= 8);
	while (*c) {
		size_t length = character_length(c);
		bool plain = length > 0 && !is_control(c);
		size_t needed = plain ? length : 4;

		if (used + needed >= size)
			break;
		if (plain)
			memcpy(buffer + used, c, length);
		else
			snprintf(buffer + used, 5, "\\x%02x", *c);
		used += needed;
		c += plain ? length : 1;
	}
	buffer[used] = '\0';
	return buffer;
}
