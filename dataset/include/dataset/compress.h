/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* zstd for the blocks of chunks (blocks.h). Only this part of dataset/ includes zstd's header. libdiesel does
 * not link it, since libdiesel needs only libc. */

#include <stddef.h>

#define COMPRESS_LEVEL_MIN 1
#define COMPRESS_LEVEL_MAX 19

/* Compresses block by block; reuses its buffers. One thread at a time. */
struct compressor;

/* Creates a compressor. -ENOMEM; -EINVAL: no such level. */
int compressor_new(int level, struct compressor **ret);
void compressor_free(struct compressor *c); /* accepts NULL */
int compressor_level(const struct compressor *c);

/* Compresses a block into `to`, which has space for `bytes`. Returns the compressed length, or 0 if less than
 * a sixteenth is saved. -ENOMEM. */
long compressor_block(struct compressor *c, void *to, const void *from, size_t bytes);
/* Compresses a block to exactly stored_bytes, the length that a head gives. Tries the compressor's own level
 * first, which reproduces the block if nothing else was lost. -ENODATA: no level gives that length; -ENOMEM.
 */
int compressor_fit(struct compressor *c, void *to, size_t stored_bytes, const void *from, size_t bytes);

/* A chunk_decode (blocks.h). libzstd gets exactly one frame, whose decoded length is plain_bytes. */
int compress_decode(void *plain, size_t plain_bytes, const void *stored, size_t stored_bytes);

/* Decompresses many blocks, with buffers that are reused. One thread at a time. */
struct decompressor;

int decompressor_new(struct decompressor **ret); /* Creates a decompressor. Returns 0 or -ENOMEM. */
int decompressor_block(struct decompressor *d, void *plain, size_t plain_bytes, const void *stored,
		       size_t stored_bytes);
