/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The blocks of a compressed chunk (chunk.h, CHUNK_FLAG_COMPRESSED). Its payload, [payload_offset,
 * file_bytes), is cut into blocks of block_bytes; the last one may be shorter. The file has the blocks one
 * after another from payload_offset on. Each is one zstd frame that states the block's length, or is stored
 * uncompressed if its stored length equals its own. The stored lengths are a table in the head, so head_xxh3
 * covers them. Any part of the payload can be read through the blocks that contain it.
 *
 * All sizes are checked here, so a decoder needs no more memory than the head states, which is at most the
 * chunk's size in memory. The samples' checksums verify the decoded bytes. No state, any thread.
 */

#include "dataset/chunk.h"

/* Chunks are written with the default block size. Powers of two from the minimum to the maximum can be read.
 * With larger blocks, looking up one sample costs more; smaller blocks save less. */
#define CHUNK_BLOCK_MIN_BYTES (64u << 10)
#define CHUNK_BLOCK_BYTES     (256u << 10)
#define CHUNK_BLOCK_MAX_BYTES (1u << 20)
/* Maximum bytes of a compressed chunk's head: a decoder holds the whole head in memory first. */
#define CHUNK_COMPRESSED_HEAD_MAX (8u << 20)

struct chunk_blocks {
	uint64_t payload_offset;
	uint64_t plain_bytes; /* length of the payload */
	uint32_t block_bytes, n;
	const void *stored; /* n stored lengths of 4 bytes each; borrowed */
};

/* Checks that the header's sizes can be those of a compressed chunk; fills in all but `stored`. -EBADMSG. */
int chunk_blocks_of(const struct chunk_header *header, struct chunk_blocks *ret);
/* Checks that the lengths (n of them, at any alignment) are valid and add up to the file's length. -EBADMSG.
 */
int chunk_blocks_check(const struct chunk_header *header, const struct chunk_blocks *blocks);
/* Reads and checks the blocks of a head that is in memory up to payload_offset. */
int chunk_blocks_in_head(const struct chunk_header *header, struct chunk_blocks *ret);

/* As chunk_blocks_in_head(), for any head_bytes bytes that may be a head with this head_xxh3; also checks the
 * checksum. head is 8-byte aligned. -EBADMSG: the bytes are no such head. */
int chunk_blocks_in_unknown(const void *head, size_t head_bytes, uint64_t head_xxh3,
			    struct chunk_blocks *ret);

/* Length of block i < n, plain and in the file. */
uint32_t chunk_block_plain(const struct chunk_blocks *blocks, uint32_t i);
uint32_t chunk_block_stored(const struct chunk_blocks *blocks, uint32_t i);

/* Decompresses a block to exactly plain_bytes. Called only for blocks that are stored compressed. -EBADMSG:
 * the block is damaged; -ENOSYS: no decompressor is available. Any thread. */
typedef int chunk_decode(void *plain, size_t plain_bytes, const void *stored, size_t stored_bytes);

/* Makes the plain form of a chunk's file that is in memory, with a parsed head (chunk_parse_head()): *ret,
 * allocated with malloc(). ret_damaged NULL: -EBADMSG if a block is damaged, err says where. Otherwise
 * damaged blocks become zeros and are counted. -ENOMEM. Needs no `decode`, because only programs that write
 * chunks have this function. */
int chunk_make_plain(const void *file, const char *origin, void **ret, uint32_t *ret_damaged,
		     struct error *err);

/* Decodes block i from its stored bytes. Errors as chunk_decode. */
int chunk_block_decode(const struct chunk_blocks *blocks, uint32_t i, const void *stored, void *plain,
		       chunk_decode *decode);
