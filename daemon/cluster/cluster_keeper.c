/* SPDX-License-Identifier: Apache-2.0 */
/* Starts dieseld-peer, and starts it again when it has ended, whatever ended it. A new one has a socket of
 * its own to the daemon, so that nothing that was meant for the last one reaches it. */
#include <errno.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cluster_private.h"
#include "lib/capabilities.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/fd_message.h"
#include "lib/kernel_calls.h"
#include "lib/log.h"
#include "lib/sandbox.h"

#define RESTART_MIN_MS 100
#define RESTART_MAX_MS 10000
#define LIVED_NS       (10 * NS_PER_S)
#define NOBODY         65534u
/* The address is tried again so often; at first it is the process of a daemon that was killed that has yet to
 * end, which is not worth a word. */
#define LISTEN_SOON_MS  50
#define LISTEN_QUIET_NS (2 * NS_PER_S)
#define LISTEN_AGAIN_MS 2000

/* What connecting to Redis takes is in files that are the daemon's user's alone (dataset/redis/redis_env.h).
 */
static bool has_private_files(void)
{
	return getenv("DIESEL_REDIS_FILE") || getenv("DIESEL_REDIS_CERT") || getenv("DIESEL_REDIS_KEY");
}

/* The process goes on as a user who owns nothing, where it may change: it parses what comes from the network.
 * Without a key it is by their user that peers are known (net_address_owner()), and stays what it is. */
static void drop_rights(const struct cluster_config *config)
{
	const struct rlimit none = {.rlim_cur = 0};
	struct rlimit files;

	(void)setrlimit(RLIMIT_CORE, &none);
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &files);
	}
	if (geteuid() != 0 || config->key_bytes == 0 || has_private_files() ||
	    capabilities_keep_as(0, NOBODY, NOBODY) < 0)
		(void)capabilities_keep(0);
	(void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

static pid_t start(const struct cluster_config *config, int control_fd, int listen_fd)
{
	struct cluster_started started;
	int fds[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0)
		return -errno;
	pid = fork();
	if (pid == 0) {
		close(control_fd);
		close(fds[0]);
		drop_rights(config);
		(void)sandbox_filter(SANDBOX_PEER);
		prctl(PR_SET_NAME, "dieseld-peer");
		_exit(net_run(config, listen_fd, fds[1]));
	}
	close(fds[1]);
	started = (struct cluster_started){.pid = pid};
	if (pid > 0)
		(void)fd_message_send(control_fd, &started, sizeof(started), &fds[0], 1, 0);
	close(fds[0]);
	return pid > 0 ? pid : -EAGAIN;
}

/* Returns false if the daemon is gone. */
static bool take_order(int control_fd, pid_t pid)
{
	struct cluster_kill order;
	ssize_t n = recv(control_fd, &order, sizeof(order), MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	if (n != sizeof(order))
		return false;
	if (order.pid == pid)
		kill(pid, SIGKILL);
	return true;
}

/* Until the process has ended. Returns false if the daemon is gone. */
static bool wait_for(int control_fd, pid_t pid)
{
	_cleanup_(closep) int pidfd = kernel_pidfd_open(pid);
	struct pollfd ends[2] = {{.fd = control_fd, .events = POLLIN}, {.fd = pidfd, .events = POLLIN}};
	int status = 0;

	while (pidfd >= 0 && !ends[1].revents) {
		if (poll(ends, 2, -1) < 0 && errno != EINTR)
			break;
		if (ends[0].revents && !take_order(control_fd, pid))
			return false;
	}
	if (waitpid(pid, &status, 0) != pid)
		return true;
	if (WIFSIGNALED(status))
		log_warning(
		    "the process that talks to other nodes was ended by signal %d (%s): it is started again",
		    WTERMSIG(status), strsignal(WTERMSIG(status)));
	else
		log_warning("the process that talks to other nodes has ended: it is started again");
	return true;
}

/* Returns false if the daemon is gone. */
static bool pause_ms(int control_fd, int ms)
{
	struct pollfd end = {.fd = control_fd, .events = POLLIN};

	return poll(&end, 1, ms) <= 0 || take_order(control_fd, -1);
}

/* Until nobody else has the address. Returns false if the daemon is gone. */
static bool listen_later(const struct cluster_config *config, int control_fd, int *ret_fd)
{
	uint64_t quiet_until_ns = clock_monotonic_ns() + LISTEN_QUIET_NS;
	char address[NET_ADDRESS_BYTES];
	bool is_said = false;
	int r;

	net_address_format(&config->listen, address);
	while ((r = cluster_listen(&config->listen, ret_fd)) < 0) {
		if (!is_said && (r != -EADDRINUSE || clock_monotonic_ns() >= quiet_until_ns)) {
			log_warning("--cluster-listen %s: %s: this node is alone, and tries again every %d s",
				    address, strerror(-r), LISTEN_AGAIN_MS / 1000);
			is_said = true;
		}
		if (!pause_ms(control_fd, is_said ? LISTEN_AGAIN_MS : LISTEN_SOON_MS))
			return false;
	}
	if (is_said)
		log_warning("--cluster-listen %s: it listens now: this node is no longer alone", address);
	return true;
}

/* The socket that listens comes with the configuration, unless its address is taken. */
static int take_config(int control_fd, struct cluster_config *ret, int *ret_listen_fd)
{
	/* What it takes to be another user, and to end a process of that user's; and to have a low port. */
	const uint64_t keep =
	    geteuid() == 0 ? CAPABILITY(CAP_SETUID) | CAPABILITY(CAP_SETGID) | CAPABILITY(CAP_KILL) : 0;
	int fds[FD_MESSAGE_MAX_FDS], r;
	size_t n_fds;

	if (capabilities_keep(keep | CAPABILITY(CAP_NET_BIND_SERVICE)) < 0 ||
	    fd_message_receive(control_fd, ret, sizeof(*ret), 0, fds, &n_fds) != sizeof(*ret) || n_fds > 1)
		return -EPROTO;
	if (n_fds == 0 && !listen_later(ret, control_fd, &fds[0]))
		return -EPIPE;
	r = capabilities_keep(keep);
	if (r == 0)
		*ret_listen_fd = fds[0];
	return r;
}

void cluster_keeper_run(int fd)
{
	static struct cluster_config config;
	int listen_fd = -EBADF, wait_ms = RESTART_MIN_MS;
	bool goes_on = true;
	uint64_t begin_ns;

	(void)sandbox_filter(SANDBOX_PEER_KEEPER);
	prctl(PR_SET_NAME, "dieseld-keeper");
	if (take_config(fd, &config, &listen_fd) < 0)
		_exit(1);
	while (goes_on) {
		pid_t pid;

		begin_ns = clock_monotonic_ns();
		pid = start(&config, fd, listen_fd);
		if (pid > 0)
			goes_on = wait_for(fd, pid);
		wait_ms = clock_monotonic_ns() - begin_ns > LIVED_NS ? RESTART_MIN_MS : 2 * wait_ms;
		if (wait_ms > RESTART_MAX_MS)
			wait_ms = RESTART_MAX_MS;
		goes_on = goes_on && pause_ms(fd, wait_ms);
	}
	_exit(0);
}
