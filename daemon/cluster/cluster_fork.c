/* SPDX-License-Identifier: Apache-2.0 */
/* Checks and opens everything that dieseld-peer needs before it starts: options, the key, the listening
 * socket. */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cluster.h"
#include "cluster_message.h"
#include "daemon/helpers/message.h"
#include "lib/capabilities.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/fd_io.h"
#include "lib/fd_message.h"
#include "lib/log.h"
#include "net_address.h"

#define NOBODY 65534u
/* Pauses between attempts to listen. Nothing is logged in the first two seconds: usually the process of a
 * killed daemon is still exiting. */
#define LISTEN_SOON_MS  50
#define LISTEN_QUIET_NS (2 * NS_PER_S)
#define LISTEN_AGAIN_MS 2000

/* Returns true if connecting to Redis needs files that only the daemon's user can read
 * (dataset/redis/redis_env.h). */
static bool has_private_files(void)
{
	return getenv("DIESEL_REDIS_FILE") || getenv("DIESEL_REDIS_CERT") || getenv("DIESEL_REDIS_KEY");
}

/* Drops privileges, because the process parses data from the network. It changes to a user who owns
 * nothing, unless it cannot, or Redis needs private files. Without a key it keeps its user, as peers
 * recognise each other by that (net_address_owner()). */
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

/* Waits. Returns false if the daemon is gone. */
static bool pause_ms(int control_fd, int ms)
{
	struct pollfd end = {.fd = control_fd, .events = POLLIN};

	return poll(&end, 1, ms) <= 0;
}

static int cluster_listen(const struct net_address *at, int *ret_fd);

/* Listens as soon as no other process uses the address. Returns false if the daemon has exited. */
static bool listen_later(const struct cluster_config *config, int control_fd, int *ret_fd)
{
	uint64_t quiet_until_ns = clock_monotonic_ns() + LISTEN_QUIET_NS;
	char address[NET_ADDRESS_BYTES];
	bool is_said = false;
	int r;

	net_address_format(&config->listen, address);
	while ((r = cluster_listen(&config->listen, ret_fd)) < 0) {
		if (!is_said && (r != -EADDRINUSE || clock_monotonic_ns() >= quiet_until_ns)) {
			log_warning("--cluster-listen %s: %s. This node shares no chunks, and dieseld tries "
				    "again every %d s",
				    address, strerror(-r), LISTEN_AGAIN_MS / 1000);
			is_said = true;
		}
		if (!pause_ms(control_fd, is_said ? LISTEN_AGAIN_MS : LISTEN_SOON_MS))
			return false;
	}
	if (is_said)
		log_warning("--cluster-listen %s: now listening, so this node shares chunks again", address);
	return true;
}

static struct cluster_config peer_config; /* set in the keeper; processes that it forks inherit the value */
static int peer_listen_fd = -EBADF;

/* Runs in the keeper. The listening socket is passed with the configuration, unless its address is taken. */
static int take_config(int control_fd)
{
	if (geteuid() != 0 && capabilities_keep(CAPABILITY(CAP_NET_BIND_SERVICE)) < 0)
		return -EPERM;
	if (message_receive(control_fd, &peer_config, sizeof(peer_config), 0, &peer_listen_fd, 1) < 0)
		return -EPROTO;
	return peer_listen_fd >= 0 || listen_later(&peer_config, control_fd, &peer_listen_fd) ? 0 : -EPIPE;
}

static int peer_run(const struct kept_helper *self)
{
	drop_rights(&peer_config);
	if (helper_settle(HELPER_PEER) < 0 || fcntl(self->fd, F_SETFL, O_NONBLOCK) < 0)
		return 1;
	return net_run(&peer_config, peer_listen_fd, self->fd);
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
		return error_set(err, -EINVAL, "--cluster-key %s: not a regular file", path);
	if (st.st_uid != geteuid() && st.st_uid != 0)
		return error_set(err, -EPERM,
				 "--cluster-key %s: owned by user %u, must be owned by root or dieseld's "
				 "user. Run: chown root %s",
				 path, st.st_uid, path);
	if (st.st_mode & 077)
		return error_set(
		    err, -EPERM,
		    "--cluster-key %s: others may read or change it (mode %03o). Run: chmod 600 %s", path,
		    st.st_mode & 0777, path);
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
				 "--cluster-key %s: expected a key of %u to %u bytes, got %zu%s. Make a key "
				 "with `openssl rand -base64 32`",
				 path, CLUSTER_KEY_MIN, CLUSTER_KEY_MAX, n,
				 n > CLUSTER_KEY_MAX ? " or more" : "");
	memcpy(config->key, key.bytes, n);
	config->key_bytes = (uint32_t)n;
	return 0;
}

static int node_name(const char *wanted, struct cluster_config *config, struct error *err)
{
	if (!wanted && gethostname(config->node, sizeof(config->node)) < 0)
		return error_set(err, -EINVAL, "this host's name is longer than %d bytes: set --cluster-name",
				 REGISTRY_NAME_BYTES - 1);
	if (wanted && strlen(wanted) >= sizeof(config->node))
		return error_set(err, -EINVAL, "--cluster-name must have at most %d bytes",
				 REGISTRY_NAME_BYTES - 1);
	if (wanted)
		strcpy(config->node, wanted);
	if (!net_is_name(config->node))
		return error_set(err, -EINVAL,
				 "%s is not a valid node name: must be printable ASCII without blanks",
				 wanted ? "--cluster-name" : "this host's name");
	return 0;
}

static int address_option(const char *option, const char *text, bool has_key, struct net_address *ret,
			  struct error *err)
{
	if (net_address_parse(text, ret) < 0)
		return error_set(
		    err, -EINVAL,
		    "%s %s: must be a numeric address with a port, such as 10.0.0.1:7700 or [fd00::1]:7700",
		    option, text);
	if (!has_key && !net_address_is_loopback(ret))
		return error_set(err, -EPERM,
				 "%s %s: must be a loopback address, unless --cluster-key secures "
				 "connections between nodes",
				 option, text);
	return 0;
}

/* Makes a socket that listens at the address. -EADDRINUSE: another process has the address. */
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
		return error_set(err, -EINVAL,
				 "--cluster requires --cluster-listen ADDRESS:PORT, the address that other "
				 "nodes connect to");
	return address_option("--cluster-listen", o->listen, has_key, at, err);
}

/* Listens. If another process has the address, returns 0 and leaves *ret_fd unchanged: the keeper tries
 * again. */
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
				 "%s is not an address that other nodes can connect to: set "
				 "--cluster-advertise ADDRESS:PORT",
				 o->advertise ? "--cluster-advertise" : "--cluster-listen");
	net_address_format(&a, config->address);
	return 0;
}

/* Fills in the configuration, except for the parts that need the listening socket. */
static int configure(const struct cluster_options *o, struct cluster_config *config, struct error *err)
{
	int r;

	if (strlen(o->redis) >= sizeof(config->redis))
		return error_set(err, -EINVAL, "--cluster: the URL must have at most %zu bytes",
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

int cluster_fork(const struct cluster_options *options, struct fork_server *ret_keeper, struct error *err)
{
	static const struct fork_server_program program = {
	    .kind = HELPER_PEER_KEEPER, .prepare = take_config, .keeps = HELPER_PEER, .run = peer_run};
	_cleanup_(config_wipe) struct cluster_config config = {.uid = 0};
	_cleanup_(closep) int listen_fd = -EBADF;
	struct fork_server keeper;
	int r;

	if (!options->redis) {
		*ret_keeper = FORK_SERVER_NONE;
		return 0;
	}
	r = configure(options, &config, err);
	if (r == 0)
		r = listen_on(options->listen, &config.listen, &listen_fd, err);
	if (r == 0)
		r = advertised(options, &config.listen, &config, err);
	if (r == 0)
		r = fork_server_spawn(&program, &keeper, err);
	if (r < 0)
		return r;
	r = fd_message_send(keeper.fd, &config, sizeof(config), &listen_fd, listen_fd >= 0, 0);
	if (r < 0) {
		fork_server_end(&keeper);
		return error_errno(err, r,
				   "cannot send the configuration to the helper process dieseld-kpeer");
	}
	*ret_keeper = keeper;
	return 0;
}
