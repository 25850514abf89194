/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor_check.h"

#include <math.h>

bool recipe_is_tensor(const struct recipe *r)
{
	return r->kind == RECIPE_NUMPY || r->kind == RECIPE_BYTES;
}

uint32_t recipe_type_bytes(enum recipe_type type)
{
	static const uint8_t bytes[RECIPE_N_TYPES] = {
	    [RECIPE_UINT8] = 1,   [RECIPE_FLOAT32] = 4, [RECIPE_FLOAT16] = 2, [RECIPE_BFLOAT16] = 2,
	    [RECIPE_INT8] = 1,    [RECIPE_INT16] = 2,   [RECIPE_INT32] = 4,   [RECIPE_INT64] = 8,
	    [RECIPE_FLOAT64] = 8, [RECIPE_BOOL] = 1,    [RECIPE_UINT16] = 2,  [RECIPE_UINT32] = 4,
	    [RECIPE_UINT64] = 8};

	return bytes[type];
}

void recipe_axes(enum recipe_layout layout, int *ret_height, int *ret_width, int *ret_channels)
{
	static const int axes[RECIPE_N_LAYOUTS][3] = {[RECIPE_PLAIN] = {-1, -1, -1},
						      [RECIPE_HWC] = {0, 1, 2},
						      [RECIPE_CHW] = {1, 2, 0},
						      [RECIPE_HW] = {0, 1, -1}};

	*ret_height = axes[layout][0];
	*ret_width = axes[layout][1];
	*ret_channels = axes[layout][2];
}

/* Returns the length of a dimension of the output, in the stored order. */
static uint64_t side(const struct recipe *r, int i)
{
	int height, width, channels;

	recipe_axes(r->tensor.layout, &height, &width, &channels);
	if (r->shape != RECIPE_WHOLE && i == height)
		return r->height;
	if (r->shape != RECIPE_WHOLE && i == width)
		return r->width;
	return r->tensor.dimensions[i];
}

uint64_t tensor_bytes(const struct recipe *r)
{
	uint64_t bytes = recipe_type_bytes(r->type);

	for (uint32_t i = 0; i < r->tensor.n_dimensions; i++)
		bytes *= side(r, (int)i);
	return bytes;
}

static bool is_floating(uint32_t type)
{
	return type == RECIPE_FLOAT32 || type == RECIPE_FLOAT16 || type == RECIPE_BFLOAT16 ||
	       type == RECIPE_FLOAT64;
}

static const char *check_types(const struct recipe *r)
{
	uint32_t type = r->type, stored = r->tensor.stored;
	bool computes = r->flags & (RECIPE_UNIT | RECIPE_NORMALISE);

	if (type >= RECIPE_N_TYPES || stored >= RECIPE_N_TYPES)
		return "the type of the numbers is not known";
	if (type == stored && !computes)
		return NULL;
	if (is_floating(type) && type != RECIPE_FLOAT64)
		return NULL;
	if (type == RECIPE_UINT8 && !is_floating(stored) && !computes)
		return NULL;
	return "numbers become float32, float16 or bfloat16, and integers uint8, or stay what they are";
}

static const char *check_crop(const struct recipe *r)
{
	const struct recipe_tensor *t = &r->tensor;
	int height, width, channels;

	recipe_axes(t->layout, &height, &width, &channels);
	if (r->shape == RECIPE_WHOLE)
		return r->width || r->height ? "width and height are of a crop" : NULL;
	if (r->shape != RECIPE_MIDDLE && r->shape != RECIPE_RANDOM_CROP)
		return "arrays are not resized";
	if (height < 0)
		return "what is cropped has a height and a width";
	if (r->width < 1 || r->height < 1 || r->width > RECIPE_MAX_SIDE || r->height > RECIPE_MAX_SIDE)
		return "width and height must be 1 to 16384";
	if ((t->dimensions[height] && t->dimensions[height] < r->height) ||
	    (t->dimensions[width] && t->dimensions[width] < r->width))
		return "a crop must be within the array";
	return NULL;
}

static const char *check_dimensions(const struct recipe *r)
{
	const struct recipe_tensor *t = &r->tensor;
	static const uint32_t wanted[RECIPE_N_LAYOUTS] = {
	    [RECIPE_HWC] = 3, [RECIPE_CHW] = 3, [RECIPE_HW] = 2};
	int height, width, channels;
	uint64_t bytes = 1;

	recipe_axes(t->layout, &height, &width, &channels);
	if (t->n_dimensions > RECIPE_TENSOR_DIMENSIONS)
		return "an array has at most 8 dimensions";
	if (t->layout && t->n_dimensions != wanted[t->layout])
		return "an array with height and width has two dimensions, with channels three";
	for (int i = 0; i < RECIPE_TENSOR_DIMENSIONS; i++) {
		bool is_any =
		    r->kind == RECIPE_NUMPY && r->shape != RECIPE_WHOLE && (i == height || i == width);

		if (i >= (int)t->n_dimensions ? t->dimensions[i] > 0 : !t->dimensions[i] && !is_any)
			return "a dimension is at least 1";
	}
	for (uint32_t i = 0; i < t->n_dimensions; i++) {
		bytes *= side(r, (int)i); /* no overflow: both factors are below 2^32 */
		if (bytes > RECIPE_TENSOR_BYTES)
			return "an array is at most 1 GiB";
	}
	return bytes * recipe_type_bytes(r->type) > RECIPE_TENSOR_BYTES ? "an array is at most 1 GiB" : NULL;
}

static const char *check_means(const struct recipe *r)
{
	const struct recipe_tensor *t = &r->tensor;
	uint32_t n = r->flags & RECIPE_NORMALISE ? t->n_means : 0;
	int height, width, channels;

	recipe_axes(t->layout, &height, &width, &channels);
	if (r->flags & RECIPE_NORMALISE ? n < 1 || n > RECIPE_TENSOR_CHANNELS : t->n_means > 0)
		return "numbers are normalised by one mean, or by one for each of at most 16 channels";
	if (n > 1 && (channels < 0 || t->dimensions[channels] != n))
		return "there must be a mean for each channel, or one for all";
	for (uint32_t i = 0; i < RECIPE_TENSOR_CHANNELS; i++) {
		if (i < n ? !isfinite(t->mean[i]) || !isfinite(t->std[i]) || !(t->std[i] > 0)
			  : t->mean[i] != 0 || t->std[i] != 0)
			return "mean must be finite, and std above 0";
	}
	return NULL;
}

static bool is_probability(double p)
{
	return p >= 0 && p <= 1;
}

const char *tensor_check(const struct recipe *r)
{
	struct recipe plain = {.kind = r->kind,
			       .shape = r->shape,
			       .width = r->width,
			       .height = r->height,
			       .type = r->type,
			       .flags = r->flags,
			       .damage = r->damage,
			       .flip_sideways = r->flip_sideways,
			       .flip_upright = r->flip_upright,
			       .tensor = r->tensor};
	const char *wrong;

	if (!same_bits(r, &plain, sizeof(plain)))
		return "a recipe for arrays says something about images";
	if (r->tensor.layout >= RECIPE_N_LAYOUTS)
		return "the layout is not known";
	if (r->flags & ~(RECIPE_ROWS | RECIPE_UNIT | RECIPE_NORMALISE))
		return "a flag is not known";
	if (r->flags & RECIPE_ROWS && r->tensor.layout != RECIPE_HWC && r->tensor.layout != RECIPE_CHW)
		return "what has no channels has no order of them";
	if (!is_probability(r->flip_sideways) || !is_probability(r->flip_upright))
		return "a probability must be from 0 to 1";
	if (!r->tensor.layout && (r->flip_sideways > 0 || r->flip_upright > 0))
		return "what is mirrored has a height and a width";
	wrong = check_types(r);
	if (!wrong)
		wrong = check_crop(r);
	if (!wrong)
		wrong = check_dimensions(r);
	return wrong ? wrong : check_means(r);
}
