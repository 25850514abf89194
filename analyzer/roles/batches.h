/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Steps of a job without backward passes (inference, or a framework whose backward passes are not seen) that
 * takes its data from PyTorch's DataLoader: a step is a batch. A next() at the end of an epoch gives none: it
 * takes next to no time, or it waits for the workers to end. If the workers stay, such a next() is not
 * recognised and counts as a step.
 */

#include "roles.h"
#include "analyzer/timeline/timeline.h"

/* The times when next() returned a batch, ascending; ret_times has room for all the trainer's marks.
 * -ENOMEM. */
int batches_times(const struct timeline *timeline, const struct roles *roles, uint64_t *ret_times,
		  size_t *ret_n);
