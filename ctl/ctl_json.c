/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl_json.h"

#include <stdint.h>
#include <stdio.h>

#include "lib/text.h"
#include "lib/utf8.h"

void ctl_json_string(const char *text, size_t length)
{
	putchar('"');
	for (size_t i = 0; i < length;) {
		unsigned char byte = (unsigned char)text[i];
		uint32_t code = 0;
		size_t n = utf8_decode(text + i, length - i, &code);

		if (n == 0)
			printf("\\" TEXT_ESCAPE, byte);
		else if (utf8_is_hidden(code))
			text_put_json_escape(stdout, code);
		else if (byte == '"' || byte == '\\')
			printf("\\%c", byte);
		else
			fwrite(text + i, 1, n, stdout);
		i += n ? n : 1;
	}
	putchar('"');
}
