/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A buffer that grows and is reused for the next image. */

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

struct room {
	void *bytes;
	size_t size;
};

/* Ensures space for n items. The contents are lost if the buffer grows. 0 or -ENOMEM. */
static inline int room_make(struct room *room, size_t n, size_t item_bytes)
{
	size_t size;

	if (__builtin_mul_overflow(n, item_bytes, &size))
		return -ENOMEM;
	if (size <= room->size)
		return 0;
	free(room->bytes);
	*room = (struct room){.bytes = malloc(size)};
	if (!room->bytes)
		return -ENOMEM;
	room->size = size;
	return 0;
}

static inline void room_free(struct room *room)
{
	free(room->bytes);
	*room = (struct room){.bytes = NULL};
}
