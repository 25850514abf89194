/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Treats arbitrary bytes as a .npy file, and applies recipes that fit its header. Input: 5 bytes that choose
 * type, layout, crop, flips and flags, then the file.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "image/tensor.h"

#define CHOICES    5
#define OUTPUT_MAX (UINT64_C(1) << 22) /* an array that takes long is not a finding */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct recipe recipe_of(const struct npy *npy, const uint8_t *choices)
{
	struct recipe r = {
	    .kind = RECIPE_NUMPY, .type = choices[0] % RECIPE_N_TYPES, .shape = choices[2] % RECIPE_N_SHAPES};

	r.tensor.stored = npy->type;
	r.tensor.layout = choices[1] % RECIPE_N_LAYOUTS;
	r.tensor.n_dimensions = npy->n_dimensions;
	for (uint32_t i = 0; i < npy->n_dimensions; i++)
		r.tensor.dimensions[i] = npy->dimensions[i] < UINT32_MAX ? (uint32_t)npy->dimensions[i] : 0;
	if (r.shape != RECIPE_WHOLE) {
		r.width = 1 + choices[2] / 4 % 8;
		r.height = 1 + choices[2] / 32;
	}
	r.flip_sideways = choices[3] & 1;
	r.flip_upright = choices[3] >> 1 & 1;
	r.flags = choices[4] & (RECIPE_ROWS | RECIPE_UNIT | RECIPE_NORMALISE);
	if (r.flags & RECIPE_NORMALISE) {
		r.tensor.n_means = 1 + choices[4] / 8 % RECIPE_TENSOR_CHANNELS;
		for (uint32_t i = 0; i < r.tensor.n_means; i++)
			r.tensor.std[i] = 1;
	}
	return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct error err = ERROR_INIT;
	struct recipe recipe;
	struct npy npy;

	if (size < CHOICES)
		return 0;
	/* A copy of exactly this size is aligned, and sanitizers notice a read past its end. */
	size_t bytes = size - CHOICES;
	uint8_t *file = malloc(bytes ? bytes : 1);

	if (!file)
		return 0;
	memcpy(file, data + CHOICES, bytes);
	if (npy_parse(file, bytes, &npy, &err) == 0) {
		recipe = recipe_of(&npy, data);
		if (!recipe_check(&recipe) && recipe_item_bytes(&recipe) <= OUTPUT_MAX) {
			uint8_t *out = malloc(recipe_item_bytes(&recipe));

			/* The array has the recipe's type and shape, so only a crop may be too large for
			 * it. */
			if (out &&
			    tensor_make(&recipe, &(struct tensor_visit){1, 2, 3}, file, bytes, out, &err) <
				0 &&
			    recipe.shape == RECIPE_WHOLE)
				abort();
			free(out);
		}
	} else if (!err.text[0]) {
		abort();
	}
	free(file);
	return 0;
}
