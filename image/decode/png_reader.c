/* SPDX-License-Identifier: Apache-2.0 */
#include "reader.h"

#include <errno.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>
#include <zlib.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/cleanup.h"

#define SIGNATURE     8
#define CHUNK_HEAD    8 /* length, type */
#define CHUNK_FRAME   12
#define HEADER_BYTES  16   /* start of chunk IHDR: length, type, width, height */
#define MOST_PER_BYTE 1100 /* maximum compression ratio: zlib's best is 1032 to 1 */
#define RAW_MAX       ((size_t)1 << 30)

static uint32_t get_number(const uint8_t *at)
{
	return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static bool is_type(const uint8_t *chunk, const char *type)
{
	return memcmp(chunk + 4, type, 4) == 0;
}

static bool begins(const uint8_t *data, size_t bytes)
{
	return bytes >= SIGNATURE && memcmp(data, "\x89PNG\r\n\x1a\n", SIGNATURE) == 0;
}

/* Finds the header, which should be the first chunk. libpng, and therefore Pillow, skips unknown chunks
 * before it. */
static int probe(const uint8_t *data, size_t bytes, struct image_info *ret, struct error *err)
{
	size_t at = SIGNATURE;

	while (bytes - at >= HEADER_BYTES) {
		uint32_t length = get_number(data + at);

		if (is_type(data + at, "IHDR")) {
			*ret = (struct image_info){.kind = IMAGE_PNG,
						   .width = get_number(data + at + 8),
						   .height = get_number(data + at + 12)};
			return 0;
		}
		if (length > bytes - at - CHUNK_FRAME)
			break;
		at += CHUNK_FRAME + length;
	}
	return error_set(err, -EBADMSG, "PNG image is truncated: its %zu bytes end before its header", bytes);
}

/* Returns true if Pillow accepts these bytes as the name of a chunk. */
static bool can_be_type(const uint8_t *chunk)
{
	for (int i = 4; i < CHUNK_HEAD; i++)
		if (!((chunk[i] >= 'a' && chunk[i] <= 'z') || (chunk[i] >= 'A' && chunk[i] <= 'Z') ||
		      (chunk[i] >= '0' && chunk[i] <= '9') || chunk[i] == '_'))
			return false;
	return true;
}

/* Decompresses pixels from this data. 0 or -EBADMSG. */
static int inflate_some(z_stream *z, const uint8_t *data, size_t bytes)
{
	int r;

	z->next_in = (z_const Bytef *)data;
	z->avail_in = (uInt)bytes;
	r = inflate(z, Z_NO_FLUSH);
	return r == Z_OK || r == Z_STREAM_END || r == Z_BUF_ERROR ? 0 : -EBADMSG;
}

/* Decompresses the pixels of all IDAT chunks. A chunk with a wrong checksum counts as missing. If the chunk
 * at `cut` is incomplete, the pixels must end in it: Pillow refuses a file that is cut later. */
static int inflate_pixels(const uint8_t *data, size_t bytes, size_t at, size_t cut, uint8_t *raw,
			  size_t raw_bytes)
{
	z_stream z = {.next_out = raw, .avail_out = (uInt)raw_bytes};
	int r = 0;

	if (inflateInit(&z) != Z_OK)
		return -ENOMEM;
	while (r == 0 && z.avail_out && bytes - at >= CHUNK_HEAD && is_type(data + at, "IDAT")) {
		size_t length = get_number(data + at), left = bytes - at - CHUNK_HEAD;
		bool is_whole = left >= 4 && length <= left - 4;

		if (is_whole && crc32(crc32(0, NULL, 0), data + at + 4, (uInt)length + 4) !=
				    get_number(data + at + CHUNK_HEAD + length))
			break;
		r = inflate_some(&z, data + at + CHUNK_HEAD, length < left ? length : left);
		if (!is_whole || !z.avail_out)
			break;
		at += CHUNK_FRAME + length;
	}
	r = r == 0 && (z.avail_out || (cut && at != cut)) ? -EBADMSG : r;
	inflateEnd(&z);
	return r;
}

static uint8_t *put_number(uint8_t *to, uint32_t number)
{
	for (int i = 0; i < 4; i++)
		to[i] = (uint8_t)(number >> (24 - 8 * i));
	return to + 4;
}

/* Adds length, type and checksum to a chunk whose data is already at to + CHUNK_HEAD. Returns the end of the
 * chunk. */
static uint8_t *frame_chunk(uint8_t *to, const char *type, size_t bytes)
{
	memcpy(put_number(to, (uint32_t)bytes), type, 4);
	return put_number(to + CHUNK_HEAD + bytes,
			  (uint32_t)crc32(crc32(0, NULL, 0), to + 4, (uInt)bytes + 4));
}

/* Makes a complete file of the unchanged chunks before the pixels, and the pixels without compression. */
static int make_whole(const uint8_t *data, size_t bytes, size_t first, size_t cut, size_t raw_bytes,
		      uint8_t **ret, size_t *ret_bytes)
{
	/* No zlib stream decompresses to more bytes than this. */
	if (raw_bytes / MOST_PER_BYTE > bytes || raw_bytes > RAW_MAX)
		return -EBADMSG;
	_cleanup_(freep) uint8_t *raw = malloc(raw_bytes);
	uLongf packed = compressBound(raw_bytes);
	_cleanup_(freep) uint8_t *whole = malloc(first + packed + 2 * CHUNK_FRAME);

	if (!raw || !whole)
		return -ENOMEM;
	int r = inflate_pixels(data, bytes, first, cut, raw, raw_bytes);

	if (r < 0)
		return r;
	if (compress2(whole + first + CHUNK_HEAD, &packed, raw, raw_bytes, Z_NO_COMPRESSION) != Z_OK)
		return -ENOMEM;
	memcpy(whole, data, first);
	*ret_bytes = (size_t)(frame_chunk(frame_chunk(whole + first, "IDAT", packed), "IEND", 0) - whole);
	*ret = steal_pointer(whole);
	return 1;
}

/* Checks the file's chunks. raw_bytes: size of the uncompressed pixels with filter bytes. Returns 0: all
 * chunks are there, and decoding shows whether the pixels are intact; 1: the file is cut after the pixels,
 * and *ret, from malloc(), is a complete file with the same pixels; -EBADMSG: pixels are missing, or the file
 * ends within a later chunk, which Pillow refuses; -ENOMEM. */
static int png_end_check(const uint8_t *data, size_t bytes, size_t raw_bytes, uint8_t **ret,
			 size_t *ret_bytes)
{
	size_t first = 0, cut = 0;

	for (size_t at = SIGNATURE; bytes >= at && bytes - at >= CHUNK_HEAD;) {
		const uint8_t *chunk = data + at;
		size_t length = get_number(chunk), left = bytes - at - CHUNK_HEAD;
		bool is_data = is_type(chunk, "IDAT");

		if (is_type(chunk, "IEND"))
			return 0;
		if (first && !is_data && !can_be_type(chunk))
			break;
		if (is_data && !first)
			first = at;
		if (length > left) {
			if (!is_data)
				return -EBADMSG;
			cut = at;
			break;
		}
		if (left - length < 4)
			break;
		at += CHUNK_FRAME + length;
	}
	return first ? make_whole(data, bytes, first, cut, raw_bytes, ret, ret_bytes) : -EBADMSG;
}

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
	size_t whole_bytes;
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
	int r = open_image(reader, reading);

	if (r == 0)
		r = png_end_check(reader->data, reader->bytes, raw_bytes(reader), &reader->whole,
				  &reader->whole_bytes);
	if (r == -EBADMSG && !reader->err->text[0])
		truncated(reader);
	if (r <= 0)
		return r;
	png_destroy_read_struct(&reader->png, &reader->info, NULL);
	reader->data = reader->whole;
	reader->bytes = reader->whole_bytes;
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

static int read_png(struct image_source *reading, struct error *err)
{
	struct png_reader reader = {
	    .rows = reading->rows, .err = err, .data = reading->data, .bytes = reading->bytes};
	int r = read_or_escape(&reader, reading);

	png_destroy_read_struct(&reader.png, &reader.info, NULL);
	free(reader.whole);
	reading->n_warnings = reader.n_warnings;
	return r;
}

const struct image_format image_png = {.name = "PNG", .begins = begins, .probe = probe, .read = read_png};
