/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Reads the activity of the machine's GPUs from NVML. The first call of gpus_sample() opens NVML; if that
 * fails, later calls do not try again. */

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct nvml;
struct nvml_gpu;
struct top_sample;

struct gpus {
	struct nvml *nvml; /* NULL: not opened yet, or cannot be opened (see `problem`) */
	bool is_tried;
	char problem[160];
};

/* Adds the GPUs to the sample. job_of() returns the name of the job that a process belongs to, or NULL.
 * Without NVML no GPU is added, and sample->host.gpus says why. -ENOMEM. */
int gpus_sample(struct gpus *gpus, const char *(*job_of)(void *user, pid_t pid), void *user,
		struct top_sample *sample);
void gpus_free(struct gpus *gpus);
