/* SPDX-License-Identifier: Apache-2.0 */
/* Treats arbitrary text as a URL of a Redis server. An accepted URL that is shown and parsed again is the
 * same URL, and no shown text holds the password. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/redis/redis_url.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct redis_url url, again;
	struct error err = ERROR_INIT;
	char shown[REDIS_URL_TEXT], shown_again[REDIS_URL_TEXT], *text = malloc(size + 1);

	if (!text)
		abort();
	memcpy(text, data, size);
	text[size] = '\0';
	if (redis_url_parse(text, true, &url, &err) == 0) {
		redis_url_public(&url, shown, sizeof(shown));
		if (redis_url_parse(shown, true, &again, NULL) < 0 ||
		    strcmp(shown, redis_url_public(&again, shown_again, sizeof(shown_again))) != 0 ||
		    again.password[0])
			abort();
	} else if (!err.text[0]) {
		abort();
	}
	free(text);
	return 0;
}
