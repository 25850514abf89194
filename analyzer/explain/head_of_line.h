/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Head-of-line waits: a loader that keeps its batches in order makes the trainer wait for one worker's batch
 * while another worker's is there already. Seen from outside, more than one message is read from the workers
 * in one next(). All but the last were not the one that was due, so from the first of them on the trainer
 * waited only for the order's sake. As long as such batches are left, all of each wait that follows counts as
 * well.
 *
 * A step that reads no message takes one of the batches that are left.
 */

#include "analyzer/roles/roles.h"
#include "analyzer/waits/waits.h"
#include "analyzer/waits/window.h"

/* ns of such waits within the window; 0 without worker processes. */
uint64_t head_of_line_ns(const struct roles *roles, const struct data_waits *waits,
			 const struct window *window);
