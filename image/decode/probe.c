/* SPDX-License-Identifier: Apache-2.0 */
#include "image/decoder.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "reader.h"

#define PNG_FRAME        12 /* bytes around a chunk's data: length and type before it, checksum after it */
#define PNG_HEADER_BYTES 16 /* start of chunk IHDR: length, type, width, height */
#define MARKER           0xff
#define SOF_BYTES        7 /* start of SOF: length, precision, height, width */
#define SOF_COMPONENT    3 /* one component of SOF: number, sampling factors, table */
#define NARROW           4 /* maximum width in pixels at which libjpeg does not interpolate chroma */

static uint32_t big_endian(const uint8_t *p, size_t bytes)
{
	uint32_t value = 0;

	for (size_t i = 0; i < bytes; i++)
		value = value << 8 | p[i];
	return value;
}

/* Finds the header, which should be the first chunk. libpng, and therefore Pillow, skips unknown chunks
 * before it. */
static int probe_png(const uint8_t *data, size_t bytes, struct image_info *ret, struct error *err)
{
	size_t at = 8;

	while (bytes - at >= PNG_HEADER_BYTES) {
		uint32_t length = big_endian(data + at, 4);

		if (memcmp(data + at + 4, "IHDR", 4) == 0) {
			*ret = (struct image_info){.kind = IMAGE_PNG,
						   .width = big_endian(data + at + 8, 4),
						   .height = big_endian(data + at + 12, 4)};
			return 0;
		}
		if (length > bytes - at - PNG_FRAME)
			break;
		at += PNG_FRAME + length;
	}
	return error_set(err, -EBADMSG, "PNG image is truncated: its %zu bytes end before its header", bytes);
}

/* Returns true for a frame header, which has the image's size; the other markers from 0xc0 to 0xcf are
 * tables. */
static bool is_frame(uint8_t marker)
{
	return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

static bool stands_alone(uint8_t marker)
{
	return marker == 0x01 || (marker >= 0xd0 && marker <= 0xd8);
}

/* Reads the sampling of the components. p: frame header after its length, possibly incomplete. */
static void probe_sampling(const uint8_t *p, size_t bytes, struct image_info *info)
{
	uint32_t n = bytes > SOF_BYTES - 2 ? p[SOF_BYTES - 2] : 0;
	bool is_halved = n == 3 && info->width > NARROW;

	p += SOF_BYTES - 1;
	if (!n || (bytes - SOF_BYTES + 1) / SOF_COMPONENT < n)
		return;
	for (uint32_t i = 0; i < n; i++, p += SOF_COMPONENT) {
		uint32_t h = p[1] >> 4, v = p[1] & 15;

		info->h = h > info->h ? h : info->h;
		info->v = v > info->v ? v : info->v;
		is_halved = is_halved && h == (i ? 1 : 2) && v == h;
	}
	info->has_planes = is_halved;
}

static int probe_jpeg(const uint8_t *data, size_t bytes, struct image_info *ret, struct error *err)
{
	size_t at = 2;

	for (;;) {
		/* Skips bytes that are not a marker, and fill bytes before a marker, as libjpeg does. */
		while (at < bytes && data[at] != MARKER)
			at++;
		while (at < bytes && data[at] == MARKER)
			at++;
		if (at == bytes)
			break;
		uint8_t marker = data[at++];

		if (!marker || stands_alone(marker))
			continue;
		if (marker == 0xd9 || marker == 0xda)
			return error_set(err, -EBADMSG,
					 "JPEG image is damaged: no frame header with a size before byte %zu",
					 at - 2);
		if (bytes - at < SOF_BYTES)
			break;
		if (is_frame(marker)) {
			*ret = (struct image_info){.kind = IMAGE_JPEG,
						   .width = big_endian(data + at + 5, 2),
						   .height = big_endian(data + at + 3, 2)};
			probe_sampling(data + at + 2, bytes - at - 2, ret);
			return 0;
		}
		size_t length = big_endian(data + at, 2);

		if (length < 2)
			length = 2; /* libjpeg treats the segment as empty */
		if (length > bytes - at)
			break;
		at += length;
	}
	return error_set(err, -EBADMSG, "JPEG image is truncated: its %zu bytes end in the header", bytes);
}

const char *image_kind_name(enum image_kind kind)
{
	static const char *const names[] = {
	    [IMAGE_JPEG] = "JPEG", [IMAGE_PNG] = "PNG", [IMAGE_WEBP] = "WebP"};

	return names[kind];
}

int image_kind(const void *data, size_t bytes, enum image_kind *ret, struct error *err)
{
	if (bytes >= 3 && memcmp(data, "\xff\xd8\xff", 3) == 0)
		*ret = IMAGE_JPEG;
	else if (bytes >= 8 && memcmp(data, "\x89PNG\r\n\x1a\n", 8) == 0)
		*ret = IMAGE_PNG;
	else if (bytes >= 12 && memcmp(data, "RIFF", 4) == 0 &&
		 memcmp((const uint8_t *)data + 8, "WEBP", 4) == 0)
		*ret = IMAGE_WEBP;
	else
		return error_set(err, -EOPNOTSUPP,
				 "neither a JPEG, PNG nor WebP image, judging by its first bytes");
	return 0;
}

int image_probe(const void *data, size_t bytes, struct image_info *ret, struct error *err)
{
	enum image_kind kind;
	struct image_info info;
	int r = image_kind(data, bytes, &kind, err);

	if (r < 0)
		return r;
	switch (kind) {
	case IMAGE_JPEG: r = probe_jpeg(data, bytes, &info, err); break;
	case IMAGE_PNG: r = probe_png(data, bytes, &info, err); break;
	case IMAGE_WEBP: r = webp_probe(data, bytes, &info, err); break;
	}
	if (r < 0)
		return r;
	if (!info.width || !info.height)
		return error_set(err, -EBADMSG, "%s image is damaged: its size is %u x %u pixels",
				 image_kind_name(kind), info.width, info.height);
	*ret = info;
	return 0;
}
