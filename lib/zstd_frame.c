/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/zstd_frame.h"

#include <errno.h>

#define MAGIC             0xfd2fb528u
#define SKIP_MAGIC        0x184d2a50u /* the lowest of the 16 magic numbers of skippable frames */
#define MAGIC_BYTES       4
#define SKIP_HEADER_BYTES 8
#define BLOCK_HEADER      3
#define CHECKSUM_BYTES    4

enum { BLOCK_RAW, BLOCK_RLE, BLOCK_COMPRESSED, BLOCK_RESERVED };

static uint64_t get_le(const uint8_t *at, uint32_t bytes)
{
	uint64_t value = 0;

	for (uint32_t i = 0; i < bytes; i++)
		value |= (uint64_t)at[i] << (8 * i);
	return value;
}

/* descriptor: of the frame header, the byte after the magic number. */
static bool is_single_segment(uint8_t descriptor)
{
	return descriptor & 0x20;
}

static uint32_t dictionary_bytes(uint8_t descriptor)
{
	static const uint8_t bytes[4] = {0, 1, 2, 4};

	return bytes[descriptor & 3];
}

static uint32_t content_bytes(uint8_t descriptor)
{
	uint32_t code = descriptor >> 6;

	return code == 0 ? is_single_segment(descriptor) : 1u << code;
}

static int frame_begin(struct zstd_scan *w)
{
	uint8_t descriptor = w->head[MAGIC_BYTES];
	uint32_t n = content_bytes(descriptor), at = w->n_head - n;

	if (descriptor & 0x08) /* reserved */
		return -EBADMSG;
	/* A size of two bytes is stored minus 256, because smaller sizes need only one byte. */
	w->content = n == 0 ? UINT64_MAX : get_le(w->head + at, n) + (n == 2 ? 256 : 0);
	w->has_checksum = descriptor & 0x04;
	w->is_in_frame = true;
	w->n_head = 0;
	return 0;
}

static int block_begin(struct zstd_scan *w)
{
	uint32_t header = (uint32_t)get_le(w->head, BLOCK_HEADER), type = header >> 1 & 3;

	if (type == BLOCK_RESERVED)
		return -EBADMSG;
	w->skip = type == BLOCK_RLE ? 1 : header >> 3;
	w->n_head = 0;
	if (header & 1) {
		w->skip += w->has_checksum ? CHECKSUM_BYTES : 0;
		w->is_in_frame = false;
		w->n_frames++;
	}
	return 0;
}

/* Parses the collected bytes of a header after one more byte has arrived. */
static int step(struct zstd_scan *w)
{
	uint32_t n = w->n_head, magic, descriptor;

	if (w->is_in_frame)
		return n == BLOCK_HEADER ? block_begin(w) : 0;
	if (n < MAGIC_BYTES)
		return 0;
	magic = (uint32_t)get_le(w->head, MAGIC_BYTES);
	if ((magic & ~15u) == SKIP_MAGIC) {
		if (n == SKIP_HEADER_BYTES) {
			w->skip = get_le(w->head + MAGIC_BYTES, 4);
			w->n_head = 0;
			w->n_skippable++;
		}
		return 0;
	}
	if (magic != MAGIC)
		return -EBADMSG;
	if (n == MAGIC_BYTES)
		return 0;
	descriptor = w->head[MAGIC_BYTES];
	return n == MAGIC_BYTES + 1u + !is_single_segment((uint8_t)descriptor) +
			   dictionary_bytes((uint8_t)descriptor) + content_bytes((uint8_t)descriptor)
		   ? frame_begin(w)
		   : 0;
}

int zstd_scan(struct zstd_scan *w, const void *data, size_t bytes)
{
	const uint8_t *at = data, *end = at + bytes;
	int r = 0;

	while (at < end && r == 0) {
		size_t left = (size_t)(end - at), n = w->skip < left ? (size_t)w->skip : left;

		at += n;
		w->skip -= n;
		if (at == end)
			break;
		w->head[w->n_head++] = *at++;
		r = step(w);
	}
	return r;
}

bool zstd_scan_is_end(const struct zstd_scan *w)
{
	return !w->is_in_frame && w->n_head == 0 && w->skip == 0;
}

int zstd_frame_content(const void *frame, size_t bytes, uint64_t *ret)
{
	struct zstd_scan w = {.n_head = 0};
	int r = zstd_scan(&w, frame, bytes);

	if (r < 0)
		return r;
	if (!zstd_scan_is_end(&w) || w.n_frames != 1 || w.n_skippable > 0 || w.content == UINT64_MAX)
		return -EBADMSG;
	*ret = w.content;
	return 0;
}
