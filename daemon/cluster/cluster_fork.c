/* SPDX-License-Identifier: Apache-2.0 */
/* What is checked and opened before the process is there: options, the key, the socket that listens. */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/apart/child.h"
#include "cluster.h"
#include "cluster_private.h"
#include "lib/capabilities.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/fd_io.h"
#include "lib/fd_message.h"
#include "lib/kernel_calls.h"
#include "lib/log.h"
#include "lib/sandbox.h"
#include "net_address.h"

/* Starts dieseld-peer, and starts it again when it has ended, whatever ended it. A new one has a socket of
 * its own to the daemon, so that nothing that was meant for the last one reaches it. */

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

static int cluster_listen(const struct net_address *at, int *ret_fd);

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

/* The process between the daemon and dieseld-peer, which it starts, and starts again. Returns when the daemon
 * is gone. */
static void cluster_keeper_run(int fd)
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

#define BACKLOG 256

struct key_text {
	uint8_t bytes[CLUSTER_KEY_MAX + 1];
};

static void key_text_wipe(struct key_text *k)
{
	explicit_bzero(k, sizeof(*k));
}

static void config_wipe(struct cluster_config *c)
{
	explicit_bzero(c, sizeof(*c));
}

static int key_file_check(int fd, const char *path, struct error *err)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return error_errno(err, -errno, "--cluster-key %s", path);
	if (!S_ISREG(st.st_mode))
		return error_set(err, -EINVAL, "--cluster-key %s: it is no file", path);
	if (st.st_uid != geteuid() && st.st_uid != 0)
		return error_set(err, -EPERM,
				 "--cluster-key %s: it belongs to user %u, who could change it: it has to be "
				 "yours or root's",
				 path, st.st_uid);
	if (st.st_mode & 077)
		return error_set(err, -EPERM,
				 "--cluster-key %s: others may read or change it (mode %03o): chmod 600 it",
				 path, st.st_mode & 0777);
	return 0;
}

/* Reads a pre-shared key: one line of at least CLUSTER_KEY_MIN bytes, in a file that nobody else can read. */
static int cluster_key_read(const char *path, struct cluster_config *config, struct error *err)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	_cleanup_(key_text_wipe) struct key_text key;
	size_t n = 0;
	int r;

	if (fd < 0)
		return error_errno(err, -errno, "--cluster-key %s", path);
	r = key_file_check(fd, path, err);
	if (r < 0)
		return r;
	r = fd_read(fd, key.bytes, sizeof(key.bytes), &n);
	if (r < 0)
		return error_errno(err, r, "--cluster-key %s", path);
	while (n > 0 && n <= CLUSTER_KEY_MAX && (key.bytes[n - 1] == '\n' || key.bytes[n - 1] == '\r'))
		n--;
	if (n < CLUSTER_KEY_MIN || n > CLUSTER_KEY_MAX)
		return error_set(err, -EINVAL,
				 "--cluster-key %s: a key has %u to %u bytes, this one %zu%s: make one by "
				 "`openssl rand -base64 32`",
				 path, CLUSTER_KEY_MIN, CLUSTER_KEY_MAX, n,
				 n > CLUSTER_KEY_MAX ? " or more" : "");
	memcpy(config->key, key.bytes, n);
	config->key_bytes = (uint32_t)n;
	return 0;
}

static int node_name(const char *wanted, struct cluster_config *config, struct error *err)
{
	if (!wanted && gethostname(config->node, sizeof(config->node)) < 0)
		return error_set(err, -EINVAL, "this host's name is longer than %d bytes: say --cluster-name",
				 REGISTRY_NAME_BYTES - 1);
	if (wanted && strlen(wanted) >= sizeof(config->node))
		return error_set(err, -EINVAL, "--cluster-name is longer than %d bytes",
				 REGISTRY_NAME_BYTES - 1);
	if (wanted)
		strcpy(config->node, wanted);
	if (!net_is_name(config->node))
		return error_set(err, -EINVAL,
				 "%s cannot be the name of a node: printable ASCII without blanks is",
				 wanted ? "--cluster-name" : "this host's name");
	return 0;
}

static int address_option(const char *option, const char *text, bool has_key, struct net_address *ret,
			  struct error *err)
{
	if (net_address_parse(text, ret) < 0)
		return error_set(err, -EINVAL,
				 "%s %s: it takes an address in numbers with a port, as 10.0.0.1:7700 or "
				 "[fd00::1]:7700",
				 option, text);
	if (!has_key && !net_address_is_loopback(ret))
		return error_set(err, -EPERM,
				 "%s %s: without --cluster-key, which secures connections between nodes, it "
				 "has to be a loopback address",
				 option, text);
	return 0;
}

/* A socket that listens there. -EADDRINUSE: another process has the address. */
static int cluster_listen(const struct net_address *at, int *ret_fd)
{
	_cleanup_(closep) int fd = socket(at->name.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	const int one = 1;

	if (fd < 0)
		return -errno;
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (at->name.ss_family == AF_INET6)
		(void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
	if (bind(fd, (const struct sockaddr *)&at->name, at->bytes) < 0 || listen(fd, BACKLOG) < 0)
		return -errno;
	*ret_fd = steal_fd(&fd);
	return 0;
}

static int listen_option(const struct cluster_options *o, bool has_key, struct net_address *at,
			 struct error *err)
{
	if (!o->listen)
		return error_set(
		    err, -EINVAL,
		    "--cluster takes --cluster-listen ADDRESS:PORT, where other nodes connect to");
	return address_option("--cluster-listen", o->listen, has_key, at, err);
}

/* Where another process has the address, the keeper tries again: *ret_fd stays as it is.
 */
static int listen_on(const char *option, struct net_address *at, int *ret_fd, struct error *err)
{
	_cleanup_(closep) int fd = -EBADF;
	int r = cluster_listen(at, &fd);

	if (r == -EADDRINUSE)
		return 0;
	if (r == 0)
		r = net_address_local(fd, at);
	if (r < 0)
		return error_errno(err, r, "--cluster-listen %s", option);
	*ret_fd = steal_fd(&fd);
	return 0;
}

static int advertised(const struct cluster_options *o, const struct net_address *listens,
		      struct cluster_config *config, struct error *err)
{
	struct net_address a = *listens;
	int r;

	if (o->advertise) {
		r = address_option("--cluster-advertise", o->advertise, config->key_bytes > 0, &a, err);
		if (r < 0)
			return r;
		if (net_address_port(&a) == 0)
			net_address_set_port(&a, net_address_port(listens));
	}
	if (net_address_is_any(&a))
		return error_set(err, -EINVAL,
				 "%s is no address that others could connect to: say --cluster-advertise "
				 "ADDRESS:PORT",
				 o->advertise ? "--cluster-advertise" : "--cluster-listen");
	net_address_format(&a, config->address);
	return 0;
}

/* All but what takes the address. */
static int configure(const struct cluster_options *o, struct cluster_config *config, struct error *err)
{
	int r;

	if (strlen(o->redis) >= sizeof(config->redis))
		return error_set(err, -EINVAL, "--cluster: its URL is longer than %zu bytes",
				 sizeof(config->redis) - 1);
	strcpy(config->redis, o->redis);
	config->uid = geteuid();
	config->peer_bytes_per_s = o->peer_bytes_per_s;
	r = registry_check(o->redis, err);
	if (r == 0)
		r = node_name(o->node, config, err);
	if (r == 0 && o->key_file)
		r = cluster_key_read(o->key_file, config, err);
	return r < 0 ? r : listen_option(o, config->key_bytes > 0, &config->listen, err);
}

int cluster_check(const struct cluster_options *options, struct error *err)
{
	_cleanup_(config_wipe) struct cluster_config config = {.uid = 0};
	int r;

	if (!options->redis)
		return 0;
	r = configure(options, &config, err);
	return r < 0 ? r : advertised(options, &config.listen, &config, err);
}

int cluster_fork(const struct cluster_options *options, struct cluster_child *ret, struct error *err)
{
	_cleanup_(config_wipe) struct cluster_config config = {.uid = 0};
	_cleanup_(closep) int listen_fd = -EBADF, fd = -EBADF;
	pid_t pid;
	int r;

	if (!options->redis) {
		*ret = CLUSTER_CHILD_NONE;
		return 0;
	}
	r = configure(options, &config, err);
	if (r == 0)
		r = listen_on(options->listen, &config.listen, &listen_fd, err);
	if (r == 0)
		r = advertised(options, &config.listen, &config, err);
	if (r < 0)
		return r;
	pid = child_fork("the process that talks to other nodes", cluster_keeper_run, &fd, err);
	if (pid < 0)
		return pid;
	r = fd_message_send(fd, &config, sizeof(config), &listen_fd, listen_fd >= 0, 0);
	if (r < 0)
		return error_errno(err, r, "cannot tell the process that talks to other nodes what to do");
	*ret = (struct cluster_child){.fd = steal_fd(&fd), .pid = pid};
	return 0;
}
