/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Steps, and the window they make up: the start of the data wait of the first step that was seen whole, to
 * the end of the last step. Steps tile the window without gaps.
 *
 * A step begins with its first data wait; where there is none, one median time after the backward pass of
 * the step before (what a step takes from there to the next wait). The last step ends so, too, and with the
 * checkpoint that it ends with. Without any data wait steps are what lies between two backward passes.
 */

#include "analyzer/step.h"
#include "interval.h"
#include "waits.h"

struct window {
	uint64_t begin_ns, end_ns;
	struct analysis_step *steps; /* share_ns and complete are not filled in */
	size_t n_steps;
	uint64_t observed_ns; /* of all steps together: less than the window where the recording has gaps */
};

/* times: of the backward passes (or returns of next()), ascending. checkpoints: tidy. No window gives n_steps
 * 0. -ENOMEM. */
int window_find(const uint64_t *times, size_t n_times, const struct data_waits *waits,
		const struct interval_list *checkpoints, const struct timeline_thread *trainer,
		struct window *ret_window);
/* Leaves out the steps that reach into a gap of the recording, and sets observed_ns. gaps: tidy. */
void window_leave_gaps(struct window *window, const struct interval_list *gaps);

/* The longest stretch of steps that follow each other without a gap: a window whose steps are borrowed from
 * this one, all of it where the recording has no gaps. Not to be freed. */
struct window window_longest_run(const struct window *window);
void window_free(struct window *window);
