/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes JPEG files that Pillow cannot write:
 *
 *	jpeg_maker WIDTH HEIGHT COMPONENTS H V QUALITY PROGRESSIVE RESTART ARITHMETIC YCCK < pixels > file
 *
 * The first component is sampled H x V times as often as the others; of four components the last is as the
 * first.
 */
#include <stdio.h>
#include <stdlib.h>

#include <jpeglib.h>

#include "lib/cleanup.h"

enum argument {
	WIDTH = 1,
	HEIGHT,
	COMPONENTS,
	H,
	V,
	QUALITY,
	PROGRESSIVE,
	RESTART,
	ARITHMETIC,
	YCCK,
	N_ARGUMENTS,
};

static void set_up(struct jpeg_compress_struct *jpeg, const int *value)
{
	jpeg->image_width = (JDIMENSION)value[WIDTH];
	jpeg->image_height = (JDIMENSION)value[HEIGHT];
	jpeg->input_components = value[COMPONENTS];
	jpeg->in_color_space = value[COMPONENTS] == 1   ? JCS_GRAYSCALE
			       : value[COMPONENTS] == 3 ? JCS_RGB
							: JCS_CMYK;
	jpeg_set_defaults(jpeg);
	if (value[YCCK])
		jpeg_set_colorspace(jpeg, JCS_YCCK);
	jpeg_set_quality(jpeg, value[QUALITY], TRUE);
	jpeg->comp_info[0].h_samp_factor = value[H];
	jpeg->comp_info[0].v_samp_factor = value[V];
	for (int i = 1; i < jpeg->num_components; i++) {
		jpeg->comp_info[i].h_samp_factor = i == 3 ? value[H] : 1;
		jpeg->comp_info[i].v_samp_factor = i == 3 ? value[V] : 1;
	}
	jpeg->restart_interval = (unsigned)value[RESTART];
	jpeg->arith_code = value[ARITHMETIC];
	if (value[PROGRESSIVE])
		jpeg_simple_progression(jpeg);
}

int main(int argc, char **argv)
{
	struct jpeg_compress_struct jpeg;
	struct jpeg_error_mgr messages;
	int value[N_ARGUMENTS] = {0};

	if (argc != N_ARGUMENTS)
		return 2;
	for (int i = 1; i < N_ARGUMENTS; i++)
		value[i] = (int)strtol(argv[i], NULL, 10);
	size_t row_bytes = (size_t)value[WIDTH] * (size_t)value[COMPONENTS];
	_cleanup_(freep) unsigned char *row = malloc(row_bytes);

	if (!row)
		return 1;
	jpeg.err = jpeg_std_error(&messages);
	jpeg_create_compress(&jpeg);
	jpeg_stdio_dest(&jpeg, stdout);
	set_up(&jpeg, value);
	jpeg_start_compress(&jpeg, TRUE);
	for (int y = 0; y < value[HEIGHT]; y++) {
		if (fread(row, 1, row_bytes, stdin) != row_bytes)
			return 1;
		jpeg_write_scanlines(&jpeg, &row, 1);
	}
	jpeg_finish_compress(&jpeg);
	jpeg_destroy_compress(&jpeg);
	return 0;
}
