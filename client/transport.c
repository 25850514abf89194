/* SPDX-License-Identifier: Apache-2.0 */
#include "client/transport.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/cleanup.h"

/* A daemon that is stopped must not hang its clients for ever; verifying a snapshot of tens of millions of
 * files takes seconds. */
#define REPLY_TIMEOUT_S 60

void wire_fds_close(struct wire_fds *fds)
{
	for (size_t i = 0; i < fds->n; i++)
		closep(&fds->fd[i]);
	fds->n = 0;
}

int transport_connect(const char *path, int *ret_socket, struct error *err)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct timeval timeout = {.tv_sec = REPLY_TIMEOUT_S};
	_cleanup_(closep) int fd = -EBADF;

	if (strlen(path) >= sizeof(address.sun_path))
		return error_set(err, -ENAMETOOLONG, "socket path is longer than %zu bytes: %s",
				 sizeof(address.sun_path) - 1, path);
	memcpy(address.sun_path, path, strlen(path) + 1);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return error_errno(err, -errno, "cannot make a socket");
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
		if (errno == EACCES || errno == EPERM)
			return error_errno(err, -EACCES, "may not connect to dieseld at %s", path);
		return error_set(err, -ECONNREFUSED,
				 "no dieseld at %s (%s): start it, or set DIESEL_SOCKET to where it listens",
				 path, strerror(errno));
	}
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
	*ret_socket = steal_fd(&fd);
	return 0;
}

int transport_send(int socket, const union wire_message *message, const int *fds, size_t n_fds)
{
	union {
		char buffer[CMSG_SPACE(sizeof(int) * WIRE_MAX_FDS)];
		struct cmsghdr align;
	} control = {0};
	struct iovec iov = {.iov_base = (void *)message, .iov_len = message->header.bytes};
	struct msghdr header = {.msg_iov = &iov, .msg_iovlen = 1};

	if (n_fds > 0) {
		struct cmsghdr *c;

		header.msg_control = control.buffer;
		header.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
		c = CMSG_FIRSTHDR(&header);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * n_fds);
	}
	while (sendmsg(socket, &header, MSG_NOSIGNAL) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	return 0;
}

static void collect_fds(struct msghdr *header, struct wire_fds *fds)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c; c = CMSG_NXTHDR(header, c)) {
		size_t n;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (fds->n < WIRE_MAX_FDS)
				fds->fd[fds->n++] = fd;
			else
				close(fd);
		}
	}
}

int transport_receive(int socket, union wire_message *ret_message, struct wire_fds *ret_fds)
{
	union {
		char buffer[CMSG_SPACE(sizeof(int) * WIRE_MAX_FDS)];
		struct cmsghdr align;
	} control;
	union wire_message message = {0};
	struct wire_fds fds = {.n = 0};
	struct iovec iov = {.iov_base = &message, .iov_len = sizeof(message)};
	struct msghdr header = {.msg_iov = &iov,
				.msg_iovlen = 1,
				.msg_control = control.buffer,
				.msg_controllen = sizeof(control.buffer)};
	ssize_t n;
	int r;

	do {
		n = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	if (n == 0)
		return -ECONNRESET;
	collect_fds(&header, &fds);
	r = header.msg_flags & (MSG_TRUNC | MSG_CTRUNC) ? -EPROTO
							: protocol_check(&message, (size_t)n, fds.n);
	if (r < 0) {
		wire_fds_close(&fds);
		return r;
	}
	*ret_message = message;
	*ret_fds = fds;
	return 0;
}

static bool is_gone(int r)
{
	return r == -EPIPE || r == -ECONNRESET || r == -ENOTCONN;
}

int transport_call(int socket, const union wire_message *request, const int *fds, size_t n_fds,
		   enum wire_type expected, union wire_message *ret_reply, struct wire_fds *ret_fds,
		   struct error *err)
{
	struct wire_fds received = {.n = 0};
	union wire_message reply = {0};
	int r = transport_send(socket, request, fds, n_fds);

	/* A daemon that refuses may have answered and closed before the request went out. */
	if (r == 0 || is_gone(r)) {
		int received_r = transport_receive(socket, &reply, &received);

		if (r == 0 || received_r == 0)
			r = received_r;
	}
	if (is_gone(r))
		return error_set(err, -ECONNRESET, "dieseld went away");
	if (r == -EAGAIN)
		return error_set(err, -ETIMEDOUT, "dieseld did not answer within %d s", REPLY_TIMEOUT_S);
	if (r == -EPROTO)
		return error_set(
		    err, -EPROTO,
		    "dieseld answered in an unknown form: client and daemon must be of one version");
	if (r < 0)
		return error_errno(err, r, "cannot talk to dieseld");
	if (reply.header.type == WIRE_ERROR) {
		wire_fds_close(&received);
		return error_set(err, reply.error.code, "%s", reply.error.text);
	}
	if (reply.header.type != (uint32_t)expected) {
		wire_fds_close(&received);
		return error_set(err, -EPROTO, "dieseld answered with message %u instead of %u",
				 reply.header.type, (unsigned)expected);
	}
	*ret_reply = reply;
	if (ret_fds)
		*ret_fds = received;
	else
		wire_fds_close(&received);
	return 0;
}
