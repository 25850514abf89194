/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Closes clients' sockets. Closing a socket also drops its unread messages and closes the descriptors in
 * them, which may be the last ones of their files. Closing a file can block for as long as its owner likes: a
 * TCP socket lingers, FUSE waits for its server. So a socket with unread messages goes to a helper
 * (fork_server.h), which gathers sockets until none comes for a second, and exits. An exiting process does
 * not linger, and if it hangs nevertheless, nobody waits for it.
 *
 * Loop thread only.
 */

#include "fork_server.h"

struct closer {
	const struct fork_server *fork_server; /* borrowed */
	int fd;                                /* socket of the helper that gathers sockets; negative: none */
};

void closer_init(struct closer *c, const struct fork_server *fork_server);
void closer_free(struct closer *c);

/* Takes ownership of the socket. The peer sees its end at once, after the data already sent. Does not
 * block. */
void closer_close(struct closer *c, int socket);

/* Runs the helper. Returns its exit status. */
int closer_run(int socket);
