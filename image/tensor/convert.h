/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Copies numbers from a stored array to the output, in the recipe's layout and type. */

#include <stddef.h>
#include <stdint.h>

#include "image/recipe.h"

/* Layout of the numbers in memory, in the order of the output. */
struct lie {
	const uint8_t *data;
	int64_t at; /* offset of the first number, in bytes */
	uint32_t n_dimensions;
	uint64_t size[RECIPE_TENSOR_DIMENSIONS];
	int64_t stride[RECIPE_TENSOR_DIMENSIONS]; /* distance between items of a dimension, in bytes; may be
						     negative */
	int channels;                             /* which dimension holds the channels; -1: none */
	bool is_swapped;                          /* numbers are big-endian */
};

/* Writes all numbers to out. The caller ensures that all numbers that the sizes and strides address are
 * within data. */
void convert(const struct recipe *recipe, const struct lie *lie, uint8_t *out);
