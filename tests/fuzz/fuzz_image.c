/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as an image. Input: 6 bytes that choose crop and output, then the file. The decoder is the same
 * for all, so that what one image leaves behind is found by the next.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "image/decoder.h"

#define CHOICES    6
#define PIXELS_MAX (UINT64_C(1) << 18) /* an image that takes long is no finding */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A part of the whole: in 256ths, at least one. */
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
	/* Of its own and exactly as long, so that a read past the end is seen. */
	size_t bytes = size - CHOICES;
	uint8_t *file = malloc(bytes ? bytes : 1);

	if (!file)
		return 0;
	memcpy(file, data + CHOICES, bytes);
	int probed = image_probe(file, bytes, &info, &err);
	struct image_request request = request_of(&info, data);
	int r = image_decode(decoder, file, bytes, &request, output, &err);

	/* What can be decoded has a header. */
	if (r == 0 && probed < 0)
		abort();
	free(file);
	return 0;
}
