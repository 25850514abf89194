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
