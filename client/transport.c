/* SPDX-License-Identifier: Apache-2.0 */
#include "client/transport.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/fd_message.h"
#include "lib/file_safety.h"

_Static_assert(WIRE_MAX_FDS == FD_MESSAGE_MAX_FDS, "one limit");

/* Seconds to wait for a reply, so that a stopped daemon does not hang its clients for ever. Verifying a
 * snapshot of tens of millions of files takes seconds. */
#define REPLY_TIMEOUT_S 60
/* Seconds to wait for a connection: the daemon accepts at once, whatever else it does. */
#define CONNECT_TIMEOUT_S 10

static int connect_timeout(uint32_t timeout_s)
{
	return timeout_s ? (int)timeout_s : CONNECT_TIMEOUT_S;
}

void wire_fds_close(struct wire_fds *fds)
{
	for (size_t i = 0; i < fds->n; i++)
		closep(&fds->fd[i]);
	fds->n = 0;
}

static void set_timeouts(int fd, struct timeval timeout)
{
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
}

void transport_restart(struct transport *t)
{
	t->deadline_ns = t->timeout_s ? clock_monotonic_ns() + t->timeout_s * NS_PER_S : 0;
}

/* Limits a wait to the rest of the request's time. 0 would mean no limit to a socket. */
static void wait_for_the_rest(const struct transport *t)
{
	uint64_t now_ns = clock_monotonic_ns(),
		 rest_us = 1 + (t->deadline_ns > now_ns ? (t->deadline_ns - now_ns) / NS_PER_US : 0);

	if (t->deadline_ns)
		set_timeouts(t->fd, (struct timeval){.tv_sec = (time_t)(rest_us / 1000000),
						     .tv_usec = (suseconds_t)(rest_us % 1000000)});
}

int transport_reach(const char *path, uint32_t timeout_s, struct transport *ret)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct transport t = {.timeout_s = timeout_s};
	_cleanup_(closep) int fd = -EBADF;

	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	memcpy(address.sun_path, path, strlen(path) + 1);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	/* connect() and sends block while the daemon's backlog is full. */
	transport_restart(&t);
	set_timeouts(fd, (struct timeval){.tv_sec = connect_timeout(timeout_s)});
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		return errno == EAGAIN ? -ETIMEDOUT : -errno;
	set_timeouts(fd, (struct timeval){.tv_sec = REPLY_TIMEOUT_S});
	t.fd = steal_fd(&fd);
	*ret = t;
	return 0;
}

static bool is_folder_of(const char *path, uid_t uid)
{
	char folder[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
	const char *slash = strrchr(path, '/');
	struct stat status;

	/* With the slash, so that a link to a folder is followed. */
	snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
	return stat(folder, &status) == 0 && status.st_uid == uid;
}

/* Refuses a server of an untrusted user: anyone who may write to a folder can put a socket there, and answer
 * in the daemon's place. */
static int check_peer(int fd, const char *path, struct error *err)
{
	struct ucred peer = {.uid = (uid_t)-1};
	socklen_t size = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
		return error_errno(err, -errno, "cannot find out which user answers at %s", path);
	if (peer.uid == 0 || peer.uid == geteuid() || is_folder_of(path, peer.uid) ||
	    file_safety_is_anybody(peer.uid))
		return 0;
	return error_set(err, -EPERM,
			 "%s is served by another user (uid %u), who is neither root nor the owner of that "
			 "folder: remove it, because its samples cannot be trusted",
			 path, (unsigned)peer.uid);
}

int transport_connect(const char *path, struct transport *ret, struct error *err)
{
	return transport_connect_within(path, 0, ret, err);
}

int transport_connect_within(const char *path, uint32_t timeout_s, struct transport *ret, struct error *err)
{
	struct transport t = TRANSPORT_INIT;
	int r = transport_reach(path, timeout_s, &t);

	switch (r) {
	case 0:
		r = check_peer(t.fd, path, err);
		if (r < 0)
			transport_close(&t);
		else
			*ret = t;
		return r;
	case -ENAMETOOLONG:
		return error_set(err, r, "socket path is longer than %zu bytes: %s",
				 sizeof((struct sockaddr_un){0}.sun_path) - 1, path);
	case -EMFILE:
	case -ENFILE:
	case -ENOMEM: return error_errno(err, r, "cannot make a socket");
	case -ETIMEDOUT:
		return error_set(err, r,
				 "dieseld at %s accepts no connections for %d s: it is stopped, or hangs",
				 path, connect_timeout(timeout_s));
	case -EACCES:
	case -EPERM: return error_errno(err, -EACCES, "no permission to connect to dieseld at %s", path);
	default:
		return error_set(err, -ECONNREFUSED,
				 "no dieseld at %s (%s): start it, or set DIESEL_SOCKET to its socket", path,
				 strerror(-r));
	}
}

void transport_close(struct transport *t)
{
	closep(&t->fd);
	*t = (struct transport)TRANSPORT_INIT;
}

int transport_send(int socket, const union wire_message *message, const int *fds, size_t n_fds)
{
	return fd_message_send(socket, message, message->header.bytes, fds, n_fds, 0);
}

int transport_receive(int socket, union wire_message *ret_message, struct wire_fds *ret_fds)
{
	union wire_message message = {0};
	struct wire_fds fds = {.n = 0};
	int n = fd_message_receive(socket, &message, sizeof(message), 0, fds.fd, &fds.n), r;

	if (n <= 0)
		return n < 0 ? n : -ECONNRESET;
	r = protocol_check(&message, (size_t)n, fds.n);
	if (r < 0) {
		wire_fds_close(&fds);
		return r;
	}
	*ret_message = message;
	*ret_fds = fds;
	return 0;
}

int transport_peek(int socket, union wire_message *ret_message)
{
	union wire_message message = {0};
	struct iovec iov = {.iov_base = &message, .iov_len = sizeof(message)};
	struct msghdr header = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n;
	int r;

	do {
		n = recvmsg(socket, &header, MSG_PEEK | MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n <= 0)
		return n < 0 ? -errno : -ECONNRESET;
	/* MSG_CTRUNC shows that the message has descriptors, but not how many. The only request with
	 * descriptors has the maximum number. */
	r = header.msg_flags & MSG_TRUNC
		? -EPROTO
		: protocol_check(&message, (size_t)n, header.msg_flags & MSG_CTRUNC ? WIRE_MAX_FDS : 0);
	if (r == 0)
		*ret_message = message;
	return r;
}

void transport_drop(int socket)
{
	(void)recv(socket, NULL, 0, MSG_DONTWAIT);
}

static bool is_gone(int r)
{
	return r == -EPIPE || r == -ECONNRESET || r == -ENOTCONN;
}

/* Ends the connection; the daemon sees that at once. */
static int fail(struct transport *t, struct error *err, int r)
{
	t->broken = true;
	shutdown(t->fd, SHUT_RDWR);
	if (is_gone(r))
		return error_set(err, -ECONNRESET, "dieseld went away");
	if (r == -EAGAIN)
		return error_set(err, -ETIMEDOUT,
				 "dieseld did not answer within %d s: it is stopped, or hangs",
				 t->timeout_s ? (int)t->timeout_s : REPLY_TIMEOUT_S);
	if (r == -EPROTO)
		return error_set(
		    err, -EPROTO,
		    "cannot read dieseld's answer: client and daemon must be of the same version");
	return error_errno(err, r, "cannot communicate with dieseld");
}

int transport_refuse(struct transport *t, struct error *err, const char *what)
{
	(void)fail(t, err, -EPROTO);
	return error_set(err, -EPROTO, "unexpected reply from dieseld: %s", what);
}

static uint16_t next_sequence(struct transport *t, enum wire_type type)
{
	if (type == WIRE_HELLO)
		return 0;
	t->sequence = t->sequence == UINT16_MAX ? 1 : t->sequence + 1;
	return t->sequence;
}

int transport_call(struct transport *t, union wire_message *request, const struct wire_fds *fds,
		   enum wire_type expected, union wire_message *ret_reply, struct wire_fds *ret_fds,
		   struct error *err)
{
	struct wire_fds received = {.n = 0};
	union wire_message reply = {0};
	int r;

	if (t->broken)
		return error_set(err, -ECONNRESET, "dieseld went away");
	request->header.sequence = next_sequence(t, (enum wire_type)request->header.type);
	wait_for_the_rest(t);
	r = transport_send(t->fd, request, fds ? fds->fd : NULL, fds ? fds->n : 0);
	/* A daemon that refuses may have answered and closed before the request went out. */
	if (r == 0 || is_gone(r)) {
		int received_r;

		wait_for_the_rest(t);
		received_r = transport_receive(t->fd, &reply, &received);
		if (r == 0 || received_r == 0)
			r = received_r;
	}
	if (r < 0)
		return fail(t, err, r);
	if (reply.header.sequence != request->header.sequence) {
		wire_fds_close(&received);
		return transport_refuse(t, err, "its number differs from the request's");
	}
	if (reply.header.type == WIRE_ERROR) {
		wire_fds_close(&received);
		return error_set(err, reply.error.code, "%s", reply.error.text);
	}
	if (reply.header.type != (uint32_t)expected) {
		wire_fds_close(&received);
		return transport_refuse(t, err, "its type does not fit the request");
	}
	*ret_reply = reply;
	if (ret_fds)
		*ret_fds = received;
	else
		wire_fds_close(&received);
	return 0;
}

static int offer(struct transport *t, uint32_t version, uint32_t least, struct error *err)
{
	union wire_message request, reply;
	int r;

	protocol_init(&request, WIRE_HELLO);
	request.hello.magic = WIRE_MAGIC;
	request.hello.version = version;
	request.hello.least = least;
	request.hello.revision = version == WIRE_VERSION ? WIRE_REVISION : 0;
	r = transport_call(t, &request, NULL, WIRE_HELLO_REPLY, &reply, NULL, err);
	if (r < 0)
		return r;
	if (reply.hello.version < least || reply.hello.version > version)
		return transport_refuse(t, err, "its protocol version was not offered");
	t->version = reply.hello.version;
	return 0;
}

int transport_hello(struct transport *t, struct error *err)
{
	int r = offer(t, WIRE_VERSION, WIRE_VERSION_LEAST, err);

	/* A daemon from before version 8 compares one number. */
	if (r == -EPROTO && offer(t, WIRE_VERSION_LEAST, WIRE_VERSION_LEAST, NULL) == 0)
		return 0;
	if (r == -EPROTO && err) { /* the daemon's text has its own version */
		size_t used = strlen(err->text);

		snprintf(err->text + used, sizeof(err->text) - used, " (the client is " DIESEL_VERSION ")");
	}
	return r;
}
