/* SPDX-License-Identifier: Apache-2.0 */
#include "image/recipe.h"
#include "tensor_check.h"

#include <math.h>
#include <stddef.h>

#define FACTOR_MAX 1e6 /* of brightness, contrast and saturation; FACTOR_MAX of plan.py */

static bool is_range(const double *range, double least, double most)
{
	return isfinite(range[0]) && isfinite(range[1]) && range[0] >= least && range[0] <= range[1] &&
	       range[1] <= most;
}

static bool is_probability(double p)
{
	return p >= 0 && p <= 1;
}

static const char *check_box(const struct recipe *r)
{
	static const double none[2];

	if (r->shape != RECIPE_RANDOM_BOX)
		return same_bits(r->scale, none, sizeof(none)) && same_bits(r->ratio, none, sizeof(none))
			   ? NULL
			   : "scale and ratio are of a random box";
	if (!is_range(r->scale, 0, 1e6) || r->scale[1] <= 0)
		return "scale must be two parts of the area, the smaller one first";
	if (!is_range(r->ratio, 1e-6, 1e6))
		return "ratio must be two ratios of width to height, the smaller one first";
	return NULL;
}

static const char *check_numbers(const struct recipe *r)
{
	if (r->type >= RECIPE_N_IMAGE_TYPES)
		return "the type of the numbers is not known";
	if (r->flags & ~RECIPE_KNOWN_FLAGS)
		return "a flag is not known";
	if (r->type == RECIPE_UINT8 && r->flags & (RECIPE_UNIT | RECIPE_NORMALISE))
		return "integers cannot be normalised";
	for (int c = 0; c < 3; c++) {
		if (r->flags & RECIPE_NORMALISE) {
			if (!isfinite(r->mean[c]) || !isfinite(r->std[c]) || !(r->std[c] > 0))
				return "mean must be finite, and std above 0";
		} else if (r->mean[c] != 0 || r->std[c] != 0) {
			return "mean and std are of numbers that are normalised";
		}
	}
	return NULL;
}

static bool is_none(const double *range)
{
	return range[0] == 0 && range[1] == 0;
}

static const char *check_colours(const struct recipe *r)
{
	if (!is_probability(r->jitter) || !is_probability(r->grey))
		return "a probability must be from 0 to 1";
	if (r->flags & RECIPE_GREY && r->grey != 1)
		return "what has one channel is always grey";
	if (r->flags & RECIPE_TENSOR_COLOURS && r->jitter == 0 && r->grey == 0)
		return "how colours are changed is of what changes them";
	if (r->jitter == 0)
		return is_none(r->brightness) && is_none(r->contrast) && is_none(r->saturation) &&
			       is_none(r->hue)
			   ? NULL
			   : "colours are of what has a probability to be jittered";
	if (!is_range(r->brightness, 0, FACTOR_MAX) || !is_range(r->contrast, 0, FACTOR_MAX) ||
	    !is_range(r->saturation, 0, FACTOR_MAX))
		return "brightness, contrast and saturation must be two factors, the smaller one first";
	return is_range(r->hue, -0.5, 0.5) ? NULL : "hue must be from -0.5 to 0.5, the smaller one first";
}

static const char *check_shape(const struct recipe *r)
{
	if (r->shape >= RECIPE_N_SHAPES || r->shape == RECIPE_RANDOM_CROP)
		return "the shape is not known";
	if (r->width < 1 || r->height < 1 || r->width > RECIPE_MAX_SIDE || r->height > RECIPE_MAX_SIDE)
		return "width and height must be 1 to 16384 pixels";
	/* Then the middle is always there, however long the longer side is. */
	if (r->shape == RECIPE_MIDDLE &&
	    (r->shorter < r->width || r->shorter < r->height || r->shorter > RECIPE_MAX_SIDE))
		return "the shorter side must be no shorter than what is cut out of it";
	if (r->shape != RECIPE_MIDDLE && r->shorter)
		return "the shorter side is of what is cut out of the middle";
	if (r->filter != RECIPE_BILINEAR && r->filter != RECIPE_BICUBIC)
		return "the filter must be bilinear or bicubic";
	if (!is_probability(r->flip_sideways) || !is_probability(r->flip_upright))
		return "a probability must be from 0 to 1";
	return NULL;
}

const char *recipe_check(const struct recipe *r)
{
	static const struct recipe_tensor no_tensor;
	static const struct recipe none;
	const char *wrong;

	if (r->kind == RECIPE_NONE)
		return same_bits(r, &none, sizeof(none)) ? NULL : "a recipe for nothing says something";
	if (r->kind != RECIPE_IMAGE && !recipe_is_tensor(r))
		return "the kind of recipe is not known";
	if (r->damage >= RECIPE_N_DAMAGES || r->reserved)
		return "what to do with damaged samples is not known";
	if (recipe_is_tensor(r))
		return tensor_check(r);
	if (!same_bits(&r->tensor, &no_tensor, sizeof(no_tensor)))
		return "a recipe for images says something about arrays";
	wrong = check_shape(r);
	if (!wrong)
		wrong = check_box(r);
	if (!wrong)
		wrong = check_colours(r);
	return wrong ? wrong : check_numbers(r);
}

uint32_t recipe_channels(const struct recipe *r)
{
	return r->flags & RECIPE_GREY ? 1 : 3;
}

uint64_t recipe_item_bytes(const struct recipe *r)
{
	if (recipe_is_tensor(r))
		return tensor_bytes(r);
	return r->kind == RECIPE_NONE
		   ? 0
		   : (uint64_t)r->width * r->height * recipe_channels(r) * recipe_type_bytes(r->type);
}

enum recipe_form recipe_form(const struct recipe *r, struct recipe *ret_key)
{
	*ret_key = (struct recipe){.kind = r->kind};
	if (r->kind != RECIPE_IMAGE)
		return RECIPE_FORM_NONE;
	ret_key->shape = r->shape;
	if (r->shape == RECIPE_RANDOM_BOX)
		return RECIPE_FORM_WHOLE;
	ret_key->width = r->width;
	ret_key->height = r->height;
	ret_key->shorter = r->shorter;
	ret_key->filter = r->filter;
	return RECIPE_FORM_MADE;
}
