/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Who had the trainer's core: of cpu_starved, what went to threads that are not of the job. */

#include <stdint.h>

struct study;

/* ns of the trainer's steps in which it was runnable outside of data waits and checkpoints, and the core that
 * it got in the end had been running somebody else's thread. -ENOMEM. */
int neighbours_find(const struct study *study, uint64_t *ret_ns);
