/* SPDX-License-Identifier: Apache-2.0 */
#include "checksum.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

/* Inlines XXH3, which is faster on short inputs. The state can then be on the stack with any version of
 * libxxhash. */
#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t checksum_xxh3(const void *data, size_t bytes)
{
	return XXH3_64bits(data, bytes);
}

struct checksum_128 checksum_xxh3_128(const void *data, size_t bytes)
{
	XXH128_hash_t hash = XXH3_128bits(data, bytes);

	return (struct checksum_128){hash.low64, hash.high64};
}

uint64_t checksum_xxh3_gap(const void *data, size_t bytes, size_t gap_offset)
{
	static const uint64_t zero;
	const char *text = data;
	XXH3_state_t state;

	assert(gap_offset + sizeof(zero) <= bytes);
	XXH3_64bits_reset(&state);
	XXH3_64bits_update(&state, text, gap_offset);
	XXH3_64bits_update(&state, &zero, sizeof(zero));
	XXH3_64bits_update(&state, text + gap_offset + sizeof(zero), bytes - gap_offset - sizeof(zero));
	return XXH3_64bits_digest(&state);
}

struct checksum_stream {
	XXH3_state_t state;
};

int checksum_stream_new(struct checksum_stream **ret)
{
	struct checksum_stream *s = aligned_alloc(_Alignof(struct checksum_stream), sizeof(*s));

	if (!s)
		return -ENOMEM;
	XXH3_64bits_reset(&s->state);
	*ret = s;
	return 0;
}

void checksum_stream_add(struct checksum_stream *s, const void *data, size_t bytes)
{
	XXH3_64bits_update(&s->state, data, bytes);
}

uint64_t checksum_stream_xxh3(const struct checksum_stream *s)
{
	return XXH3_64bits_digest(&s->state);
}

void checksum_stream_free(struct checksum_stream *s)
{
	free(s);
}
