/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the analysis of a whole recording says of one stretch of it: for those who want to see how a job went
 * on, like the tuner, which looks at each second. Needs an analysis with lanes (analysis_input:
 * n_lane_segments_max). Pure.
 */

#include <stddef.h>
#include <stdint.h>

#include "analyzer/analysis.h"

struct analysis_stretch {
	/* The trainer's time, by share; sums to known_ns. What lies in a gap of the recording is not known.
	 */
	uint64_t share_ns[SHARE_COUNT];
	uint64_t known_ns;
	uint64_t gpu_wait_ns; /* part of SHARE_DEVICE */
	double n_steps;       /* that ended in it; of a sampled recording, in proportion to its length */
	double step_p50_s, step_p95_s; /* of these steps; NAN: none */

	/* Worker processes and the threads that hand their batches over; thread-time. */
	uint32_t n_workers; /* processes that were seen */
	size_t n_batches;   /* prepared to the end */
	uint64_t worker_cpu_ns, worker_fetch_ns;
	uint64_t queue_ns; /* of all threads that have a lane: runnable without a core */
};

/* All zero (steps NAN) where the analysis has no lanes, or nothing is known of that time. */
struct analysis_stretch analysis_stretch(const struct analysis *analysis, uint64_t begin_ns, uint64_t end_ns);
