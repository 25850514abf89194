/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Loads a recording's metadata for an analysis: paths of files, the GPU driver, named ranges, stacks. Damaged
 * entries are left out. */

#include <stddef.h>

#include "analyzer/gpu.h"
#include "analyzer/phases.h"
#include "analyzer/profile.h"
#include "bpf/gpu.h"

struct analysis_path;
struct recording;

struct recording_paths {
	struct analysis_path *items;
	size_t n, n_allocated;
};

/* Adds the path of an entry to a long-lived list: an inode is in the list once, with its newest path. If the
 * list is full (max entries, at least 2), the oldest entries are removed. -ENOMEM. */
int recording_paths_update(struct recording_paths *paths, const void *data, size_t size, size_t max);

/* Loads all paths. -ENOMEM. Free *paths in any case. */
int recording_paths_load(struct recording *recording, struct recording_paths *paths);
void recording_paths_free(struct recording_paths *paths);

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

/* Loads the metadata. -ENOMEM. */
int recording_gpu_load(struct recording *recording, struct recording_gpu *ret_gpu);
void recording_gpu_free(struct recording_gpu *gpu);

struct recording_profile {
	struct profile_metadata metadata;
	struct profile_frame *frames;
	struct profile_trace *traces;
	size_t n_frames_allocated, n_traces_allocated;
};

/* Loads the metadata. -ENOMEM. Free *profile in any case. */
int recording_profile_load(struct recording *recording, struct recording_profile *profile);
void recording_profile_free(struct recording_profile *profile);
