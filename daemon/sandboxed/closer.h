/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Closes clients' sockets. Messages that nobody took go with their socket, and so do the descriptors in them,
 * which may be the last of their files. To let go of a file can block for as long as its owner likes: a TCP
 * socket lingers, FUSE waits for its server. So a socket with anything left in it goes to a helper
 * (fork_server.h), which gathers what comes within a second and ends: a process that is ending does not
 * linger, and one that hangs all the same hangs alone.
 *
 * Loop thread only.
 */

#include "fork_server.h"

struct closer {
	const struct fork_server *fork_server; /* borrowed */
	int fd;                                /* to the helper that gathers; negative: there is none */
};

void closer_init(struct closer *c, const struct fork_server *fork_server);
void closer_free(struct closer *c);

/* Takes the socket. Its peer sees the end at once, after what has been sent to it. Does not block. */
void closer_close(struct closer *c, int socket);

/* The helper. Returns its exit status. */
int closer_run(int socket);
