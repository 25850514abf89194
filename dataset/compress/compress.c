/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/compress.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>
#include <zstd_errors.h>

/* A frame that decodes to nothing: magic, length of what follows. It fills up what a block takes less than
 * its head says. */
#define SKIP_MAGIC        0x184d2a50u
#define SKIP_HEADER_BYTES 8

/* What is saved must be worth the decoding. */
#define WORTH_SHARE 16

struct compressor {
	ZSTD_CCtx *context;
	int level;
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

static void put_u32(uint8_t *at, uint32_t value)
{
	for (unsigned i = 0; i < 4; i++)
		at[i] = (uint8_t)(value >> (8 * i));
}

/* Fills up with a frame that is skipped. Returns false if what is left is too short for one. */
static bool fill_up(uint8_t *at, size_t left)
{
	if (left == 0)
		return true;
	if (left < SKIP_HEADER_BYTES)
		return false;
	put_u32(at, SKIP_MAGIC);
	put_u32(at + 4, (uint32_t)(left - SKIP_HEADER_BYTES));
	memset(at + SKIP_HEADER_BYTES, 0, left - SKIP_HEADER_BYTES);
	return true;
}

/* Another release of zstd makes other bytes of the same input, mostly a little more or less. Up to the
 * highest level there is one that is as long, or short enough for a frame that is skipped behind it. The
 * compressor gets more room than that, as it makes other bytes where room is scarce. */
int compressor_fit(struct compressor *c, void *to, size_t stored_bytes, const void *from, size_t bytes)
{
	size_t room = ZSTD_compressBound(bytes);
	void *made = malloc(room);
	int level = c->level, r = made ? -ENODATA : -ENOMEM;

	for (int i = 0; i <= ZSTD_maxCLevel() && r == -ENODATA; i++) {
		size_t n;

		if (set_level(c, i == 0 ? level : i) < 0)
			break;
		n = ZSTD_compress2(c->context, made, room, from, bytes);
		if (ZSTD_isError(n) || n > stored_bytes)
			continue;
		memcpy(to, made, n);
		if (fill_up((uint8_t *)to + n, stored_bytes - n))
			r = 0;
	}
	free(made);
	return set_level(c, level) < 0 ? -EINVAL : r;
}

int compress_decode(void *plain, size_t plain_bytes, const void *stored, size_t stored_bytes)
{
	/* All of the output is there at once: no window is allocated, whatever a frame asks for. */
	size_t n = ZSTD_decompress(plain, plain_bytes, stored, stored_bytes);

	if (!ZSTD_isError(n))
		return n == plain_bytes ? 0 : -EBADMSG;
	return ZSTD_getErrorCode(n) == ZSTD_error_memory_allocation ? -ENOMEM : -EBADMSG;
}
