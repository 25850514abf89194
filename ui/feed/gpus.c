/* SPDX-License-Identifier: Apache-2.0 */
#include "gpus.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyzer/nvml.h"
#include "lib/cleanup.h"
#include "lib/error.h"
#include "ui/state/sample.h"

#define GPUS_MAX 64

/* Adds a name to a list such as "train.py, eval.py": each name once, as many as fit. */
static void add_name(char *names, size_t size, const char *name)
{
	size_t n = strlen(names), length = strlen(name);

	for (const char *at = names; (at = strstr(at, name)); at += length)
		if ((at == names || at[-1] == ' ') && (at[length] == ',' || !at[length]))
			return;
	if (n + length + 3 <= size)
		snprintf(names + n, size - n, "%s%s", n ? ", " : "", name);
}

/* Adds one GPU, as gpus_sample() does. */
static int gpus_add(const struct nvml_gpu *gpu, size_t index, const char *(*job_of)(void *user, pid_t pid),
		    void *user, struct top_sample *sample)
{
	struct gpu_sample_row *to = sample_add(sample, SAMPLE_GPUS);

	if (!to)
		return -ENOMEM;
	snprintf(to->name, sizeof(to->name), "%.47s", gpu->name);
	to->index = index;
	to->busy_ratio = gpu->busy_ratio;
	to->memory_used_bytes = gpu->memory_used_bytes;
	to->memory_bytes = gpu->memory_bytes;
	to->power_w = gpu->power_w;
	to->n_processes = gpu->n_pids;
	for (size_t i = 0; i < gpu->n_pids; i++) {
		const char *name = job_of(user, gpu->pids[i]);

		if (name)
			add_name(to->jobs, sizeof(to->jobs), name);
	}
	return 0;
}

int gpus_sample(struct gpus *gpus, const char *(*job_of)(void *user, pid_t pid), void *user,
		struct top_sample *sample)
{
	_cleanup_(freep) struct nvml_gpu *found = NULL;
	struct error err = ERROR_INIT;
	size_t n;

	if (!gpus->is_tried && nvml_open(&gpus->nvml, &err))
		snprintf(gpus->problem, sizeof(gpus->problem), "%.159s", err.text);
	gpus->is_tried = true;
	if (!gpus->nvml) {
		snprintf(sample->host.gpus, sizeof(sample->host.gpus), "%s", gpus->problem);
		return 0;
	}
	found = calloc(GPUS_MAX, sizeof(*found));
	if (!found)
		return -ENOMEM;
	n = nvml_gpus(gpus->nvml, found, GPUS_MAX);
	if (!n)
		snprintf(sample->host.gpus, sizeof(sample->host.gpus), "NVML knows no GPU");
	for (size_t i = 0; i < n; i++)
		if (gpus_add(&found[i], i, job_of, user, sample))
			return -ENOMEM;
	return 0;
}

void gpus_free(struct gpus *gpus)
{
	gpus->nvml = nvml_close(gpus->nvml);
}
