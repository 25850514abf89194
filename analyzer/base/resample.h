/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * 95 % intervals by resampling: steps are drawn again in blocks, because neighbours are alike (a slow disk
 * stays slow for a while), and what is asked for is computed from each draw. The same input gives the same
 * interval: the draws do not depend on clock or address.
 */

#include <stddef.h>
#include <stdint.h>

#include "analyzer/predictions.h"

#define RESAMPLE_DRAWS 200

/* A draw's value: each of the n steps counts weight[k] times. */
typedef double resample_fn(const uint32_t *weight, size_t n, const void *context);

/* value: of the steps as they are. NAN values of draws are left out; low and high are NAN with fewer than
 * half of them left. -ENOMEM. */
int resample(size_t n, resample_fn *fn, const void *context, struct estimate *ret_estimate);
