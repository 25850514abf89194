/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl_json.h"

#include <stdio.h>

#include "lib/text.h"
#include "lib/utf8.h"

void ctl_json_string(const char *text, size_t length)
{
	putchar('"');
	for (size_t i = 0; i < length;) {
		unsigned char byte = (unsigned char)text[i];
		size_t n = utf8_decode(text + i, length - i, NULL);

		if (n == 0)
			printf("\\" TEXT_ESCAPE, byte);
		else if (byte < 0x20 || byte == 0x7f)
			printf("\\u%04x", byte);
		else if (byte == '"' || byte == '\\')
			printf("\\%c", byte);
		else
			fwrite(text + i, 1, n, stdout);
		i += n ? n : 1;
	}
	putchar('"');
}
