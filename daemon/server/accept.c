/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which clients are let in. A refused client gets the reason, and its connection is closed at
 * once. If it stayed in the queue for accept(), the socket would stay readable, and the loop would never
 * sleep. */
#include "server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/transport.h"
#include "connection.h"
#include "lib/cleanup.h"
#include "lib/log.h"
#include "lib/text.h"

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

int listen_open(const char *path, mode_t mode, int *ret_listen_fd, int *ret_lock_fd,
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

void listen_remove(const char *path, const struct listen_place *place)
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

void accept_init(struct server *s)
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

void accept_stop(struct server *s)
{
	uv_close((uv_handle_t *)&s->listen_poll, NULL);
	if (s->admin.fd >= 0)
		uv_close((uv_handle_t *)&s->admin.poll, NULL);
	uv_close((uv_handle_t *)&s->accept_retry, NULL);
	closep(&s->spare_fd);
}
