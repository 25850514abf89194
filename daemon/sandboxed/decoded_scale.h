/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Of an image whose crops are random (RECIPE_DECODED_WHOLE): at which scale its decoded copy is best kept. A
 * crop comes out of a decoded copy only if it would be decoded at the decoded copy's scale, since its pixels
 * are to be the same with a decoded copy and without.
 */

#include <stdbool.h>

#include "image/decoder.h"
#include "image/recipe.h"

/* What a place says, as a request. */
struct image_request decoded_scale_request(const struct recipe *recipe, const struct recipe_place *place);

/*
 * Of the scales at which crops are decoded, the one that most of them have, if the memory is worth it: a byte
 * is to save at least half of the CPU time that it would save if all crops came out of the image at its own
 * size. Depends on the recipe and on `info` alone, not on seed, epoch or sample. Returns false if there is no
 * such scale.
 */
bool decoded_scale_choose(const struct recipe *recipe, const struct image_info *info,
			  struct image_whole *ret);
