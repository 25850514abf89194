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
#include "lib/sandbox.h"
#include "opener.h"
#include "plugin.h"
#include "reader.h"
#include "stager.h"
#include "daemon/apart/work/unpack.h"

#define HELPER_FD (CHILD_FD + 1)

/* Comes with one descriptor, the helper's end of its socket. */
struct nursery_order {
	uint32_t kind;
};

static int read_by_uring(int fd)
{
	return reader_run(fd, true);
}

static int read_by_threads(int fd)
{
	return reader_run(fd, false);
}

/* What they keep goes when they see what they are about to interpret (lib/sandbox.h), or sooner. */
static const struct {
	const char *name;
	int (*run)(int fd);
	enum sandbox_profile profile;
	uint64_t capabilities;
} kinds[NURSERY_N_KINDS] = {
    [NURSERY_READER_URING] = {"dieseld-reader", read_by_uring, SANDBOX_RING_MAKER,
			      CAPABILITY(CAP_DAC_READ_SEARCH)},
    [NURSERY_READER_THREADS] = {"dieseld-reader", read_by_threads, SANDBOX_READER,
				CAPABILITY(CAP_DAC_READ_SEARCH)},
    [NURSERY_OPENER] = {"dieseld-opener", opener_run, SANDBOX_OPENER, CAPABILITY(CAP_DAC_READ_SEARCH)},
    [NURSERY_CLOSER] = {"dieseld-closer", closer_run, SANDBOX_CLOSER, 0},
    [NURSERY_CODEC] = {"dieseld-codec", codec_run, SANDBOX_LOADER, 0},
    [NURSERY_PLUGIN] = {"dieseld-plugin", plugin_run, SANDBOX_LOADER, 0},
    [NURSERY_STAGER] = {"dieseld-stager", stager_run, SANDBOX_STAGER, CAPABILITY(CAP_DAC_READ_SEARCH)},
    [NURSERY_UNPACKER] = {"dieseld-unpack", unpack_serve, SANDBOX_LOADER, 0},
};

_Noreturn static void helper_run(uint32_t kind)
{
	signal(SIGCHLD, SIG_DFL);
	if (kind >= NURSERY_N_KINDS || capabilities_keep(kinds[kind].capabilities) < 0)
		_exit(1);
	/* Where the system refuses filters, the daemon says so. */
	(void)sandbox_filter(kinds[kind].profile);
	prctl(PR_SET_NAME, kinds[kind].name);
	_exit(kinds[kind].run(HELPER_FD));
}

/* Returns the next order's descriptor; negative: the daemon is gone. */
static int receive_order(int fd, struct nursery_order *ret)
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
	struct nursery_order order;
	int theirs;

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	/* Keeps only what it takes to read datasets of any owner. */
	(void)capabilities_keep(CAPABILITY(CAP_DAC_READ_SEARCH));
	(void)sandbox_filter(SANDBOX_NURSERY);
	prctl(PR_SET_NAME, "dieseld-nursery");
	sigaction(SIGCHLD, &no_children, NULL);
	while ((theirs = receive_order(fd, &order)) >= 0) {
		if (fork() == 0) {
			if (theirs != HELPER_FD && dup2(theirs, HELPER_FD) < 0)
				_exit(1);
			close(fd);
			(void)kernel_close_range(HELPER_FD + 1, UINT32_MAX);
			helper_run(order.kind);
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
	const struct nursery_order order = {.kind = kind};
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
