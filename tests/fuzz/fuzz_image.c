/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Treats arbitrary bytes as an image. Input: 6 bytes that choose crop and output, then the file. All images
 * use the same decoder, so that leftovers of one image show in the next. A mutated image stays of its kind.
 * So an hour for one kind needs only that kind's seeds in a folder of their own (./dev fuzz image-png 3600).
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "image/decoder.h"

#define CHOICES    6
#define PIXELS_MAX (UINT64_C(1) << 18) /* an image that takes long is not a finding */

#define PNG_FRAME   12 /* bytes of a PNG chunk in addition to its data: length, type, CRC */
#define WEBP_HEADER 12 /* "RIFF", length, "WEBP" */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t size_max, unsigned seed);
/* defined by libFuzzer */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t size_max) __attribute__((weak));

static const struct {
	const char *bytes;
	size_t length;
} signatures[] = {
    [IMAGE_JPEG] = {"\xff\xd8\xff", 3}, [IMAGE_PNG] = {"\x89PNG\r\n\x1a\n", 8}, [IMAGE_WEBP] = {"RIFF", 4}};

static uint32_t get_u32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void put_u32(uint8_t *p, uint32_t value)
{
	for (unsigned i = 0; i < 4; i++)
		p[i] = (uint8_t)(value >> (24 - 8 * i));
}

/* Corrects the checksums. Otherwise nearly every mutation ends at a wrong one, and the code behind it is not
 * tested. */
static void repair_checksums(uint8_t *png, size_t bytes)
{
	size_t at = 8;

	while (bytes - at >= PNG_FRAME) {
		uint32_t length = get_u32(png + at);

		if (length > bytes - at - PNG_FRAME)
			return;
		put_u32(png + at + 8 + length, (uint32_t)crc32(0, png + at + 4, length + 4));
		at += PNG_FRAME + length;
	}
}

/* Corrects the length. Otherwise nearly every mutated file is a truncated one. */
static void repair_length(uint8_t *webp, size_t bytes)
{
	if (bytes < WEBP_HEADER)
		return;
	memcpy(webp + 8, "WEBP", 4);
	for (unsigned i = 0; i < 4; i++)
		webp[4 + i] = (uint8_t)((bytes - 8) >> (8 * i));
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t size_max, unsigned seed)
{
	size_t kind = 0, n_kinds = sizeof(signatures) / sizeof(signatures[0]);

	while (kind < n_kinds &&
	       (size < CHOICES + signatures[kind].length ||
		memcmp(data + CHOICES, signatures[kind].bytes, signatures[kind].length) != 0))
		kind++;
	size = LLVMFuzzerMutate(data, size, size_max);
	if (kind == n_kinds || size < CHOICES + signatures[kind].length)
		return size;
	memcpy(data + CHOICES, signatures[kind].bytes, signatures[kind].length);
	if (seed % 8 == 0)
		return size; /* a checksum or a length stays wrong now and then */
	if (kind == IMAGE_PNG)
		repair_checksums(data + CHOICES, size - CHOICES);
	if (kind == IMAGE_WEBP)
		repair_length(data + CHOICES, size - CHOICES);
	return size;
}

/* Returns a part of the whole, in 256ths, but at least one. */
static uint32_t part(uint32_t whole, uint8_t choice)
{
	uint32_t n = (uint32_t)((uint64_t)whole * choice / 255);

	return n ? n : 1;
}

static struct image_request request_of(const struct image_info *info, const uint8_t *choices)
{
	struct image_request request = {
	    .width = 1 + choices[4] % 64,
	    .height = 1 + choices[4] / 64 * 16,
	    .filter = choices[5] % 4,
	    .layout = choices[5] / 4 % 2,
	};

	if (choices[5] / 8 % 2) /* a window around the middle */
		request.window = (struct image_box){request.width / 4, request.height / 4,
						    (request.width + 1) / 2, (request.height + 1) / 2};
	request.crop.x = part(info->width, choices[0]) - 1;
	request.crop.y = part(info->height, choices[1]) - 1;
	request.crop.width = part(info->width - request.crop.x, choices[2]);
	request.crop.height = part(info->height - request.crop.y, choices[3]);
	return request;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct image_decoder *decoder;
	static uint8_t output[64 * 64 * IMAGE_CHANNELS];
	struct image_info info = {.width = 1, .height = 1};
	struct error err = ERROR_INIT;

	if (size < CHOICES || (!decoder && image_decoder_new(PIXELS_MAX, &decoder) < 0))
		return 0;
	/* A copy of exactly this size lets sanitizers notice a read past its end. */
	size_t bytes = size - CHOICES;
	uint8_t *file = malloc(bytes ? bytes : 1);

	if (!file)
		return 0;
	memcpy(file, data + CHOICES, bytes);
	int probed = image_probe(file, bytes, &info, &err);
	struct image_request request = request_of(&info, data);
	int r = image_decode(decoder, file, bytes, &request, output, &err);

	/* An image that can be decoded has a header that can be read. */
	if (r == 0 && probed < 0)
		abort();
	free(file);
	return 0;
}
