/* SPDX-License-Identifier: Apache-2.0 */
/* Draws which part of an image a sample becomes. The distributions are torchvision's. The random numbers are
 * our own, because they must be a function of the sample. */
#include <math.h>

#include "image/recipe.h"
#include "lib/hash.h"

#define ATTEMPTS 10 /* number of random boxes to try before the middle is taken, as in torchvision */
/* Seeds a random sequence for colours only, because the number of draws for a box depends on the image. */
#define COLOURS UINT64_C(0x636f6c6f75727321)

uint64_t recipe_seed(uint64_t seed, uint64_t epoch, uint64_t sample)
{
	uint64_t key = splitmix64(&seed);

	key ^= epoch;
	key = splitmix64(&key);
	key ^= sample;
	return splitmix64(&key);
}

/* Returns a number of at least `from` and less than `to` (or `from`, if both are equal). */
static double uniform(uint64_t *state, double from, double to)
{
	return from + (to - from) * ((double)(splitmix64(state) >> 11) * 0x1p-53);
}

/* Returns 0 to n - 1. The bias is below n / 2^64. */
static uint32_t below(uint64_t *state, uint32_t n)
{
	return (uint32_t)((unsigned __int128)splitmix64(state) * n >> 64);
}

static struct recipe_place box(const struct recipe *r, uint32_t left, uint32_t top, uint32_t width,
			       uint32_t height)
{
	return (struct recipe_place){.left = left,
				     .top = top,
				     .width = width,
				     .height = height,
				     .made_width = r->width,
				     .made_height = r->height};
}

/* Returns the largest box in the middle whose ratio is allowed. */
static struct recipe_place middle_box(const struct recipe *r, uint32_t width, uint32_t height)
{
	double ratio = (double)width / height, w = width, h = height;

	if (ratio < r->ratio[0])
		h = fmin(fmax(rint(width / r->ratio[0]), 1), height);
	else if (ratio > r->ratio[1])
		w = fmin(fmax(rint(height * r->ratio[1]), 1), width);
	return box(r, (width - (uint32_t)w) / 2, (height - (uint32_t)h) / 2, (uint32_t)w, (uint32_t)h);
}

static struct recipe_place random_box(const struct recipe *r, uint64_t *state, uint32_t width,
				      uint32_t height)
{
	double area = (double)width * height, from = log(r->ratio[0]), to = log(r->ratio[1]);

	for (int i = 0; i < ATTEMPTS; i++) {
		double target = area * uniform(state, r->scale[0], r->scale[1]);
		double ratio = exp(uniform(state, from, to));
		double w = rint(sqrt(target * ratio)), h = rint(sqrt(target / ratio));

		if (w >= 1 && w <= width && h >= 1 && h <= height) {
			uint32_t top = below(state, height - (uint32_t)h + 1);

			return box(r, below(state, width - (uint32_t)w + 1), top, (uint32_t)w, (uint32_t)h);
		}
	}
	return middle_box(r, width, height);
}

/* Returns the whole image, resized so that its shorter side has r->shorter pixels. */
static struct recipe_place resized(const struct recipe *r, uint32_t width, uint32_t height)
{
	struct recipe_place place = box(r, 0, 0, width, height);
	uint64_t longer =
	    (uint64_t)r->shorter * (width <= height ? height : width) / (width <= height ? width : height);
	uint32_t made = longer > UINT32_MAX ? UINT32_MAX : (uint32_t)longer; /* images stay smaller */

	if (width <= height) {
		place.made_width = r->shorter;
		place.made_height = made;
	} else {
		place.made_height = r->shorter;
		place.made_width = made;
	}
	return place;
}

static struct recipe_place middle(const struct recipe *r, uint32_t width, uint32_t height)
{
	struct recipe_place place = resized(r, width, height);

	place.x = (uint32_t)rint((place.made_width - r->width) / 2.0);
	place.y = (uint32_t)rint((place.made_height - r->height) / 2.0);
	return place;
}

static struct recipe_place random_crop(const struct recipe *r, uint64_t *state, uint32_t width,
				       uint32_t height)
{
	struct recipe_place place = resized(r, width, height);

	place.y = below(state, place.made_height - r->height + 1);
	place.x = below(state, place.made_width - r->width + 1);
	return place;
}

/* Returns the crop of an array that starts here. */
static struct recipe_place piece(const struct recipe *r, uint32_t left, uint32_t top)
{
	return box(r, left, top, r->width, r->height);
}

void recipe_place(const struct recipe *r, uint64_t seed, uint64_t epoch, uint64_t sample, uint32_t width,
		  uint32_t height, struct recipe_place *ret)
{
	uint64_t state = recipe_seed(seed, epoch, sample);

	switch ((enum recipe_shape)r->shape) {
	case RECIPE_RANDOM_BOX: *ret = random_box(r, &state, width, height); break;
	case RECIPE_MIDDLE:
		*ret = recipe_is_tensor(r) ? piece(r, (uint32_t)rint((width - r->width) / 2.0),
						   (uint32_t)rint((height - r->height) / 2.0))
					   : middle(r, width, height);
		break;
	case RECIPE_RANDOM_CROP:
		if (recipe_is_tensor(r)) {
			uint32_t top = below(&state, height - r->height + 1);

			*ret = piece(r, below(&state, width - r->width + 1), top);
		} else {
			*ret = random_crop(r, &state, width, height);
		}
		break;
	case RECIPE_WHOLE:
	case RECIPE_N_SHAPES: *ret = box(r, 0, 0, width, height); break;
	}
	ret->sideways = uniform(&state, 0, 1) < r->flip_sideways;
	ret->upright = uniform(&state, 0, 1) < r->flip_upright;
}

static void draw_jitter(const struct recipe *r, uint64_t *state, struct recipe_colours *ret)
{
	const double *ranges[RECIPE_N_COLOURS] = {
	    [RECIPE_BRIGHTNESS] = r->brightness,
	    [RECIPE_CONTRAST] = r->contrast,
	    [RECIPE_SATURATION] = r->saturation,
	    [RECIPE_HUE] = r->hue,
	};
	enum recipe_colour order[] = {RECIPE_BRIGHTNESS, RECIPE_CONTRAST, RECIPE_SATURATION, RECIPE_HUE};

	for (uint32_t i = RECIPE_N_COLOURS - 1; i > 0; i--) {
		uint32_t k = below(state, i + 1);
		enum recipe_colour other = order[k];

		order[k] = order[i];
		order[i] = other;
	}
	for (uint32_t i = 0; i < RECIPE_N_COLOURS; i++) {
		const double *range = ranges[order[i]];
		double nothing = order[i] == RECIPE_HUE ? 0 : 1;

		if (range[0] == nothing && range[1] == nothing)
			continue;
		ret->order[ret->n] = order[i];
		ret->factor[ret->n++] = (float)uniform(state, range[0], range[1]);
	}
}

void recipe_draw_colours(const struct recipe *r, uint64_t seed, uint64_t epoch, uint64_t sample,
			 struct recipe_colours *ret)
{
	uint64_t state = recipe_seed(seed, epoch, sample) ^ COLOURS;

	*ret = (struct recipe_colours){.of_tensors = r->flags & RECIPE_TENSOR_COLOURS};
	ret->grey = uniform(&state, 0, 1) < r->grey;
	if (uniform(&state, 0, 1) < r->jitter)
		draw_jitter(r, &state, ret);
}
