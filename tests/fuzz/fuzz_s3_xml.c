/* SPDX-License-Identifier: Apache-2.0 */
/* Treats arbitrary bytes as the answer of an S3 server, as a list and as an error. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "s3/bucket_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size ? size : 1), code[64];
	struct xml_list list;

	if (!text)
		return 0;
	memcpy(text, data, size);
	if (xml_parse_list(text, size, &list) == 0) {
		for (size_t i = 0; i < list.n; i++)
			if (!list.objects[i].key)
				abort();
		xml_list_free(&list);
	}
	if (xml_find(text, size, "Error", "Code", code, sizeof(code)) && strlen(code) >= sizeof(code))
		abort();
	free(text);
	return 0;
}
