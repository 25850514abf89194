/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A job of which no step is seen (JAX, NumPy) that another thread of the trainer's process feeds: the thread
 * reads files, wakes the trainer, reads, wakes, ... Such a hand-over is a sleep of the trainer that the
 * thread ends after having read data since the last one. It has to go on as long as the trainer does: a
 * thread that compiles or imports does so for a while only.
 */

#include "roles.h"
#include "timeline.h"
#include "waits.h"

/* Does the thread feed the trainer? roles has trainer and gil. */
bool handovers_go_on(const struct timeline *timeline, const struct roles *roles,
		     const struct timeline_thread *thread);

/* When a batch was handed over, ascending, by the waits of such a job; ret_times has room for one each. The
 * short ones among them are for a lock. */
size_t handovers_times(const struct data_waits *waits, uint64_t *ret_times);
