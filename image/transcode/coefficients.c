/* SPDX-License-Identifier: Apache-2.0 */
#include "coefficients.h"

#include <string.h>

bool coefficients_complete(const struct coefficients *c)
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

bool coefficients_equal(struct coefficients *a, struct coefficients *b)
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
