/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Event loop on the test's own thread. */

#include "support.h"

#include <uv.h>

/* Runs the loop until the condition holds, also if nothing else keeps the loop alive. The test fails after a
 * minute. That is a bound, not an expectation. */
void loop_until(uv_loop_t *loop, bool (*holds)(void *user), void *user);
/* Runs the loop until the count is exactly the wanted one. */
void loop_until_count(uv_loop_t *loop, const uint32_t *count, uint32_t wanted);
/* Runs the rest of the loop's work, and closes it. The test fails if a handle stayed open. */
void loop_end(uv_loop_t *loop);
