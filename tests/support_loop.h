/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* An event loop on the test's own thread. */

#include "support.h"

#include <uv.h>

/* Runs the loop until it holds, also where nothing else keeps the loop alive. The test fails after a minute:
 * a bound, not an expectation. */
void loop_until(uv_loop_t *loop, bool (*holds)(void *user), void *user);
/* Until the count is what was wanted, and no more than that. */
void loop_until_count(uv_loop_t *loop, const uint32_t *count, uint32_t wanted);
/* Runs what is left in it, and closes it: the test fails where a handle stayed open. */
void loop_end(uv_loop_t *loop);
