/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Makes a recipe's output from stored arrays: .npy files and bare numbers, cut, mirrored, in another layout,
 * as other numbers. The files are untrusted: any bytes may come. */

#include <stddef.h>
#include <stdint.h>

#include "image/recipe.h"
#include "lib/error.h"

/* The header of a .npy file. */
struct npy {
	enum recipe_type type;
	bool is_big_endian; /* of numbers of several bytes */
	bool is_fortran;    /* the first dimension is the fastest */
	uint32_t n_dimensions;
	uint64_t dimensions[RECIPE_TENSOR_DIMENSIONS];
	size_t offset; /* of the first number; all numbers are present */
};

/* 0; -EBADMSG: no .npy file, a damaged one, or one of a type or a shape that recipes do not have. */
int npy_parse(const void *data, size_t bytes, struct npy *ret, struct error *err);

struct tensor_visit {
	uint64_t seed, epoch, sample; /* of which random places are drawn */
};

/*
 * Writes what becomes of the sample in this epoch to out[recipe_item_bytes()]; out is written to also on
 * failure. The recipe is one that recipe_check() passes, of arrays.
 *
 * 0; -EBADMSG: it is damaged, or not of the type and the shape that the recipe is for.
 */
int tensor_make(const struct recipe *recipe, const struct tensor_visit *visit, const void *data, size_t bytes,
		void *out, struct error *err);
