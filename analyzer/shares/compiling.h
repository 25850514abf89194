/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Finds when a trainer compiles: its stack samples, or those of another thread of its process, show the
 * compiler of PyTorch or JAX (stack_work.h). Sleeps in between count, because it waits for processes that
 * compile. A span ends where a step begins, because training resumes there.
 */

#include "analyzer/base/interval.h"
#include "analyzer/roles/roles.h"
#include "analyzer/timeline/stack_work.h"
#include "analyzer/timeline/timeline.h"

struct compiling {
	struct interval_list trainer; /* the trainer's own; all three lists are tidy */
	struct interval_list helpers; /* other threads of its process */
	struct interval_list process; /* either */
	bool known; /* a Python stack of the process was sampled, so compiling would have been seen */
};

/* times: those of the steps, ascending. Free *compiling also after -ENOMEM. */
int compiling_find(const struct timeline *timeline, const struct roles *roles,
		   const struct stack_samples *samples, const uint64_t *times, size_t n_times,
		   struct compiling *compiling);
void compiling_free(struct compiling *compiling);
