/* SPDX-License-Identifier: Apache-2.0 */
#include "image/decoder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "reader.h"

/*
 * Makes pixels from a JPEG image that is stored as planes: one of luma, and two of chroma with half of the
 * columns and rows. The pixels are identical to those of libjpeg's "fancy" upsampling and its conversion to
 * RGB (jdsample.c's h2v2_fancy_upsample(), jdcolor.c's ycc_rgb_convert()).
 */

/* Makes rows of pixels from planes. Initialise with zeros; call planes_free() at the end. */
struct planes {
	uint32_t width, height;
	const uint8_t *luma, *chroma[2];
	struct scratch_buffer sums, columns[2];
};

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(DIESEL_SANITIZED)
#define VECTORISED __attribute__((target_clones("avx2", "default")))
#else
#define VECTORISED
#endif

#define BITS     16
#define HALF     (1 << (BITS - 1))
#define FIXED(x) ((int32_t)((x) * (1 << BITS) + 0.5))

static uint32_t half(uint32_t n)
{
	return n / 2 + n % 2;
}

static uint64_t planes_bytes(uint32_t width, uint32_t height)
{
	return (uint64_t)width * height + 2 * (uint64_t)half(width) * half(height);
}

/* Computes the chroma samples of a row, times 4: three parts of the nearer row and one part of the farther
 * one. */
VECTORISED static void blend_rows(int32_t *restrict sums, const uint8_t *restrict near_row,
				  const uint8_t *restrict far_row, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		sums[i] = near_row[i] * 3 + far_row[i];
}

/* Computes output columns 2 * first to 2 * end from sums of the adjacent samples; n: length of the whole
 * row. */
static void blend_columns(int32_t *restrict out, const int32_t *restrict sums, uint32_t first, uint32_t end,
			  uint32_t n)
{
	for (uint32_t i = first; i < end; i++) {
		int32_t this = sums[i];
		int32_t last = i > 0 ? sums[i - 1] : this, next = i + 1 < n ? sums[i + 1] : this;

		*out++ = (this * 3 + last + 8) >> 4;
		*out++ = (this * 3 + next + 7) >> 4;
	}
}

static uint8_t clip(int32_t value)
{
	return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

VECTORISED static void convert(uint8_t *restrict rgb, const uint8_t *restrict luma,
			       const int32_t *restrict blue, const int32_t *restrict red, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		int32_t y = luma[i], b = blue[i] - 128, r = red[i] - 128;

		rgb[3 * i] = clip(y + ((FIXED(1.40200) * r + HALF) >> BITS));
		rgb[3 * i + 1] = clip(y + ((-FIXED(0.34414) * b + HALF - FIXED(0.71414) * r) >> BITS));
		rgb[3 * i + 2] = clip(y + ((FIXED(1.77200) * b + HALF) >> BITS));
	}
}

/* Sets the planes of an image, which are borrowed, and allocates buffers. Returns 0 or -ENOMEM. */
static int planes_begin(struct planes *p, const uint8_t *data, uint32_t width, uint32_t height)
{
	p->width = width;
	p->height = height;
	p->luma = data;
	p->chroma[0] = data + (size_t)width * height;
	p->chroma[1] = p->chroma[0] + (size_t)half(width) * half(height);
	return scratch_reserve(&p->sums, half(width), sizeof(int32_t)) < 0 ||
		       scratch_reserve(&p->columns[0], 2 * (size_t)half(width), sizeof(int32_t)) < 0 ||
		       scratch_reserve(&p->columns[1], 2 * (size_t)half(width), sizeof(int32_t)) < 0
		   ? -ENOMEM
		   : 0;
}

/* Writes n pixels of row y from column x on, all within the image. */
static void planes_row(struct planes *p, uint32_t x, uint32_t y, uint32_t n, uint8_t *rgb)
{
	uint32_t columns = half(p->width), rows = half(p->height), near_row = y / 2;
	uint32_t far_row = y % 2 ? near_row + 1 : near_row - 1, first = x / 2, end = half(x + n);
	uint32_t from = first > 0 ? first - 1 : 0, to = end < columns ? end + 1 : columns;

	/* At the edges the row itself replaces the missing one. */
	if (y == 0 || far_row >= rows)
		far_row = near_row;
	for (int c = 0; c < 2; c++) {
		const uint8_t *plane = p->chroma[c];
		int32_t *sums = p->sums.bytes;

		blend_rows(sums + from, plane + (size_t)near_row * columns + from,
			   plane + (size_t)far_row * columns + from, to - from);
		blend_columns(p->columns[c].bytes, sums, first, end, columns);
	}
	convert(rgb, p->luma + (size_t)y * p->width + x, (int32_t *)p->columns[0].bytes + x % 2,
		(int32_t *)p->columns[1].bytes + x % 2, n);
}

static void planes_free(struct planes *p)
{
	scratch_free(&p->sums);
	scratch_free(&p->columns[0]);
	scratch_free(&p->columns[1]);
}

static const struct image_format *const formats[] = {
    [IMAGE_JPEG] = &image_jpeg, [IMAGE_PNG] = &image_png, [IMAGE_WEBP] = &image_webp};

#define N_FORMATS (sizeof(formats) / sizeof(formats[0]))

/* Returns the kind of the image, judging by its first bytes, or -EOPNOTSUPP. */
static int kind_of(const void *data, size_t bytes, struct error *err)
{
	for (size_t kind = 0; kind < N_FORMATS; kind++)
		if (formats[kind]->begins(data, bytes))
			return (int)kind;
	return error_set(err, -EOPNOTSUPP, "neither a JPEG, PNG nor WebP image, judging by its first bytes");
}

int image_probe(const void *data, size_t bytes, struct image_info *ret, struct error *err)
{
	struct image_info info;
	int kind = kind_of(data, bytes, err), r;

	if (kind < 0)
		return kind;
	r = formats[kind]->probe(data, bytes, &info, err);
	if (r < 0)
		return r;
	if (!info.width || !info.height)
		return error_set(err, -EBADMSG, "%s image is damaged: its size is %u x %u pixels",
				 formats[kind]->name, info.width, info.height);
	*ret = info;
	return 0;
}

struct image_decoder {
	uint64_t pixels_max, n_warnings;
	struct resample resample;
	struct planes planes;
	struct scratch_buffer rows;
	void *states[N_FORMATS];
};

int image_decoder_new(uint64_t pixels_max, struct image_decoder **ret)
{
	struct image_decoder *decoder = calloc(1, sizeof(*decoder));

	if (!decoder)
		return -ENOMEM;
	decoder->pixels_max = pixels_max;
	*ret = decoder;
	return 0;
}

void image_decoder_freep(struct image_decoder **ptr)
{
	struct image_decoder *decoder = *ptr;

	if (!decoder)
		return;
	for (size_t i = 0; i < N_FORMATS; i++)
		if (formats[i]->free)
			formats[i]->free(decoder->states[i]);
	scratch_free(&decoder->rows);
	resample_free(&decoder->resample);
	planes_free(&decoder->planes);
	free(decoder);
}

uint64_t image_decoder_warnings(const struct image_decoder *decoder)
{
	return decoder->n_warnings;
}

static bool inside(uint32_t begin, uint32_t length, uint32_t whole)
{
	return length && begin < whole && length <= whole - begin;
}

int reading_check(const struct image_source *reading, const char *kind, uint32_t width, uint32_t height,
		  struct error *err)
{
	const struct image_request *request = reading->request;
	const struct image_box *crop = &request->crop;

	if ((uint64_t)width * height > reading->pixels_max)
		return error_set(err, -EFBIG,
				 "%s image has %u x %u pixels, more than the %llu that are permitted: scale "
				 "it down first, if that size is intended",
				 kind, width, height, (unsigned long long)reading->pixels_max);
	if (!inside(crop->x, crop->width, width) || !inside(crop->y, crop->height, height))
		return error_set(err, -EINVAL,
				 "a crop of %u x %u pixels at %u, %u is not within an image of %u x %u",
				 crop->width, crop->height, crop->x, crop->y, width, height);
	/* The intermediate image between the two passes has as many columns as the output, and as many rows
	 * as the crop. */
	if ((uint64_t)request->width * crop->height > reading->pixels_max)
		return error_set(
		    err, -EFBIG,
		    "resizing %u rows to %u columns takes more than the %llu pixels that are permitted",
		    crop->height, request->width, (unsigned long long)reading->pixels_max);
	return 0;
}

static bool is_windowed(const struct image_request *request)
{
	return request->window.width || request->window.height;
}

static int check_output(const struct image_request *request, struct error *err)
{
	const struct image_box *window = &request->window;

	if (!request->width || !request->height || request->width > IMAGE_OUTPUT_MAX ||
	    request->height > IMAGE_OUTPUT_MAX)
		return error_set(err, -EINVAL, "invalid output of %u x %u pixels: each side must be 1 to %u",
				 request->width, request->height, IMAGE_OUTPUT_MAX);
	if (is_windowed(request) && (!inside(window->x, window->width, request->width) ||
				     !inside(window->y, window->height, request->height)))
		return error_set(
		    err, -EINVAL, "a window of %u x %u pixels at %u, %u is not within an output of %u x %u",
		    window->width, window->height, window->x, window->y, request->width, request->height);
	return 0;
}

static uint32_t divide_up(uint32_t a, uint32_t b)
{
	return a / b + (a % b != 0);
}

struct image_box reading_plan(const struct image_source *reading, uint32_t by, struct resample_plan *plan)
{
	const struct image_request *request = reading->request;
	const struct image_box *crop = &request->crop;
	float left = (float)(crop->x % by) / (float)by, top = (float)(crop->y % by) / (float)by;

	*plan = (struct resample_plan){
	    .filter = request->filter,
	    .layout = request->layout,
	    .width = divide_up(crop->x + crop->width, by) - crop->x / by,
	    .height = divide_up(crop->y + crop->height, by) - crop->y / by,
	    .box = {left, top, left + (float)crop->width / (float)by, top + (float)crop->height / (float)by},
	    .output_width = request->width,
	    .output_height = request->height,
	    .window = {0, 0, request->width, request->height},
	};
	if (is_windowed(request))
		plan->window = request->window;
	resample_choose(plan);
	return (struct image_box){crop->x / by + plan->part.x, crop->y / by + plan->part.y, plan->part.width,
				  plan->part.height};
}

static struct image_source source_of(struct image_decoder *decoder, int kind, const void *data, size_t bytes,
				     const struct image_request *request)
{
	return (struct image_source){.data = data,
				     .bytes = bytes,
				     .request = request,
				     .pixels_max = decoder->pixels_max,
				     .resample = &decoder->resample,
				     .rows = &decoder->rows,
				     .state = &decoder->states[kind]};
}

int image_decode(struct image_decoder *decoder, const void *data, size_t bytes,
		 const struct image_request *request, uint8_t *output, struct error *err)
{
	struct image_source reading;
	int r = check_output(request, err), kind;

	decoder->n_warnings = 0;
	if (r < 0)
		return r;
	kind = kind_of(data, bytes, err);
	if (kind < 0)
		return kind;
	reading = source_of(decoder, kind, data, bytes, request);
	r = formats[kind]->read(&reading, err);
	decoder->n_warnings = reading.n_warnings;
	if (r < 0)
		return r;
	resample_end(&decoder->resample, output);
	return 0;
}

static bool is_scale(uint32_t by)
{
	return by == 1 || by == 2 || by == 4 || by == 8;
}

uint32_t image_scale(const struct image_info *info, const struct image_request *request)
{
	/* The information may come from a copy that another process wrote, so it may have any kind. */
	const struct image_format *f = (size_t)info->kind < N_FORMATS ? formats[info->kind] : NULL;

	return f && f->scale ? f->scale(info, request) : 1;
}

uint64_t image_whole_bytes(const struct image_whole *whole)
{
	const struct image_info *info = &whole->info;

	return whole->is_planes ? planes_bytes(info->width, info->height)
				: (uint64_t)divide_up(info->width, whole->by) *
				      divide_up(info->height, whole->by) * IMAGE_CHANNELS;
}

int image_decode_whole(struct image_decoder *decoder, const void *data, size_t bytes,
		       const struct image_whole *whole, uint8_t *to, struct error *err)
{
	const struct image_info *info = &whole->info;
	const struct image_request all = {.crop = {0, 0, info->width, info->height},
					  .width = info->width,
					  .height = info->height,
					  .filter = IMAGE_BILINEAR,
					  .layout = IMAGE_HWC};
	const struct image_format *format;
	struct image_source reading;
	int kind = kind_of(data, bytes, err), r;

	decoder->n_warnings = 0;
	if (kind < 0)
		return kind;
	format = formats[kind];
	if (kind != (int)info->kind || !is_scale(whole->by) || (whole->is_planes && whole->by != 1) ||
	    (!format->read_whole && (whole->by != 1 || whole->is_planes)))
		return error_set(err, -EOPNOTSUPP, "cannot decode this %s image at a scale of 1/%u%s",
				 format->name, whole->by, whole->is_planes ? ", in planes" : "");
	if (!format->read_whole)
		return image_decode(decoder, data, bytes, &all, to, err);
	reading = source_of(decoder, kind, data, bytes, &all);
	r = format->read_whole(&reading, whole, to, err);
	decoder->n_warnings = reading.n_warnings;
	return r;
}

int image_resize(struct image_decoder *decoder, const struct image_whole *whole, const uint8_t *data,
		 const struct image_request *request, uint8_t *output, struct error *err)
{
	const struct image_source reading = {.request = request, .pixels_max = decoder->pixels_max};
	size_t row_bytes = (size_t)divide_up(whole->info.width, whole->by) * IMAGE_CHANNELS;
	struct resample_plan plan;
	int r = check_output(request, err);

	decoder->n_warnings = 0;
	if (r == 0)
		r = reading_check(&reading, "an", whole->info.width, whole->info.height, err);
	if (r == 0 && image_scale(&whole->info, request) != whole->by)
		r = error_set(err, -EINVAL, "got an image at a scale of 1/%u, expected 1/%u", whole->by,
			      image_scale(&whole->info, request));
	if (r < 0)
		return r;
	struct image_box part = reading_plan(&reading, whole->by, &plan);

	if (resample_begin(&decoder->resample, &plan) < 0 ||
	    (whole->is_planes &&
	     planes_begin(&decoder->planes, data, whole->info.width, whole->info.height) < 0))
		return error_errno(err, -ENOMEM, "a crop of %u columns", part.width);
	for (uint32_t y = 0; y < part.height; y++) {
		uint8_t *row = resample_row(&decoder->resample);

		if (whole->is_planes)
			planes_row(&decoder->planes, part.x, part.y + y, part.width, row);
		else
			memcpy(row, data + (part.y + y) * row_bytes + (size_t)part.x * IMAGE_CHANNELS,
			       (size_t)part.width * IMAGE_CHANNELS);
	}
	resample_end(&decoder->resample, output);
	return 0;
}
