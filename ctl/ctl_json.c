/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl_json.h"

#include <stdio.h>

/* The length of the UTF-8 sequence at text, 0 when it is none (overlong and surrogates are none). */
static size_t utf8_length(const unsigned char *text, size_t left)
{
	size_t n = text[0] < 0x80                      ? 1
		   : text[0] >= 0xc2 && text[0] < 0xe0 ? 2
		   : text[0] >= 0xe0 && text[0] < 0xf0 ? 3
		   : text[0] >= 0xf0 && text[0] < 0xf5 ? 4
						       : 0;

	if (n == 0 || n > left)
		return 0;
	for (size_t i = 1; i < n; i++)
		if ((text[i] & 0xc0) != 0x80)
			return 0;
	if ((text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xed && text[1] >= 0xa0) ||
	    (text[0] == 0xf0 && text[1] < 0x90) || (text[0] == 0xf4 && text[1] >= 0x90))
		return 0;
	return n;
}

void ctl_json_string(const char *text, size_t length)
{
	const unsigned char *bytes = (const unsigned char *)text;

	putchar('"');
	for (size_t i = 0; i < length;) {
		size_t n = utf8_length(bytes + i, length - i);

		if (n == 0)
			printf("\\udc%02x", bytes[i]);
		else if (bytes[i] < 0x20 || bytes[i] == 0x7f)
			printf("\\u%04x", bytes[i]);
		else if (bytes[i] == '"' || bytes[i] == '\\')
			printf("\\%c", bytes[i]);
		else
			fwrite(bytes + i, 1, n, stdout);
		i += n ? n : 1;
	}
	putchar('"');
}
