/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Who feeds a trainer that has neither workers nor threads that read files, nor a next() of its own: by hand
 * made queues.
 *
 * - Threads of its process that end sleeps of its, and are no computing threads: they call a DataLoader's
 *   next(), run Python, read, take naps or use sockets. They become loader threads.
 * - Other processes that write pipes which the trainer itself reads. These become result pipes.
 */

#include "roles.h"
#include "stack_work.h"

/* saves: of each thread, that it writes checkpoints. -ENOMEM. */
int roles_find_feeders(const struct timeline *timeline, const struct stack_looks *looks, const uint8_t *saves,
		       struct roles *roles);
