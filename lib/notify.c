/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/fd_message.h"
#include "lib/units.h"

/* Connects a socket to the manager's. Returns 1, 0 without a manager, or -errno. */
static int connect_manager(int *ret_fd)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const char *path = getenv("NOTIFY_SOCKET");
	_cleanup_(closep) int fd = -EBADF;
	size_t length;

	if (!path || !*path)
		return 0;
	length = strlen(path);
	if ((path[0] != '/' && path[0] != '@') || length >= sizeof(address.sun_path))
		return -EINVAL;
	memcpy(address.sun_path, path, length);
	if (path[0] == '@') /* a name in the abstract namespace */
		address.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&address,
		    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length)) < 0)
		return -errno;
	*ret_fd = steal_fd(&fd);
	return 1;
}

int notify_send(const char *state)
{
	_cleanup_(closep) int manager = -EBADF;
	int r = connect_manager(&manager);

	return r > 0 ? fd_message_send(manager, state, strlen(state), NULL, 0, 0) : r;
}

int notify_send_fd(const char *state, int fd)
{
	_cleanup_(closep) int manager = -EBADF;
	int r = connect_manager(&manager);

	if (r > 0)
		r = fd_message_send(manager, state, strlen(state), &fd, fd >= 0, MSG_DONTWAIT);
	/* Too many messages or descriptors are in flight: a temporary condition. */
	return r == -ENOBUFS || r == -ETOOMANYREFS ? -EAGAIN : r;
}

uint64_t notify_watchdog_us(void)
{
	const char *period = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
	int64_t us, wanted;

	if (!period || units_parse_integer(period, 1, INT64_MAX, &us))
		return 0;
	if (pid && (units_parse_integer(pid, 1, INT64_MAX, &wanted) || wanted != getpid()))
		return 0;
	return (uint64_t)us;
}
