/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The part of cpu_starved in which a thread outside the job had the trainer's core. */

#include <stdint.h>

struct study;

/* Finds the ns of the trainer's steps in which it was runnable outside of data waits, checkpoints and
 * compiling, and its next core had been running a thread outside the job. -ENOMEM. */
int neighbours_find(const struct study *study, uint64_t *ret_ns);
