/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Head-of-line waits: a loader that keeps its batches in order lets the trainer wait for one worker's batch
 * while another worker's is there already. Seen from outside: in one next() more than one message is read
 * from the workers. All but the last were not the one that was due, so from the first of them on the wait was
 * for the order's sake; and as long as such batches lie there, so are the waits that follow, whole.
 *
 * A step that reads no message takes one of those that lie there.
 */

#include "roles.h"
#include "waits.h"
#include "window.h"

/* ns of the waits within the window. Also with workers only: else 0. */
uint64_t head_of_line_ns(const struct roles *roles, const struct data_waits *waits,
			 const struct window *window);
