/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Checks a recipe, and computes its output and its random draws. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "image/diesel_recipe.h"

_Static_assert(sizeof(struct recipe) == 880, "wire");

/* Returns NULL if all fields are valid, else a text that says what is wrong. */
const char *recipe_check(const struct recipe *recipe);
/* Check only the codec's name and options, or only its output; results as recipe_check(). */
const char *recipe_check_name(const struct recipe_codec *codec);
const char *recipe_check_output(uint32_t type, const struct recipe_codec *codec);

/* Returns the number of channels of an image's output: 3, or 1. */
uint32_t recipe_channels(const struct recipe *recipe);

/* Returns the bytes of one sample's output; 0: RECIPE_NONE. */
uint64_t recipe_item_bytes(const struct recipe *recipe);

/* Returns the seed for all random draws of one sample in one epoch. */
uint64_t recipe_seed(uint64_t seed, uint64_t epoch, uint64_t sample);
/* Returns true if samples are arrays: RECIPE_NUMPY, RECIPE_BYTES. */
bool recipe_is_tensor(const struct recipe *recipe);
/* Returns the bytes of a number of this type. */
uint32_t recipe_type_bytes(enum recipe_type type);
/* Returns which dimensions are height, width and channels; -1: none. */
void recipe_axes(enum recipe_layout layout, int *ret_height, int *ret_width, int *ret_channels);

/* How an image of a given size is cropped, resized and mirrored for one sample, in pixels. */
struct recipe_place {
	uint32_t left, top, width, height; /* box of the image that is used */
	uint32_t made_width, made_height;  /* size to which the box is resized */
	uint32_t x, y;                     /* position of the output in the resized box */
	bool sideways, upright;            /* mirror the output left to right, or top to bottom */
};

void recipe_place(const struct recipe *recipe, uint64_t seed, uint64_t epoch, uint64_t sample, uint32_t width,
		  uint32_t height, struct recipe_place *ret);

enum recipe_colour {
	RECIPE_BRIGHTNESS,
	RECIPE_CONTRAST,
	RECIPE_SATURATION,
	RECIPE_HUE,
	RECIPE_N_COLOURS,
};

/* Colour changes of one sample. */
struct recipe_colours {
	uint32_t n; /* number of steps */
	enum recipe_colour order[RECIPE_N_COLOURS];
	float factor[RECIPE_N_COLOURS]; /* of each step; for hue, a part of the circle, -0.5 to 0.5 */
	bool of_tensors;                /* RECIPE_TENSOR_COLOURS */
	bool grey;                      /* afterwards */
};

void recipe_draw_colours(const struct recipe *recipe, uint64_t seed, uint64_t epoch, uint64_t sample,
			 struct recipe_colours *ret);

/* Changes the colours of n pixels (RGB, 3 bytes each). They must be the whole output, because contrast is
 * relative to their mean. The values equal those of Pillow's ImageEnhance and of its conversions to L and
 * HSV, bit for bit. With of_tensors, each step is within one grey level of torchvision's. */
void recipe_colour(const struct recipe_colours *colours, uint8_t *pixels, size_t n);
/* Result of decoding that can be cached for later epochs (a decoded copy), because all random steps come
 * later. *ret_key is equal for all recipes that can use the same decoded copy; its unused fields are 0. */
enum recipe_decoded {
	RECIPE_DECODED_NONE = 0,
	RECIPE_DECODED_WHOLE = 1, /* the whole image, at a scale that suits its random boxes */
	RECIPE_DECODED_MADE = 2, /* the output's width x height pixels, before they are mirrored and stored */
};

enum recipe_decoded recipe_decoded(const struct recipe *recipe, struct recipe *ret_key);

/* A look-up table for storing: the number in the recipe's type for each value of each channel. */
struct recipe_table {
	uint32_t number[3][256]; /* the number is in the low bytes */
};

void recipe_table_make(const struct recipe *recipe, struct recipe_table *ret);

/* Writes pixels (RGB, 3 bytes each, width x height of them) as the recipe specifies, mirrored as `place`
 * says, to out[recipe_item_bytes()]. */
void recipe_store(const struct recipe *recipe, const struct recipe_table *table,
		  const struct recipe_place *place, const uint8_t *pixels, void *out);
