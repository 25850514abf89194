/* SPDX-License-Identifier: Apache-2.0 */
#include "recording_paths.h"

#include "analyzer/recording.h"
#include "bpf/event.h"

static int path_add(void *user, uint64_t key, const void *data, size_t size)
{
	(void)key;
	return recording_paths_add(user, data, size);
}

int recording_paths_load(struct recording *recording, struct recording_paths *paths)
{
	return recording_each(recording, METADATA_PATH, path_add, paths);
}
