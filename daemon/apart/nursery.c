/* SPDX-License-Identifier: Apache-2.0 */
#include "nursery.h"

#include <errno.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "child.h"
#include "closer.h"
#include "codec.h"
#include "lib/capabilities.h"
#include "lib/cleanup.h"
#include "lib/fd_message.h"
#include "lib/kernel_calls.h"
#include "opener.h"
#include "plugin.h"
#include "reader.h"
#include "stager.h"
#include "unpack.h"

#define HELPER_FD (CHILD_FD + 1)

/* Comes with one descriptor, the helper's end of its socket. */
struct order {
	uint32_t kind;
};

_Noreturn static void helper_run(enum nursery_kind kind)
{
	signal(SIGCHLD, SIG_DFL);
	switch (kind) {
	case NURSERY_READER_URING:
	case NURSERY_READER_THREADS:
		prctl(PR_SET_NAME, "dieseld-reader");
		_exit(reader_run(HELPER_FD, kind == NURSERY_READER_URING));
	case NURSERY_OPENER: prctl(PR_SET_NAME, "dieseld-opener"); _exit(opener_run(HELPER_FD));
	case NURSERY_CLOSER: prctl(PR_SET_NAME, "dieseld-closer"); _exit(closer_run(HELPER_FD));
	case NURSERY_CODEC: prctl(PR_SET_NAME, "dieseld-codec"); _exit(codec_run(HELPER_FD));
	case NURSERY_PLUGIN: prctl(PR_SET_NAME, "dieseld-plugin"); _exit(plugin_run(HELPER_FD));
	case NURSERY_STAGER: prctl(PR_SET_NAME, "dieseld-stager"); _exit(stager_run(HELPER_FD));
	case NURSERY_UNPACKER: prctl(PR_SET_NAME, "dieseld-unpack"); _exit(unpack_serve(HELPER_FD));
	case NURSERY_N_KINDS: break;
	}
	_exit(1);
}

/* Returns the next order's descriptor; negative: the daemon is gone. */
static int receive_order(int fd, struct order *ret)
{
	int fds[FD_MESSAGE_MAX_FDS];
	size_t n_fds;

	if (fd_message_receive(fd, ret, sizeof(*ret), 0, fds, &n_fds) != sizeof(*ret) || n_fds != 1)
		return -ECONNRESET;
	return fds[0];
}

static void nursery_run(int fd)
{
	const struct sigaction no_children = {.sa_handler = SIG_IGN, .sa_flags = SA_NOCLDWAIT};
	struct order order;
	int theirs;

	prctl(PR_SET_NAME, "dieseld-nursery");
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	/* Keeps only what it takes to read datasets of any owner. */
	(void)capabilities_keep(CAPABILITY(CAP_DAC_READ_SEARCH));
	sigaction(SIGCHLD, &no_children, NULL);
	while ((theirs = receive_order(fd, &order)) >= 0) {
		if (fork() == 0) {
			if (theirs != HELPER_FD && dup2(theirs, HELPER_FD) < 0)
				_exit(1);
			close(fd);
			(void)kernel_close_range(HELPER_FD + 1, UINT32_MAX);
			helper_run((enum nursery_kind)order.kind);
		}
		close(theirs);
	}
	_exit(0);
}

int nursery_fork(struct nursery *ret, struct error *err)
{
	int fd;
	pid_t pid = child_fork("the helper processes", nursery_run, &fd, err);

	if (pid < 0)
		return pid;
	*ret = (struct nursery){.fd = fd, .pid = pid};
	return 0;
}

int nursery_start(const struct nursery *n, enum nursery_kind kind, int *ret_fd)
{
	const struct order order = {.kind = kind};
	int fds[2], r;

	if (n->fd < 0)
		return -EPIPE;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return -errno;
	r = fd_message_send(n->fd, &order, sizeof(order), &fds[1], 1, MSG_DONTWAIT);
	close(fds[1]);
	if (r < 0) {
		close(fds[0]);
		return r;
	}
	*ret_fd = fds[0];
	return 0;
}

void nursery_end(struct nursery *n)
{
	closep(&n->fd);
	/* Does not wait for it: it may be stopped. */
	if (n->pid > 0)
		(void)waitpid(n->pid, NULL, WNOHANG);
	*n = NURSERY_NONE;
}
