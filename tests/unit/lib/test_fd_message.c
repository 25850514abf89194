/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/fd_message.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support.h"

static int n_open(void)
{
	int n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

TEST(descriptors_travel_with_their_message)
{
	int pair[2], pipe_fds[2], fds[FD_MESSAGE_MAX_FDS];
	char text[8];
	size_t n_fds;

	socket_pair(pair);
	assert_int_equal(pipe(pipe_fds), 0);
	assert_int_equal(fd_message_send(pair[0], "hello", 6, pipe_fds, 2, 0), 0);
	assert_int_equal(fd_message_send(pair[0], "alone", 6, NULL, 0, 0), 0);
	assert_int_equal(fd_message_receive(pair[1], text, sizeof(text), 0, fds, &n_fds), 6);
	assert_int_equal(n_fds, 2);
	assert_string_equal(text, "hello");
	assert_int_equal(fcntl(fds[0], F_GETFD), FD_CLOEXEC);
	assert_int_equal(write(fds[1], "x", 1), 1);
	assert_int_equal(read(pipe_fds[0], text, 1), 1);
	assert_int_equal(fd_message_receive(pair[1], text, sizeof(text), 0, fds, &n_fds), 6);
	assert_int_equal(n_fds, 0);
	assert_int_equal(fd_message_receive(pair[1], text, sizeof(text), MSG_DONTWAIT, fds, &n_fds), -EAGAIN);
	close(pair[0]);
	assert_int_equal(fd_message_receive(pair[1], text, sizeof(text), 0, fds, &n_fds), 0);
	assert_int_equal(fd_message_send(pair[1], "gone", 5, NULL, 0, 0), -EPIPE);
	close(pair[1]);
}

/* Whatever comes along with a message, no descriptor stays open. */
TEST(what_is_too_much_is_closed)
{
	union {
		char buffer[CMSG_SPACE(3 * sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct iovec iov = {.iov_base = (char[]){"x"}, .iov_len = 1};
	struct msghdr header = {.msg_iov = &iov,
				.msg_iovlen = 1,
				.msg_control = control.buffer,
				.msg_controllen = sizeof(control.buffer)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&header);
	int pair[2], fds[FD_MESSAGE_MAX_FDS], before;
	char text[8];
	size_t n_fds;

	socket_pair(pair);
	before = n_open();
	assert_int_equal(fd_message_send(pair[0], "much too long", 14, pair, 2, 0), 0);
	assert_int_equal(fd_message_receive(pair[1], text, sizeof(text), 0, fds, &n_fds), -EPROTO);
	assert_int_equal(n_fds, 0);
	assert_int_equal(n_open(), before);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(3 * sizeof(int));
	memcpy(CMSG_DATA(c), (int[]){pair[0], pair[0], pair[1]}, 3 * sizeof(int));
	assert_int_equal(sendmsg(pair[0], &header, 0), 1);
	assert_int_equal(fd_message_receive(pair[1], text, sizeof(text), 0, fds, &n_fds), -EPROTO);
	assert_int_equal(n_fds, 0);
	assert_int_equal(n_open(), before);
	close(pair[0]);
	close(pair[1]);
}
