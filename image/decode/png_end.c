/* SPDX-License-Identifier: Apache-2.0 */
#include "png_end.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "lib/cleanup.h"

#define SIGNATURE     8
#define CHUNK_HEAD    8 /* length, type */
#define CHUNK_FRAME   12
#define MOST_PER_BYTE 1100 /* maximum compression ratio: zlib's best is 1032 to 1 */
#define RAW_MAX       ((size_t)1 << 30)

static uint32_t get_number(const uint8_t *at)
{
	return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static bool is_type(const uint8_t *chunk, const char *type)
{
	return memcmp(chunk + 4, type, 4) == 0;
}

/* Returns true if Pillow accepts these bytes as the name of a chunk. */
static bool can_be_type(const uint8_t *chunk)
{
	for (int i = 4; i < CHUNK_HEAD; i++)
		if (!((chunk[i] >= 'a' && chunk[i] <= 'z') || (chunk[i] >= 'A' && chunk[i] <= 'Z') ||
		      (chunk[i] >= '0' && chunk[i] <= '9') || chunk[i] == '_'))
			return false;
	return true;
}

/* Decompresses pixels from this data. 0 or -EBADMSG. */
static int inflate_some(z_stream *z, const uint8_t *data, size_t bytes)
{
	int r;

	z->next_in = (z_const Bytef *)data;
	z->avail_in = (uInt)bytes;
	r = inflate(z, Z_NO_FLUSH);
	return r == Z_OK || r == Z_STREAM_END || r == Z_BUF_ERROR ? 0 : -EBADMSG;
}

/* Decompresses the pixels of all IDAT chunks. A chunk with a wrong checksum counts as missing. If the chunk
 * at `cut` is incomplete, the pixels must end in it: Pillow refuses a file that is cut later. */
static int inflate_pixels(const uint8_t *data, size_t bytes, size_t at, size_t cut, uint8_t *raw,
			  size_t raw_bytes)
{
	z_stream z = {.next_out = raw, .avail_out = (uInt)raw_bytes};
	int r = 0;

	if (inflateInit(&z) != Z_OK)
		return -ENOMEM;
	while (r == 0 && z.avail_out && bytes - at >= CHUNK_HEAD && is_type(data + at, "IDAT")) {
		size_t length = get_number(data + at), left = bytes - at - CHUNK_HEAD;
		bool is_whole = left >= 4 && length <= left - 4;

		if (is_whole && crc32(crc32(0, NULL, 0), data + at + 4, (uInt)length + 4) !=
				    get_number(data + at + CHUNK_HEAD + length))
			break;
		r = inflate_some(&z, data + at + CHUNK_HEAD, length < left ? length : left);
		if (!is_whole || !z.avail_out)
			break;
		at += CHUNK_FRAME + length;
	}
	r = r == 0 && (z.avail_out || (cut && at != cut)) ? -EBADMSG : r;
	inflateEnd(&z);
	return r;
}

static uint8_t *put_number(uint8_t *to, uint32_t number)
{
	for (int i = 0; i < 4; i++)
		to[i] = (uint8_t)(number >> (24 - 8 * i));
	return to + 4;
}

/* Adds length, type and checksum to a chunk whose data is already at to + CHUNK_HEAD. Returns the end of the
 * chunk. */
static uint8_t *frame_chunk(uint8_t *to, const char *type, size_t bytes)
{
	memcpy(put_number(to, (uint32_t)bytes), type, 4);
	return put_number(to + CHUNK_HEAD + bytes,
			  (uint32_t)crc32(crc32(0, NULL, 0), to + 4, (uInt)bytes + 4));
}

/* Makes a complete file of the unchanged chunks before the pixels, and the pixels without compression. */
static int make_whole(const uint8_t *data, size_t bytes, size_t first, size_t cut, size_t raw_bytes,
		      uint8_t **ret, size_t *ret_bytes)
{
	/* No zlib stream decompresses to more bytes than this. */
	if (raw_bytes / MOST_PER_BYTE > bytes || raw_bytes > RAW_MAX)
		return -EBADMSG;
	_cleanup_(freep) uint8_t *raw = malloc(raw_bytes);
	uLongf packed = compressBound(raw_bytes);
	_cleanup_(freep) uint8_t *whole = malloc(first + packed + 2 * CHUNK_FRAME);

	if (!raw || !whole)
		return -ENOMEM;
	int r = inflate_pixels(data, bytes, first, cut, raw, raw_bytes);

	if (r < 0)
		return r;
	if (compress2(whole + first + CHUNK_HEAD, &packed, raw, raw_bytes, Z_NO_COMPRESSION) != Z_OK)
		return -ENOMEM;
	memcpy(whole, data, first);
	*ret_bytes = (size_t)(frame_chunk(frame_chunk(whole + first, "IDAT", packed), "IEND", 0) - whole);
	*ret = steal_pointer(whole);
	return 1;
}

int png_end_check(const uint8_t *data, size_t bytes, size_t raw_bytes, uint8_t **ret, size_t *ret_bytes)
{
	size_t first = 0, cut = 0;

	for (size_t at = SIGNATURE; bytes >= at && bytes - at >= CHUNK_HEAD;) {
		const uint8_t *chunk = data + at;
		size_t length = get_number(chunk), left = bytes - at - CHUNK_HEAD;
		bool is_data = is_type(chunk, "IDAT");

		if (is_type(chunk, "IEND"))
			return 0;
		if (first && !is_data && !can_be_type(chunk))
			break;
		if (is_data && !first)
			first = at;
		if (length > left) {
			if (!is_data)
				return -EBADMSG;
			cut = at;
			break;
		}
		if (left - length < 4)
			break;
		at += CHUNK_FRAME + length;
	}
	return first ? make_whole(data, bytes, first, cut, raw_bytes, ret, ret_bytes) : -EBADMSG;
}
