/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Chooses the scale at which to cache the decoded copy of an image whose crops are random
 * (RECIPE_DECODED_WHOLE). A decoded copy serves only crops that would be decoded at the copy's scale, because
 * a decoded copy must not change the pixels of a crop.
 */

#include <stdbool.h>

#include "image/decoder.h"
#include "image/recipe.h"

/* Converts a place to a decode request. */
struct image_request decoded_scale_request(const struct recipe *recipe, const struct recipe_place *place);

/*
 * Picks the scale at which to cache an image: the most common decode scale of its crops, if the memory is
 * worth it. A byte must save at least half of the CPU time that it would save if all crops came out of a copy
 * at the image's own size. The result depends only on the recipe and on `info`, not on seed, epoch or sample.
 * Returns false if no scale qualifies.
 */
bool decoded_scale_choose(const struct recipe *recipe, const struct image_info *info,
			  struct image_whole *ret);
