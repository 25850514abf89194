/* SPDX-License-Identifier: Apache-2.0 */
/* Colour changes with the arithmetic of torchvision's kernels for uint8 tensors: single precision, then
 * truncation. */
#include <math.h>

#include "colour.h"

static uint8_t cut(float value)
{
	return value <= 0.0f ? 0 : value >= 255.0f ? 255 : (uint8_t)value;
}

static float grey_of(const uint8_t *p)
{
	return floorf((float)p[0] * 0.2989f + (float)p[1] * 0.587f + (float)p[2] * 0.114f);
}

static void blend(uint8_t *values, size_t n, float with, float factor)
{
	float share = (float)(1.0 - (double)factor) * with;

	for (size_t i = 0; i < n; i++)
		values[i] = cut((float)values[i] * factor + share);
}

static float mean_grey(const uint8_t *pixels, size_t n)
{
	double sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += (double)grey_of(pixels + 3 * i);
	return (float)(sum / (double)n);
}

/* Values in [0, 1]. */
struct tensor_hsv {
	float h, s, v;
};

static struct tensor_hsv hsv_of(const float *p)
{
	float most = fmaxf(p[0], fmaxf(p[1], p[2])), range = most - fminf(p[0], fminf(p[1], p[2]));
	float hue;

	if (range == 0.0f)
		return (struct tensor_hsv){.v = most};
	float red = (most - p[0]) / range, green = (most - p[1]) / range, blue = (most - p[2]) / range;

	if (p[0] == most)
		hue = blue - green;
	else if (p[1] == most)
		hue = red + 2.0f - blue;
	else
		hue = green + 4.0f - red;
	return (struct tensor_hsv){
	    .h = fmodf(hue * (1.0f / 6.0f) + 1.0f, 1.0f), .s = range / most, .v = most};
}

static uint8_t byte_of(float value)
{
	return (uint8_t)(fminf(fmaxf(value, 0.0f), 1.0f) * 255.999f);
}

static void rgb_of(struct tensor_hsv colour, uint8_t *ret)
{
	float h = colour.h * 6.0f, sector = floorf(h), rest = colour.s * (h - sector), v = colour.v;
	uint8_t b = byte_of(v), p = byte_of((1.0f - colour.s) * v), q = byte_of((1.0f - rest) * v),
		t = byte_of((rest + (1.0f - colour.s)) * v);
	const uint8_t sectors[6][3] = {{b, t, p}, {q, b, p}, {p, b, t}, {p, q, b}, {t, p, b}, {b, p, q}};

	for (int c = 0; c < 3; c++)
		ret[c] = sectors[(int)sector % 6][c];
}

static void turn_hue(uint8_t *pixels, size_t n, float by)
{
	for (uint8_t *p = pixels; p < pixels + 3 * n; p += 3) {
		const float rgb[] = {(float)p[0] / 255.0f, (float)p[1] / 255.0f, (float)p[2] / 255.0f};
		struct tensor_hsv colour = hsv_of(rgb);

		colour.h += by;
		colour.h -= floorf(colour.h);
		rgb_of(colour, p);
	}
}

void colour_tensor(enum recipe_colour step, float factor, uint8_t *pixels, size_t n)
{
	switch (step) {
	case RECIPE_BRIGHTNESS: blend(pixels, 3 * n, 0, factor); break;
	case RECIPE_CONTRAST: blend(pixels, 3 * n, mean_grey(pixels, n), factor); break;
	case RECIPE_SATURATION:
		for (uint8_t *p = pixels; p < pixels + 3 * n; p += 3)
			blend(p, 3, grey_of(p), factor);
		break;
	case RECIPE_HUE: turn_hue(pixels, n, factor); break;
	case RECIPE_N_COLOURS: break;
	}
}

void colour_tensor_grey(uint8_t *pixels, size_t n)
{
	for (uint8_t *p = pixels; p < pixels + 3 * n; p += 3)
		p[0] = p[1] = p[2] = (uint8_t)grey_of(p);
}
