/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Paths of files and folders, from a recording's metadata. */

#include <stddef.h>

struct analysis_path;
struct recording;

struct recording_paths {
	struct analysis_path *items;
	size_t n, n_allocated;
};

/* Like recording_paths_add(), for a long-lived list: an inode is in the list once, with its newest path. If
 * the list is full (max entries, at least 2), the oldest entries are removed. -ENOMEM. */
int recording_paths_update(struct recording_paths *paths, const void *data, size_t size, size_t max);

/* Loads all paths. -ENOMEM. Free *paths in any case. */
int recording_paths_load(struct recording *recording, struct recording_paths *paths);
void recording_paths_free(struct recording_paths *paths);
