/* SPDX-License-Identifier: Apache-2.0 */
#include "closer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/helpers/message.h"
#include "lib/cleanup.h"
#include "lib/fd_message.h"
#include "lib/kernel_calls.h"

#define QUIET_MS   1000
#define GATHER_MAX 512

void closer_init(struct closer *c, const struct fork_server *fork_server)
{
	*c = (struct closer){.fork_server = fork_server, .fd = -EBADF};
}

void closer_free(struct closer *c)
{
	closep(&c->fd);
	c->fd = -EBADF;
}

/* Returns true if a socket that has been shut down may have unread messages. The end looks like an empty
 * message, but only messages come with credentials. */
static bool may_have_messages(int socket)
{
	union {
		char buffer[CMSG_SPACE(sizeof(struct ucred))];
		struct cmsghdr align;
	} control;
	struct msghdr header = {.msg_control = control.buffer, .msg_controllen = sizeof(control.buffer)};

	if (setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &(int){1}, sizeof(int)) < 0)
		return true;
	if (recvmsg(socket, &header, MSG_PEEK | MSG_DONTWAIT) < 0)
		return errno != EAGAIN;
	return header.msg_controllen > 0 || header.msg_flags & MSG_CTRUNC;
}

static int hand_over(struct closer *c, int socket)
{
	const char work = 0;
	int r = c->fd < 0 ? -EPIPE : fd_message_send(c->fd, &work, sizeof(work), &socket, 1, MSG_DONTWAIT);

	if (r == 0)
		return 0;
	/* The current helper has ended or is full: start a new one. */
	closep(&c->fd);
	c->fd = -EBADF;
	return fork_server_start_with(c->fork_server, HELPER_CLOSER, &work, sizeof(work), &socket, 1, &c->fd);
}

/* Closes all but the standard descriptors and these two. */
static void keep_only(int a, int b)
{
	unsigned low = (unsigned)(a < b ? a : b), high = (unsigned)(a < b ? b : a);

	if (low > STDERR_FILENO + 1)
		(void)kernel_close_range(STDERR_FILENO + 1, low - 1);
	if (high > low + 1)
		(void)kernel_close_range(low + 1, high - 1);
	(void)kernel_close_range(high + 1, UINT32_MAX);
}

/* Leaves the last reference to an orphaned process, which exits when this one has closed its own. Linux
 * before 6.10 cannot send a socket that holds sockets nested four deep, so this is the fallback. It costs
 * copying this process's page tables. */
static void close_in_child(int socket)
{
	int hold[2] = {-EBADF, -EBADF};
	pid_t pid = pipe2(hold, O_CLOEXEC) < 0 ? -1 : fork();
	char none;

	if (pid == 0) {
		keep_only(socket, hold[0]);
		if (fork() == 0)
			(void)!read(hold[0], &none, 1);
		_exit(0);
	}
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		continue;
	close(socket);
	closep(&hold[0]);
	closep(&hold[1]);
}

void closer_close(struct closer *c, int socket)
{
	shutdown(socket, SHUT_RDWR);
	if (may_have_messages(socket) && hand_over(c, socket) < 0)
		close_in_child(socket);
	else
		close(socket);
}

int closer_run(int socket)
{
	struct pollfd poll_fd = {.fd = socket, .events = POLLIN};

	/* Received sockets stay open: the exit of this process closes them. */
	for (int i = 0; i < GATHER_MAX && poll(&poll_fd, 1, QUIET_MS) > 0; i++) {
		char work;
		int fd;

		if (message_receive(socket, &work, sizeof(work), MSG_DONTWAIT, &fd, 1) < 0)
			break;
	}
	return 0;
}
