/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Loads a recording's metadata about the GPU driver and about named ranges, for an analysis. */

#include <stddef.h>

#include "analyzer/gpu.h"
#include "analyzer/phases.h"
#include "bpf/gpu.h"

struct recording;

/* Metadata entry with one GPU utilization from NVML. Key: CLOCK_MONOTONIC ns; value: a double, 0 to 1. */
#define RECORDING_METADATA_GPU_SAMPLE "gpu.utilization"

struct recording_gpu {
	char library[256];        /* paths of the probed libraries, separated by ", "; "": none */
	struct gpu_probes probes; /* sums over the probed libraries */
	struct gpu_sample *samples;
	size_t n_samples, n_allocated;
	struct phase_label *labels;
	size_t n_labels, n_labels_allocated;
};

/* Loads the metadata; skips damaged entries. -ENOMEM. */
int recording_gpu_load(struct recording *recording, struct recording_gpu *ret_gpu);
void recording_gpu_free(struct recording_gpu *gpu);
