/* SPDX-License-Identifier: Apache-2.0 */
/* Which images are refused, and with which message. tests/integration/image covers the pixels. */
#include "tests/unit/test.h"

#include "image/decoder.h"
#include "lib/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A grey PNG of 1 x 1 pixel, level 200. */
static const uint8_t png[] = {
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48, 0x44, 0x52, 0x00,
    0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x01, 0x08, 0x00, 0x00, 0x00, 0x00, 0x3a, 0x7e, 0x9b, 0x55, 0x00,
    0x00, 0x00, 0x0a, 0x49, 0x44, 0x41, 0x54, 0x78, 0x9c, 0x63, 0x38, 0x01, 0x00, 0x00, 0xca, 0x00, 0xc9,
    0x99, 0xca, 0x5d, 0x7e, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82};

#define BEFORE_END 46 /* this many bytes contain all pixels */

static struct image_decoder *decoder;
static uint8_t output[4 * 4 * 3];

static const struct image_request whole = {
    .crop = {0, 0, 1, 1}, .width = 2, .height = 2, .filter = IMAGE_BILINEAR};

static void expect(const void *data, size_t bytes, struct image_request request, int expected,
		   const char *text)
{
	struct error err = ERROR_INIT;
	/* A copy of exactly this size lets sanitizers notice a read past its end. */
	_cleanup_(freep) void *exact = malloc(bytes ? bytes : 1);

	assert_non_null(exact);
	memcpy(exact, data, bytes);
	assert_int_equal(image_decode(decoder, exact, bytes, &request, output, &err), expected);
	if (!strstr(err.text, text))
		fail_msg("'%s' is not in '%s'", text, err.text);
}

TEST(one_pixel_is_decoded_and_enlarged)
{
	expect(png, sizeof(png), whole, 0, "");
	for (int i = 0; i < 2 * 2 * 3; i++)
		assert_int_equal(output[i], 200);
	assert_int_equal(image_decoder_warnings(decoder), 0);
}

TEST(present_pixels_resize_as_decoded_ones)
{
	static const uint8_t pixels[] = {9, 9, 9, 1, 2, 3, 9, 9, 9, 200, 200, 200};
	static const struct image_whole there = {.info = {.kind = IMAGE_PNG, .width = 2, .height = 2},
						 .by = 1};
	struct image_request request = {
	    .crop = {1, 0, 1, 1}, .width = 1, .height = 2, .filter = IMAGE_BICUBIC};
	struct error err = ERROR_INIT;

	assert_int_equal(image_resize(decoder, &there, pixels, &request, output, &err), 0);
	assert_memory_equal(output, "\1\2\3\1\2\3", 6);
	request = whole;
	request.crop = (struct image_box){1, 1, 1, 1};
	assert_int_equal(image_resize(decoder, &there, pixels, &request, output, &err), 0);
	for (int i = 0; i < 2 * 2 * 3; i++)
		assert_int_equal(output[i], 200);
	request.crop.y = 2;
	assert_int_equal(image_resize(decoder, &there, pixels, &request, output, &err), -EINVAL);
	/* At its own size the crop is copied. */
	request =
	    (struct image_request){.crop = {0, 1, 2, 1}, .width = 2, .height = 1, .filter = IMAGE_LANCZOS};
	assert_int_equal(image_resize(decoder, &there, pixels, &request, output, &err), 0);
	assert_memory_equal(output, pixels + 6, 6);
}

/* A crop that is decoded at another scale cannot be made from this copy. */
TEST(resize_at_a_scale)
{
	static const uint8_t pixels[] = {7, 8, 9};
	struct image_whole there = {.info = {.kind = IMAGE_JPEG, .width = 7, .height = 7, .h = 2, .v = 2},
				    .by = 8};
	struct image_request request = {.crop = {0, 0, 7, 7}, .width = 1, .height = 1};
	struct error err = ERROR_INIT;

	assert_int_equal(image_whole_bytes(&there), 3);
	assert_int_equal(image_scale(&there.info, &request), 2);
	assert_int_equal(image_resize(decoder, &there, pixels, &request, output, &err), -EINVAL);
	there.info = (struct image_info){.kind = IMAGE_JPEG, .width = 17, .height = 16, .h = 2, .v = 1};
	request.crop = (struct image_box){0, 0, 17, 16};
	assert_int_equal(image_scale(&there.info, &request), 4); /* chroma has half of the columns */
	there.info.h = 1;
	assert_int_equal(image_scale(&there.info, &request), 8);
	assert_int_equal(image_whole_bytes(&there), 3 * 3 * 2);
	there.info.h = 4;
	assert_int_equal(image_scale(&there.info, &request), 1);
	there.info.h = 1;
	there.info.kind = IMAGE_WEBP;
	assert_int_equal(image_scale(&there.info, &request), 1);
	there.info.kind = (enum image_kind)77; /* from a copy that another process has damaged */
	assert_int_equal(image_scale(&there.info, &request), 1);
}

TEST(impossible_crops_are_refused)
{
	struct image_request request = whole;

	request.crop.width = 2;
	expect(png, sizeof(png), request, -EINVAL,
	       "a crop of 2 x 1 pixels at 0, 0 is not within an image of 1 x 1");
	request.crop = (struct image_box){UINT32_MAX, 0, 2, 1};
	expect(png, sizeof(png), request, -EINVAL, "is not within");
	request.crop = (struct image_box){0, 0, 1, 0};
	expect(png, sizeof(png), request, -EINVAL, "is not within");
	request = whole;
	request.width = 0;
	expect(png, sizeof(png), request, -EINVAL, "each side must be 1 to 16384");
	request.width = IMAGE_OUTPUT_MAX + 1;
	expect(png, sizeof(png), request, -EINVAL, "each side must be 1 to 16384");
}

TEST(bytes_of_no_known_kind_are_refused)
{
	struct image_info info;
	struct error err = ERROR_INIT;

	expect("", 0, whole, -EOPNOTSUPP, "neither a JPEG, PNG nor WebP");
	expect("GIF89a", 6, whole, -EOPNOTSUPP, "neither a JPEG, PNG nor WebP");
	assert_int_equal(image_probe("GIF89a", 6, &info, &err), -EOPNOTSUPP);
	assert_int_equal(image_probe("\xff\xd8\xff", 3, &info, &err), -EBADMSG);
	assert_string_equal(err.text, "JPEG image is truncated: its 3 bytes end in the header");
	expect("\xff\xd8\xff", 3, whole, -EBADMSG, "JPEG image is truncated");
}

TEST(a_truncation_within_pixels_is_refused)
{
	for (size_t bytes = 8; bytes < BEFORE_END; bytes++)
		expect(png, bytes, whole, -EBADMSG, "PNG image");
	/* As in Pillow, all pixels are there. */
	for (size_t bytes = BEFORE_END; bytes < sizeof(png); bytes++)
		expect(png, bytes, whole, 0, "");
}

TEST(too_many_pixels)
{
	struct image_decoder *small;
	struct error err = ERROR_INIT;

	assert_int_equal(image_decoder_new(0, &small), 0);
	assert_int_equal(image_decode(small, png, sizeof(png), &whole, output, &err), -EFBIG);
	assert_non_null(strstr(err.text, "PNG image has 1 x 1 pixels, more than the 0 that are permitted"));
	image_decoder_freep(&small);
	assert_int_equal(image_decoder_new(1, &small), 0);
	assert_int_equal(image_decode(small, png, sizeof(png), &whole, output, &err), -EFBIG);
	assert_non_null(strstr(err.text, "resizing 1 rows to 2 columns"));
	image_decoder_freep(&small);
}

TEST(a_probe_reads_kind_and_size)
{
	static const uint8_t jpeg[] = {0xff, 0xd8, 0xff, 0xe0, 0, 4, 1, 2, 0xff,
				       0xff, 0xc2, 0,    11,   8, 1, 2, 3, 4};
	static const uint8_t halved[] = {0xff, 0xd8, 0xff, 0xc0, 0, 17,   8, 0, 9,    0, 9,
					 3,    1,    0x22, 0,    2, 0x11, 1, 3, 0x11, 1};
	static const uint8_t no_contents[] = {0xff, 0xd8, 0xff, 0xe0, 0, 1, 0xff, 0xc0, 0, 11, 8, 0, 5, 0, 6};
	static const uint8_t scan_first[] = {0xff, 0xd8, 0xff, 0xda, 0, 4, 1, 2, 0, 0, 0, 0};
	struct image_info info;
	struct error err = ERROR_INIT;

	assert_int_equal(image_probe(png, 24, &info, &err), 0);
	assert_int_equal(info.kind, IMAGE_PNG);
	assert_int_equal(info.width, 1);
	assert_int_equal(image_probe(png, 23, &info, &err), -EBADMSG);
	assert_int_equal(image_probe(jpeg, sizeof(jpeg), &info, &err), 0);
	assert_int_equal(info.kind, IMAGE_JPEG);
	assert_int_equal(info.height, 0x102);
	assert_int_equal(info.width, 0x304);
	assert_int_equal(info.h, 0); /* the file ends before that information */
	assert_int_equal(image_probe(halved, sizeof(halved), &info, &err), 0);
	assert_true(info.has_planes);
	assert_int_equal(info.h, 2);
	assert_int_equal(info.v, 2);
	assert_int_equal(image_probe(halved, sizeof(halved) - 1, &info, &err), 0);
	assert_false(info.has_planes);
	for (size_t bytes = 3; bytes < sizeof(jpeg); bytes++)
		assert_int_equal(image_probe(jpeg, bytes, &info, &err), -EBADMSG);
	assert_int_equal(image_probe(no_contents, sizeof(no_contents), &info, &err), 0);
	assert_int_equal(info.height, 5);
	assert_int_equal(image_probe(scan_first, sizeof(scan_first), &info, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "no frame header with a size before byte 2"));
}

static int begin(void **state)
{
	return image_decoder_new(IMAGE_PIXELS_MAX, &decoder);
}

static int end(void **state)
{
	image_decoder_freep(&decoder);
	return 0;
}

int main(void)
{
	return run_unit_tests(begin, end);
}
