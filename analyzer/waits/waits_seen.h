/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Waits of a trainer whose loader does not mark the start and end of next(). */

#include "analyzer/base/interval.h"
#include "analyzer/timeline/stack_work.h"
#include "waits.h"

/* Appends waits of a trainer that polls: several naps in a row, of about one length, with hardly anything in
 * between. -ENOMEM. */
int waits_of_polls(const struct timeline_thread *trainer, struct interval_list *list);

/* Appends the intervals in which samples of the trainer's stack show a generator, or another iterator's
 * next(). They are right on average, and each edge is to within half a sampling interval. -ENOMEM. */
int waits_of_stacks(const struct timeline_thread *trainer, const struct stack_samples *samples,
		    struct interval_list *list);

/* Merges `seen` into waits; overlapping waits become one. Consumes seen. -ENOMEM. */
int waits_merge(struct data_waits *waits, struct interval_list *seen);
