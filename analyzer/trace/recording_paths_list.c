/* SPDX-License-Identifier: Apache-2.0 */
/* Apart from recording_paths.c, so that live analyses need no recording database. */
#include "recording_paths.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analyzer/input.h"
#include "bpf/event.h"
#include "lib/array.h"

int recording_paths_add(struct recording_paths *paths, const void *data, size_t size)
{
	struct places_path head;
	char *path;

	if (size < sizeof(head)) /* damaged */
		return 0;
	if (array_room(paths->items, paths->n, paths->n_allocated) < 0)
		return -ENOMEM;
	memcpy(&head, data, sizeof(head));
	path = strndup((const char *)data + sizeof(head), size - sizeof(head));
	if (!path)
		return -ENOMEM;
	paths->items[paths->n++] = (struct analysis_path){head.inode, head.device, head.folder != 0, path};
	return 0;
}

void recording_paths_free(struct recording_paths *paths)
{
	for (size_t i = 0; i < paths->n; i++)
		free((char *)(uintptr_t)paths->items[i].path);
	free(paths->items);
	*paths = (struct recording_paths){0};
}
