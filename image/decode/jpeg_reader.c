/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <jerror.h>

#include "image/decoder.h"
#include "reader.h"
#include "scratch.h"

/* Extracts a part of a JPEG image, located by restart markers, as a file of its own. Decoding can restart
 * after a marker. So the rows and columns around a crop need not be decoded, and the pixels of the part stay
 * the same. */

/* Layout of an image with one sequential scan and restart intervals, from its header. A "row" is a row of
 * MCUs of all components: 8 * v pixels high. */
struct jpeg_layout {
	uint32_t width, height;
	uint32_t h, v;          /* sampling factors of the component with the most samples */
	size_t height_at;       /* file offset of the height: two bytes, big-endian, followed by the width */
	size_t scan_at;         /* file offset of the end of the header */
	uint32_t mcu_width;     /* pixels */
	bool in_order;          /* a row's MCUs are stored from left to right, one line of MCUs per row */
	uint64_t row_mcus;      /* MCUs in a row */
	uint64_t interval_mcus; /* MCUs between markers, at least 1 */
};

struct jpeg_part {
	struct image_box box; /* in pixels, without the padding of the last blocks of the image */
	/* Runs of n intervals that are consecutive in the file. The start of a run is `apart` intervals after
	 * the start of the previous one. */
	uint64_t first, n, apart, n_runs;
};

#define N_RST         8
#define BLOCK         8 /* pixels */
#define SOF_BYTES     7 /* start of SOF: length, precision, height, width */
#define SOF_COMPONENT 3 /* one component of SOF: number, sampling factors, table */
#define NARROW        4 /* maximum width in pixels at which libjpeg does not interpolate chroma */
#define MCUS_LEAST    4 /* minimum MCUs in a row: libjpeg does not interpolate chroma of very narrow images */

enum marker {
	SOF_BASELINE = 0xc0,
	SOF_EXTENDED = 0xc1,
	DHT = 0xc4,
	DAC = 0xcc,
	SOF_LAST = 0xcf,
	RST_FIRST = 0xd0,
	RST_LAST = 0xd7,
	SOI = 0xd8,
	EOI = 0xd9,
	SOS = 0xda,
	DRI = 0xdd,
};

/* A segment of the header, without its marker and length. */
struct part {
	uint8_t marker;
	size_t at, bytes;
};

static uint32_t two_bytes(const uint8_t *p)
{
	return (uint32_t)p[0] << 8 | p[1];
}

/* Reads the next segment. It is strict: if libjpeg would have to search for the next marker, the header is
 * refused. */
static bool next_part(const uint8_t *data, size_t bytes, size_t *at, struct part *ret)
{
	size_t i = *at;

	if (i >= bytes || data[i] != 0xff)
		return false;
	while (i < bytes && data[i] == 0xff)
		i++;
	if (bytes - i < 3)
		return false;
	uint8_t marker = data[i];
	size_t length = two_bytes(data + i + 1);

	if (marker < SOF_BASELINE || (marker >= RST_FIRST && marker <= EOI) || length < 2 ||
	    length > bytes - i - 1)
		return false;
	*ret = (struct part){marker, i + 3, length - 2};
	*at = i + 1 + length;
	return true;
}

static bool read_frame(const uint8_t *data, const struct part *part, unsigned *ret_n, struct jpeg_layout *ret)
{
	const uint8_t *p = data + part->at;
	struct jpeg_layout layout = {.height_at = part->at + 1};

	if (part->bytes < 6 || part->bytes != 6 + 3u * p[5])
		return false;
	layout.height = two_bytes(p + 1);
	layout.width = two_bytes(p + 3);
	for (unsigned i = 0; i < p[5]; i++) {
		uint32_t h = p[7 + 3 * i] >> 4, v = p[7 + 3 * i] & 15;

		if (!h || !v)
			return false;
		layout.h = h > layout.h ? h : layout.h;
		layout.v = v > layout.v ? v : layout.v;
	}
	*ret_n = p[5];
	*ret = layout;
	return layout.height && layout.width && p[5];
}

/* Counts MCUs. In a scan of one component each MCU is one block, regardless of the sampling. */
static void count_mcus(struct jpeg_layout *layout, unsigned n_components)
{
	uint32_t v = n_components == 1 ? layout->v : 1;

	layout->mcu_width = n_components == 1 ? BLOCK : BLOCK * layout->h;
	layout->in_order = v == 1;
	layout->row_mcus = (uint64_t)v * ((layout->width + layout->mcu_width - 1) / layout->mcu_width);
}

/* Returns false if the header is damaged, or of an image without such a layout: then no part can be
 * extracted. */
static bool jpeg_layout_read(const uint8_t *data, size_t bytes, struct jpeg_layout *ret)
{
	struct jpeg_layout layout = {0};
	struct part part = {0};
	uint32_t interval = 0;
	unsigned n_components = 0;
	size_t at = 2; /* begin after the two bytes of the SOI marker */

	while (part.marker != SOS) {
		if (!next_part(data, bytes, &at, &part))
			return false;
		bool is_frame = part.marker <= SOF_LAST && part.marker != DHT && part.marker != DAC;

		if (is_frame && (n_components || part.marker > SOF_EXTENDED ||
				 !read_frame(data, &part, &n_components, &layout)))
			return false;
		if (part.marker == DRI) {
			if (part.bytes != 2)
				return false;
			interval = two_bytes(data + part.at);
		}
	}
	if (!n_components || !interval || !part.bytes || data[part.at] != n_components)
		return false;
	layout.scan_at = at;
	count_mcus(&layout, n_components);
	layout.interval_mcus = interval;
	*ret = layout;
	return true;
}

/* Limits the part to those intervals of each row that contain the box's columns. */
static void choose_columns(const struct jpeg_layout *layout, struct jpeg_part *part)
{
	uint64_t least = (MCUS_LEAST + layout->interval_mcus - 1) / layout->interval_mcus;
	uint64_t of_row = layout->row_mcus / layout->interval_mcus;
	uint64_t width = layout->interval_mcus * layout->mcu_width;
	uint64_t first = part->box.x / width, end = (part->box.x + part->box.width + width - 1) / width;

	if (end - first < least)
		end = first + least < of_row ? first + least : of_row;
	if (end - first < least)
		first = end > least ? end - least : 0;
	part->first += first;
	part->n = end - first;
	part->apart = of_row;
	part->n_runs = part->box.height;
	part->box.x = (uint32_t)(first * width);
	part->box.width = (uint32_t)(end < of_row ? end * width : layout->width) - part->box.x;
}

/* Chooses the smallest part that contains this box, which must be within the image. Returns false if that is
 * the whole image, or leaves out only rows below the box. */
static bool jpeg_part_choose(const struct jpeg_layout *layout, const struct image_box *box,
			     struct jpeg_part *ret)
{
	uint32_t row = BLOCK * layout->v;
	uint32_t first = box->y / row, end = (box->y + box->height + row - 1) / row;

	while (first * layout->row_mcus % layout->interval_mcus)
		first--;
	uint64_t begin = first * layout->row_mcus / layout->interval_mcus;
	uint64_t last = (end * layout->row_mcus - 1) / layout->interval_mcus;
	struct jpeg_part part = {
	    .box = {0, first, layout->width,
		    end - first}, /* y and height are in rows of MCUs, not yet in pixels */
	    .first = begin,
	    .n = last + 1 - begin,
	    .n_runs = 1,
	};

	if (layout->in_order && layout->row_mcus % layout->interval_mcus == 0) {
		part.box.x = box->x;
		part.box.width = box->width;
		choose_columns(layout, &part);
	}
	part.box.y = first * row;
	part.box.height = (end * row < layout->height ? end * row : layout->height) - part.box.y;
	*ret = part;
	return first || part.box.width < layout->width;
}

/* Finds the next marker of the scan. *at: where the search starts, and afterwards the byte after the marker.
 * Returns the marker, and in *ret_begin where it begins; 0: there is none. */
static uint8_t next_marker(const uint8_t *data, size_t bytes, size_t *at, size_t *ret_begin)
{
	const uint8_t *end = data + bytes, *found = data + *at;

	while ((found = memchr(found, 0xff, (size_t)(end - found)))) {
		const uint8_t *begin = found;

		while (found < end && *found == 0xff)
			found++;
		if (found == end)
			return 0;
		*at = (size_t)(++found - data);
		*ret_begin = (size_t)(begin - data);
		if (found[-1]) /* otherwise an escaped 0xff byte */
			return found[-1];
	}
	return 0;
}

/* Iterates over the intervals of a scan. */
struct intervals {
	const uint8_t *data;
	size_t bytes;
	size_t at;     /* offset where the next interval begins */
	size_t end;    /* offset where the last interval ended */
	uint64_t i, n; /* number of the next interval, and number of intervals */
};

static bool next_interval(struct intervals *scan)
{
	uint8_t marker = next_marker(scan->data, scan->bytes, &scan->at, &scan->end);
	bool restarts = marker >= RST_FIRST && marker <= RST_LAST;

	if (++scan->i == scan->n)
		return marker && !restarts;
	return marker == RST_FIRST + (scan->i - 1) % N_RST;
}

/*
 * Writes a file whose image is the part. *ret_end: where the part ends in the original file. Returns 1; 0: a
 * marker before *ret_end is missing or wrong, so a decoder must start at the top to resynchronise; -ENOMEM.
 */
static int jpeg_part_write(const struct jpeg_layout *layout, const struct jpeg_part *part,
			   const uint8_t *data, size_t bytes, struct scratch_buffer *file, size_t *ret_bytes,
			   size_t *ret_end)
{
	uint32_t row = BLOCK * layout->v;
	uint64_t n_rows = (layout->height + row - 1) / row;
	struct intervals scan = {
	    .data = data,
	    .bytes = bytes,
	    .at = layout->scan_at,
	    .n = (n_rows * layout->row_mcus + layout->interval_mcus - 1) / layout->interval_mcus,
	};

	/* Each interval of the original file is followed by a marker, too. */
	if (scratch_reserve(file, bytes, 1) < 0)
		return -ENOMEM;
	uint8_t *to = memcpy(file->bytes, data, layout->scan_at);
	uint8_t *size = to + layout->height_at;

	size[0] = (uint8_t)(part->box.height >> 8);
	size[1] = (uint8_t)part->box.height;
	size[2] = (uint8_t)(part->box.width >> 8);
	size[3] = (uint8_t)part->box.width;
	to += layout->scan_at;
	for (uint64_t run = 0, n_written = 0; run < part->n_runs; run++) {
		uint64_t first = part->first + run * part->apart;

		while (scan.i < first)
			if (!next_interval(&scan))
				return 0;
		while (scan.i < first + part->n) {
			size_t begin = scan.at;

			if (!next_interval(&scan))
				return 0;
			memcpy(to, data + begin, scan.end - begin);
			to += scan.end - begin;
			*to++ = 0xff;
			*to++ = (uint8_t)(RST_FIRST + n_written++ % N_RST);
		}
	}
	to[-1] = EOI;
	*ret_bytes = (size_t)(to - (uint8_t *)file->bytes);
	*ret_end = scan.end;
	return 1;
}

static bool begins(const uint8_t *data, size_t bytes)
{
	return bytes >= 3 && memcmp(data, "\xff\xd8\xff", 3) == 0;
}

/* Returns true for a frame header, which has the image's size; the other markers from 0xc0 to 0xcf are
 * tables. */
static bool is_frame(uint8_t marker)
{
	return marker >= SOF_BASELINE && marker <= SOF_LAST && marker != DHT && marker != 0xc8 &&
	       marker != DAC;
}

static bool stands_alone(uint8_t marker)
{
	return marker == 0x01 || (marker >= RST_FIRST && marker <= SOI);
}

/* Reads the sampling of the components. p: frame header after its length, possibly incomplete. */
static void probe_sampling(const uint8_t *p, size_t bytes, struct image_info *info)
{
	uint32_t n = bytes > SOF_BYTES - 2 ? p[SOF_BYTES - 2] : 0;
	bool is_halved = n == 3 && info->width > NARROW;

	p += SOF_BYTES - 1;
	if (!n || (bytes - SOF_BYTES + 1) / SOF_COMPONENT < n)
		return;
	for (uint32_t i = 0; i < n; i++, p += SOF_COMPONENT) {
		uint32_t h = p[1] >> 4, v = p[1] & 15;

		info->h = h > info->h ? h : info->h;
		info->v = v > info->v ? v : info->v;
		is_halved = is_halved && h == (i ? 1 : 2) && v == h;
	}
	info->has_planes = is_halved;
}

static int probe(const uint8_t *data, size_t bytes, struct image_info *ret, struct error *err)
{
	size_t at = 2;

	for (;;) {
		/* Skips bytes that are not a marker, and fill bytes before a marker, as libjpeg does. */
		while (at < bytes && data[at] != 0xff)
			at++;
		while (at < bytes && data[at] == 0xff)
			at++;
		if (at == bytes)
			break;
		uint8_t marker = data[at++];

		if (!marker || stands_alone(marker))
			continue;
		if (marker == EOI || marker == SOS)
			return error_set(err, -EBADMSG,
					 "JPEG image is damaged: no frame header with a size before byte %zu",
					 at - 2);
		if (bytes - at < SOF_BYTES)
			break;
		if (is_frame(marker)) {
			*ret = (struct image_info){.kind = IMAGE_JPEG,
						   .width = two_bytes(data + at + 5),
						   .height = two_bytes(data + at + 3)};
			probe_sampling(data + at + 2, bytes - at - 2, ret);
			return 0;
		}
		size_t length = two_bytes(data + at);

		if (length < 2)
			length = 2; /* libjpeg treats the segment as empty */
		if (length > bytes - at)
			break;
		at += length;
	}
	return error_set(err, -EBADMSG, "JPEG image is truncated: its %zu bytes end in the header", bytes);
}

/* Minimum number of pixels of the scaled image per output pixel, in each direction, for which a DCT scale is
 * used. With fewer, the difference from resizing the full-size image is visible. */
#define MADE_OF 2
/* Each scan covers the whole image, however few bytes it has. Progressive images have about ten. */
#define SCANS_MAX 100
#define CMYK      4

struct jpeg_reader {
	struct jpeg_decompress_struct jpeg;
	struct jpeg_error_mgr messages;
	struct jpeg_progress_mgr progress;
	jmp_buf escape;
	bool created;
	struct error *err;
	int failed; /* result to return after an escape */
	uint64_t n_warnings;
	size_t bytes;               /* size of the file */
	struct scratch_buffer cmyk; /* buffer for one row */

	/* Data above and to the sides of the crop is skipped where restart markers permit it. */
	struct scratch_buffer part; /* a file with only a part of the image */
	struct image_box inside;    /* position of that part in the whole image */
	const uint8_t *rest;        /* the file's data after the part; NULL: the whole file is read */
	size_t rest_bytes;
};

static __attribute__((noreturn)) void escape(struct jpeg_reader *reader, int code)
{
	reader->failed = code;
	longjmp(reader->escape, 1);
}

static struct jpeg_reader *reader_of(j_common_ptr jpeg)
{
	return jpeg->client_data;
}

/* Fails with the library's own message. */
static void on_error(j_common_ptr jpeg)
{
	struct jpeg_reader *reader = reader_of(jpeg);
	char text[JMSG_LENGTH_MAX];
	int code = -EBADMSG;

	if (jpeg->err->msg_code == JERR_OUT_OF_MEMORY)
		code = -ENOMEM;
	else if (jpeg->err->msg_code == JERR_BAD_PRECISION || jpeg->err->msg_code == JERR_SOF_UNSUPPORTED ||
		 jpeg->err->msg_code == JERR_CONVERSION_NOTIMPL)
		code = -EOPNOTSUPP;
	jpeg->err->format_message(jpeg, text);
	error_set(reader->err, code, "JPEG image of %zu bytes cannot be decoded: %s", reader->bytes, text);
	escape(reader, code);
}

/* Counts damage that the library decodes around (negative level). Other messages are for debugging the
 * library. */
static void on_message(j_common_ptr jpeg, int level)
{
	if (level < 0)
		reader_of(jpeg)->n_warnings++;
}

static void on_output(j_common_ptr jpeg)
{
}

static __attribute__((noreturn)) void truncated(struct jpeg_reader *reader)
{
	error_set(reader->err, -EBADMSG, "JPEG image is truncated: its %zu bytes end before the image does",
		  reader->bytes);
	escape(reader, -EBADMSG);
}

/* Fails at the end of the file, as Pillow does; the library would fill the rest with grey. */
static boolean on_end_of_bytes(j_decompress_ptr jpeg)
{
	truncated(reader_of((j_common_ptr)jpeg));
}

static void on_progress(j_common_ptr jpeg)
{
	struct jpeg_reader *reader = reader_of(jpeg);

	if (reader->jpeg.input_scan_number <= SCANS_MAX)
		return;
	error_set(reader->err, -EFBIG, "JPEG image has more than %d scans: decoding would take too long",
		  SCANS_MAX);
	escape(reader, -EFBIG);
}

/*
 * Returns the denominator of the DCT scale. If chroma has half of luma's samples in both directions, the
 * library decodes chroma at twice the scale, so that both have as many samples. With other sampling a scaled
 * image has less chroma, so the scale must be larger. If chroma has less than half, which is rare, the
 * library makes errors where columns are left out, so the scale is 1.
 */
static uint32_t scale_of(uint32_t h, uint32_t v, const struct image_request *request)
{
	uint32_t width = MADE_OF * request->width, height = MADE_OF * request->height;
	uint32_t denominator = 8;

	if (h > 2 || v > 2)
		return 1;
	if (h != v) {
		width *= h;
		height *= v;
	}
	while (denominator > 1 &&
	       (request->crop.width / denominator < width || request->crop.height / denominator < height))
		denominator /= 2;
	return denominator;
}

/* Converts Adobe's inverted CMYK to RGB: black in the fourth component darkens the others. Rounds as Pillow
 * does. */
static void rgb_of_cmyk(uint8_t *rgb, const uint8_t *cmyk, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++, rgb += IMAGE_CHANNELS, cmyk += CMYK)
		for (uint32_t c = 0; c < IMAGE_CHANNELS; c++) {
			int product = (255 - cmyk[c]) * cmyk[3] + 128;

			rgb[c] = (uint8_t)(cmyk[3] - ((product >> 8) + product) / 256);
		}
}

/* Number of coefficients per block to check: DC, and those that the library estimates. */
#define SMOOTHED 10

/* Returns true if scans of a progressive image are missing. Then the library smooths blocks by means of their
 * neighbours, which are missing where columns are left out. */
static bool is_smoothed(const struct jpeg_decompress_struct *jpeg)
{
	for (int c = 0; jpeg->coef_bits && c < jpeg->num_components; c++)
		for (int i = 0; i < SMOOTHED; i++)
			if (jpeg->coef_bits[c][i])
				return true;
	return false;
}

/*
 * Leaves out the blocks next to the crop. The library treats the edges of the decoded part as edges of the
 * image when it interpolates chroma, so one more chroma sample is decoded on each side.
 */
static void crop_columns(struct jpeg_reader *reader, const struct image_box *crop, struct resample_plan *plan)
{
	struct jpeg_decompress_struct *jpeg = &reader->jpeg;
	JDIMENSION margin = (JDIMENSION)jpeg->max_h_samp_factor;
	JDIMENSION begin = crop->x > margin ? crop->x - margin : 0;
	JDIMENSION end = crop->x + crop->width;

	end = jpeg->output_width - end > margin ? end + margin : jpeg->output_width;
	JDIMENSION width = end - begin;

	if (is_smoothed(jpeg)) {
		begin = 0;
	} else if (width < jpeg->output_width) {
		jpeg_crop_scanline(jpeg, &begin, &width);
	}
	plan->lead = crop->x - begin;
	plan->row_width = jpeg->output_width;
}

static void skip_rows(struct jpeg_reader *reader, uint32_t n)
{
	if (n && jpeg_skip_scanlines(&reader->jpeg, n) != n)
		truncated(reader);
}

static void read_row(struct jpeg_reader *reader, JSAMPROW row)
{
	if (jpeg_read_scanlines(&reader->jpeg, &row, 1) != 1)
		truncated(reader);
}

/* Returns true if the data contains the end marker. Searches backwards, since it is mostly at the end. */
static bool has_end(const uint8_t *data, size_t bytes)
{
	for (size_t i = bytes; i >= 2; i--)
		if (data[i - 1] == JPEG_EOI && data[i - 2] == 0xff)
			return true;
	return false;
}

/* Decodes the rest of an image without an end marker: Pillow accepts it if the library can decode all of
 * it. */
static void read_rest(struct jpeg_reader *reader)
{
	struct jpeg_decompress_struct *jpeg = &reader->jpeg;

	if (scratch_reserve(&reader->cmyk, jpeg->output_width, CMYK) < 0)
		escape(reader,
		       error_errno(reader->err, -ENOMEM, "JPEG image of %u columns", jpeg->output_width));
	while (jpeg->output_scanline < jpeg->output_height)
		read_row(reader, reader->cmyk.bytes);
}

/* Checks that the data is complete. Data after the crop is not decoded, but an image that is cut there lacks
 * its end marker. */
static void check_end(struct jpeg_reader *reader)
{
	const struct jpeg_source_mgr *source = reader->jpeg.src;
	const uint8_t *rest = reader->rest ? reader->rest : source->next_input_byte;
	size_t bytes = reader->rest ? reader->rest_bytes : source->bytes_in_buffer;

	if (!reader->rest && (jpeg_input_complete(&reader->jpeg) || reader->jpeg.unread_marker == JPEG_EOI))
		return;
	if (has_end(rest, bytes))
		return;
	if (reader->rest)
		truncated(reader);
	read_rest(reader);
}

/* Converts begin .. end of the scaled image to pixels of the whole one. Adds one chroma sample, that is n
 * pixels, on each side, because chroma is interpolated. */
static void whole_pixels(uint32_t begin, uint32_t end, uint32_t n, uint32_t by, uint32_t most,
			 uint32_t *ret_begin, uint32_t *ret_n)
{
	*ret_begin = begin > n ? (begin - n) * by : 0;
	*ret_n = ((uint64_t)end + n) * by < most ? (end + n) * by - *ret_begin : most - *ret_begin;
}

/* Passes the library only the part of the image that the crop needs, if restart markers locate that part. */
static int leave_out(struct jpeg_reader *reader, const struct image_source *reading)
{
	struct resample_plan plan;
	struct jpeg_layout layout;
	struct jpeg_part part;
	struct image_box box;
	size_t bytes, end;

	reader->rest = NULL;
	reader->inside = (struct image_box){0};
	if (!has_end(reading->data, reading->bytes))
		return 0;
	if (!jpeg_layout_read(reading->data, reading->bytes, &layout) ||
	    reading_check(reading, "JPEG", layout.width, layout.height, NULL) < 0)
		return 0;
	uint32_t by = scale_of(layout.h, layout.v, reading->request);
	struct image_box crop = reading_plan(reading, by, &plan);

	whole_pixels(crop.x, crop.x + crop.width, layout.h, by, layout.width, &box.x, &box.width);
	whole_pixels(crop.y, crop.y + crop.height, layout.v, by, layout.height, &box.y, &box.height);
	if (!jpeg_part_choose(&layout, &box, &part))
		return 0;
	int r = jpeg_part_write(&layout, &part, reading->data, reading->bytes, &reader->part, &bytes, &end);

	if (r < 0)
		return error_errno(reader->err, r, "JPEG image of %zu bytes", reading->bytes);
	if (r == 0)
		return 0;
	jpeg_mem_src(&reader->jpeg, reader->part.bytes, bytes);
	reader->inside = part.box;
	reader->rest = reading->data + end;
	reader->rest_bytes = reading->bytes - end;
	return 0;
}

static int open_image(struct jpeg_reader *reader, const struct image_source *reading)
{
	struct jpeg_decompress_struct *jpeg = &reader->jpeg;

	if (!reader->created) {
		jpeg_create_decompress(jpeg);
		reader->created = true;
		jpeg->progress = &reader->progress;
	}
	jpeg_mem_src(jpeg, reading->data, reading->bytes);
	int r = leave_out(reader, reading);

	if (r < 0)
		return r;
	jpeg->src->fill_input_buffer = on_end_of_bytes;
	jpeg_read_header(jpeg, TRUE);
	if (jpeg->num_components != 1 && jpeg->num_components != 3 && jpeg->num_components != CMYK)
		return error_set(reader->err, -EOPNOTSUPP, "JPEG image has %d components: must be 1, 3 or 4",
				 jpeg->num_components);
	if (reader->rest)
		return 0;
	return reading_check(reading, "JPEG", jpeg->image_width, jpeg->image_height, reader->err);
}

static int read_image(struct jpeg_reader *reader, struct image_source *reading)
{
	struct jpeg_decompress_struct *jpeg = &reader->jpeg;
	const struct image_request *request = reading->request;
	struct resample_plan plan;
	int r = open_image(reader, reading);

	if (r < 0)
		return r;
	jpeg->out_color_space = jpeg->num_components == CMYK ? JCS_CMYK : JCS_RGB;
	jpeg->scale_num = 1;
	jpeg->scale_denom =
	    scale_of((uint32_t)jpeg->max_h_samp_factor, (uint32_t)jpeg->max_v_samp_factor, request);
	jpeg_start_decompress(jpeg);

	struct image_box crop = reading_plan(reading, jpeg->scale_denom, &plan);
	uint32_t lead = 0;

	crop.x -= reader->inside.x / jpeg->scale_denom;
	crop.y -= reader->inside.y / jpeg->scale_denom;
	crop_columns(reader, &crop, &plan);
	if (jpeg->num_components == CMYK) {
		if (scratch_reserve(&reader->cmyk, plan.row_width, CMYK) < 0)
			return error_errno(reader->err, -ENOMEM, "JPEG image of %u columns", plan.row_width);
		lead = plan.lead;
		plan.lead = 0;
		plan.row_width = crop.width;
	}
	if (resample_begin(reading->resample, &plan) < 0)
		return error_errno(reader->err, -ENOMEM, "JPEG image of %u columns", plan.row_width);
	skip_rows(reader, crop.y);
	for (uint32_t y = 0; y < crop.height; y++) {
		uint8_t *row = resample_row(reading->resample);

		if (jpeg->num_components != CMYK) {
			read_row(reader, row);
			continue;
		}
		read_row(reader, reader->cmyk.bytes);
		rgb_of_cmyk(row, (uint8_t *)reader->cmyk.bytes + (size_t)lead * CMYK, crop.width);
	}
	check_end(reader);
	return 0;
}

/* Returns true for 4:2:0 YCbCr images that libjpeg upsamples with its "fancy" method; narrower images are
 * not. */
static bool has_planes(const struct jpeg_decompress_struct *jpeg)
{
	const jpeg_component_info *c = jpeg->comp_info;

	return jpeg->num_components == 3 && jpeg->jpeg_color_space == JCS_YCbCr && c[0].h_samp_factor == 2 &&
	       c[0].v_samp_factor == 2 && c[1].h_samp_factor == 1 && c[1].v_samp_factor == 1 &&
	       c[2].h_samp_factor == 1 && c[2].v_samp_factor == 1 && jpeg->image_width > NARROW;
}

#define MCU_ROWS (2 * DCTSIZE) /* rows of luma in a row of MCUs */

static int read_planes(struct jpeg_reader *reader, uint8_t *planes)
{
	struct jpeg_decompress_struct *jpeg = &reader->jpeg;
	JSAMPROW rows[3][MCU_ROWS];
	JSAMPARRAY arrays[3] = {rows[0], rows[1], rows[2]};

	if (!has_planes(jpeg))
		return error_set(reader->err, -EOPNOTSUPP,
				 "JPEG image has no planes to cache: chroma must be half the size of luma");
	jpeg->raw_data_out = TRUE;
	jpeg->out_color_space = JCS_YCbCr;
	jpeg_start_decompress(jpeg);
	size_t padded[3], total = 0;

	for (int c = 0; c < 3; c++) {
		padded[c] = (size_t)jpeg->comp_info[c].width_in_blocks * DCTSIZE;
		total += padded[c] * (c ? DCTSIZE : MCU_ROWS);
	}
	if (scratch_reserve(&reader->cmyk, total, 1) < 0)
		return error_errno(reader->err, -ENOMEM, "JPEG image of %u columns", jpeg->image_width);
	uint8_t *at = reader->cmyk.bytes;

	for (int c = 0; c < 3; c++)
		for (int i = 0; i < (c ? DCTSIZE : MCU_ROWS); i++, at += padded[c])
			rows[c][i] = at;
	for (uint32_t y = 0; y < jpeg->output_height; y += MCU_ROWS) {
		uint8_t *to = planes;

		if (jpeg_read_raw_data(jpeg, arrays, MCU_ROWS) != MCU_ROWS)
			truncated(reader);
		for (uint32_t c = 0; c < 3; c++) {
			uint32_t by = c ? 2 : 1, width = (jpeg->output_width + by - 1) / by;
			uint32_t height = (jpeg->output_height + by - 1) / by, first = y / by;

			for (uint32_t i = 0; i < MCU_ROWS / by && first + i < height; i++)
				memcpy(to + (size_t)(first + i) * width, rows[c][i], width);
			to += (size_t)width * height;
		}
	}
	check_end(reader);
	return 0;
}

/* Reads the whole image at the scale 1/by. */
static int read_pixels(struct jpeg_reader *reader, uint32_t by, uint8_t *pixels)
{
	struct jpeg_decompress_struct *jpeg = &reader->jpeg;
	bool is_cmyk = jpeg->num_components == CMYK;

	jpeg->out_color_space = is_cmyk ? JCS_CMYK : JCS_RGB;
	jpeg->scale_num = 1;
	jpeg->scale_denom = by;
	jpeg_start_decompress(jpeg);
	if (is_cmyk && scratch_reserve(&reader->cmyk, jpeg->output_width, CMYK) < 0)
		return error_errno(reader->err, -ENOMEM, "JPEG image of %u columns", jpeg->output_width);
	for (uint32_t y = 0; y < jpeg->output_height; y++) {
		uint8_t *row = pixels + (size_t)y * jpeg->output_width * IMAGE_CHANNELS;

		read_row(reader, is_cmyk ? reader->cmyk.bytes : row);
		if (is_cmyk)
			rgb_of_cmyk(row, reader->cmyk.bytes, jpeg->output_width);
	}
	check_end(reader);
	return 0;
}

static int read_whole(struct jpeg_reader *reader, const struct image_source *reading,
		      const struct image_whole *whole, uint8_t *to)
{
	const struct jpeg_decompress_struct *jpeg = &reader->jpeg;
	int r = open_image(reader, reading);

	if (r < 0)
		return r;
	/* Space at `to` and the scale were chosen by the first header, but a file may have several. */
	if (jpeg->image_width != whole->info.width || jpeg->image_height != whole->info.height ||
	    (uint32_t)jpeg->max_h_samp_factor != whole->info.h ||
	    (uint32_t)jpeg->max_v_samp_factor != whole->info.v)
		return error_set(reader->err, -EBADMSG,
				 "JPEG image has several headers that differ in size or chroma sampling");
	return whole->is_planes ? read_planes(reader, to) : read_pixels(reader, whole->by, to);
}

/* Reads the image, or returns after an escape. Separate, so that no variable here changes between setjmp()
 * and longjmp(). */
static int read_or_escape(struct jpeg_reader *reader, struct image_source *reading,
			  const struct image_whole *whole, uint8_t *to)
{
	if (setjmp(reader->escape))
		return reader->failed;
	return whole ? read_whole(reader, reading, whole, to) : read_image(reader, reading);
}

static int reader_new(struct jpeg_reader **ret)
{
	struct jpeg_reader *reader = calloc(1, sizeof(*reader));

	if (!reader)
		return -ENOMEM;
	reader->jpeg.err = jpeg_std_error(&reader->messages);
	reader->jpeg.client_data = reader; /* err and client_data survive jpeg_create_decompress() */
	reader->messages.error_exit = on_error;
	reader->messages.emit_message = on_message;
	reader->messages.output_message = on_output;
	reader->progress.progress_monitor = on_progress;
	*ret = reader;
	return 0;
}

/* whole NULL: reads the crop. */
static int read_jpeg(struct image_source *reading, const struct image_whole *whole, uint8_t *to,
		     struct error *err)
{
	struct jpeg_reader *reader = *reading->state;
	int r = reader ? 0 : reader_new(&reader);

	if (r < 0)
		return error_errno(err, r, "JPEG image of %zu bytes", reading->bytes);
	*reading->state = reader;
	reader->err = err;
	reader->bytes = reading->bytes;
	reader->n_warnings = 0;
	r = read_or_escape(reader, reading, whole, to);
	if (reader->created)
		jpeg_abort_decompress(&reader->jpeg);
	reading->n_warnings = reader->n_warnings;
	return r;
}

static int read_crop(struct image_source *reading, struct error *err)
{
	return read_jpeg(reading, NULL, NULL, err);
}

static uint32_t scale(const struct image_info *info, const struct image_request *request)
{
	return scale_of(info->h, info->v, request);
}

static void reader_free(void *state)
{
	struct jpeg_reader *reader = state;

	if (!reader)
		return;
	if (reader->created)
		jpeg_destroy_decompress(&reader->jpeg);
	scratch_free(&reader->cmyk);
	scratch_free(&reader->part);
	free(reader);
}

const struct image_format image_jpeg = {.name = "JPEG",
					.begins = begins,
					.probe = probe,
					.read = read_crop,
					.read_whole = read_jpeg,
					.scale = scale,
					.free = reader_free};
