/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The paths of files and folders that a session's notes tell. */

#include <stddef.h>

struct analysis_path;
struct session;

struct session_paths {
	struct analysis_path *items;
	size_t n, n_allocated;
};

/* One more, from a note of kind PLACES_NOTE; a damaged one is ignored. -ENOMEM. */
int session_paths_add(struct session_paths *paths, const void *data, size_t size);

/* -ENOMEM. Free in any case. */
int session_paths_load(struct session *session, struct session_paths *paths);
void session_paths_free(struct session_paths *paths);
