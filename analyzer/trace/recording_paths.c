/* SPDX-License-Identifier: Apache-2.0 */
#include "recording_paths.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analyzer/input.h"
#include "analyzer/recording.h"
#include "bpf/event.h"
#include "lib/array.h"

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

/* Adds the path in a metadata entry of kind METADATA_PATH; ignores a damaged entry. -ENOMEM. */
static int recording_paths_add(struct recording_paths *paths, const void *data, size_t size)
{
	return size < sizeof(struct places_path) ? 0 : append(paths, data, size);
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
	(void)key;
	return recording_paths_add(user, data, size);
}

int recording_paths_load(struct recording *recording, struct recording_paths *paths)
{
	return recording_each(recording, METADATA_PATH, path_add, paths);
}
