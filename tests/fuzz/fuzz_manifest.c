/* SPDX-License-Identifier: Apache-2.0 */
/* Treats arbitrary bytes as the manifest of a version in a bucket. An accepted manifest is written back as it
 * was. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/remote/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct manifest m;
	char text[MANIFEST_MAX];
	int r = manifest_parse((const char *)data, size, &m);

	if (r != 0 && r != -EBADMSG && r != -EPROTONOSUPPORT)
		abort();
	if (r == 0 && (manifest_format(&m, text) != size || memcmp(text, data, size) != 0))
		abort();
	return 0;
}
