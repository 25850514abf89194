/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "image/recipe.h"

/* Implements recipe_colour() twice: as torchvision does for PIL images, and as it does for uint8 tensors. */

/* Colour changes with Pillow's arithmetic: single precision and truncation in the same places as in
 * Pillow. */

static uint8_t pil_grey_of(const uint8_t *p)
{
	return (uint8_t)((p[0] * 19595u + p[1] * 38470u + p[2] * 7471u + 0x8000u) >> 16);
}

/* Interpolates or extrapolates between two values, as Image.blend(). */
static uint8_t pil_blend(int from, int to, float factor)
{
	float value = (float)from + factor * (float)(to - from);

	return value <= 0.0f ? 0 : value >= 255.0f ? 255 : (uint8_t)value;
}

/* Blends all values with one constant. */
static void blend_with(uint8_t *values, size_t n, uint8_t from, float factor)
{
	uint8_t becomes[256];

	for (int v = 0; v < 256; v++)
		becomes[v] = pil_blend(from, v, factor);
	for (size_t i = 0; i < n; i++)
		values[i] = becomes[values[i]];
}

static uint8_t pil_mean_grey(const uint8_t *pixels, size_t n)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += pil_grey_of(pixels + 3 * i);
	return (uint8_t)((double)sum / (double)n + 0.5);
}

static void saturate(uint8_t *pixels, size_t n, float factor)
{
	for (uint8_t *p = pixels; p < pixels + 3 * n; p += 3) {
		uint8_t grey = pil_grey_of(p);

		for (int c = 0; c < 3; c++)
			p[c] = pil_blend(grey, p[c], factor);
	}
}

/* Hue, saturation and value of a pixel whose channels are not all equal. */
struct pil_hsv {
	uint8_t h, s, v;
};

static struct pil_hsv pil_hsv_of(const uint8_t *p, uint8_t least, uint8_t most)
{
	float range = (float)(most - least);
	float red = (float)(most - p[0]) / range, green = (float)(most - p[1]) / range,
	      blue = (float)(most - p[2]) / range, hue;

	if (p[0] == most)
		hue = blue - green;
	else if (p[1] == most)
		hue = (float)(2.0 + (double)red - (double)blue);
	else
		hue = (float)(4.0 + (double)green - (double)red);
	double turned = (double)hue / 6.0 + 1.0;

	hue = (float)(turned >= 1.0 ? turned - 1.0 : turned); /* `turned` is between 5/6 and 11/6 */
	return (struct pil_hsv){.h = (uint8_t)((double)hue * 255.0),
				.s = (uint8_t)((double)(range / (float)most) * 255.0),
				.v = most};
}

static uint8_t rounded(double value)
{
	return (uint8_t)(value + 0.5);
}

static void pil_rgb_of(struct pil_hsv colour, uint8_t *ret)
{
	int sector = (int)((double)(float)colour.h * 6.0 / 255.0); /* number of the sector, 0 to 6 */
	float rest = (float)((double)(float)colour.h * 6.0 / 255.0 - (double)(float)sector);
	float saturation = (float)((double)(float)colour.s / 255.0);
	double value = (double)(float)colour.v;
	uint8_t v = colour.v, p = rounded(value * (1.0 - (double)saturation)),
		q = rounded(value * (1.0 - (double)(saturation * rest))),
		t = rounded(value * (1.0 - (double)saturation * (1.0 - (double)rest)));
	const uint8_t sectors[6][3] = {{v, t, p}, {q, v, p}, {p, v, t}, {p, q, v}, {t, p, v}, {v, p, q}};

	for (int c = 0; c < 3; c++)
		ret[c] = sectors[sector % 6][c];
}

static void pil_turn_hue(uint8_t *pixels, size_t n, float factor)
{
	uint8_t by = (uint8_t)(int)((double)factor * 255);

	for (uint8_t *p = pixels; p < pixels + 3 * n; p += 3) {
		uint8_t most = p[0] > p[1] ? p[0] : p[1], least = p[0] < p[1] ? p[0] : p[1];

		most = p[2] > most ? p[2] : most;
		least = p[2] < least ? p[2] : least;
		if (most == least)
			continue; /* a grey pixel has no hue to turn */
		struct pil_hsv colour = pil_hsv_of(p, least, most);

		colour.h = (uint8_t)(colour.h + by);
		if (colour.s)
			pil_rgb_of(colour, p);
		else
			p[0] = p[1] = p[2] = colour.v;
	}
}

/* Applies one step to n pixels. */
static void colour_pil(enum recipe_colour step, float factor, uint8_t *pixels, size_t n)
{
	switch (step) {
	case RECIPE_BRIGHTNESS: blend_with(pixels, 3 * n, 0, factor); break;
	case RECIPE_CONTRAST: blend_with(pixels, 3 * n, pil_mean_grey(pixels, n), factor); break;
	case RECIPE_SATURATION: saturate(pixels, n, factor); break;
	case RECIPE_HUE: pil_turn_hue(pixels, n, factor); break;
	case RECIPE_N_COLOURS: break;
	}
}

static void colour_pil_grey(uint8_t *pixels, size_t n)
{
	for (uint8_t *p = pixels; p < pixels + 3 * n; p += 3)
		p[0] = p[1] = p[2] = pil_grey_of(p);
}

/* Colour changes with the arithmetic of torchvision's kernels for uint8 tensors: single precision, then
 * truncation. */

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

/* Hue, saturation and value, each in [0, 1]. */
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

static void colour_tensor(enum recipe_colour step, float factor, uint8_t *pixels, size_t n)
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

static void colour_tensor_grey(uint8_t *pixels, size_t n)
{
	for (uint8_t *p = pixels; p < pixels + 3 * n; p += 3)
		p[0] = p[1] = p[2] = (uint8_t)grey_of(p);
}

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
