/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Readers of image files: parse a file and pass the rows of the crop to the resampler. */

#include "image/decoder.h"
#include "resample.h"

/* One image to be read. */
struct image_source {
	const uint8_t *data;
	size_t bytes;
	const struct image_request *request;
	uint64_t pixels_max;
	struct resample *resample;
	struct scratch_buffer *rows; /* pixels on their way to the resampler; reused from image to image */
	void **state;                /* the format's own, from its first image to image_format.free() */
	uint64_t n_warnings;
};

/* A format of image files: one file of this folder, and a row in decoder.c. Whatever the bytes are, the
 * functions are safe. A format that is decoded only at full size, as pixels, and has no state, has NULL for
 * the functions after `read`. */
struct image_format {
	const char *name;
	/* Returns true if a file begins as this format does. */
	bool (*begins)(const uint8_t *data, size_t bytes);
	/* Reads the header. 0 or -EBADMSG. Sets ret->kind. */
	int (*probe)(const uint8_t *data, size_t bytes, struct image_info *ret, struct error *err);
	/* Reads the crop's rows, and passes them to the resampler. Errors as image_decode(). */
	int (*read)(struct image_source *reading, struct error *err);
	/* Reads the whole image, for which `reading` must have a request. Errors as image_decode_whole(). */
	int (*read_whole)(struct image_source *reading, const struct image_whole *whole, uint8_t *to,
			  struct error *err);
	/* Returns the scale, as image_scale(). */
	uint32_t (*scale)(const struct image_info *info, const struct image_request *request);
	void (*free)(void *state);
};

extern const struct image_format image_jpeg, image_png, image_webp;

/* Checks an image of any kind before memory is allocated for it. 0, -EFBIG or -EINVAL. */
int reading_check(const struct image_source *reading, const char *kind, uint32_t width, uint32_t height,
		  struct error *err);

/* Plans how the crop of an image decoded at a scale of 1/by is resized; sets plan.part to the part of the
 * image that is needed. Returns that part, in pixels of the scaled image. */
struct image_box reading_plan(const struct image_source *reading, uint32_t by, struct resample_plan *plan);
