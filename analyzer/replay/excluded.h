/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Excludes steps that are not only training: torch.compile compiles in them (compiling.h), or a validation
 * pass over another loader precedes them. The verdict is based on the other steps.
 *
 * Validation: before one backward pass the trainer takes at least three batches and twice as many as usual.
 * The pass lasts from the first next() to the one that feeds the step. A pass is only seen with loaders that
 * mark the start and end of next().
 */

#include "analyzer/analysis.h"
#include "measure.h"

/* Fills compiling, validation, and `excluded` of each step. The analysis must have its steps already.
 * -ENOMEM. */
int excluded_find(const struct measurement *m, struct analysis *analysis);
