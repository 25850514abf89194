/* SPDX-License-Identifier: Apache-2.0 */
#include "image/jpeg_restarts.h"

#include <errno.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jerror.h>
#include <jpeglib.h>

#include "lib/cleanup.h"

/* The content of a JPEG image, independent of its encoding: coefficients, and the tables that turn them into
 * pixels. */

/* An image after jpeg_read_coefficients() has read all of it. */
struct coefficients {
	struct jpeg_decompress_struct jpeg;
	jvirt_barray_ptr *blocks; /* blocks of each component */
};

/* Returns true if all bits of all coefficients arrived. A decoder may guess missing ones, unless all came in
 * one scan. */
static bool coefficients_complete(const struct coefficients *c)
{
	if (!c->jpeg.progressive_mode)
		return true;
	if (!c->jpeg.coef_bits)
		return false;
	for (int i = 0; i < c->jpeg.num_components; i++)
		for (int k = 0; k < DCTSIZE2; k++)
			if (c->jpeg.coef_bits[i][k] != 0)
				return false;
	return true;
}

static bool components_equal(const jpeg_component_info *a, const jpeg_component_info *b)
{
	return a->component_id == b->component_id && a->h_samp_factor == b->h_samp_factor &&
	       a->v_samp_factor == b->v_samp_factor && a->width_in_blocks == b->width_in_blocks &&
	       a->height_in_blocks == b->height_in_blocks && a->quant_table && b->quant_table &&
	       memcmp(a->quant_table->quantval, b->quant_table->quantval, sizeof(a->quant_table->quantval)) ==
		   0;
}

static const JBLOCK *block_row(struct coefficients *c, int component, JDIMENSION y)
{
	j_common_ptr jpeg = (j_common_ptr)&c->jpeg;

	return jpeg->mem->access_virt_barray(jpeg, c->blocks[component], y, 1, FALSE)[0];
}

/* Returns true if every decoder makes the same pixels from both. */
static bool coefficients_equal(struct coefficients *a, struct coefficients *b)
{
	if (a->jpeg.image_width != b->jpeg.image_width || a->jpeg.image_height != b->jpeg.image_height ||
	    a->jpeg.num_components != b->jpeg.num_components ||
	    a->jpeg.jpeg_color_space != b->jpeg.jpeg_color_space)
		return false;
	for (int i = 0; i < a->jpeg.num_components; i++) {
		const jpeg_component_info *component = &a->jpeg.comp_info[i];

		if (!components_equal(component, &b->jpeg.comp_info[i]))
			return false;
		for (JDIMENSION y = 0; y < component->height_in_blocks; y++)
			if (memcmp(block_row(a, i, y), block_row(b, i, y),
				   component->width_in_blocks * sizeof(JBLOCK)) != 0)
				return false;
	}
	return true;
}

#define PIXELS_MAX (UINT64_C(64) << 20) /* limit: 384 MiB of coefficients without chroma subsampling */
#define SCANS_MAX  100 /* maximum: each scan costs a pass over all coefficients, however few bytes it has */
#define MORE_BYTES 65536
/* Number of blocks between two markers. With fewer, markers take more of the file; with more, more blocks
 * next to a crop have to be decoded. */
#define BLOCKS_GOOD  12
#define BLOCKS_LEAST 6
#define BLOCKS_MOST  48

struct transcoder {
	struct jpeg_error_mgr messages;
	struct jpeg_progress_mgr progress;
	struct jpeg_destination_mgr destination;
	jmp_buf escape;
	int result; /* result to return after an escape */
	struct error *why;
	struct coefficients from, written;
	struct jpeg_compress_struct to;
	uint8_t *output;
	size_t size, bytes;
};

static struct transcoder *transcoder_of(j_common_ptr jpeg)
{
	return jpeg->client_data;
}

static __attribute__((noreturn)) void escape(struct transcoder *t, int result)
{
	t->result = result;
	longjmp(t->escape, 1);
}

static __attribute__((noreturn)) void keep(struct transcoder *t, const char *why)
{
	error_set(t->why, JPEG_RESTARTS_KEPT, "%s", why);
	escape(t, JPEG_RESTARTS_KEPT);
}

/* Keeps the file for the reason in the library's own message. */
static void on_error(j_common_ptr jpeg)
{
	char text[JMSG_LENGTH_MAX];

	if (jpeg->err->msg_code == JERR_OUT_OF_MEMORY)
		escape(transcoder_of(jpeg), -ENOMEM);
	jpeg->err->format_message(jpeg, text);
	keep(transcoder_of(jpeg), text);
}

/* Keeps a file with damage (negative level): the library decodes around damage, so the new file would differ
 * from the old one. */
static void on_message(j_common_ptr jpeg, int level)
{
	if (level < 0)
		on_error(jpeg);
}

static void on_output(j_common_ptr jpeg)
{
}

static void on_progress(j_common_ptr jpeg)
{
	if (((j_decompress_ptr)jpeg)->input_scan_number > SCANS_MAX)
		keep(transcoder_of(jpeg), "the image has more than 100 scans");
}

static void begin_output(j_compress_ptr jpeg)
{
}

/* Called by the library when the buffer is full. */
static boolean grow_output(j_compress_ptr jpeg)
{
	struct transcoder *t = transcoder_of((j_common_ptr)jpeg);
	uint8_t *grown = realloc(t->output, t->size * 2);

	if (!grown)
		escape(t, -ENOMEM);
	t->output = grown;
	t->destination.next_output_byte = grown + t->size;
	t->destination.free_in_buffer = t->size;
	t->size *= 2;
	return TRUE;
}

static void end_output(j_compress_ptr jpeg)
{
	struct transcoder *t = transcoder_of((j_common_ptr)jpeg);

	t->bytes = t->size - t->destination.free_in_buffer;
}

/* Returns true if the file has further images. Byte offsets locate them, and these would change. */
static bool has_more_images(const struct jpeg_decompress_struct *jpeg)
{
	for (jpeg_saved_marker_ptr marker = jpeg->marker_list; marker; marker = marker->next)
		if (marker->marker == JPEG_APP0 + 2 && marker->data_length >= 4 &&
		    memcmp(marker->data, "MPF", 4) == 0)
			return true;
	return false;
}

/* Returns the number of blocks in an MCU. In a scan of one component an MCU is one block, whatever the
 * sampling. */
static unsigned blocks_of_mcu(const struct jpeg_decompress_struct *jpeg)
{
	unsigned n = 0;

	if (jpeg->num_components == 1)
		return 1;
	for (int i = 0; i < jpeg->num_components; i++)
		n += (unsigned)(jpeg->comp_info[i].h_samp_factor * jpeg->comp_info[i].v_samp_factor);
	return n;
}

static unsigned mcus_of_row(const struct jpeg_decompress_struct *jpeg)
{
	unsigned columns = DCTSIZE * (jpeg->num_components == 1 ? 1u : (unsigned)jpeg->max_h_samp_factor);

	return (jpeg->image_width + columns - 1) / columns;
}

/* Returns the number of MCUs between markers, which divides the number of MCUs in a row. */
static unsigned interval_mcus(const struct jpeg_decompress_struct *jpeg)
{
	static const unsigned least[] = {BLOCKS_GOOD, BLOCKS_LEAST};
	unsigned blocks = blocks_of_mcu(jpeg), row = mcus_of_row(jpeg);

	for (int i = 0; i < 2; i++)
		for (unsigned n = 1; n <= row && n * blocks <= BLOCKS_MOST; n++)
			if (row % n == 0 && n * blocks >= least[i])
				return n;
	return row;
}

static bool has_restarts(const struct jpeg_decompress_struct *jpeg)
{
	unsigned interval = jpeg->restart_interval;

	if (jpeg->progressive_mode || jpeg->arith_code || jpeg->comps_in_scan != jpeg->num_components ||
	    !interval || mcus_of_row(jpeg) % interval)
		return false;
	return interval == interval_mcus(jpeg) || interval * blocks_of_mcu(jpeg) <= BLOCKS_MOST;
}

static void read_header(struct transcoder *t, struct coefficients *c, const void *data, size_t bytes)
{
	jpeg_create_decompress(&c->jpeg);
	c->jpeg.progress = &t->progress;
	jpeg_mem_src(&c->jpeg, data, bytes);
	jpeg_save_markers(&c->jpeg, JPEG_COM, 0xffff);
	for (int i = 0; i < 16; i++)
		jpeg_save_markers(&c->jpeg, JPEG_APP0 + i, 0xffff);
	jpeg_read_header(&c->jpeg, TRUE);
}

static void write_image(struct transcoder *t)
{
	struct jpeg_compress_struct *to = &t->to;

	jpeg_create_compress(to);
	to->dest = &t->destination;
	jpeg_copy_critical_parameters(&t->from.jpeg, to);
	to->optimize_coding = TRUE;
	to->restart_interval = interval_mcus(&t->from.jpeg);
	/* JFIF and Adobe markers are copied with the other markers, in their original order. */
	to->write_JFIF_header = FALSE;
	to->write_Adobe_marker = FALSE;
	jpeg_write_coefficients(to, t->from.blocks);
	for (jpeg_saved_marker_ptr marker = t->from.jpeg.marker_list; marker; marker = marker->next)
		jpeg_write_marker(to, marker->marker, marker->data, marker->data_length);
	jpeg_finish_compress(to);
}

static void append(struct transcoder *t, const void *data, size_t bytes)
{
	uint8_t *exact = realloc(t->output, t->bytes + bytes);

	if (!exact)
		escape(t, -ENOMEM);
	t->output = exact;
	memcpy(exact + t->bytes, data, bytes);
	t->bytes += bytes;
}

static int transcode(struct transcoder *t, const void *data, size_t bytes)
{
	struct jpeg_decompress_struct *from = &t->from.jpeg;

	read_header(t, &t->from, data, bytes);
	if (has_restarts(from))
		return JPEG_RESTARTS_THERE;
	if ((uint64_t)from->image_width * from->image_height > PIXELS_MAX)
		keep(t, "the image has more than 64 million pixels");
	if (has_more_images(from))
		keep(t, "the file has more than one image");
	t->from.blocks = jpeg_read_coefficients(from);
	if (!coefficients_complete(&t->from))
		keep(t, "the scans do not cover the whole image");
	write_image(t);
	read_header(t, &t->written, t->output, t->bytes);
	t->written.blocks = jpeg_read_coefficients(&t->written.jpeg);
	if (!coefficients_equal(&t->from, &t->written))
		keep(t, "the pixels would change");
	append(t, from->src->next_input_byte, from->src->bytes_in_buffer);
	return JPEG_RESTARTS_ADDED;
}

/* Transcodes, or returns after an escape. Separate, so that no variable here changes between setjmp() and
 * longjmp(). */
static int transcode_or_escape(struct transcoder *t, const void *data, size_t bytes)
{
	if (setjmp(t->escape))
		return t->result;
	return transcode(t, data, bytes);
}

static struct transcoder *transcoder_new(size_t bytes, struct error *why)
{
	struct transcoder *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->why = why;
	t->size = bytes + MORE_BYTES;
	t->output = malloc(t->size);
	t->destination = (struct jpeg_destination_mgr){.next_output_byte = t->output,
						       .free_in_buffer = t->size,
						       .init_destination = begin_output,
						       .empty_output_buffer = grow_output,
						       .term_destination = end_output};
	jpeg_std_error(&t->messages);
	t->messages.error_exit = on_error;
	t->messages.emit_message = on_message;
	t->messages.output_message = on_output;
	t->progress.progress_monitor = on_progress;
	t->from.jpeg.err = t->written.jpeg.err = t->to.err = &t->messages;
	t->from.jpeg.client_data = t->written.jpeg.client_data = t->to.client_data = t; /* kept on creation */
	return t;
}

static void transcoder_free(struct transcoder *t)
{
	/* Objects that were not created are all zeros, which jpeg_destroy() accepts. */
	jpeg_destroy((j_common_ptr)&t->from.jpeg);
	jpeg_destroy((j_common_ptr)&t->written.jpeg);
	jpeg_destroy((j_common_ptr)&t->to);
	free(t->output);
	free(t);
}

int jpeg_restarts_add(const void *data, size_t bytes, void **ret, size_t *ret_bytes, struct error *ret_why)
{
	if (bytes < 3 || memcmp(data, "\xff\xd8\xff", 3) != 0)
		return JPEG_RESTARTS_OTHER;
	struct transcoder *t = transcoder_new(bytes, ret_why);
	int r = t && t->output ? transcode_or_escape(t, data, bytes) : -ENOMEM;

	if (r == JPEG_RESTARTS_ADDED) {
		*ret = steal_pointer(t->output);
		*ret_bytes = t->bytes;
	}
	if (t)
		transcoder_free(t);
	return r;
}
