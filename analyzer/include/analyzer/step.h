/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "analyzer/share.h"

#define ANALYSIS_STEPS_MIN 5 /* fewest steps from which a job can be judged */

/* The events that were counted as steps. */
enum analysis_counted {
	COUNTED_NONE,     /* steps were only estimated, or none was seen */
	COUNTED_BACKWARD, /* backward passes of PyTorch */
	COUNTED_BATCHES,  /* batches that a loader handed over, as marks and probes say */
	COUNTED_WAITS,    /* the trainer's waits for data: about as many as steps */
	COUNTED_LAUNCHES, /* bursts of launches on the device: about as many as steps */
};

struct analysis_step {
	uint64_t begin_ns, end_ns;
	uint64_t backward_ns; /* start of the backward pass */
	uint64_t share_ns[SHARE_COUNT];
	bool complete; /* no record was lost while it ran */
	bool excluded; /* excluded from figures about steps: compiles, or follows a validation pass */
};
