/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A buffer that grows and is reused for the next image. */

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

struct scratch_buffer {
	void *bytes;
	size_t size;
};

/* Ensures space for n items. The contents are lost if the buffer grows. 0 or -ENOMEM. */
static inline int scratch_reserve(struct scratch_buffer *scratch, size_t n, size_t item_bytes)
{
	size_t size;

	if (__builtin_mul_overflow(n, item_bytes, &size))
		return -ENOMEM;
	if (size <= scratch->size)
		return 0;
	free(scratch->bytes);
	*scratch = (struct scratch_buffer){.bytes = malloc(size)};
	if (!scratch->bytes)
		return -ENOMEM;
	scratch->size = size;
	return 0;
}

static inline void scratch_free(struct scratch_buffer *scratch)
{
	free(scratch->bytes);
	*scratch = (struct scratch_buffer){.bytes = NULL};
}
