/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* XXH3 with seed 0, by libxxhash, whose header no other file includes. 64 bits unless a name says 128.
 * Thread-safe. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

uint64_t checksum_xxh3(const void *data, size_t bytes);

/* Returns true if data has this checksum, or if it is 0 and may be unknown, as of samples in external chunks.
 */
static inline bool checksum_matches(uint64_t xxh3, bool may_be_unknown, const void *data, size_t bytes)
{
	return (may_be_unknown && xxh3 == 0) || checksum_xxh3(data, bytes) == xxh3;
}

/* 128-bit checksum: two texts have the same one only if somebody constructed them for it. */
struct checksum_128 {
	uint64_t low, high;
};
struct checksum_128 checksum_xxh3_128(const void *data, size_t bytes);

/* As checksum_xxh3(), but takes the 8 bytes at gap_offset, the field that holds the result, as zeros. */
uint64_t checksum_xxh3_gap(const void *data, size_t bytes, size_t gap_offset);

/* Computes the checksum of bytes that arrive in pieces. */
struct checksum_stream;
int checksum_stream_new(struct checksum_stream **ret); /* -ENOMEM */
void checksum_stream_add(struct checksum_stream *s, const void *data, size_t bytes);
/* Returns the checksum of all bytes so far. */
uint64_t checksum_stream_xxh3(const struct checksum_stream *s);
void checksum_stream_free(struct checksum_stream *s);
