/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A crop of a JPEG, PNG or WebP image, resized: what Pillow's Image.open(), convert("RGB"), crop() and
 * resize() give, without decoding what the crop does not need.
 *
 * The pixels are those of Pillow, bit for bit, if it uses the same libjpeg and libwebp, with two exceptions.
 * A JPEG image of which the output needs no more than a half (or a quarter, or an eighth) of the resolution
 * is decoded at that scale: its pixels then differ from Pillow's by 2 grey levels in the mean or less, and by
 * 12 or less in 99.9 %. And rows are resized before columns, as Pillow did up to version 12; later ones begin
 * with the columns where the height shrinks much more than the width. That is one grey level for a bilinear
 * filter; the others overshoot at edges, and are cut off between the passes.
 *
 * The images are taken as foreign: any bytes may come. As in torchvision's ImageFolder, an orientation in
 * EXIF data and colour profiles are not applied, and alpha is dropped.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/error.h"

#define IMAGE_PIXELS_MAX UINT64_C(178956970) /* Pillow calls what has more a decompression bomb */
#define IMAGE_OUTPUT_MAX 16384u              /* columns or rows of an output */
#define IMAGE_CHANNELS   3u                  /* red, green, blue */

enum image_kind {
	IMAGE_JPEG,
	IMAGE_PNG,
	IMAGE_WEBP,
};

struct image_info {
	enum image_kind kind;
	uint32_t width, height;
};

/* "JPEG", "PNG" or "WebP". */
const char *image_kind_name(enum image_kind kind);

/* Of the output, a byte per value. */
enum image_layout {
	IMAGE_HWC, /* height x width x 3, as Pillow and NumPy */
	IMAGE_CHW, /* 3 x height x width, as PyTorch */
};

/* Pillow's, with antialiasing. */
enum image_filter {
	IMAGE_BOX,
	IMAGE_BILINEAR,
	IMAGE_BICUBIC,
	IMAGE_LANCZOS,
};

struct image_box {
	uint32_t x, y, width, height;
};

struct image_request {
	struct image_box crop;  /* within the image, not empty */
	uint32_t width, height; /* of the output, 1 to IMAGE_OUTPUT_MAX */
	enum image_filter filter;
	enum image_layout layout;
	struct image_box window; /* of the output: what is wanted of it; all zeros: all of it */
};

/*
 * Looks at the header alone. What it finds is what the file says: image_decode() may still fail.
 * 0; -EOPNOTSUPP: neither JPEG, PNG nor WebP; -EBADMSG: the header is damaged, or not all there.
 */
int image_probe(const void *data, size_t bytes, struct image_info *ret, struct error *err);

/* What decoding takes: buffers, which grow to the largest image and stay. It belongs to one thread at a time.
 */
struct image_decoder;

/* An image with more than pixels_max pixels is refused. 0 or -ENOMEM. */
int image_decoder_new(uint64_t pixels_max, struct image_decoder **ret);
/* NULL is fine. */
void image_decoder_free(struct image_decoder *decoder);
/* For _cleanup_(). */
void image_decoder_freep(struct image_decoder **decoder);

/*
 * Decodes the crop and resizes it to width x height x IMAGE_CHANNELS bytes at output, or makes the window
 * alone, with the values that it would have in that, of what it takes of the image. Output is written only on
 * success. Damage that libjpeg can decode around, as Pillow does, is counted: image_decoder_warnings(). Only
 * in what is decoded: rows below the crop are not, nor what is above or beside it where restart markers say
 * where that lies.
 *
 * 0; -EINVAL: the crop is not within the image, or the window not within the output, which has a size;
 * -EFBIG: more pixels than the decoder is for; -EOPNOTSUPP: a kind of image that Pillow too does not open, or
 * neither JPEG, PNG nor WebP; -EBADMSG: damaged or truncated, also if only behind the crop, where that shows
 * without decoding; -ENOMEM.
 */
int image_decode(struct image_decoder *decoder, const void *data, size_t bytes,
		 const struct image_request *request, uint8_t *output, struct error *err);
/*
 * The same from the pixels of the whole image (width x height x IMAGE_CHANNELS bytes), as image_decode()
 * gives them for all of it at its own size: bit for bit what it gives for the crop, unless it would decode
 * the image at a smaller scale (image_may_scale()). 0, -EINVAL, -EFBIG, -ENOMEM.
 */
int image_resize(struct image_decoder *decoder, const uint8_t *pixels, uint32_t width, uint32_t height,
		 const struct image_request *request, uint8_t *output, struct error *err);
/*
 * The same by planes: a JPEG image whose chroma has half of the columns and rows, as most have, takes half of
 * the memory before libjpeg makes pixels of it. First the planes of all of it, luma, blue, red, one behind
 * the other: 0; -EOPNOTSUPP: no such image; else as image_decode(). Then as image_resize().
 */
uint64_t image_planes_bytes(uint32_t width, uint32_t height);
int image_decode_planes(struct image_decoder *decoder, const void *data, size_t bytes, uint32_t width,
			uint32_t height, uint8_t *planes, struct error *err);
int image_resize_planes(struct image_decoder *decoder, const uint8_t *planes, uint32_t width, uint32_t height,
			const struct image_request *request, uint8_t *output, struct error *err);
/* Returns true if a JPEG image may be decoded at a smaller scale for this; those of other kinds never are. */
bool image_may_scale(const struct image_request *request);

/* Of the last image. */
uint64_t image_decoder_warnings(const struct image_decoder *decoder);
