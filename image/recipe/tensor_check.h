/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The part of recipe.c for arrays (RECIPE_NUMPY, RECIPE_BYTES). */

#include <string.h>

#include "image/recipe.h"

/* Compares the bits of two messages: -0.0 differs from 0. */
static inline bool same_bits(const void *a, const void *b, size_t bytes)
{
	return memcmp(a, b, bytes) == 0;
}

/* As recipe_check(), for the fields that do not concern images. */
const char *tensor_check(const struct recipe *recipe);
/* As recipe_item_bytes(), for arrays. */
uint64_t tensor_bytes(const struct recipe *recipe);
