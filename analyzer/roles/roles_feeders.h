/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Feeders of a trainer that has neither workers nor threads that read files, nor a next() of its own: queues
 * that the job made by hand.
 *
 * - Threads of its process that end sleeps of its, and are no computing threads: they call a DataLoader's
 *   next(), run Python, read, take naps or use sockets. Such threads become loader threads.
 * - Other processes that write pipes which the trainer itself reads. Such pipes become result pipes.
 */

#include "roles.h"
#include "analyzer/timeline/stack_work.h"

/* saves: of each thread, that it writes checkpoints. -ENOMEM. */
int roles_find_feeders(const struct timeline *timeline, const struct stack_looks *looks, const uint8_t *saves,
		       struct roles *roles);
