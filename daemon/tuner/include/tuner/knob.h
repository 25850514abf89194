/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The values of a job's knobs. client/knob.h says what each knob is. Plain data: stored as it is. */

#include "client/knob.h"

struct tuner_knobs {
	uint64_t value[TUNER_N_KNOBS]; /* indexed by enum tuner_knob */
};

/* The values of knobs that nobody has set. */
static inline struct tuner_knobs tuner_knobs_free(void)
{
	struct tuner_knobs knobs;

	for (int i = 0; i < TUNER_N_KNOBS; i++)
		knobs.value[i] = tuner_knob_table[i].free;
	return knobs;
}
