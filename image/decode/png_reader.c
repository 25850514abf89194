/* SPDX-License-Identifier: Apache-2.0 */
#include "reader.h"

#include <errno.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>

#include "lib/cleanup.h"
#include "png_end.h"

/* Format of a row after libpng has unpacked it. */
enum row_kind {
	ROW_RGB,
	ROW_INDEX,  /* one byte: index into the palette */
	ROW_GREY16, /* big-endian */
};

struct png_reader {
	png_structp png;
	png_infop info;
	jmp_buf escape;
	struct error *err;
	int failed; /* result to return after an escape */
	uint64_t n_warnings;
	const uint8_t *data;
	size_t bytes, at;
	uint8_t *whole; /* completed copy of a file that is cut after its pixels; NULL: none */
	uint8_t palette[256][IMAGE_CHANNELS];
	struct scratch_buffer
	    *rows; /* rows from libpng: one, or all rows of the crop if the image is interlaced */
};

static __attribute__((noreturn)) void escape(struct png_reader *reader, int code)
{
	reader->failed = code;
	longjmp(reader->escape, 1);
}

static void on_error(png_structp png, png_const_charp message)
{
	struct png_reader *reader = png_get_error_ptr(png);

	escape(reader, error_set(reader->err, -EBADMSG, "PNG image of %zu bytes cannot be decoded: %s",
				 reader->bytes, message));
}

static void on_warning(png_structp png, png_const_charp message)
{
	struct png_reader *reader = png_get_error_ptr(png);

	reader->n_warnings++;
}

static __attribute__((noreturn)) void truncated(struct png_reader *reader)
{
	escape(reader,
	       error_set(reader->err, -EBADMSG,
			 "PNG image is truncated: its %zu bytes end before the image does", reader->bytes));
}

static void on_read(png_structp png, png_bytep buffer, size_t n)
{
	struct png_reader *reader = png_get_io_ptr(png);

	if (n > reader->bytes - reader->at)
		truncated(reader);
	memcpy(buffer, reader->data + reader->at, n);
	reader->at += n;
}

static size_t raw_bytes(const struct png_reader *reader)
{
	uint32_t width = png_get_image_width(reader->png, reader->info),
		 height = png_get_image_height(reader->png, reader->info);
	uint64_t bits = (uint64_t)png_get_channels(reader->png, reader->info) *
			png_get_bit_depth(reader->png, reader->info),
		 sum = 0;

	if (png_get_interlace_type(reader->png, reader->info) == PNG_INTERLACE_NONE)
		return (1 + (width * bits + 7) / 8) * height;
	for (int pass = 0; pass < PNG_INTERLACE_ADAM7_PASSES; pass++) {
		uint32_t columns = PNG_PASS_COLS(width, pass), rows = PNG_PASS_ROWS(height, pass);

		sum += columns ? (1 + (columns * bits + 7) / 8) * rows : 0;
	}
	return sum;
}

/* Loads the palette. Indices without an entry are black, as in Pillow 13; Pillow 9 makes them grey. */
static void load_palette(struct png_reader *reader)
{
	png_colorp colours = NULL;
	int n = 0;

	memset(reader->palette, 0, sizeof(reader->palette));
	png_get_PLTE(reader->png, reader->info, &colours, &n);
	for (int i = 0; i < n; i++) {
		uint8_t *entry = reader->palette[i];

		entry[0] = colours[i].red;
		entry[1] = colours[i].green;
		entry[2] = colours[i].blue;
	}
}

/* Chooses the row format that gives Pillow's convert("RGB"): 16-bit colours keep their upper 8 bits, but grey
 * levels beyond 255 become 255. */
static enum row_kind choose_row(struct png_reader *reader)
{
	png_byte colour = png_get_color_type(reader->png, reader->info);
	png_byte depth = png_get_bit_depth(reader->png, reader->info);

	if (colour == PNG_COLOR_TYPE_PALETTE) {
		png_set_packing(reader->png);
		load_palette(reader);
		return ROW_INDEX;
	}
	if (colour == PNG_COLOR_TYPE_GRAY && depth == 16)
		return ROW_GREY16;
	if (depth == 16)
		png_set_strip_16(reader->png);
	if (colour == PNG_COLOR_TYPE_GRAY && depth < 8)
		png_set_expand_gray_1_2_4_to_8(reader->png);
	if (colour & PNG_COLOR_MASK_ALPHA)
		png_set_strip_alpha(reader->png);
	if (!(colour & PNG_COLOR_MASK_COLOR))
		png_set_gray_to_rgb(reader->png);
	return ROW_RGB;
}

static void take_row(const struct png_reader *reader, uint8_t *to, const uint8_t *row, enum row_kind kind,
		     const struct image_box *crop)
{
	if (kind == ROW_RGB) {
		memcpy(to, row + (size_t)crop->x * IMAGE_CHANNELS, (size_t)crop->width * IMAGE_CHANNELS);
		return;
	}
	for (uint32_t i = 0; i < crop->width; i++, to += IMAGE_CHANNELS) {
		const uint8_t *grey = row + 2 * (size_t)(crop->x + i);

		if (kind == ROW_INDEX)
			memcpy(to, reader->palette[row[crop->x + i]], IMAGE_CHANNELS);
		else
			memset(to, grey[0] ? 255 : grey[1], IMAGE_CHANNELS);
	}
}

/* Reads an interlaced image. Each pass has pixels of all parts of the image, so the crop's rows stay in
 * memory until the last pass. */
static void read_interlaced(struct png_reader *reader, const struct image_box *crop, size_t row_bytes,
			    uint32_t image_height, int n_passes)
{
	for (int pass = 0; pass < n_passes; pass++)
		for (uint32_t y = 0; y < image_height; y++) {
			uint8_t *row = y < crop->y || y - crop->y >= crop->height
					   ? NULL
					   : (uint8_t *)reader->rows->bytes + (y - crop->y) * row_bytes;

			png_read_row(reader->png, row, NULL);
		}
}

static int open_image(struct png_reader *reader, const struct image_source *reading)
{
	reader->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, reader, on_error, on_warning);
	reader->info = reader->png ? png_create_info_struct(reader->png) : NULL;
	if (!reader->info)
		return error_errno(reader->err, -ENOMEM, "PNG image");
	png_set_read_fn(reader->png, reader, on_read);
	/* Profiles, texts and times do not affect the pixels. */
	png_set_keep_unknown_chunks(reader->png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
	png_read_info(reader->png, reader->info);
	return reading_check(reading, "PNG", png_get_image_width(reader->png, reader->info),
			     png_get_image_height(reader->png, reader->info), reader->err);
}

/* Opens the image and checks that it is complete. Data after the crop is not decoded, so the chunks must show
 * whether any is missing. Pillow accepts a file that is cut after its pixels, so such a file is completed and
 * opened again. */
static int open_sound(struct png_reader *reader, const struct image_source *reading)
{
	size_t bytes;
	int r = open_image(reader, reading);

	if (r == 0)
		r = png_end_check(reader->data, reader->bytes, raw_bytes(reader), &reader->whole, &bytes);
	if (r == -EBADMSG && !reader->err->text[0])
		truncated(reader);
	if (r <= 0)
		return r;
	png_destroy_read_struct(&reader->png, &reader->info, NULL);
	reader->data = reader->whole;
	reader->bytes = bytes;
	reader->at = 0;
	return open_image(reader, reading);
}

static int read_image(struct png_reader *reader, struct image_source *reading)
{
	struct resample_plan plan;
	int r = open_sound(reader, reading);

	if (r < 0)
		return r;
	struct image_box crop = reading_plan(reading, 1, &plan);
	enum row_kind kind = choose_row(reader);
	int n_passes = png_set_interlace_handling(reader->png);

	png_read_update_info(reader->png, reader->info);
	size_t row_bytes = png_get_rowbytes(reader->png, reader->info);

	if (scratch_reserve(reader->rows, n_passes > 1 ? crop.height : 1, row_bytes) < 0 ||
	    resample_begin(reading->resample, &plan) < 0)
		return error_errno(reader->err, -ENOMEM, "PNG image has rows of %zu bytes", row_bytes);
	if (n_passes > 1)
		read_interlaced(reader, &crop, row_bytes, png_get_image_height(reader->png, reader->info),
				n_passes);
	for (uint32_t y = 0; n_passes == 1 && y < crop.y; y++)
		png_read_row(reader->png, NULL, NULL);
	for (uint32_t y = 0; y < crop.height; y++) {
		uint8_t *row = reader->rows->bytes;

		if (n_passes > 1)
			row += y * row_bytes;
		else
			png_read_row(reader->png, row, NULL);
		take_row(reader, resample_row(reading->resample), row, kind, &crop);
	}
	return 0;
}

/* Reads the image, or returns after an escape. Separate, so that no variable here changes between setjmp()
 * and longjmp(). */
static int read_or_escape(struct png_reader *reader, struct image_source *reading)
{
	if (setjmp(reader->escape))
		return reader->failed;
	return read_image(reader, reading);
}

int png_reader_read(struct scratch_buffer *rows, struct image_source *reading, struct error *err)
{
	struct png_reader reader = {.rows = rows, .err = err, .data = reading->data, .bytes = reading->bytes};
	int r = read_or_escape(&reader, reading);

	png_destroy_read_struct(&reader.png, &reader.info, NULL);
	free(reader.whole);
	reading->n_warnings = reader.n_warnings;
	return r;
}
