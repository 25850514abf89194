/* SPDX-License-Identifier: Apache-2.0 */
/* Treats arbitrary bytes as an entry of a dataset's log. An accepted entry is written back as it was. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/change.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct change change;
	char text[CHANGE_MAX];
	int r = change_parse((const char *)data, size, &change);

	if (r != 0 && r != -EBADMSG && r != -EPROTONOSUPPORT)
		abort();
	if (r == 0 && (change_format(&change, text) != size || memcmp(text, data, size) != 0))
		abort();
	return 0;
}
