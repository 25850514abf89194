/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>

#include "image/recipe.h"
#include "numbers.h"

void recipe_table_make(const struct recipe *r, struct recipe_table *ret)
{
	for (int c = 0; c < 3; c++) {
		for (uint32_t v = 0; v < 256; v++) {
			float value = (float)v;

			/* Computes in single precision and in this order, as torchvision does. */
			if (r->flags & RECIPE_UNIT)
				value = value / 255.0f;
			if (r->flags & RECIPE_NORMALISE)
				value = (value - r->mean[c]) / r->std[c];
			ret->number[c][v] = r->type == RECIPE_FLOAT32    ? number_bits(value)
					    : r->type == RECIPE_FLOAT16  ? number_half(value)
					    : r->type == RECIPE_BFLOAT16 ? number_brain(value)
									 : v;
		}
	}
}

/* Stores one row of n pixels. step: distance between pixels in the output, in numbers; negative: the row is
 * written from its end. apart: distance between channels, in numbers; 0: there is one channel. */
#define ROW_FUNCTION(type)                                                                                   \
	static void row_##type(const struct recipe_table *t, const uint8_t *in, uint32_t n, type *out,       \
			       ptrdiff_t step, size_t apart)                                                 \
	{                                                                                                    \
		if (!apart) {                                                                                \
			for (uint32_t i = 0; i < n; i++, in += 3, out += step)                               \
				*out = (type)t->number[0][in[0]];                                            \
			return;                                                                              \
		}                                                                                            \
		for (uint32_t i = 0; i < n; i++, in += 3, out += step) {                                     \
			out[0] = (type)t->number[0][in[0]];                                                  \
			out[apart] = (type)t->number[1][in[1]];                                              \
			out[2 * apart] = (type)t->number[2][in[2]];                                          \
		}                                                                                            \
	}

ROW_FUNCTION(uint8_t)
ROW_FUNCTION(uint16_t)
ROW_FUNCTION(uint32_t)

void recipe_store(const struct recipe *r, const struct recipe_table *table, const struct recipe_place *place,
		  const uint8_t *pixels, void *out)
{
	uint32_t width = r->width, height = r->height;
	bool rows = r->flags & RECIPE_ROWS;
	size_t channels = recipe_channels(r), pixel = rows ? channels : 1;
	size_t apart = channels == 1 ? 0 : rows ? 1 : (size_t)width * height;
	ptrdiff_t step = place->sideways ? -(ptrdiff_t)pixel : (ptrdiff_t)pixel;

	for (uint32_t y = 0; y < height; y++) {
		uint32_t to = place->upright ? height - 1 - y : y;
		size_t at = ((size_t)to * width + (place->sideways ? width - 1 : 0)) * pixel;
		const uint8_t *in = pixels + (size_t)y * width * 3;

		switch (recipe_type_bytes(r->type)) {
		case 1: row_uint8_t(table, in, width, (uint8_t *)out + at, step, apart); break;
		case 2: row_uint16_t(table, in, width, (uint16_t *)out + at, step, apart); break;
		case 4: row_uint32_t(table, in, width, (uint32_t *)out + at, step, apart); break;
		}
	}
}
