/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A session's notes about the GPU driver and about named ranges, for an analysis. */

#include <stddef.h>

#include "analyzer/gpu.h"
#include "analyzer/phases.h"
#include "bpf/gpu.h"

struct session;

/* One utilization by NVML; key: CLOCK_MONOTONIC ns, value: a double, 0 to 1. */
#define SESSION_NOTE_GPU_SAMPLE "gpu.utilization"

struct session_gpu {
	char library[256];        /* paths of what was probed, ", " between; "": none */
	struct gpu_probes probes; /* sums over them */
	struct gpu_sample *samples;
	size_t n_samples, n_allocated;
	struct phase_label *labels;
	size_t n_labels, n_labels_allocated;
};

/* -ENOMEM. Notes that are damaged are left out. */
int session_gpu_load(struct session *session, struct session_gpu *ret_gpu);
void session_gpu_free(struct session_gpu *gpu);
