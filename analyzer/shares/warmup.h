/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Warm-up: steps at the start of the window that are unlike the rest, because workers start, the first
 * batches are read, caches fill, or code is compiled. They count in the shares, as on the job's own clock,
 * but do not show how the job continues. So verdict, predictions and what-if are based on the steps after
 * them.
 *
 *   slow start   the first steps until five in a row take, on average, no more than the later steps' median
 *                and five times their spread (at least a quarter of the median); at most a third of all
 *   first epoch  all of it, if its median step takes a quarter longer than the later epochs' (files come
 *                from storage once and from memory after that)
 */

#include <stddef.h>

#include "analyzer/step.h"

/* n_first_epoch: steps of the first epoch; 0: not known, or the only one. *ret_n is 0 if too few steps would
 * be left. -ENOMEM. */
int warmup_find(const struct analysis_step *steps, size_t n_steps, size_t n_first_epoch, size_t *ret_n);
