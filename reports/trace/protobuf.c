/* SPDX-License-Identifier: Apache-2.0 */
#include "protobuf.h"

#include <stdlib.h>
#include <string.h>

enum wire_type {
	WIRE_VARINT = 0,
	WIRE_FIXED64 = 1,
	WIRE_LENGTH = 2,
};

static void append(struct protobuf *buffer, const void *bytes, size_t n)
{
	if (buffer->failed || !n)
		return;
	if (buffer->n + n > buffer->n_allocated) {
		size_t n_allocated = buffer->n_allocated ? buffer->n_allocated : 256;
		uint8_t *grown;

		while (n_allocated < buffer->n + n)
			n_allocated *= 2;
		grown = realloc(buffer->bytes, n_allocated);
		if (!grown) {
			buffer->failed = true;
			return;
		}
		buffer->bytes = grown;
		buffer->n_allocated = n_allocated;
	}
	memcpy(buffer->bytes + buffer->n, bytes, n);
	buffer->n += n;
}

static void append_varint(struct protobuf *buffer, uint64_t value)
{
	uint8_t bytes[10];
	size_t n = 0;

	while (value >= 0x80) {
		bytes[n++] = (uint8_t)(value | 0x80);
		value >>= 7;
	}
	bytes[n++] = (uint8_t)value;
	append(buffer, bytes, n);
}

static void append_key(struct protobuf *buffer, uint32_t field, enum wire_type type)
{
	append_varint(buffer, (uint64_t)field << 3 | type);
}

void protobuf_free(struct protobuf *buffer)
{
	free(buffer->bytes);
	*buffer = (struct protobuf){0};
}

void protobuf_reset(struct protobuf *buffer)
{
	buffer->n = 0;
}

void protobuf_varint(struct protobuf *buffer, uint32_t field, uint64_t value)
{
	append_key(buffer, field, WIRE_VARINT);
	append_varint(buffer, value);
}

void protobuf_fixed64(struct protobuf *buffer, uint32_t field, uint64_t value)
{
	uint8_t bytes[8];

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(value >> (8 * i));
	append_key(buffer, field, WIRE_FIXED64);
	append(buffer, bytes, sizeof(bytes));
}

void protobuf_string(struct protobuf *buffer, uint32_t field, const char *text)
{
	size_t n = text ? strlen(text) : 0;

	append_key(buffer, field, WIRE_LENGTH);
	append_varint(buffer, n);
	append(buffer, text, n);
}

void protobuf_message(struct protobuf *buffer, uint32_t field, const struct protobuf *message)
{
	buffer->failed |= message->failed;
	append_key(buffer, field, WIRE_LENGTH);
	append_varint(buffer, message->n);
	append(buffer, message->bytes, message->n);
}
