/* SPDX-License-Identifier: Apache-2.0 */
/* Colour changes with Pillow's arithmetic: single precision and truncation in the same places as in
 * Pillow. */
#include "colour.h"

static uint8_t grey_of(const uint8_t *p)
{
	return (uint8_t)((p[0] * 19595u + p[1] * 38470u + p[2] * 7471u + 0x8000u) >> 16);
}

/* Interpolates or extrapolates between two values, as Image.blend(). */
static uint8_t blend(int from, int to, float factor)
{
	float value = (float)from + factor * (float)(to - from);

	return value <= 0.0f ? 0 : value >= 255.0f ? 255 : (uint8_t)value;
}

/* Blends all values with one constant. */
static void blend_with(uint8_t *values, size_t n, uint8_t from, float factor)
{
	uint8_t becomes[256];

	for (int v = 0; v < 256; v++)
		becomes[v] = blend(from, v, factor);
	for (size_t i = 0; i < n; i++)
		values[i] = becomes[values[i]];
}

static uint8_t mean_grey(const uint8_t *pixels, size_t n)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += grey_of(pixels + 3 * i);
	return (uint8_t)((double)sum / (double)n + 0.5);
}

static void saturate(uint8_t *pixels, size_t n, float factor)
{
	for (uint8_t *p = pixels; p < pixels + 3 * n; p += 3) {
		uint8_t grey = grey_of(p);

		for (int c = 0; c < 3; c++)
			p[c] = blend(grey, p[c], factor);
	}
}

/* Hue, saturation and value of a pixel whose channels are not all equal. */
struct pil_hsv {
	uint8_t h, s, v;
};

static struct pil_hsv hsv_of(const uint8_t *p, uint8_t least, uint8_t most)
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

	hue = (float)(turned >= 1.0 ? turned - 1.0 : turned); /* `turned` is 5/6 to 1 5/6 */
	return (struct pil_hsv){.h = (uint8_t)((double)hue * 255.0),
				.s = (uint8_t)((double)(range / (float)most) * 255.0),
				.v = most};
}

static uint8_t rounded(double value)
{
	return (uint8_t)(value + 0.5);
}

static void rgb_of(struct pil_hsv colour, uint8_t *ret)
{
	int sector = (int)((double)(float)colour.h * 6.0 / 255.0); /* 0 to 6 */
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

static void turn_hue(uint8_t *pixels, size_t n, float factor)
{
	uint8_t by = (uint8_t)(int)((double)factor * 255);

	for (uint8_t *p = pixels; p < pixels + 3 * n; p += 3) {
		uint8_t most = p[0] > p[1] ? p[0] : p[1], least = p[0] < p[1] ? p[0] : p[1];

		most = p[2] > most ? p[2] : most;
		least = p[2] < least ? p[2] : least;
		if (most == least)
			continue; /* grey: there is no hue to turn */
		struct pil_hsv colour = hsv_of(p, least, most);

		colour.h = (uint8_t)(colour.h + by);
		if (colour.s)
			rgb_of(colour, p);
		else
			p[0] = p[1] = p[2] = colour.v;
	}
}

void colour_pil(enum recipe_colour step, float factor, uint8_t *pixels, size_t n)
{
	switch (step) {
	case RECIPE_BRIGHTNESS: blend_with(pixels, 3 * n, 0, factor); break;
	case RECIPE_CONTRAST: blend_with(pixels, 3 * n, mean_grey(pixels, n), factor); break;
	case RECIPE_SATURATION: saturate(pixels, n, factor); break;
	case RECIPE_HUE: turn_hue(pixels, n, factor); break;
	case RECIPE_N_COLOURS: break;
	}
}

void colour_pil_grey(uint8_t *pixels, size_t n)
{
	for (uint8_t *p = pixels; p < pixels + 3 * n; p += 3)
		p[0] = p[1] = p[2] = grey_of(p);
}
