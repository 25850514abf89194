/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/compress.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "lib/zstd_frame.h"

/* Offset of the descriptor in a zstd frame (RFC 8878), and the descriptor's bits. */
#define DESCRIPTOR_AT     4
#define DICTIONARY_MASK   0x03u
#define SINGLE_SEGMENT    0x20u
#define EMPTY_BLOCK_BYTES 3u /* size of an uncompressed block that is not the last one */

/* Blocks are compressed only if that saves at least 1/WORTH_SHARE of the bytes: less is not worth the
 * decoding. */
#define WORTH_SHARE 16

struct compressor {
	ZSTD_CCtx *context;
	int level;
};

struct decompressor {
	ZSTD_DCtx *context;
};

static int set_level(struct compressor *c, int level)
{
	c->level = level;
	return ZSTD_isError(ZSTD_CCtx_setParameter(c->context, ZSTD_c_compressionLevel, level)) ? -EINVAL : 0;
}

int compressor_new(int level, struct compressor **ret)
{
	struct compressor *c = calloc(1, sizeof(*c));
	int r = -ENOMEM;

	if (c && (c->context = ZSTD_createCCtx()))
		r = level < COMPRESS_LEVEL_MIN || level > COMPRESS_LEVEL_MAX ? -EINVAL : set_level(c, level);
	if (r < 0) {
		compressor_free(c);
		return r;
	}
	*ret = c;
	return 0;
}

void compressor_free(struct compressor *c)
{
	if (!c)
		return;
	ZSTD_freeCCtx(c->context);
	free(c);
}

int compressor_level(const struct compressor *c)
{
	return c->level;
}

long compressor_block(struct compressor *c, void *to, const void *from, size_t bytes)
{
	size_t limit = bytes - bytes / WORTH_SHARE, n;

	if (limit == bytes)
		return 0;
	n = ZSTD_compress2(c->context, to, limit, from, bytes);
	if (!ZSTD_isError(n))
		return (long)n;
	return ZSTD_getErrorCode(n) == ZSTD_error_memory_allocation ? -ENOMEM : 0;
}

/* Finds the offsets of the dictionary's number and of the first block in a zstd frame. */
static void find_places(const uint8_t *frame, size_t *ret_dictionary, size_t *ret_blocks)
{
	static const uint8_t content_bytes[4] = {0, 2, 4, 8};
	uint8_t descriptor = frame[DESCRIPTOR_AT], code = descriptor >> 6;
	bool is_single = descriptor & SINGLE_SEGMENT;

	*ret_dictionary = DESCRIPTOR_AT + 1 + (is_single ? 0 : 1);
	*ret_blocks = *ret_dictionary + (code == 0 ? is_single : content_bytes[code]);
}

/* Copies a frame that has no dictionary and makes it `more` bytes longer without changing its content. Adds a
 * dictionary number 0 of one or two bytes, and empty blocks. All added bytes are zeros. */
static void stretch(uint8_t *to, const uint8_t *frame, size_t bytes, size_t more)
{
	size_t dictionary, blocks, n = more % EMPTY_BLOCK_BYTES;

	find_places(frame, &dictionary, &blocks);
	memset(to, 0, bytes + more);
	memcpy(to, frame, dictionary);
	to[DESCRIPTOR_AT] |= (uint8_t)n; /* means a dictionary number of n bytes */
	memcpy(to + dictionary + n, frame + dictionary, blocks - dictionary);
	memcpy(to + blocks + more, frame + blocks, bytes - blocks);
}

/* Another release of zstd compresses the same input to different bytes, usually a few more or less. Usually
 * some level up to the highest gives a frame that is not longer and can be stretched. The compressor gets
 * more space than stored_bytes, because it gives different bytes when space is scarce. */
int compressor_fit(struct compressor *c, void *to, size_t stored_bytes, const void *from, size_t bytes)
{
	size_t space = ZSTD_compressBound(bytes);
	void *made = malloc(space);
	int level = c->level, r = made ? -ENODATA : -ENOMEM;

	for (int i = 0; i <= ZSTD_maxCLevel() && r == -ENODATA; i++) {
		size_t n;

		if (set_level(c, i == 0 ? level : i) < 0)
			break;
		n = ZSTD_compress2(c->context, made, space, from, bytes);
		if (ZSTD_isError(n) || n > stored_bytes)
			continue;
		if (((const uint8_t *)made)[DESCRIPTOR_AT] & DICTIONARY_MASK)
			break;
		stretch(to, made, n, stored_bytes - n);
		r = 0;
	}
	free(made);
	return set_level(c, level) < 0 ? -EINVAL : r;
}

int decompressor_new(struct decompressor **ret)
{
	struct decompressor *d = calloc(1, sizeof(*d));

	if (d)
		d->context = ZSTD_createDCtx();
	if (!d || !d->context) {
		free(d);
		return -ENOMEM;
	}
	*ret = d;
	return 0;
}

static void decompressor_free(struct decompressor *d)
{
	if (!d)
		return;
	ZSTD_freeDCtx(d->context);
	free(d);
}

int decompressor_block(struct decompressor *d, void *plain, size_t plain_bytes, const void *stored,
		       size_t stored_bytes)
{
	uint64_t content;
	size_t n;

	if (zstd_frame_content(stored, stored_bytes, &content) < 0 || content != plain_bytes)
		return -EBADMSG;
	/* The whole output buffer is given, so zstd allocates no window, whatever size the frame asks for. */
	n = ZSTD_decompressDCtx(d->context, plain, plain_bytes, stored, stored_bytes);
	if (!ZSTD_isError(n))
		return n == plain_bytes ? 0 : -EBADMSG;
	return ZSTD_getErrorCode(n) == ZSTD_error_memory_allocation ? -ENOMEM : -EBADMSG;
}

int compress_decode(void *plain, size_t plain_bytes, const void *stored, size_t stored_bytes)
{
	struct decompressor *d;
	int r = decompressor_new(&d);

	if (r < 0)
		return r;
	r = decompressor_block(d, plain, plain_bytes, stored, stored_bytes);
	decompressor_free(d);
	return r;
}
