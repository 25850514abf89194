/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Waits of a trainer whose loader does not say when its next() begins and ends. */

#include "analyzer/base/interval.h"
#include "analyzer/timeline/stack_work.h"
#include "waits.h"

/* Naps of about one length, several in a row with hardly anything in between: it polls. Appends. -ENOMEM. */
int waits_of_polls(const struct timeline_thread *trainer, struct interval_list *list);

/* Stretches in which samples of its stack show a generator, or another iterator's next(). They are right on
 * average, and each edge is to within half a sampling interval. Appends. -ENOMEM. */
int waits_of_stacks(const struct timeline_thread *trainer, const struct stack_looks *looks,
		    struct interval_list *list);

/* Makes waits those that they were, and what was seen besides; where both are, they are one. seen is used
 * up. -ENOMEM. */
int waits_merge(struct data_waits *waits, struct interval_list *seen);
