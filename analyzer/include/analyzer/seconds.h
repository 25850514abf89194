/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Extracts the figures of one interval from the analysis of a whole recording, to follow a job over time: for
 * the tuner, second by second. Needs an analysis with lanes (analysis_input: n_lane_segments_max). Pure.
 */

#include <stddef.h>
#include <stdint.h>

#include "analyzer/analysis.h"

struct analysis_interval {
	/* The trainer's time, by share; sums to known_ns. Time in a gap of the recording is not known. */
	uint64_t share_ns[SHARE_COUNT];
	uint64_t known_ns;
	uint64_t gpu_wait_ns; /* part of SHARE_DEVICE */
	double n_steps;       /* steps that ended in the interval; sampled: proportional to its length */
	double step_p50_s, step_p95_s; /* percentiles of these steps; NAN: none */

	/* Worker processes and the threads that hand their batches over; thread-time. */
	uint32_t n_workers; /* number of worker processes seen */
	size_t n_batches;   /* number of batches whose preparation ended */
	uint64_t worker_cpu_ns, worker_fetch_ns;
	uint64_t queue_ns; /* runnable without a core, summed over all threads that have a lane */
};

/* Returns the figures of [begin_ns, end_ns). All are 0 (step times NAN) if the analysis has no lanes, or
 * nothing is known of the interval. */
struct analysis_interval analysis_interval(const struct analysis *analysis, uint64_t begin_ns,
					   uint64_t end_ns);
