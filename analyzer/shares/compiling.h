/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * When a trainer compiles: its stack samples show the compiler of PyTorch or JAX (stack_work.h), or those of
 * another thread of its process. Asleep in between it waits for processes that compile. A span ends where a
 * step begins: training goes on there.
 */

#include "analyzer/base/interval.h"
#include "analyzer/roles/roles.h"
#include "analyzer/timeline/stack_work.h"
#include "analyzer/timeline/timeline.h"

struct compiling {
	struct interval_list trainer; /* all three tidy */
	struct interval_list helpers; /* other threads of its process */
	struct interval_list process; /* either */
	bool known; /* a Python stack of its process was sampled: compiling would have been seen */
};

/* times: of the steps, ascending. Free *compiling also after -ENOMEM. */
int compiling_find(const struct timeline *timeline, const struct roles *roles,
		   const struct stack_looks *looks, const uint64_t *times, size_t n_times,
		   struct compiling *compiling);
void compiling_free(struct compiling *compiling);

/* Is this a thread of a process that was made while the trainer's process compiled? It compiles, too. */
bool compiling_made(const struct compiling *compiling, const struct timeline *timeline,
		    const struct timeline_thread *thread);
