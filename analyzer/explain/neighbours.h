/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The parts of cpu_starved in which a thread outside the job had the trainer's core, or one of the job. */

#include <stdint.h>

struct study;

/* Finds the ns of the trainer's steps in which it was runnable outside of data waits, checkpoints and
 * compiling, and its next core had been running a thread outside the job. -ENOMEM. */
int neighbours_find(const struct study *study, uint64_t *ret_ns);

/* Finds the rest of these ns, as far as another thread of the job was on a core: more cannot be its doing.
 * -ENOMEM. */
int neighbours_find_own(const struct study *study, uint64_t *ret_ns);
