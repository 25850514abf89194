/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>
#include <string.h>

#include "image/recipe.h"

static uint32_t bits_of(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

/* Shifts right, to the nearest, halves to the even one. */
static uint32_t shift_rounded(uint32_t value, uint32_t n)
{
	uint32_t half = 1u << (n - 1), rest = value & ((1u << n) - 1), shifted = value >> n;

	return shifted + (rest > half || (rest == half && (shifted & 1)));
}

/* IEEE 754's binary16, of a finite number. */
static uint32_t half_of(float value)
{
	uint32_t bits = bits_of(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
	uint32_t exponent = magnitude >> 23;

	if (exponent < 102) /* less than half of the smallest one there is */
		return sign;
	if (exponent < 113) /* without a leading 1 */
		return sign | shift_rounded((magnitude & 0x7fffff) | 0x800000, 126 - exponent);
	magnitude = shift_rounded(magnitude - (112u << 23), 13);
	return sign | (magnitude > 0x7c00 ? 0x7c00 : magnitude); /* what is too large is infinite */
}

void recipe_table_make(const struct recipe *r, struct recipe_table *ret)
{
	for (int c = 0; c < 3; c++) {
		for (uint32_t v = 0; v < 256; v++) {
			float value = (float)v;

			/* In single precision and this order, as torchvision computes. */
			if (r->flags & RECIPE_UNIT)
				value = value / 255.0f;
			if (r->flags & RECIPE_NORMALISE)
				value = (value - r->mean[c]) / r->std[c];
			switch ((enum recipe_type)r->type) {
			case RECIPE_FLOAT32: ret->number[c][v] = bits_of(value); break;
			case RECIPE_FLOAT16: ret->number[c][v] = half_of(value); break;
			case RECIPE_BFLOAT16: ret->number[c][v] = shift_rounded(bits_of(value), 16); break;
			case RECIPE_UINT8:
			case RECIPE_N_TYPES: ret->number[c][v] = v; break;
			}
		}
	}
}

/* One row: n pixels, `step` pixels apart in the output (1, or -1 and from its end), channels `apart` numbers
 * apart; 0: there is one channel. */
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

		switch ((enum recipe_type)r->type) {
		case RECIPE_UINT8: row_uint8_t(table, in, width, (uint8_t *)out + at, step, apart); break;
		case RECIPE_FLOAT16:
		case RECIPE_BFLOAT16:
			row_uint16_t(table, in, width, (uint16_t *)out + at, step, apart);
			break;
		case RECIPE_FLOAT32: row_uint32_t(table, in, width, (uint32_t *)out + at, step, apart); break;
		case RECIPE_N_TYPES: break;
		}
	}
}
