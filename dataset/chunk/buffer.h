/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A growing array of bytes, aligned as malloc() aligns. {0} is an empty one. Not thread-safe. */

#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct buffer {
	unsigned char *data;
	size_t bytes;
	size_t capacity;
};

/* Reserves space for `capacity` bytes in total. -ENOMEM leaves the buffer as it was. */
static inline int buffer_reserve(struct buffer *b, size_t capacity)
{
	if (capacity <= b->capacity)
		return 0;
	size_t grown = b->capacity + b->capacity / 2;

	if (grown < capacity)
		grown = capacity;
	unsigned char *data = realloc(b->data, grown);

	if (!data)
		return -ENOMEM;
	b->data = data;
	b->capacity = grown;
	return 0;
}

/* Appends bytes. Cannot fail if the space was reserved. */
static inline int buffer_append(struct buffer *b, const void *data, size_t bytes)
{
	int r = buffer_reserve(b, b->bytes + bytes);

	if (r < 0)
		return r;
	if (bytes)
		memcpy(b->data + b->bytes, data, bytes);
	b->bytes += bytes;
	return 0;
}

/* Fills with zeros up to a length that was reserved. */
static inline void buffer_zero_to(struct buffer *b, size_t bytes)
{
	assert(bytes >= b->bytes && bytes <= b->capacity);
	if (bytes > b->bytes)
		memset(b->data + b->bytes, 0, bytes - b->bytes);
	b->bytes = bytes;
}

static inline void buffer_free(struct buffer *b)
{
	free(b->data);
	*b = (struct buffer){0};
}
