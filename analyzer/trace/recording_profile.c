/* SPDX-License-Identifier: Apache-2.0 */
#include "recording_profile.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "analyzer/recording.h"
#include "bpf/metadata.h"
#include "lib/array.h"
#include "lib/sorted.h"

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
