/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Decodes a crop of a JPEG, PNG or WebP image and resizes it, as Pillow's Image.open(), convert("RGB"),
 * crop() and resize() do, but without decoding data that the crop does not need.
 *
 * The pixels are identical to Pillow's if it uses the same libjpeg and libwebp, with two exceptions. First,
 * if the output needs no more than a half (or a quarter, or an eighth) of a JPEG image's resolution, the
 * image is decoded at that scale. Its pixels then differ from Pillow's by at most 2 grey levels on average,
 * and by at most 12 in 99.9 % of the values. Second, rows are resized before columns, as in Pillow up to
 * version 12; later versions begin with the columns if the height shrinks much more than the width. The
 * difference is one grey level for a bilinear filter. The others overshoot at edges, and their values are
 * clipped between the passes.
 *
 * The images are untrusted: any bytes may come. As in torchvision's ImageFolder, an orientation in EXIF data
 * and colour profiles are not applied, and alpha is dropped.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/error.h"

#define IMAGE_PIXELS_MAX UINT64_C(178956970) /* Pillow refuses larger images as decompression bombs */
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
	/* JPEG: sampling factors of the component with the most samples; 0: the header does not give them. */
	uint32_t h, v;
	bool has_planes; /* JPEG: has luma, and chroma with half the columns and rows */
};

/* Layout of the output, one byte per value. */
enum image_layout {
	IMAGE_HWC, /* height x width x 3, as in Pillow and NumPy */
	IMAGE_CHW, /* 3 x height x width, as in PyTorch */
};

/* Pillow's resampling filters, with antialiasing. */
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
	uint32_t width, height; /* size of the output, 1 to IMAGE_OUTPUT_MAX */
	enum image_filter filter;
	enum image_layout layout;
	struct image_box window; /* requested part of the output; all zeros: the whole output */
};

/* Reads only the header. The file's data may still be invalid: image_decode() may fail. 0; -EOPNOTSUPP:
 * neither JPEG, PNG nor WebP; -EBADMSG: the header is damaged or incomplete. */
int image_probe(const void *data, size_t bytes, struct image_info *ret, struct error *err);

/* A decoder with buffers that grow to the largest image so far. Only one thread may use it at a time. */
struct image_decoder;

/* Creates a decoder that refuses images with more than pixels_max pixels. 0 or -ENOMEM. */
int image_decoder_new(uint64_t pixels_max, struct image_decoder **ret);
/* For _cleanup_(). A decoder that is NULL is fine. */
void image_decoder_freep(struct image_decoder **ptr);

/*
 * Decodes the crop and resizes it to width x height x IMAGE_CHANNELS bytes at output. With a window, makes
 * only that part of the output, with the same values, from the part of the image that it needs. Writes output
 * only on success. image_decoder_warnings() counts damage that libjpeg decodes around, as in Pillow. It
 * counts only damage in decoded data: rows below the crop are not decoded, nor are pixels above or next to it
 * if restart markers locate them.
 *
 * Returns 0; -EINVAL: the crop is not within the image, the window is not within the output, or the output's
 * size is invalid; -EFBIG: more pixels than the decoder's limit; -EOPNOTSUPP: a kind of image that Pillow
 * does not open either, or neither JPEG, PNG nor WebP; -EBADMSG: damaged or truncated, even if only after the
 * crop, if that shows without decoding; -ENOMEM. A PNG file that is cut after its pixels is accepted, as by
 * Pillow.
 */
int image_decode(struct image_decoder *decoder, const void *data, size_t bytes,
		 const struct image_request *request, uint8_t *output, struct error *err);
/*
 * Returns the denominator (1, 2, 4 or 8) of the scale at which image_decode() decodes an image for this
 * request. It depends on the sizes of crop and output, and on the chroma sampling of JPEG images. Other
 * images are decoded at full size.
 */
uint32_t image_scale(const struct image_info *info, const struct image_request *request);

/*
 * Layout of a whole decoded image in memory: pixels of IMAGE_CHANNELS bytes at a scale of 1/by, each side
 * rounded up. With is_planes instead: full-size planes of luma, blue and red chroma, one after the other, as
 * libjpeg has them before it makes pixels. They take half as much memory.
 */
struct image_whole {
	struct image_info info;
	uint32_t by;
	bool is_planes;
};

uint64_t image_whole_bytes(const struct image_whole *whole);
/* Decodes the whole image. 0; -EOPNOTSUPP: the image cannot have this layout; else as image_decode(), and
 * -EBADMSG if the image does not match `info`. */
int image_decode_whole(struct image_decoder *decoder, const void *data, size_t bytes,
		       const struct image_whole *whole, uint8_t *to, struct error *err);
/* Makes the output of image_decode() for the request, bit for bit, from a whole decoded image. 0; -EINVAL,
 * also if image_decode() would decode at another scale; -EFBIG; -ENOMEM. */
int image_resize(struct image_decoder *decoder, const struct image_whole *whole, const uint8_t *data,
		 const struct image_request *request, uint8_t *output, struct error *err);

/* Returns the number of warnings for the last image. */
uint64_t image_decoder_warnings(const struct image_decoder *decoder);
