/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/snapshot.h"

#include <string.h>
#include <strings.h>

bool snapshot_name_is_image(const char *path, size_t path_length)
{
	static const char *const endings[] = {".jpg", ".jpeg", ".png", ".webp"};

	for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
		size_t n = strlen(endings[i]);

		if (path_length >= n && strncasecmp(path + path_length - n, endings[i], n) == 0)
			return true;
	}
	return false;
}
