/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Detects a thread of the trainer's process that feeds the trainer, in a job whose steps are not seen (JAX,
 * NumPy): the thread reads files, wakes the trainer, reads, wakes, ... A hand-over is a sleep of the trainer
 * that the thread ends after reading data since the last hand-over. Hand-overs must continue as long as the
 * trainer runs: a thread that compiles or imports does so only for a while.
 */

#include "roles.h"
#include "analyzer/timeline/timeline.h"

/* Returns true if the thread feeds the trainer. roles must have trainer and gil. */
bool handovers_go_on(const struct timeline *timeline, const struct roles *roles,
		     const struct timeline_thread *thread);
