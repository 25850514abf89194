/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/chunk.h"

#include <string.h>

bool chunk_name_is_valid(const char *name, size_t length)
{
	size_t start = 0;

	if (length == 0 || length > CHUNK_NAME_MAX)
		return false;
	for (size_t i = 0; i <= length; i++) {
		if (i < length && name[i] == '\0')
			return false;
		if (i < length && name[i] != '/')
			continue;
		size_t n = i - start;

		if (n == 0 || (n == 1 && name[start] == '.') || (n == 2 && !memcmp(name + start, "..", 2)))
			return false;
		start = i + 1;
	}
	return true;
}

const char *chunk_layout_name(enum chunk_layout layout)
{
	static const char *const names[CHUNK_N_LAYOUTS] = {"plain", "fields", "tar", "mds", "litdata"};

	return layout < CHUNK_N_LAYOUTS ? names[layout] : "unknown";
}
