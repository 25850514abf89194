/* SPDX-License-Identifier: Apache-2.0 */
#include "recording_metadata.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyzer/input.h"
#include "analyzer/recording.h"
#include "bpf/event.h"
#include "bpf/gpu.h"
#include "bpf/metadata.h"
#include "bpf/phase.h"
#include "lib/array.h"
#include "lib/sorted.h"

static void path_free(struct analysis_path *path)
{
	free((char *)(uintptr_t)path->path);
}

static int append(struct recording_paths *paths, const void *data, size_t size)
{
	struct places_path head;
	char *path;

	if (array_reserve(paths->items, paths->n, paths->n_allocated) < 0)
		return -ENOMEM;
	memcpy(&head, data, sizeof(head));
	path = strndup((const char *)data + sizeof(head), size - sizeof(head));
	if (!path)
		return -ENOMEM;
	paths->items[paths->n++] = (struct analysis_path){head.inode, head.device, head.folder != 0, path};
	return 0;
}

static void drop_oldest(struct recording_paths *paths, size_t n)
{
	for (size_t i = 0; i < n; i++)
		path_free(&paths->items[i]);
	paths->n -= n;
	memmove(paths->items, paths->items + n, paths->n * sizeof(*paths->items));
}

int recording_paths_update(struct recording_paths *paths, const void *data, size_t size, size_t max)
{
	struct analysis_path *added;
	int r;

	if (size < sizeof(struct places_path))
		return 0;
	if (paths->n >= max) /* removes half, because each removal moves all other items */
		drop_oldest(paths, paths->n - max / 2);
	r = append(paths, data, size);
	if (r < 0)
		return r;
	added = &paths->items[paths->n - 1];
	for (size_t i = 0; i + 1 < paths->n; i++) {
		if (paths->items[i].inode != added->inode || paths->items[i].device != added->device)
			continue;
		path_free(&paths->items[i]); /* the file was renamed, or its inode number was reused */
		paths->items[i] = *added;
		paths->n--;
		break;
	}
	return 0;
}

void recording_paths_free(struct recording_paths *paths)
{
	for (size_t i = 0; i < paths->n; i++)
		path_free(&paths->items[i]);
	free(paths->items);
	*paths = (struct recording_paths){0};
}

static int path_add(void *user, uint64_t key, const void *data, size_t size)
{
	return size < sizeof(struct places_path) ? 0 : append(user, data, size);
}

int recording_paths_load(struct recording *recording, struct recording_paths *paths)
{
	return recording_each(recording, METADATA_PATH, path_add, paths);
}

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

/* Copies a frame: a byte and two texts with their NULs. The frame owns the copy, and `library` points
 * behind the byte. */
static int visit_frame(void *user, uint64_t key, const void *data, size_t size)
{
	struct recording_profile *profile = user;
	size_t n = profile->metadata.n_frames, library;
	const char *bytes = data;
	char *copy;

	if (size < 3 || size > METADATA_FRAME_BYTES_MAX || bytes[size - 1] ||
	    (unsigned char)bytes[0] > FRAME_GENERATOR)
		return 0;
	library = strlen(bytes + 1);
	if (2 + library >= size)
		return 0;
	if (array_reserve(profile->frames, n, profile->n_frames_allocated) < 0)
		return -ENOMEM;
	copy = malloc(size);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, data, size);
	profile->frames[n] = (struct profile_frame){
	    .key = key, .kind = (uint8_t)copy[0], .library = copy + 1, .function = copy + 2 + library};
	profile->metadata.n_frames++;
	return 0;
}

static int visit_trace(void *user, uint64_t key, const void *data, size_t size)
{
	struct recording_profile *profile = user;
	size_t n = profile->metadata.n_traces;
	uint64_t *frames;

	if (!size || size % sizeof(*frames) || size / sizeof(*frames) > METADATA_STACK_FRAMES_MAX)
		return 0;
	if (array_reserve(profile->traces, n, profile->n_traces_allocated) < 0)
		return -ENOMEM;
	frames = malloc(size);
	if (!frames)
		return -ENOMEM;
	memcpy(frames, data, size);
	profile->traces[n] = (struct profile_trace){key, frames, size / sizeof(*frames)};
	profile->metadata.n_traces++;
	return 0;
}

/* Loads the profile. SQLite sorts the entries by key, but as signed numbers, so this sorts them again. */
int recording_profile_load(struct recording *recording, struct recording_profile *profile)
{
	struct profile_metadata *metadata = &profile->metadata;
	uint64_t rate_hz;
	int r = recording_each(recording, METADATA_FRAME, visit_frame, profile);

	if (r == 0)
		r = recording_each(recording, METADATA_STACK, visit_trace, profile);
	if (r < 0)
		return r;
	if (metadata->n_frames)
		qsort(profile->frames, metadata->n_frames, sizeof(*profile->frames), compare_u64);
	if (metadata->n_traces)
		qsort(profile->traces, metadata->n_traces, sizeof(*profile->traces), compare_u64);
	metadata->frames = profile->frames;
	metadata->traces = profile->traces;
	if (recording_get_u64(recording, RECORDING_PROFILE_HZ, &rate_hz) == 0)
		metadata->rate_hz = (double)rate_hz;
	return 0;
}

void recording_profile_free(struct recording_profile *profile)
{
	/* A frame's texts are one block of memory that begins one byte before `library`. */
	for (size_t i = 0; i < profile->metadata.n_frames; i++)
		free((char *)(uintptr_t)profile->frames[i].library - 1);
	for (size_t i = 0; i < profile->metadata.n_traces; i++)
		free((uint64_t *)(uintptr_t)profile->traces[i].frames);
	free(profile->frames);
	free(profile->traces);
	*profile = (struct recording_profile){0};
}
