/* SPDX-License-Identifier: Apache-2.0 */
#include "json_text.h"

#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/text.h"

json_t *json_text(const char *text)
{
	size_t size = strlen(text) * 4 + 8;
	_cleanup_(freep) char *line = malloc(size);

	return line ? json_string(text_line(line, size, text)) : NULL;
}
