/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Writes the wire format of Protocol Buffers: fields in a growing buffer. After a failed allocation `failed`
 * is set, and further calls have no effect, so one check at the end is enough.
 */

#include <string.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct protobuf {
	uint8_t *bytes;
	size_t n, n_allocated;
	bool failed;
};

void protobuf_free(struct protobuf *buffer);
/* Empties the buffer and keeps its memory. */
void protobuf_reset(struct protobuf *buffer);

/* Writes int32, int64, uint32, uint64, bool or an enum; negative values as two's complement. */
void protobuf_varint(struct protobuf *buffer, uint32_t field, uint64_t value);
void protobuf_fixed64(struct protobuf *buffer, uint32_t field, uint64_t value);
static inline void protobuf_double(struct protobuf *buffer, uint32_t field, double value)
{
	uint64_t bits;

	memcpy(&bits, &value, sizeof(bits));
	protobuf_fixed64(buffer, field, bits);
}

/* Writes a string of UTF-8. NULL counts as "". */
void protobuf_string(struct protobuf *buffer, uint32_t field, const char *text);
/* Writes a message that was built in another buffer. */
void protobuf_message(struct protobuf *buffer, uint32_t field, const struct protobuf *message);
