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

/* -ENOMEM. Free in any case. */
int session_paths_load(struct session *session, struct session_paths *paths);
void session_paths_free(struct session_paths *paths);
