/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What is asked of a recipe: whether it is one, what it makes, and what it draws at random. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "image/diesel_recipe.h"

_Static_assert(sizeof(struct recipe) == 880, "wire");

/* Returns NULL if everything in it is in range, else what is not, in words. */
const char *recipe_check(const struct recipe *recipe);
/* The same of the codec's name and options, and of what comes out, alone. */
const char *recipe_check_name(const struct recipe_codec *codec);
const char *recipe_check_output(uint32_t type, const struct recipe_codec *codec);

/* Of what comes out of an image: 3, or 1. */
uint32_t recipe_channels(const struct recipe *recipe);

/* Bytes of what comes out of one sample; 0: RECIPE_NONE. */
uint64_t recipe_item_bytes(const struct recipe *recipe);

/* What all that is random about a sample in an epoch begins with. */
uint64_t recipe_seed(uint64_t seed, uint64_t epoch, uint64_t sample);
/* Returns true if samples are arrays: RECIPE_NUMPY, RECIPE_BYTES. */
bool recipe_is_tensor(const struct recipe *recipe);
/* Bytes of a number of this type. */
uint32_t recipe_type_bytes(enum recipe_type type);
/* Which dimension is height, width, the channels; -1: none. */
void recipe_axes(enum recipe_layout layout, int *ret_height, int *ret_width, int *ret_channels);

/* What an image of a given size becomes for one sample, in pixels. */
struct recipe_place {
	uint32_t left, top, width, height; /* this box of the image... */
	uint32_t made_width, made_height;  /* is made so large... */
	uint32_t x, y;                     /* and what comes out is cut from it here */
	bool sideways, upright;            /* and mirrored left to right, top to bottom */
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

/* What is done to the colours of one sample. */
struct recipe_colours {
	uint32_t n; /* of these steps, in this order */
	enum recipe_colour order[RECIPE_N_COLOURS];
	float factor[RECIPE_N_COLOURS]; /* of each step; hue: of the circle, -0.5 to 0.5 */
	bool of_tensors;                /* RECIPE_TENSOR_COLOURS */
	bool grey;                      /* afterwards */
};

void recipe_draw_colours(const struct recipe *recipe, uint64_t seed, uint64_t epoch, uint64_t sample,
			 struct recipe_colours *ret);

/* Does it to n pixels (RGB, 3 bytes each), which are the whole of what comes out: contrast is to their mean.
 * The values are those of Pillow's ImageEnhance and of its conversions to L and HSV, bit for bit; of tensors
 * within one grey level of torchvision's, step by step. */
void recipe_colour(const struct recipe_colours *colours, uint8_t *pixels, size_t n);
/*
 * What can be kept of a decoded image, so that its next epochs need not decode it (a form): all that is
 * random comes after it. *ret_key is a recipe that is equal for all recipes that can use the same form, and
 * 0 elsewhere.
 */
enum recipe_form {
	RECIPE_FORM_NONE = 0,
	RECIPE_FORM_WHOLE = 1, /* the whole image, at a scale that its crops can use: for a random box */
	RECIPE_FORM_MADE =
	    2, /* width x height pixels as they come out, before they are mirrored and stored */
};

enum recipe_form recipe_form(const struct recipe *recipe, struct recipe *ret_key);

/* What each value of each channel becomes, as the recipe's type: makes storing a look-up. */
struct recipe_table {
	uint32_t number[3][256]; /* the low bytes are the number's */
};

void recipe_table_make(const struct recipe *recipe, struct recipe_table *ret);

/* Writes pixels (RGB, 3 bytes each, width x height of them) as the recipe wants them, mirrored as the place
 * says, to out[recipe_item_bytes()]. */
void recipe_store(const struct recipe *recipe, const struct recipe_table *table,
		  const struct recipe_place *place, const uint8_t *pixels, void *out);
