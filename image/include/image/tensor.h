/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Makes a recipe's output from a stored array, which is a .npy file or only numbers: crops, mirrors, and
 * changes layout or type. The files are untrusted and may hold any bytes. */

#include <stddef.h>
#include <stdint.h>

#include "image/recipe.h"
#include "lib/error.h"

/* The header of a .npy file. */
struct npy {
	enum recipe_type type;
	bool is_big_endian; /* byte order of the numbers */
	bool is_fortran;    /* the first dimension varies fastest */
	uint32_t n_dimensions;
	uint64_t dimensions[RECIPE_TENSOR_DIMENSIONS];
	size_t offset; /* offset of the first number; all numbers are present */
};

/* Parses a .npy file. 0; -EBADMSG: not a .npy file, a damaged one, or a type or shape that recipes do not
 * support. */
int npy_parse(const void *data, size_t bytes, struct npy *ret, struct error *err);

struct tensor_visit {
	uint64_t seed, epoch, sample; /* seed of random positions */
};

/*
 * Writes the output for the sample in this epoch to out[recipe_item_bytes()]. The recipe must be for arrays
 * and pass recipe_check(). May write to out also on failure.
 *
 * Returns 0; -EBADMSG: the sample is damaged, or does not have the type and the shape that the recipe is for.
 */
int tensor_make(const struct recipe *recipe, const struct tensor_visit *visit, const void *data, size_t bytes,
		void *out, struct error *err);
