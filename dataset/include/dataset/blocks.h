/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The blocks of a compressed chunk (chunk.h, CHUNK_FLAG_COMPRESSED). Its payload, [payload_offset,
 * file_bytes), is cut into blocks of block_bytes, of which the last one may be shorter. In the file they lie
 * one behind the other from payload_offset on, each by itself: as one zstd frame that says how long the block
 * is, or, where its stored length is its own length, as it is. The stored lengths are a table in the head, so
 * that head_xxh3 covers them. So any part of the payload is had by reading the blocks that it lies in.
 *
 * All that is said of sizes is checked here, so that who decodes needs no more memory than the head says, and
 * that is at most what the chunk takes in memory. What comes out is checked by the samples' checksums. No
 * state, any thread.
 */

#include "dataset/chunk.h"

/* A chunk is written with the second one; powers of two between the others are read. Of larger blocks one
 * sample costs more to look up, of smaller ones less is saved. */
#define CHUNK_BLOCK_MIN_BYTES (64u << 10)
#define CHUNK_BLOCK_BYTES     (256u << 10)
#define CHUNK_BLOCK_MAX_BYTES (1u << 20)
/* Maximum bytes of a compressed chunk's head: a decoder holds the whole head in memory first. */
#define CHUNK_COMPRESSED_HEAD_MAX (8u << 20)

struct chunk_blocks {
	uint64_t payload_offset;
	uint64_t plain_bytes; /* of the payload */
	uint32_t block_bytes, n;
	const void *stored; /* lengths, of 4 bytes; borrowed */
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

/* Makes a block plain: exactly plain_bytes of it. Called for blocks that are not stored as they are.
 * -EBADMSG: it is damaged; -ENOSYS: there is nothing here that can. Any thread. */
typedef int chunk_decode(void *plain, size_t plain_bytes, const void *stored, size_t stored_bytes);

/* The plain form of a chunk's file, whose head was parsed (chunk_parse_head()) and that is in memory: *ret,
 * of malloc(). ret_damaged NULL: -EBADMSG if a block is damaged, err says where. Otherwise such blocks become
 * zeros, and are counted. -ENOMEM. Needs no `decode`: it is of the programs that write chunks. */
int chunk_make_plain(const void *file, const char *origin, void **ret, uint32_t *ret_damaged,
		     struct error *err);

/* The block i out of its stored bytes. Errors as chunk_decode. */
int chunk_block_decode(const struct chunk_blocks *blocks, uint32_t i, const void *stored, void *plain,
		       chunk_decode *decode);
