/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Steps, and the window that they fill: from the start of the data wait of the first completely recorded step
 * to the end of the last step. Steps tile the window without gaps.
 *
 * A step begins with its first data wait. If it has none, it begins one median time (from a backward pass to
 * the next wait) after the backward pass of the step before. The last step ends in the same way, but not
 * before the end of a checkpoint that follows it. Without any data waits, a step is the time between two
 * backward passes.
 */

#include "analyzer/step.h"
#include "analyzer/base/interval.h"
#include "waits.h"

struct window {
	uint64_t begin_ns, end_ns;
	struct analysis_step *steps; /* without share_ns and complete, which are not set */
	size_t n_steps;
	uint64_t observed_ns; /* sum of all steps: less than the window if the recording has gaps */
};

/* times: of the backward passes (or returns of next()), ascending. checkpoints: tidy. Without a window
 * n_steps is 0. -ENOMEM. */
int window_find(const uint64_t *times, size_t n_times, const struct data_waits *waits,
		const struct interval_list *checkpoints, const struct timeline_thread *trainer,
		struct window *ret_window);
/* Leaves out the steps that overlap a gap of the recording, and sets observed_ns. gaps: tidy. */
void window_leave_gaps(struct window *window, const struct interval_list *gaps);

/* Returns the longest run of steps without a gap in between: all of the window if the recording has no gaps.
 * Its steps are borrowed from this window: do not free it. */
struct window window_longest_run(const struct window *window);
void window_free(struct window *window);
