/* SPDX-License-Identifier: Apache-2.0 */
#include "session_paths.h"

#include "analyzer/session.h"
#include "bpf/event.h"

static int path_add(void *user, uint64_t key, const void *data, size_t size)
{
	(void)key;
	return session_paths_add(user, data, size);
}

int session_paths_load(struct session *session, struct session_paths *paths)
{
	return session_each(session, PLACES_NOTE, path_add, paths);
}
