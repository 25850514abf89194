/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Computes analysis->predictions from the replay: rates, curves, and the smallest amounts that remove the
 * stall. */

#include "analyzer/predictions.h"
#include "forecast.h"
#include "analyzer/shares/study.h"

struct profile;

struct analysis;

/* analysis: what was found before, of which the limits by cores are used. n_warmup: steps at the start to
 * leave out. profile: CPU profile of preparing, or NULL. *ret_why: static
 * text on why there are no predictions (*ret_predictions is NULL then), else NULL. -ENOMEM. */
int predictions_find(const struct study *study, const struct analysis *analysis, size_t n_warmup,
		     const struct profile *profile, struct predictions **ret_predictions,
		     const char **ret_why);
