/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Steps of a job without backward passes (inference, or a framework whose backward passes are not seen) that
 * uses PyTorch's DataLoader: a step is a batch. A next() at the end of an epoch returns no batch: it takes
 * almost no time, or waits for the workers to end. With persistent workers such a next() is not recognised
 * and counts as a step.
 */

#include "roles.h"
#include "analyzer/timeline/timeline.h"

/* Finds the times when next() returned a batch, ascending. ret_times must have one entry per mark of the
 * trainer. -ENOMEM. */
int batches_times(const struct timeline *timeline, const struct roles *roles, uint64_t *ret_times,
		  size_t *ret_n);
