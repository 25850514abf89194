/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A job of which no step is seen (JAX, NumPy) that another thread of the trainer's process feeds: the thread
 * reads files, wakes the trainer, reads, wakes, ... Such a hand-over is a sleep of the trainer that the
 * thread ends after having read data since the last one. Hand-overs have to go on as long as the trainer
 * does: a thread that compiles or imports does so only for a while.
 */

#include "roles.h"
#include "analyzer/timeline/timeline.h"

/* Does the thread feed the trainer? roles has trainer and gil. */
bool handovers_go_on(const struct timeline *timeline, const struct roles *roles,
		     const struct timeline_thread *thread);
