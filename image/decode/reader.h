/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Readers of image files: parse a file and pass the rows of the crop to the resampler. */

#include "image/decoder.h"
#include "resample.h"

/* Detects the image's kind from the first bytes. 0 or -EOPNOTSUPP. */
int image_kind(const void *data, size_t bytes, enum image_kind *ret, struct error *err);

/* One image to be read. */
struct image_source {
	const uint8_t *data;
	size_t bytes;
	const struct image_request *request;
	uint64_t pixels_max;
	struct resample *resample;
	uint64_t n_warnings;
};

/* Checks an image of any kind before memory is allocated for it. 0, -EFBIG or -EINVAL. */
int reading_check(const struct image_source *reading, const char *kind, uint32_t width, uint32_t height,
		  struct error *err);

/* Plans how the crop of an image decoded at a scale of 1/by is resized; sets plan.part to the part of the
 * image that is needed. Returns that part, in pixels of the scaled image. */
struct image_box reading_plan(const struct image_source *reading, uint32_t by, struct resample_plan *plan);

struct jpeg_reader;

/* 0 or -ENOMEM. */
int jpeg_reader_new(struct jpeg_reader **ret);
void jpeg_reader_free(struct jpeg_reader *reader);
/* Reads the whole image, for which `reading` must have a request: errors as image_decode_whole(). whole NULL:
 * reads the crop's rows and resamples them; errors as image_decode(). */
int jpeg_reader_whole(struct jpeg_reader *reader, struct image_source *reading,
		      const struct image_whole *whole, uint8_t *to, struct error *err);
/* Returns the scale, as image_scale(). */
uint32_t jpeg_scale(uint32_t h, uint32_t v, const struct image_request *request);

/* Reads a PNG image, as jpeg_reader_whole() does for a crop. *rows is reused from image to image, and freed
 * by the caller. */
int png_reader_read(struct scratch_buffer *rows, struct image_source *reading, struct error *err);

/* Reads a WebP image, as jpeg_reader_whole() does for a crop: the first frame of an animation, as Pillow
 * does. *pixels holds the crop and its margin, and is reused and freed like *rows. */
int webp_reader_read(struct scratch_buffer *pixels, struct image_source *reading, struct error *err);
/* Reads the header. 0 or -EBADMSG. */
int webp_probe(const uint8_t *data, size_t bytes, struct image_info *ret, struct error *err);
