/* SPDX-License-Identifier: Apache-2.0 */
#include "peer.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/kernel_calls.h"

#ifndef SO_PEERPIDFD /* Linux 6.5; older C libraries lack the name */
#define SO_PEERPIDFD 77
#endif

/* Opens the peer by its pid. If the peer died since it connected, the pid may now belong to another
 * process: then the peer counts as alive as long as that process. */
static int by_number(int socket)
{
	struct ucred peer = {.pid = 0};
	socklen_t size = sizeof(peer);
	int fd;

	if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
		return -errno;
	if (peer.pid <= 0)
		return -EOPNOTSUPP;
	fd = kernel_pidfd_open(peer.pid);
	return fd < 0 ? -errno : fd;
}

int peer_process(int socket)
{
	socklen_t size = sizeof(int);
	int fd;

	if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &fd, &size) == 0)
		return fd;
	return errno == ENOPROTOOPT ? by_number(socket) : -errno;
}
