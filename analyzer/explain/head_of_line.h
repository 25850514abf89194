/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Head-of-line waits: a loader that keeps its batches in order makes the trainer wait for one worker's batch
 * although another worker's batch is ready. The sign is more than one message from the workers in one next():
 * only the last message was the batch that was due. So from the first message on, the trainer waited only
 * because of the order. While early batches are left over, all of each later wait counts, too.
 *
 * A step that reads no message takes one of the batches left over.
 */

#include "analyzer/roles/roles.h"
#include "analyzer/waits/waits.h"
#include "analyzer/waits/window.h"

/* Returns the ns of head-of-line waits within the window; 0 without worker processes. */
uint64_t head_of_line_ns(const struct roles *roles, const struct data_waits *waits,
			 const struct window *window);
