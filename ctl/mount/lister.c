/* SPDX-License-Identifier: Apache-2.0 */
#include "lister.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "connection.h"
#include "lib/cleanup.h"
#include "lib/kernel_calls.h"
#include "lib/thread.h"

#define LISTER_FD       3
#define DEATH           SIGUSR1
#define BUFFER_BYTES    (16u << 10)
#define PATIENCE_MS     5000
#define TAKE_AWAY_TRIES 500
#define FIRST_GO        25 /* tries */

/* Opens a folder of the mount, and nothing outside it. The mount has no links. */
static int open_folder(const char *where, const char *folder)
{
	const struct open_how how = {.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
				     .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV};
	_cleanup_(closep) int root = open(where, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int fd;

	if (root < 0)
		return -errno;
	fd = (int)syscall(SYS_openat2, root, *folder ? folder : ".", &how, sizeof(how));
	return fd < 0 ? -errno : fd;
}

/* Lists part of a folder. The open folder keeps the mount busy, so it is open only during the call. */
static void list(const char *where, const struct lister_order *order)
{
	_Alignas(struct dirent64) char buffer[BUFFER_BYTES];
	_cleanup_(closep) int fd = open_folder(where, order->folder);
	uint32_t n = 0;

	if (fd < 0 || lseek(fd, (off_t)order->offset, SEEK_SET) < 0)
		return;
	while (n < order->n_entries) {
		ssize_t got = getdents64(fd, buffer, sizeof(buffer));

		if (got <= 0)
			return;
		for (ssize_t at = 0; at < got; n++)
			at += ((const struct dirent64 *)(buffer + at))->d_reclen;
	}
}

static void serve(const char *where)
{
	static struct lister_order order;

	while (recv(LISTER_FD, &order, sizeof(order), 0) == sizeof(order)) {
		order.folder[sizeof(order.folder) - 1] = '\0';
		list(where, &order);
		if (send(LISTER_FD, "", 1, MSG_NOSIGNAL) < 0)
			return;
	}
}

static void unmount(const char *where)
{
	if (umount2(where, MNT_DETACH) == 0)
		return;
	if (fork() == 0) {
		execlp("fusermount3", "fusermount3", "-quz", "--", where, NULL);
		_exit(1);
	}
	(void)wait(NULL);
}

/* Removes the mount after its process has ended. If the process was killed, the mount stays, and fusermount3
 * (auto_unmount), which tries first, misses it if it checks while the process is still ending. */
static void take_away(const struct mount_connection *connection)
{
	const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};

	for (int i = 0; i < TAKE_AWAY_TRIES && connection_is_mounted(connection); i++) {
		_cleanup_(closep) int fd = i < FIRST_GO ? -EBADF : open_folder(connection->where, "");

		if (fd >= 0)
			return;
		if (fd == -ENOTCONN && connection_is_mounted(connection))
			unmount(connection->where);
		nanosleep(&pause, NULL);
	}
}

/* Waits for the death of the mount's main thread. The process may not be able to end: its socket stays
 * open. */
static void *watch(void *argument)
{
	const struct mount_connection *connection = argument;
	sigset_t death;
	int unused;

	sigemptyset(&death);
	sigaddset(&death, DEATH);
	if (sigwait(&death, &unused) == 0)
		connection_abort(connection);
	return NULL;
}

/* Starts watch(). Without it, only a server that is killed in the middle of a store is left to the user. */
static void start_watch(struct mount_connection *connection, pid_t parent)
{
	sigset_t death;
	pthread_t thread;

	sigemptyset(&death);
	sigaddset(&death, DEATH);
	(void)pthread_sigmask(SIG_BLOCK, &death, NULL);
	if (prctl(PR_SET_PDEATHSIG, DEATH) < 0 || thread_start(&thread, watch, connection) < 0)
		return;
	if (getppid() != parent)
		(void)kill(getpid(), DEATH);
}

int lister_fork(const char *where, int *ret_fd, pid_t *ret_pid)
{
	int fds[2];
	pid_t parent = getpid(), pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return -errno;
	pid = fork();
	if (pid == 0) {
		int null_fd = open("/dev/null", O_RDWR);

		for (int fd = 0; fd < LISTER_FD; fd++)
			if (null_fd != fd)
				(void)dup2(null_fd, fd);
		(void)dup2(fds[1], LISTER_FD);
		(void)kernel_close_range(LISTER_FD + 1, UINT32_MAX);
		signal(SIGINT, SIG_IGN); /* Ctrl-C must stop only the mount */
		prctl(PR_SET_NAME, "dieselctl-list");
		static struct mount_connection connection;

		connection_find(where, &connection);
		start_watch(&connection, parent);
		serve(where);
		take_away(&connection);
		_exit(0);
	}
	close(fds[1]);
	if (pid < 0) {
		close(fds[0]);
		return -EAGAIN;
	}
	*ret_fd = fds[0];
	*ret_pid = pid;
	return 0;
}

int lister_list(int fd, const struct lister_order *order)
{
	struct pollfd answer = {.fd = fd, .events = POLLIN};
	char byte;

	if (send(fd, order, sizeof(*order), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		return -errno;
	if (poll(&answer, 1, PATIENCE_MS) <= 0)
		return -ETIMEDOUT;
	return recv(fd, &byte, 1, MSG_DONTWAIT) == 1 ? 0 : -EPIPE;
}
