/* SPDX-License-Identifier: Apache-2.0 */
#include "jpeg_rows.h"
#include "reader.h"

#include <errno.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <jerror.h>

/* A scale of the DCT is taken only where as many pixels of the scaled image, in each direction, become one of
 * the output: with fewer, the difference to the whole image's resize shows. */
#define MADE_OF 2
/* Each scan goes over the whole image, however few bytes it has. Progressive images have some ten. */
#define SCANS_MAX 100
#define CMYK      4

struct jpeg_reader {
	struct jpeg_decompress_struct jpeg;
	struct jpeg_error_mgr messages;
	struct jpeg_progress_mgr progress;
	jmp_buf escape;
	bool created;
	struct error *err;
	int failed; /* before an escape: what is returned */
	uint64_t n_warnings;
	size_t bytes;     /* of the file */
	struct room cmyk; /* a row */

	/* What lies above the crop is left out where restart markers permit it. */
	struct room header; /* of an image that begins with the first row that is decoded */
	const uint8_t
	    *rest; /* what the library gets behind that header; NULL: it has it, or all from the file */
	size_t rest_bytes;
	uint32_t n_left_out; /* rows of pixels */
	unsigned
	    next_marker; /* where the library, which counts from its first row, expects restart marker 0 */
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

/* The library's own message. */
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

/* A negative level is damage that the library decodes around; the others are for debugging it. */
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

/* Behind a header of our own comes the file. At its end the library would go on with grey; Pillow raises. */
static boolean on_end_of_bytes(j_decompress_ptr jpeg)
{
	struct jpeg_reader *reader = reader_of((j_common_ptr)jpeg);

	if (!reader->rest)
		truncated(reader);
	jpeg->src->next_input_byte = reader->rest;
	jpeg->src->bytes_in_buffer = reader->rest_bytes;
	reader->rest = NULL;
	return TRUE;
}

/* The library has met another restart marker than its count says. */
static boolean on_restart(j_decompress_ptr jpeg, int desired)
{
	int expected = (desired + (int)reader_of((j_common_ptr)jpeg)->next_marker) % 8;

	if (jpeg->unread_marker != JPEG_RST0 + expected)
		return jpeg_resync_to_restart(jpeg, expected);
	jpeg->unread_marker = 0;
	return TRUE;
}

static void on_progress(j_common_ptr jpeg)
{
	struct jpeg_reader *reader = reader_of(jpeg);

	if (reader->jpeg.input_scan_number <= SCANS_MAX)
		return;
	error_set(reader->err, -EFBIG, "JPEG image has more than %d scans: it takes more time than images do",
		  SCANS_MAX);
	escape(reader, -EFBIG);
}

/*
 * Where the output is smaller than the crop. The library takes chroma with half of the samples in both
 * directions at twice the scale, so that it has as many as the rest; otherwise a scaled image has fewer.
 * Chroma with less than half, which is rare, it gets wrong where columns are left out.
 */
static unsigned scale_denominator(unsigned h, unsigned v, const struct image_request *request)
{
	unsigned width = MADE_OF * request->width, height = MADE_OF * request->height;
	unsigned denominator = 8;

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

bool image_may_scale(const struct image_request *request)
{
	return request->crop.width / 2 >= MADE_OF * request->width &&
	       request->crop.height / 2 >= MADE_OF * request->height;
}

/* Adobe's four components are inverted; what is black in the fourth leaves less for the others. As Pillow
 * rounds. */
static void rgb_of_cmyk(uint8_t *rgb, const uint8_t *cmyk, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++, rgb += IMAGE_CHANNELS, cmyk += CMYK)
		for (uint32_t c = 0; c < IMAGE_CHANNELS; c++) {
			int product = (255 - cmyk[c]) * cmyk[3] + 128;

			rgb[c] = (uint8_t)(cmyk[3] - ((product >> 8) + product) / 256);
		}
}

/*
 * Leaves out the blocks beside the crop. At the edges of what is decoded, chroma is interpolated as at the
 * edges of an image: so a chroma sample more is decoded on each side.
 */
static void crop_columns(struct jpeg_reader *reader, const struct image_box *crop, struct resample_plan *plan)
{
	struct jpeg_decompress_struct *jpeg = &reader->jpeg;
	JDIMENSION margin = (JDIMENSION)jpeg->max_h_samp_factor;
	JDIMENSION begin = crop->x > margin ? crop->x - margin : 0;
	JDIMENSION end = crop->x + crop->width;

	end = jpeg->output_width - end > margin ? end + margin : jpeg->output_width;
	JDIMENSION width = end - begin;

	if (width < jpeg->output_width)
		jpeg_crop_scanline(jpeg, &begin, &width);
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

/* Behind the crop nothing is decoded. An image that is cut there has lost the marker at its end. */
static void check_end(struct jpeg_reader *reader)
{
	const struct jpeg_source_mgr *source = reader->jpeg.src;
	const uint8_t *rest = source->next_input_byte;

	if (jpeg_input_complete(&reader->jpeg) || reader->jpeg.unread_marker == JPEG_EOI)
		return;
	for (size_t i = source->bytes_in_buffer; i >= 2; i--)
		if (rest[i - 1] == JPEG_EOI && rest[i - 2] == 0xff)
			return;
	truncated(reader);
}

/*
 * Begins with the row of MCUs that the crop needs first, if restart markers say where that is: with a header
 * that says how many rows follow. Chroma is interpolated between rows: so one of its rows more is decoded on
 * each side.
 */
static int leave_out_rows(struct jpeg_reader *reader, const struct reading *reading)
{
	struct resample_plan plan;
	struct jpeg_rows rows;
	struct jpeg_rows_start start;

	reader->rest = NULL;
	reader->n_left_out = reader->next_marker = 0;
	if (!jpeg_rows_read(reading->data, reading->bytes, &rows) ||
	    reading_check(reading, "JPEG", rows.width, rows.height, NULL) < 0)
		return 0;
	uint32_t by = scale_denominator(rows.h, rows.v, reading->request);
	uint32_t row = DCTSIZE * rows.v;
	struct image_box part = reading_plan(reading, by, &plan);

	if (part.y < rows.v ||
	    !jpeg_rows_find(&rows, reading->data, reading->bytes, (part.y - rows.v) * by / row,
			    (part.y + part.height + rows.v) * by / row + 2, &start))
		return 0;
	if (room_make(&reader->header, rows.scan_at, 1) < 0)
		return error_errno(reader->err, -ENOMEM, "JPEG header of %zu bytes", rows.scan_at);
	uint8_t *header = memcpy(reader->header.bytes, reading->data, rows.scan_at);
	uint32_t height = rows.height - start.row * row;

	header[rows.height_at] = (uint8_t)(height >> 8);
	header[rows.height_at + 1] = (uint8_t)height;
	jpeg_mem_src(&reader->jpeg, header, rows.scan_at);
	reader->rest = reading->data + start.at;
	reader->rest_bytes = reading->bytes - start.at;
	reader->n_left_out = start.row * row;
	reader->next_marker = start.marker;
	return 0;
}

static int open_image(struct jpeg_reader *reader, const struct reading *reading)
{
	struct jpeg_decompress_struct *jpeg = &reader->jpeg;

	if (!reader->created) {
		jpeg_create_decompress(jpeg);
		reader->created = true;
		jpeg->progress = &reader->progress;
	}
	jpeg_mem_src(jpeg, reading->data, reading->bytes);
	int r = leave_out_rows(reader, reading);

	if (r < 0)
		return r;
	jpeg->src->fill_input_buffer = on_end_of_bytes;
	jpeg->src->resync_to_restart = on_restart;
	jpeg_read_header(jpeg, TRUE);
	if (jpeg->num_components != 1 && jpeg->num_components != 3 && jpeg->num_components != CMYK)
		return error_set(reader->err, -EOPNOTSUPP,
				 "JPEG image has %d components: 1, 3 and 4 are known", jpeg->num_components);
	return reading_check(reading, "JPEG", jpeg->image_width, jpeg->image_height + reader->n_left_out,
			     reader->err);
}

static int read_image(struct jpeg_reader *reader, struct reading *reading)
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
	    scale_denominator((unsigned)jpeg->max_h_samp_factor, (unsigned)jpeg->max_v_samp_factor, request);
	jpeg_start_decompress(jpeg);

	struct image_box crop = reading_plan(reading, jpeg->scale_denom, &plan);
	uint32_t lead = 0;

	crop.y -= reader->n_left_out / jpeg->scale_denom;

	crop_columns(reader, &crop, &plan);
	if (jpeg->num_components == CMYK) {
		if (room_make(&reader->cmyk, plan.row_width, CMYK) < 0)
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

/* What "fancy" upsampling is for, which narrower images do without. */
static bool has_planes(const struct jpeg_decompress_struct *jpeg)
{
	const jpeg_component_info *c = jpeg->comp_info;

	return jpeg->num_components == 3 && jpeg->jpeg_color_space == JCS_YCbCr && c[0].h_samp_factor == 2 &&
	       c[0].v_samp_factor == 2 && c[1].h_samp_factor == 1 && c[1].v_samp_factor == 1 &&
	       c[2].h_samp_factor == 1 && c[2].v_samp_factor == 1 && jpeg->image_width > 4;
}

#define MCU_ROWS (2 * DCTSIZE) /* of luma */

static int read_planes(struct jpeg_reader *reader, const struct reading *reading, uint8_t *planes)
{
	struct jpeg_decompress_struct *jpeg = &reader->jpeg;
	JSAMPROW rows[3][MCU_ROWS];
	JSAMPARRAY arrays[3] = {rows[0], rows[1], rows[2]};
	int r = open_image(reader, reading);

	if (r < 0)
		return r;
	/* The memory is for this size: there may be more than one header. */
	if (jpeg->image_width != reading->request->crop.width ||
	    jpeg->image_height != reading->request->crop.height)
		return error_set(reader->err, -EBADMSG,
				 "JPEG image has another size than its first header says");
	if (!has_planes(jpeg))
		return error_set(reader->err, -EOPNOTSUPP, "JPEG image whose chroma is not half of its luma");
	jpeg->raw_data_out = TRUE;
	jpeg->out_color_space = JCS_YCbCr;
	jpeg_start_decompress(jpeg);
	size_t padded[3], total = 0;

	for (int c = 0; c < 3; c++) {
		padded[c] = (size_t)jpeg->comp_info[c].width_in_blocks * DCTSIZE;
		total += padded[c] * (c ? DCTSIZE : MCU_ROWS);
	}
	if (room_make(&reader->cmyk, total, 1) < 0)
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

/* Alone, so that no variable of it is changed between setjmp() and longjmp(). */
static int read_or_escape(struct jpeg_reader *reader, struct reading *reading, uint8_t *planes)
{
	if (setjmp(reader->escape))
		return reader->failed;
	return planes ? read_planes(reader, reading, planes) : read_image(reader, reading);
}

int jpeg_reader_read(struct jpeg_reader *reader, struct reading *reading, struct error *err)
{
	return jpeg_reader_planes(reader, reading, NULL, err);
}

int jpeg_reader_planes(struct jpeg_reader *reader, struct reading *reading, uint8_t *planes,
		       struct error *err)
{
	reader->err = err;
	reader->bytes = reading->bytes;
	reader->n_warnings = 0;
	int r = read_or_escape(reader, reading, planes);

	if (reader->created)
		jpeg_abort_decompress(&reader->jpeg);
	reading->n_warnings = reader->n_warnings;
	return r;
}

int jpeg_reader_new(struct jpeg_reader **ret)
{
	struct jpeg_reader *reader = calloc(1, sizeof(*reader));

	if (!reader)
		return -ENOMEM;
	reader->jpeg.err = jpeg_std_error(&reader->messages);
	reader->jpeg.client_data = reader; /* these two the library keeps when it creates the rest */
	reader->messages.error_exit = on_error;
	reader->messages.emit_message = on_message;
	reader->messages.output_message = on_output;
	reader->progress.progress_monitor = on_progress;
	*ret = reader;
	return 0;
}

void jpeg_reader_free(struct jpeg_reader *reader)
{
	if (!reader)
		return;
	if (reader->created)
		jpeg_destroy_decompress(&reader->jpeg);
	room_free(&reader->cmyk);
	room_free(&reader->header);
	free(reader);
}
