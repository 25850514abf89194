/* SPDX-License-Identifier: Apache-2.0 */
#include "server.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "connection.h"
#include "daemon/sandboxed/opener.h"
#include "daemon/sandboxed/plugin.h"
#include "daemon/cache/peers/memberships.h"
#include "daemon/cache/policy.h"
#include "daemon/cluster/cluster.h"
#include "daemon/control/control.h"
#include "daemon/node/admin.h"
#include "daemon/storage/io.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "client/transport.h"
#include "lib/text.h"

/* ---- Which clients are let in. A refused client gets the reason, and its connection is closed at once. If
 * it stayed in the queue for accept(), the socket would stay readable, and the loop would never sleep. ----
 */

static int take_lock(const char *path, int *ret_fd, struct error *err)
{
	char lock_path[sizeof(((struct sockaddr_un *)0)->sun_path) + 8], pid[24] = "";
	_cleanup_(closep) int fd = -EBADF;
	ssize_t n;

	snprintf(lock_path, sizeof(lock_path), "%s.lock", path);
	fd = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (fd < 0 && errno == ENOENT)
		return error_set(
		    err, -ENOENT,
		    "cannot listen on %s: its directory does not exist. Create it, or choose another path",
		    path);
	if (fd < 0)
		return error_errno(err, -errno, "cannot open the lock file %s", lock_path);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		n = pread(fd, pid, sizeof(pid) - 1, 0);
		pid[n > 0 ? n : 0] = '\0';
		pid[strcspn(pid, "\n")] = '\0';
		return error_set(
		    err, -EADDRINUSE,
		    "another dieseld (pid %s) already serves %s: use that one, stop it, or choose "
		    "another path",
		    pid[0] ? pid : "unknown", path);
	}
	n = snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
	if (ftruncate(fd, 0) < 0 || pwrite(fd, pid, (size_t)n, 0) != n)
		return error_errno(err, -errno, "cannot write the lock file %s", lock_path);
	*ret_fd = steal_fd(&fd);
	return 0;
}

/* Takes the lock file next to the socket and listens. If another process holds the lock, err names it. */
static int listen_open(const char *path, mode_t mode, int *ret_listen_fd, int *ret_lock_fd,
		       struct listen_place *ret_place, struct error *err)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	_cleanup_(closep) int fd = -EBADF, lock = -EBADF;
	struct stat st;
	int r;

	if (strlen(path) >= sizeof(address.sun_path))
		return error_set(err, -ENAMETOOLONG, "socket path is longer than %zu bytes: %s",
				 sizeof(address.sun_path) - 1, path);
	memcpy(address.sun_path, path, strlen(path) + 1);
	r = take_lock(path, &lock, err);
	if (r < 0)
		return r;
	if (lstat(path, &st) == 0) {
		if (!S_ISSOCK(st.st_mode))
			return error_set(err, -EEXIST,
					 "%s exists and is not a socket: remove it, or choose another path",
					 path);
		unlink(path); /* we hold the lock, so the process that made the socket is dead */
	}
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return error_errno(err, -errno, "cannot make a socket");
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		return error_errno(err, -errno, "cannot listen on %s", path);
	/* Sets the mode before it listens: until then nobody can connect. */
	if (chmod(path, mode) < 0 || lstat(path, &st) < 0 || listen(fd, 128) < 0)
		return error_errno(err, -errno, "cannot listen on %s", path);
	*ret_place = (struct listen_place){.device = st.st_dev, .inode = st.st_ino};
	*ret_listen_fd = steal_fd(&fd);
	*ret_lock_fd = steal_fd(&lock);
	return 0;
}

static bool is_there(const char *path, const struct listen_place *place)
{
	struct stat st;

	return lstat(path, &st) == 0 && st.st_dev == place->device && st.st_ino == place->inode;
}

/* Removes the socket, unless its path leads to another file now: its folder may have been created again. */
static void listen_remove(const char *path, const struct listen_place *place)
{
	if (is_there(path, place))
		unlink(path);
}

int server_check_ready(const struct server *s, struct error *err)
{
	if (s->stopping)
		return error_set(err, -ESHUTDOWN, "dieseld is stopping");
	if (!is_there(s->socket_path, &s->place))
		return error_set(err, -ENOENT,
				 "%s is no longer dieseld's socket, because it was removed or replaced: run "
				 "`systemctl restart dieseld`",
				 s->socket_path);
	if (!uv_is_active((const uv_handle_t *)&s->listen_poll))
		return error_set(
		    err, -EMFILE,
		    "dieseld has no file descriptor left for another client: raise LimitNOFILE=");
	return 0;
}

/* ---- admitting clients ---- */

/* If not even the spare descriptor helps (ENFILE, ENOMEM), accept() is not tried again before this. */
#define RETRY_MS 100

#define MAX_ADMINS 16 /* connections of the socket for administrators */

/* Sends the client an error and closes the socket. Reads the client's messages first: closing a socket with
 * unread data would lose our line. The client can send nothing more meanwhile. */
static void turn_away(struct server *s, int fd, const struct error *err)
{
	union wire_message m;
	uint16_t sequence = 0; /* a HELLO has no sequence number, and may still be in transit */

	shutdown(fd, SHUT_RD);
	while (transport_peek(fd, &m) == 0 && m.header.type != WIRE_OPEN_DATASET) {
		sequence = m.header.sequence;
		transport_drop(fd);
	}
	protocol_init(&m, WIRE_ERROR);
	m.header.sequence = sequence;
	m.error.code = err->code;
	text_line(m.error.text, sizeof(m.error.text), err->text);
	(void)transport_send(fd, &m, NULL, 0);
	closer_close(&s->closer, fd);
}

static void accept_start(struct server *s);

static void on_retry(uv_timer_t *timer)
{
	struct server *s = timer->data;

	if (!s->stopping)
		accept_start(s);
}

/* Turns one client away because no descriptor is left, although the number of clients is limited. */
static void turn_away_one(struct server *s, int listen_fd, uv_poll_t *poll, int code)
{
	struct error err = ERROR_INIT;
	int fd = -EBADF;

	error_errno(&err, code, "dieseld cannot accept another client");
	if (s->spare_fd >= 0) {
		closep(&s->spare_fd);
		fd = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	}
	if (fd >= 0)
		turn_away(s, fd, &err);
	s->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	log_limited(&s->accept_lines, LOG_LEVEL_WARNING,
		    "%s. If dieseld has reached its limit of open files, raise it (LimitNOFILE=)", err.text);
	if (fd >= 0)
		return;
	uv_poll_stop(poll);
	uv_timer_start(&s->accept_retry, on_retry, RETRY_MS, 0);
}

/* Returns the descriptor of a client that waits, or a negative number. */
static int accept_one(struct server *s, int listen_fd, uv_poll_t *poll, struct ucred *ret_peer)
{
	int fd = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	socklen_t size = sizeof(*ret_peer);

	*ret_peer = (struct ucred){.pid = -1, .uid = UINT32_MAX};
	if (fd >= 0)
		(void)getsockopt(fd, SOL_SOCKET, SO_PEERCRED, ret_peer, &size);
	else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
		turn_away_one(s, listen_fd, poll, -errno);
	return fd;
}

/* Checks the quota of connections. Administrators' connections have a limit of their own. */
static int admit(struct server *s, uint32_t uid, struct error *err)
{
	const struct quota quota = serving_quota(&s->serving);
	struct usage mine = {0}, all = {0};

	mine.of[QUOTA_CONNECTIONS] = all.of[QUOTA_CONNECTIONS] = 1;
	for (const struct connection *c = s->connections; c; c = c->next) {
		mine.of[QUOTA_CONNECTIONS] += c->uid == uid && !c->is_admin;
		all.of[QUOTA_CONNECTIONS] += !c->is_admin;
	}
	return quota_check(&quota, uid, QUOTA_CONNECTIONS, &mine, &all, s->max_connections, err);
}

static void on_listen(uv_poll_t *poll, int status, int events)
{
	struct server *s = poll->data;
	struct error err = ERROR_INIT;
	struct ucred peer;
	int fd = accept_one(s, s->listen_fd, poll, &peer);
	int r;

	(void)status;
	(void)events;
	if (fd < 0)
		return;
	s->n_accepted++;
	r = admit(s, peer.uid, &err);
	if (r == 0 && connection_new(s, fd, &peer) == 0)
		return;
	if (r == 0)
		error_set(&err, -ENOMEM, "dieseld has no memory for another client");
	log_limited(server_lines_of(s, peer.uid), LOG_LEVEL_WARNING, "refused a connection from pid %lld: %s",
		    (long long)peer.pid, err.text);
	turn_away(s, fd, &err);
}

static void on_admin(uv_poll_t *poll, int status, int events)
{
	struct server *s = poll->data;
	struct error err = ERROR_INIT;
	struct ucred peer;
	int fd = accept_one(s, s->admin.fd, poll, &peer);
	uint32_t n = 0;

	(void)status;
	(void)events;
	if (fd < 0)
		return;
	for (const struct connection *c = s->connections; c; c = c->next)
		n += c->is_admin;
	if (n < MAX_ADMINS && connection_new(s, fd, &peer) == 0) {
		s->connections->is_admin = true;
		return;
	}
	if (n < MAX_ADMINS)
		error_set(&err, -ENOMEM, "dieseld has no memory for another client");
	else
		error_set(&err, -EUSERS,
			  "dieseld has %u connections of administrators, the maximum: close one of them", n);
	turn_away(s, fd, &err);
}

int server_open_admin(struct server *s, const char *path, struct error *err)
{
	int r = listen_open(path, 0600, &s->admin.fd, &s->admin.lock_fd, &s->admin.place, err);

	if (r < 0)
		return r;
	s->admin.path = path;
	uv_poll_init(s->loop, &s->admin.poll, s->admin.fd);
	s->admin.poll.data = s;
	accept_start(s);
	return 0;
}

static void accept_init(struct server *s)
{
	s->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	uv_poll_init(s->loop, &s->listen_poll, s->listen_fd);
	uv_timer_init(s->loop, &s->accept_retry);
	s->listen_poll.data = s->accept_retry.data = s;
	uv_unref((uv_handle_t *)&s->accept_retry);
	accept_start(s);
}

static void accept_start(struct server *s)
{
	uv_poll_start(&s->listen_poll, UV_READABLE, on_listen);
	if (s->admin.fd >= 0)
		uv_poll_start(&s->admin.poll, UV_READABLE, on_admin);
}

static void accept_stop(struct server *s)
{
	uv_close((uv_handle_t *)&s->listen_poll, NULL);
	if (s->admin.fd >= 0)
		uv_close((uv_handle_t *)&s->admin.poll, NULL);
	uv_close((uv_handle_t *)&s->accept_retry, NULL);
	closep(&s->spare_fd);
}

/* ---- current use by each user: summed each time, so that no count can drift (quota.h) ---- */

/* Maximum number of descriptors of a client: its socket; two while it opens a dataset; three for a dataset,
 * and one for the place of its chunks; two for a session, one for its trainer's process and one for the
 * client's; one for a text. */
#define CONNECTION_FILES 11
/* OWN_FILES: descriptors of the daemon itself, and of datasets that nobody uses. */
#define MIN_FILES   96
#define MAX_READERS 128
#define OWN_FILES   (64 + 3 * CACHE_MAX_IDLE_DATASETS)

/* Sets the maximum numbers of clients and chunks from the limit on open files. */
static void server_size_by_files(struct server *s)
{
	struct rlimit limit = {.rlim_cur = 1024};
	uint64_t files;

	(void)getrlimit(RLIMIT_NOFILE, &limit);
	/* With fewer files, the daemon can do little, and logs that at its start. */
	files = limit.rlim_cur > OWN_FILES + MIN_FILES ? limit.rlim_cur - OWN_FILES : MIN_FILES;
	s->serving.cache.readers.max = files / 16 < MAX_READERS ? (uint32_t)(files / 16) : MAX_READERS;
	files -= s->serving.cache.readers.max;
	s->max_connections = files / 2 / CONNECTION_FILES < SERVER_MAX_CONNECTIONS
				 ? (uint32_t)(files / 2 / CONNECTION_FILES)
				 : SERVER_MAX_CONNECTIONS;
	files -= (uint64_t)s->max_connections * CONNECTION_FILES;
	/* Each segment takes one of the descriptors that are left. */
	s->serving.cache.segments.max = files > SEGMENT_MAX ? SEGMENT_MAX : (uint32_t)files;
}

/* A user, or all users that share one quota (payer). */
struct whose {
	uint32_t uid, payer;
	bool by_payer;
};

static bool is_of(const struct whose *whose, uint32_t uid, uint32_t payer)
{
	return whose->by_payer ? payer == whose->payer : uid == whose->uid;
}

/* Adds the use of a dataset by `whose`. */
static void add_dataset(const struct server *s, const struct cached_dataset *d, const struct whose *whose,
			struct usage *u)
{
	uint64_t chunks = 0, bytes = 0;
	bool opened = false;

	for (const struct connection *c = s->connections; c; c = c->next)
		opened = opened || (c->dataset == d && is_of(whose, c->uid, c->payer));
	if (d->copy.is_held &&
	    (whose->by_payer ? d->payers.open >> whose->payer & 1 : d->copy.uid == whose->uid)) {
		u->of[QUOTA_BYTES] += d->copy.bytes;
		u->of[QUOTA_CHUNKS] += CACHE_HELD_FILES;
	}
	if (!opened)
		return;
	for (const struct session *q = s->serving.sessions; q; q = q->next) {
		if (q->order.dataset != d || !is_of(whose, q->uid, q->payer))
			continue;
		chunks = policy_join_need(d->info.n_chunks, chunks, q->need_chunks);
		bytes += q->need_bytes;
	}
	u->of[QUOTA_BYTES] += d->copy.bytes + (bytes < d->all_bytes ? bytes : d->all_bytes);
	u->of[QUOTA_CHUNKS] += chunks;
}

static void look(const struct server *s, const struct whose *whose, struct usage *ret)
{
	*ret = (struct usage){0};
	for (const struct cached_dataset *d = s->serving.cache.datasets; d; d = d->next)
		add_dataset(s, d, whose, ret);
	for (const struct session *q = s->serving.sessions; q; q = q->next)
		ret->of[QUOTA_BYTES] += is_of(whose, q->uid, q->payer) ? q->cost_bytes : 0;
	ret->of[QUOTA_BYTES] += cache_stuck_bytes(&s->serving.cache, whose->uid);
	for (const struct connection *c = s->connections; c; c = c->next)
		ret->of[QUOTA_BYTES] += is_of(whose, c->uid, c->payer) ? connection_reserved_bytes(c) : 0;
}

static void look_at_all(const struct server *s, struct usage *ret)
{
	*ret = (struct usage){0};
	for (const struct cached_dataset *d = s->serving.cache.datasets; d; d = d->next)
		ret->of[QUOTA_CHUNKS] += policy_join_need(d->info.n_chunks, d->need_chunks, 0) +
					 (d->copy.is_held ? CACHE_HELD_FILES : 0);
	ret->of[QUOTA_BYTES] =
	    cache_floor_bytes(&s->serving.cache) + cache_stuck_bytes(&s->serving.cache, CACHE_ANYBODY);
	for (const struct connection *c = s->connections; c; c = c->next)
		ret->of[QUOTA_BYTES] += connection_opening_bytes(c);
}

int server_check_usage(struct server *s, const struct connection *c, struct error *err)
{
	struct cache *cache = &s->serving.cache;
	struct whose whose = {.uid = c->uid, .payer = c->payer};
	const struct quota quota = serving_quota(&s->serving);
	/* A row of quotas replaces the share. */
	const struct quota of_cache =
	    c->payer == CACHE_QUOTA_REST ? quota : (struct quota){.share_percent = 100};
	struct usage mine, all, paid;
	int r;

	cache_find_holders(cache);
	look(s, &whose, &mine);
	look_at_all(s, &all);
	r = quota_check(&of_cache, c->uid, QUOTA_BYTES, &mine, &all, cache->limit_bytes, err);
	if (r == 0)
		r = quota_check(&quota, c->uid, QUOTA_CHUNKS, &mine, &all, cache->segments.max, err);
	if (r < 0 || cache->quotas.n == 0)
		return r;
	whose.by_payer = true;
	look(s, &whose, &paid);
	return quota_check_payer(&cache->quotas, c->payer, c->uid, paid.of[QUOTA_BYTES], cache->limit_bytes,
				 err);
}

/* Callback for struct cache; user is the server. */
static void server_count_paid(void *user, uint64_t paid[CACHE_QUOTA_PAYERS])
{
	const struct server *s = user;

	for (struct cached_dataset *d = s->serving.cache.datasets; d; d = d->next)
		d->payers.open = d->refs > 0 ? 0 : d->payers.open;
	for (const struct connection *c = s->connections; c; c = c->next) {
		paid[c->payer] += connection_reserved_bytes(c);
		if (c->dataset)
			c->dataset->payers.open |= 1u << c->payer;
	}
}

void server_set_quotas(struct server *s, const struct cache_quotas *quotas)
{
	s->serving.cache.quotas = *quotas;
	for (struct connection *c = s->connections; c; c = c->next) {
		c->payer = cache_quotas_payer_of(quotas, c->fd, c->uid);
		if (c->session)
			c->session->payer = c->payer;
	}
	s->serving.cache.needs_changed = true;
	serving_touch(&s->serving);
}

/* ---- other nodes ---- */

/* Publishes this node's jobs to other nodes every EVERY_MS (diesel-top --nodes). */

#define EVERY_MS 2000

static void on_publish(uv_timer_t *timer)
{
	const struct server *s = timer->data;
	double uptime_s = (double)(clock_monotonic_ns() - s->start_ns) / 1e9;
	char *text = control_report(s->control, uptime_s, REGISTRY_REPORT_BYTES);

	/* If sending fails, drop the text: it is outdated in two seconds. */
	if (text)
		(void)cluster_publish(s->serving.cache.cluster, text);
	free(text);
}

/* To be called once there is a cluster. */
static void publish_start(struct server *s)
{
	uv_timer_init(s->loop, &s->publish);
	s->publish.data = s;
	s->publishes = true;
	uv_timer_start(&s->publish, on_publish, 0, EVERY_MS);
}

static void publish_stop(struct server *s)
{
	if (!s->publishes)
		return;
	s->publishes = false;
	uv_close((uv_handle_t *)&s->publish, NULL);
	(void)cluster_publish(s->serving.cache.cluster,
			      ""); /* otherwise other nodes would report this one as unresponsive */
}

static void on_cache_change(void *user)
{
	struct server *s = user;

	serving_touch(&s->serving);
}

/* How often files of datasets are looked at, whether they were removed. */
#define REMOVED_MS 2000

static void on_removed(uv_timer_t *timer)
{
	struct server *s = timer->data;

	cache_drop_removed(&s->serving.cache);
}

static void on_look_again(uv_timer_t *timer);

static void settle(struct server *s)
{
	uint64_t again_ns, now_ns;

	if (schedule_turn(&s->serving, &again_ns)) {
		now_ns = clock_monotonic_ns();
		if (again_ns == UINT64_MAX)
			uv_timer_stop(&s->look_again);
		else
			uv_timer_start(&s->look_again, on_look_again,
				       again_ns > now_ns ? (again_ns - now_ns) / NS_PER_MS + 1 : 1, 0);
	}
	if (!s->stopping)
		borrow_watch_update(&s->borrow);
}

static void on_settle(uv_check_t *check)
{
	settle(check->data);
}

static void on_look_again(uv_timer_t *timer)
{
	struct server *s = timer->data;

	serving_touch(&s->serving);
	settle(s); /* settles here, because the loop may sleep before its next check */
}

struct log_limit *server_lines_of(struct server *s, uint32_t uid)
{
	return &s->lines[uid % SERVER_LINE_PLACES];
}

static struct log_limit *lines_of(void *user, uint32_t uid)
{
	return server_lines_of(user, uid);
}

static int start_engines(struct server *s, struct error *err)
{
	struct readers *readers = &s->serving.cache.readers;
	int r;

	if (s->serving.options.use_io_uring)
		s->io_why = io_uring_check();
	readers->loop = s->loop;
	readers->fork_server = s->fork_server;
	readers->use_uring = s->serving.options.use_io_uring && s->io_why == 0;
	readers->on_end = on_cache_change;
	readers->user = s;
	r = opener_new(s->loop, s->fork_server, &s->opener);
	if (r < 0)
		return error_errno(err, r, "cannot open datasets");
	r = read_turns_new(&s->serving.cache.turns);
	if (r == 0)
		r = pool_new(s->loop, s->serving.options.knobs.workers, &s->serving.cache.pool);
	return r < 0 ? error_errno(err, r, "cannot start worker threads") : 0;
}

/* The fork server's socket is readable only when the fork server has ended. */
static void on_fork_server(uv_poll_t *poll, int status, int events)
{
	struct server *s = poll->data;

	(void)status;
	(void)events;
	uv_poll_stop(poll);
	if (s->stopping)
		return;
	log_error("the process that starts readers has exited: dieseld can no longer read, and exits");
	s->failed = true;
	raise(SIGTERM);
}

static void start_handles(struct server *s)
{
	accept_init(s);
	uv_poll_init(s->loop, &s->fork_server_poll, s->fork_server->fd);
	s->fork_server_poll.data = s;
	uv_poll_start(&s->fork_server_poll, UV_READABLE, on_fork_server);
	uv_unref((uv_handle_t *)&s->fork_server_poll);
	uv_check_init(s->loop, &s->settle);
	s->settle.data = s;
	uv_check_start(&s->settle, on_settle);
	uv_unref((uv_handle_t *)&s->settle);
	uv_timer_init(s->loop, &s->orphans);
	s->orphans.data = s;
	uv_unref((uv_handle_t *)&s->orphans);
	uv_timer_init(s->loop, &s->removed);
	s->removed.data = s;
	uv_timer_start(&s->removed, on_removed, REMOVED_MS, REMOVED_MS);
	uv_unref((uv_handle_t *)&s->removed);
	uv_timer_init(s->loop, &s->silence);
	s->silence.data = s;
	uv_unref((uv_handle_t *)&s->silence);
	uv_timer_init(s->loop, &s->look_again);
	s->look_again.data = s;
	uv_unref((uv_handle_t *)&s->look_again);
	borrow_watch_start(&s->borrow, s->loop, "", &s->serving.cache);
}

/* Restores the cache of an earlier daemon. If this fails, the cache starts empty. */
static void restore(struct server *s, struct fd_store_items *items)
{
	const struct quota quota = serving_quota(&s->serving);
	int r = handover_new(s->loop, &quota, items, &s->serving.cache.handover);

	if (r < 0)
		log_warning("cached chunks will be lost when dieseld exits: %s", strerror(-r));
	if (s->serving.cache.handover)
		cache_restore(&s->serving.cache);
}

/* Starts staging. If this fails, the daemon runs without it. */
static void start_staging(struct server *s)
{
	const struct stage_options *options = &s->serving.options.stage;
	const struct quota quota = serving_quota(&s->serving);
	int r = 0;

	if (options->folder)
		r = stage_new(s->loop, s->fork_server, &s->serving.cache, options, &quota,
			      &s->serving.cache.stage);
	if (r < 0)
		log_warning("staging is off: %s", strerror(-r));
}

static void on_owners_changed(void *user, struct cluster_group *group)
{
	struct cache *c = user;

	memberships_note_changed(c, group);
	cache_changed(c);
}

int server_start_sharing(struct server *s, struct fork_server *keeper)
{
	struct cache *c = &s->serving.cache;
	const struct cluster_handler handler = {
	    .asked = gives_asked, .given = gives_given, .changed = on_owners_changed, .user = c};
	int r;

	r = cluster_new(s->loop, keeper, &handler, &c->cluster);
	if (r == 0)
		publish_start(s);
	return r;
}

int server_start(struct server *s, uv_loop_t *loop, const char *socket_path,
		 const struct serving_options *options, const struct fork_server *fork_server,
		 struct fd_store_items *items, struct error *err)
{
	int r;

	*s = (struct server){.loop = loop,
			     .socket_path = socket_path,
			     .serving = {.options = *options},
			     .fork_server = fork_server,
			     .listen_fd = -EBADF,
			     .lock_fd = -EBADF,
			     .admin = {.fd = -EBADF, .lock_fd = -EBADF},
			     .spare_fd = -EBADF,
			     .start_ns = clock_monotonic_ns(),
			     .start_unix_ns = clock_realtime_ns()};
	s->left_ns = s->start_ns;
	closer_init(&s->closer, fork_server);
	s->serving.options.window_cache_bytes = options->knobs.cache_bytes;
	cache_init(&s->serving.cache, options->knobs.cache_bytes);
	s->serving.cache.quotas = options->quotas;
	server_size_by_files(s);
	s->serving.cache.handler.changed = on_cache_change;
	s->serving.cache.handler.count_paid = server_count_paid;
	s->serving.cache.handler.lines_of = lines_of;
	s->serving.cache.handler.user = s;
	/* Every user may connect. A user gets only data from files that the user may read. */
	r = listen_open(socket_path, 0666, &s->listen_fd, &s->lock_fd, &s->place, err);
	if (r < 0)
		return r;
	r = start_engines(s, err);
	if (r < 0)
		return r;
	s->serving.jobs = (struct jobs){.loop = loop, .proc_root = "/proc"};
	start_handles(s);
	restore(s, items);
	start_staging(s);
	return 0;
}

/* Returns true if a worker is filling a batch. */
static bool is_anything_running(const struct server *s)
{
	for (const struct session *q = s->serving.sessions; q; q = q->next) {
		if (q->slots.n_filling > 0)
			return true;
	}
	return false;
}

static void finish(struct server *s)
{
	uv_close((uv_handle_t *)&s->drain, NULL);
	uv_close((uv_handle_t *)&s->settle, NULL);
	publish_stop(s);
	uv_close((uv_handle_t *)&s->orphans, NULL);
	uv_close((uv_handle_t *)&s->removed, NULL);
	uv_close((uv_handle_t *)&s->silence, NULL);
	uv_close((uv_handle_t *)&s->look_again, NULL);
	opener_free(s->opener);
	if (s->serving.options.plugins)
		plugins_stop(s->serving.options.plugins);
	borrow_watch_stop(&s->borrow);
	uv_close((uv_handle_t *)&s->fork_server_poll, NULL);
	readers_close(&s->serving.cache.readers);
	s->serving.cache.handover = handover_free(s->serving.cache.handover);
	s->serving.cache.stage = stage_free(s->serving.cache.stage);
	memberships_end_all(&s->serving.cache);
	s->serving.cache.cluster = cluster_free(s->serving.cache.cluster);
	gives_free(&s->serving.cache);
	cache_free(&s->serving.cache);
	jobs_close(&s->serving.jobs);
	pool_free(s->serving.cache.pool);
	read_turns_free(s->serving.cache.turns);
}

static void on_drain(uv_timer_t *timer)
{
	struct server *s = timer->data;
	bool late = clock_monotonic_ns() >= s->drain_until_ns;

	if (is_anything_running(s) && !late)
		return;
	while (s->connections)
		connection_close(s->connections);
	/* Buffers may not be freed under a running worker. */
	if (pool_in_flight(s->serving.cache.pool) == 0 && s->n_connections == 0) {
		finish(s);
	} else if (late) {
		log_warning("dieseld exits although its workers have not completed %llu tasks",
			    (unsigned long long)pool_in_flight(s->serving.cache.pool));
		uv_stop(s->loop);
	}
}

uint64_t server_idle_ms(const struct server *s)
{
	struct pollfd waiting = {.fd = s->listen_fd, .events = POLLIN};

	if (s->n_connections > 0 || poll(&waiting, 1, 0) != 0)
		return 0;
	return (clock_monotonic_ns() - s->left_ns) / NS_PER_MS;
}

void server_stop(struct server *s)
{
	if (s->stopping)
		return;
	s->stopping = s->serving.cache.closing = true;
	listen_remove(s->socket_path, &s->place);
	if (s->admin.fd >= 0)
		listen_remove(s->admin.path, &s->admin.place);
	accept_stop(s);
	for (struct session *q = s->serving.sessions; q; q = q->next)
		q->stopped = true;
	s->drain_until_ns = clock_monotonic_ns() + SERVER_DRAIN_MS * NS_PER_MS;
	uv_timer_init(s->loop, &s->drain);
	s->drain.data = s;
	/* Polls, because several kinds of work must end first, and will do so soon. */
	uv_timer_start(&s->drain, on_drain, 0, 2);
}

void server_free(struct server *s)
{
	/* Clients that were not accepted may have sent messages. */
	if (s->listen_fd >= 0)
		closer_close(&s->closer, s->listen_fd);
	if (s->admin.fd >= 0)
		closer_close(&s->closer, s->admin.fd);
	closer_free(&s->closer);
	closep(&s->admin.lock_fd);
	closep(&s->lock_fd);
}
