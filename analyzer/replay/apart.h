/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Steps that are not only training: torch.compile compiles in them (compiling.h), or a validation pass over
 * another loader lies before them. The verdict is about the other steps.
 *
 * Validation: before one backward pass the trainer takes at least three batches and twice as many as usual.
 * It lasts from the first next() to the one that feeds the step. Only loaders that say when next() begins and
 * ends show it.
 */

#include "analyzer/analysis.h"
#include "measure.h"

/* Fills compiling, validation, and `apart` of each step; the analysis has its steps. -ENOMEM. */
int apart_find(const struct measurement *m, struct analysis *analysis);
