/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/blocks.h"

#include <errno.h>
#include <string.h>

#include "dataset/checksum/checksum.h"

static bool is_block_size(uint32_t bytes)
{
	return bytes >= CHUNK_BLOCK_MIN_BYTES && bytes <= CHUNK_BLOCK_MAX_BYTES && (bytes & (bytes - 1)) == 0;
}

int chunk_blocks_of(const struct chunk_header *h, struct chunk_blocks *ret)
{
	uint64_t plain, n;

	if (!(h->flags & CHUNK_FLAG_COMPRESSED) || (h->flags & CHUNK_FLAG_TOMBSTONE) ||
	    !is_block_size(h->block_bytes) || h->payload_offset < sizeof(*h) ||
	    h->payload_offset % CHUNK_ALIGN || h->payload_offset > CHUNK_COMPRESSED_HEAD_MAX ||
	    h->file_bytes % CHUNK_ALIGN || h->file_bytes <= h->payload_offset ||
	    h->file_bytes > CHUNK_MAX_BYTES + (uint64_t)CHUNK_SAMPLE_MAX_BYTES ||
	    h->stored_bytes % CHUNK_ALIGN || h->stored_bytes <= h->payload_offset ||
	    h->stored_bytes >= h->file_bytes)
		return -EBADMSG;
	plain = h->file_bytes - h->payload_offset;
	n = (plain + h->block_bytes - 1) / h->block_bytes;
	if (h->blocks_offset < sizeof(*h) || h->blocks_offset > h->payload_offset ||
	    n > (h->payload_offset - h->blocks_offset) / sizeof(uint32_t))
		return -EBADMSG;
	*ret = (struct chunk_blocks){.payload_offset = h->payload_offset,
				     .plain_bytes = plain,
				     .block_bytes = h->block_bytes,
				     .n = (uint32_t)n};
	return 0;
}

uint32_t chunk_block_plain(const struct chunk_blocks *b, uint32_t i)
{
	uint64_t left = b->plain_bytes - (uint64_t)i * b->block_bytes;

	return left < b->block_bytes ? (uint32_t)left : b->block_bytes;
}

uint32_t chunk_block_stored(const struct chunk_blocks *b, uint32_t i)
{
	uint32_t bytes;

	memcpy(&bytes, (const unsigned char *)b->stored + i * sizeof(bytes), sizeof(bytes));
	return bytes;
}

int chunk_blocks_check(const struct chunk_header *h, const struct chunk_blocks *b)
{
	uint64_t end = b->payload_offset;

	for (uint32_t i = 0; i < b->n; i++) {
		uint32_t bytes = chunk_block_stored(b, i);

		if (bytes == 0 || bytes > chunk_block_plain(b, i))
			return -EBADMSG;
		end += bytes;
	}
	return (end + CHUNK_ALIGN - 1) / CHUNK_ALIGN * CHUNK_ALIGN == h->stored_bytes ? 0 : -EBADMSG;
}

int chunk_blocks_in_head(const struct chunk_header *h, struct chunk_blocks *ret)
{
	struct chunk_blocks b;
	int r = chunk_blocks_of(h, &b);

	if (r < 0)
		return r;
	b.stored = (const unsigned char *)h + h->blocks_offset;
	r = chunk_blocks_check(h, &b);
	if (r == 0)
		*ret = b;
	return r;
}

int chunk_blocks_in_unknown(const void *head, size_t head_bytes, uint64_t head_xxh3, struct chunk_blocks *ret)
{
	const struct chunk_header *h = head;

	if (head_bytes < sizeof(*h) || memcmp(h->magic, CHUNK_MAGIC, sizeof(h->magic)) != 0 ||
	    h->version != CHUNK_VERSION || h->payload_offset != head_bytes || h->head_xxh3 != head_xxh3 ||
	    checksum_xxh3_gap(head, head_bytes, offsetof(struct chunk_header, head_xxh3)) != head_xxh3)
		return -EBADMSG;
	return chunk_blocks_in_head(h, ret);
}

int chunk_block_decode(const struct chunk_blocks *b, uint32_t i, const void *stored, void *plain,
		       chunk_decode *decode)
{
	uint32_t bytes = chunk_block_plain(b, i), stored_bytes = chunk_block_stored(b, i);

	if (stored_bytes == bytes) {
		memcpy(plain, stored, bytes);
		return 0;
	}
	return decode(plain, bytes, stored, stored_bytes);
}
