/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Finds when a thread wrote a checkpoint: from opening a file for writing to closing it, if more than
 * CHECKPOINT_MIN_BYTES were written to it and no step began in between. The fsync, rename and fsync of the
 * folder that directly follow belong to it. A file that stays open from step to step (a log, a store) counts
 * only during a sync or a large write.
 *
 * A file that is mapped into memory while it is open for writing counts with the mapping's length. If its
 * descriptor is closed before it is written (as numpy.memmap does), the checkpoint lasts until the msync that
 * follows.
 *
 * Writes of a compiler (torch.compile) are not a checkpoint. These are writes mostly within an interval in
 * which the thread compiles, and all writes of processes that were created in one.
 */

#include "compiling.h"
#include "analyzer/base/interval.h"
#include "analyzer/roles/roles.h"
#include "analyzer/timeline/stack_work.h"
#include "analyzer/timeline/timeline.h"

#define CHECKPOINT_MIN_BYTES UINT64_C(65536)

struct checkpoint_input {
	const uint64_t *steps; /* backward passes of the trainer */
	size_t n_steps;
	const struct stack_samples *samples; /* copying and pickling are visible only in samples */
	const struct compiling *compiling;
};

/* Appends the thread's checkpoints; call interval_list_tidy() after the last thread. background: true if the
 * thread writes while training continues; then steps may begin while a file is open, if most of its bytes
 * come in large writes. -ENOMEM. */
int checkpoints_find(const struct checkpoint_input *input, const struct timeline_thread *thread,
		     bool background, struct interval_list *checkpoints);

/* Returns true for threads of processes that the trainer's process made, other than its loader's workers. */
bool checkpoint_is_child(const struct roles *roles, const struct timeline_thread *thread);

/* The intervals of all saves outside the trainer; tidy. */
struct saves_found {
	const struct interval_list *of_helpers, *of_children;
};

/* Also sets saves[] for threads of the trainer's process that wait, during a save, for a thread or child that
 * saves. */
void checkpoint_savers_add(const struct timeline *timeline, const struct roles *roles,
			   const struct saves_found *found, uint8_t *saves);

/* Returns true if a thread that saves ended this sleep of the trainer. */
bool checkpoint_ends(const struct timeline *timeline, const uint8_t *saves, const struct timeline_off *off);

/* Returns true if the trainer waited until a save was complete. Waits for a lock that both share are shorter,
 * and waits for a kernel lock (address space, page) are uninterruptible. */
bool checkpoint_awaited(const struct timeline *timeline, const uint8_t *saves,
			const struct timeline_off *off);

/* Returns true if this sleep of a thread that saves was for the next save, which the trainer handed over at
 * its end. */
bool checkpoint_handed(const struct timeline *timeline, const struct roles *roles,
		       const struct timeline_off *off);

/* Finds the checkpoints that processes created by the trainer's process wrote; the list is tidy. The first
 * checkpoint of a process that was forked in the recording begins at the fork: a child forked to write a
 * checkpoint does nothing else. Sets saves[] for threads that write. -ENOMEM. */
int checkpoints_of_children(const struct checkpoint_input *input, const struct timeline *timeline,
			    const struct roles *roles, uint8_t *saves, struct interval_list *checkpoints);
