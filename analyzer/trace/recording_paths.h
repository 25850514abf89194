/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The paths of files and folders, from a recording's notes. */

#include <stddef.h>

struct analysis_path;
struct recording;

struct recording_paths {
	struct analysis_path *items;
	size_t n, n_allocated;
};

/* Adds the path in a note of kind PLACES_NOTE; a damaged note is ignored. -ENOMEM. */
int recording_paths_add(struct recording_paths *paths, const void *data, size_t size);
/* As that, for a list that lives on: an inode is in it once, with its newest path, and where there would be
 * more than max (at least 2) the oldest go. -ENOMEM. */
int recording_paths_update(struct recording_paths *paths, const void *data, size_t size, size_t max);

/* -ENOMEM. Free in any case. */
int recording_paths_load(struct recording *recording, struct recording_paths *paths);
void recording_paths_free(struct recording_paths *paths);
