/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The mount as the kernel knows it. No call here sends a request to the mount's server.
 *
 * A thread of the server that stores bytes in the page cache (FUSE's notify_store) sleeps, without being
 * killable, while a reader has locked the page. The reader sleeps until the server answers. If the server is
 * killed then, neither ends, nor does the connection, which that thread keeps open. Only an abort helps.
 */

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct mount_connection {
	char where[PATH_MAX];
	uint64_t id;    /* of the mount; 0: not known */
	uint32_t minor; /* the kernel's number of the connection */
};

/* where: an absolute path. */
void connection_find(const char *where, struct mount_connection *ret);
/* Returns true if the mount is still there. The id ensures that it is no other mount at this path. */
bool connection_is_mounted(const struct mount_connection *connection);
/* Lets all requests fail, now and from now on. Does nothing if the mount is no longer there. */
void connection_abort(const struct mount_connection *connection);
