/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The two arithmetics of recipe_colour(): torchvision's for PIL images, and for uint8 tensors. */

#include "image/recipe.h"

/* Apply one step to n pixels. */
void colour_pil(enum recipe_colour step, float factor, uint8_t *pixels, size_t n);
void colour_tensor(enum recipe_colour step, float factor, uint8_t *pixels, size_t n);

void colour_pil_grey(uint8_t *pixels, size_t n);
void colour_tensor_grey(uint8_t *pixels, size_t n);
