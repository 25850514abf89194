/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Feeders of a trainer that has no workers, no threads that read files, and no next() of its own: the job
 * uses queues of its own.
 *
 * - Threads of its process that end its sleeps, and are not mere computing threads: they call a DataLoader's
 *   next(), run Python, read, take naps or use sockets. Such threads become loader threads.
 * - Other processes that write pipes which the trainer itself reads. Such pipes become result pipes.
 */

#include "roles.h"
#include "analyzer/timeline/stack_work.h"

/* saves: per thread, nonzero if it writes checkpoints. -ENOMEM. */
int roles_find_feeders(const struct timeline *timeline, const struct stack_samples *samples,
		       const uint8_t *saves, struct roles *roles);
