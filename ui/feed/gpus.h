/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the machine's GPUs are doing, from NVML. The first look opens NVML; if it is missing then, it is not
 * tried again. */

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct nvml;
struct nvml_gpu;
struct top_sample;

struct gpus {
	struct nvml *nvml; /* NULL: not yet opened, or see problem */
	bool is_tried;
	char problem[160];
};

/* Adds the GPUs. job_of() names the job that a process belongs to, or returns NULL. Without NVML there are
 * none, and sample->host.gpus says why. -ENOMEM. */
int gpus_look(struct gpus *gpus, const char *(*job_of)(void *user, pid_t pid), void *user,
	      struct top_sample *sample);
void gpus_free(struct gpus *gpus);
