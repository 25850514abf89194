/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints the data from which a JPEG file's pixels are made, however it is written: jpeg_coefficients FILE.
 * After a line "PROGRESSIVE RESTART_INTERVAL", it prints each component's sampling, quantisation table and
 * coefficients, as bytes.
 */
#include <stdio.h>

#include <jpeglib.h>

#include "lib/cleanup.h"

static void write_component(struct jpeg_decompress_struct *jpeg, jvirt_barray_ptr blocks,
			    const jpeg_component_info *component)
{
	const int sampling[] = {component->component_id, component->h_samp_factor, component->v_samp_factor};

	fwrite(sampling, sizeof(sampling), 1, stdout);
	fwrite(component->quant_table->quantval, sizeof(component->quant_table->quantval), 1, stdout);
	for (JDIMENSION y = 0; y < component->height_in_blocks; y++) {
		JBLOCKARRAY rows = jpeg->mem->access_virt_barray((j_common_ptr)jpeg, blocks, y, 1, FALSE);

		fwrite(rows[0], sizeof(JBLOCK), component->width_in_blocks, stdout);
	}
}

int main(int argc, char **argv)
{
	struct jpeg_decompress_struct jpeg;
	struct jpeg_error_mgr messages;
	_cleanup_(fclosep) FILE *file = argc == 2 ? fopen(argv[1], "re") : NULL;

	if (!file)
		return 2;
	jpeg.err = jpeg_std_error(&messages);
	jpeg_create_decompress(&jpeg);
	jpeg_stdio_src(&jpeg, file);
	jpeg_read_header(&jpeg, TRUE);
	printf("%d %u\n", jpeg.progressive_mode, jpeg.restart_interval);
	jvirt_barray_ptr *blocks = jpeg_read_coefficients(&jpeg);

	for (int i = 0; i < jpeg.num_components; i++)
		write_component(&jpeg, blocks[i], &jpeg.comp_info[i]);
	jpeg_destroy_decompress(&jpeg);
	return messages.num_warnings != 0;
}
