/* SPDX-License-Identifier: Apache-2.0 */
#include "recording_gpu.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyzer/recording.h"
#include "bpf/gpu.h"
#include "bpf/phase.h"
#include "lib/array.h"

static int visit_library(void *user, uint64_t key, const void *data, size_t size)
{
	struct recording_gpu *gpu = user;
	size_t at = strlen(gpu->library);

	snprintf(gpu->library + at, sizeof(gpu->library) - at, "%s%.*s", at ? ", " : "", (int)size,
		 size ? (const char *)data : "");
	return 0;
}

static int visit_probes(void *user, uint64_t key, const void *data, size_t size)
{
	struct gpu_probes *sum = &((struct recording_gpu *)user)->probes, probes;

	if (size != sizeof(probes))
		return 0;
	memcpy(&probes, data, size);
	sum->n_probed += probes.n_probed;
	sum->n_expensive += probes.n_expensive;
	sum->n_missing += probes.n_missing;
	sum->n_refused += probes.n_refused;
	if (!sum->launches_until_ns)
		sum->launches_until_ns = probes.launches_until_ns;
	return 0;
}

static int visit_sample(void *user, uint64_t key, const void *data, size_t size)
{
	struct recording_gpu *gpu = user;
	struct gpu_sample sample = {.at_ns = key};

	if (size != sizeof(sample.utilization))
		return 0;
	memcpy(&sample.utilization, data, size);
	if (!(sample.utilization >= 0 && sample.utilization <= 1))
		return 0;
	if (array_reserve(gpu->samples, gpu->n_samples, gpu->n_allocated) < 0)
		return -ENOMEM;
	gpu->samples[gpu->n_samples++] = sample;
	return 0;
}

static int visit_label(void *user, uint64_t key, const void *data, size_t size)
{
	struct recording_gpu *gpu = user;
	struct phase_label label = {.key = key};

	if (!size || size >= sizeof(label.name))
		return 0;
	memcpy(label.name, data, size);
	if (array_reserve(gpu->labels, gpu->n_labels, gpu->n_labels_allocated) < 0)
		return -ENOMEM;
	gpu->labels[gpu->n_labels++] = label;
	return 0;
}

int recording_gpu_load(struct recording *recording, struct recording_gpu *ret_gpu)
{
	struct recording_gpu gpu = {0};
	int r = recording_each(recording, GPU_METADATA_LIBRARY, visit_library, &gpu);

	if (r == 0)
		r = recording_each(recording, GPU_METADATA_PROBES, visit_probes, &gpu);
	if (r == 0)
		r = recording_each(recording, RECORDING_METADATA_GPU_SAMPLE, visit_sample, &gpu);
	if (r == 0)
		r = recording_each(recording, PHASE_METADATA, visit_label, &gpu);
	if (r < 0) {
		recording_gpu_free(&gpu);
		return r;
	}
	*ret_gpu = gpu;
	return 0;
}

void recording_gpu_free(struct recording_gpu *gpu)
{
	free(gpu->samples);
	free(gpu->labels);
	*gpu = (struct recording_gpu){0};
}
