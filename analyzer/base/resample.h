/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Computes 95 % intervals by resampling (block bootstrap): steps are drawn in blocks, because neighbours are
 * alike (a slow disk stays slow for a while), and the value is computed from each draw. Equal input gives an
 * equal interval: the draws do not depend on clock or address.
 */

#include <stddef.h>
#include <stdint.h>

#include "analyzer/predictions.h"

#define RESAMPLE_DRAWS 200

/* Returns the value of one draw, in which step k of n counts weight[k] times. */
typedef double resample_fn(const uint32_t *weight, size_t n, const void *context);

/* Estimates fn. The value is fn's with weight 1 for each step. Draws whose value is NAN are left out; if
 * fewer than half remain, low and high are NAN. -ENOMEM. */
int resample(size_t n, resample_fn *fn, const void *context, struct estimate *ret_estimate);
