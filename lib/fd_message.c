/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/fd_message.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union control {
	char buffer[CMSG_SPACE(sizeof(int) * FD_MESSAGE_MAX_FDS)];
	struct cmsghdr align;
};

int fd_message_send(int socket, const void *data, size_t bytes, const int *fds, size_t n_fds, int flags)
{
	union control control = {0};
	struct iovec iov = {.iov_base = (void *)data, .iov_len = bytes};
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
	while (sendmsg(socket, &header, flags | MSG_NOSIGNAL) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	return 0;
}

/* Moves the descriptors of a message to fds, and closes those that do not fit. Returns their number. */
static size_t collect(struct msghdr *header, int *fds)
{
	size_t n_fds = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c; c = CMSG_NXTHDR(header, c)) {
		size_t n;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (n_fds < FD_MESSAGE_MAX_FDS)
				fds[n_fds++] = fd;
			else
				close(fd);
		}
	}
	return n_fds;
}

int fd_message_receive(int socket, void *data, size_t bytes, int flags, int fds[FD_MESSAGE_MAX_FDS],
		       size_t *n_fds)
{
	union control control;
	struct iovec iov = {.iov_base = data, .iov_len = bytes};
	struct msghdr header = {.msg_iov = &iov,
				.msg_iovlen = 1,
				.msg_control = control.buffer,
				.msg_controllen = sizeof(control.buffer)};
	int received[FD_MESSAGE_MAX_FDS];
	ssize_t n;
	size_t n_received;

	*n_fds = 0;
	do {
		n = recvmsg(socket, &header, flags | MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	n_received = collect(&header, received);
	if (n == 0 || header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
		for (size_t i = 0; i < n_received; i++)
			close(received[i]);
		return n == 0 ? 0 : -EPROTO;
	}
	memcpy(fds, received, n_received * sizeof(int));
	*n_fds = n_received;
	return (int)n;
}
