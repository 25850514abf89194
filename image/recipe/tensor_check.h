/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The part of recipe.c that is about arrays (RECIPE_NUMPY, RECIPE_BYTES). */

#include "image/recipe.h"

/* As recipe_check(), of what images have no part in. */
const char *tensor_check(const struct recipe *recipe);
/* As recipe_item_bytes(). */
uint64_t tensor_bytes(const struct recipe *recipe);
