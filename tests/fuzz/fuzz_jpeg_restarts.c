/* SPDX-License-Identifier: Apache-2.0 */
/* Treats arbitrary bytes as a JPEG file that gets restart markers. The result has them, and every decoder
 * makes the same image of it, which jpeg_restarts_add() checks itself. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "image/jpeg_restarts.h"
#include "lib/cleanup.h"

#define SIDE_MAX 2048 /* an image that takes long is not a finding */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Returns true if no frame header, wherever it lies, gives a larger size. */
static int is_small(const uint8_t *data, size_t size)
{
	for (size_t i = 0; i + 8 < size; i++)
		if (data[i] == 0xff && data[i + 1] >= 0xc0 && data[i + 1] <= 0xcf &&
		    (data[i + 5] * 256 + data[i + 6] > SIDE_MAX ||
		     data[i + 7] * 256 + data[i + 8] > SIDE_MAX))
			return 0;
	return 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_(freep) void *made = NULL, *again = NULL;
	_cleanup_(freep) uint8_t *file = malloc(size ? size : 1);
	struct error why = ERROR_INIT;
	size_t bytes = 0, more = 0;

	if (!file || !is_small(data, size))
		return 0;
	/* A copy of exactly this size lets sanitizers notice a read past its end. */
	memcpy(file, data, size);
	int r = jpeg_restarts_add(file, size, &made, &bytes, &why);

	if ((r == JPEG_RESTARTS_ADDED) != (made != NULL))
		abort();
	if (r == JPEG_RESTARTS_ADDED &&
	    jpeg_restarts_add(made, bytes, &again, &more, &why) != JPEG_RESTARTS_THERE)
		abort();
	return 0;
}
