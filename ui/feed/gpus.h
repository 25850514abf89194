/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the machine's GPUs do, from NVML, which is opened by the first look and never again where it is
 * missing: a driver that comes later wants a new diesel-top. */

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct nvml;
struct nvml_gpu;
struct sample;

struct gpus {
	struct nvml *nvml; /* NULL: not yet opened, or see problem */
	bool is_tried;
	char problem[160];
};

/* Adds them; job_of: a name for the job that a process belongs to, NULL: none. -ENOMEM; without NVML there
 * are none, and sample->host.gpus says why. */
int gpus_look(struct gpus *gpus, const char *(*job_of)(void *user, pid_t pid), void *user,
	      struct sample *sample);
void gpus_free(struct gpus *gpus);

/* One of them, as gpus_look() adds it. */
int gpus_add(const struct nvml_gpu *gpu, size_t index, const char *(*job_of)(void *user, pid_t pid),
	     void *user, struct sample *sample);
