/* SPDX-License-Identifier: Apache-2.0 */
#include "child.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "lib/cleanup.h"
#include "lib/kernel_calls.h"

static void ignore_signals(void)
{
	static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGQUIT};

	/* A terminal and a service manager signal all processes: the daemon decides, and the child ends when
	 * it does. */
	for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
		signal(ignored[i], SIG_IGN);
}

pid_t child_fork(const char *what, void (*run)(int fd), int *ret_fd, struct error *err)
{
	_cleanup_(closep) int ours = -EBADF, theirs = -EBADF;
	int fds[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return error_errno(err, -errno, "cannot make a socket to %s", what);
	ours = fds[0];
	theirs = fds[1];
	pid = fork();
	if (pid < 0)
		return error_errno(err, -errno, "cannot fork %s", what);
	if (pid == 0) {
		if (dup2(theirs, CHILD_FD) < 0 || kernel_close_range(CHILD_FD + 1, UINT32_MAX) < 0)
			_exit(1);
		ignore_signals();
		run(CHILD_FD);
		_exit(0);
	}
	*ret_fd = steal_fd(&ours);
	return pid;
}
