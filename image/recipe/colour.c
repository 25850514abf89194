/* SPDX-License-Identifier: Apache-2.0 */
#include "colour.h"

void recipe_colour(const struct recipe_colours *colours, uint8_t *pixels, size_t n)
{
	for (uint32_t i = 0; i < colours->n; i++) {
		if (colours->of_tensors)
			colour_tensor(colours->order[i], colours->factor[i], pixels, n);
		else
			colour_pil(colours->order[i], colours->factor[i], pixels, n);
	}
	if (colours->grey && colours->of_tensors)
		colour_tensor_grey(pixels, n);
	else if (colours->grey)
		colour_pil_grey(pixels, n);
}
