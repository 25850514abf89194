/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets that contain files whose close takes minutes are closed without waiting. The test measures no time,
 * since a test that waits is killed. */
#include "tests/support.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/sandboxed/closer.h"
#include "lib/cleanup.h"
#include "lib/fd_message.h"

#define LINGER_S 3600

struct net {
	struct fork_server fork_server;
	struct closer closer;
	int listener;
};

static void start(struct net *n, bool helped)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct error err = ERROR_INIT;

	n->fork_server = FORK_SERVER_NONE;
	if (helped)
		assert_int_equal(fork_server_fork(&n->fork_server, &err), 0);
	closer_init(&n->closer, &n->fork_server);
	n->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(n->listener, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(n->listener, 8), 0);
}

static void stop(struct net *n)
{
	closer_free(&n->closer);
	fork_server_end(&n->fork_server);
	close(n->listener);
}

/* Returns a connection whose peer does not read the data sent to it. */
static int lingering(const struct net *n)
{
	static const char some[1 << 16];
	const struct linger linger = {.l_onoff = 1, .l_linger = LINGER_S};
	struct sockaddr_in address;
	socklen_t size = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(getsockname(n->listener, (struct sockaddr *)&address, &size), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
	while (send(fd, some, sizeof(some), MSG_DONTWAIT) > 0)
		continue;
	return fd;
}

/* Sends a message with a lingering connection and one end of a pipe. Returns the pipe's other end, which ends
 * when the files of the message are closed. */
static int send_files(const struct net *n, int socket, size_t bytes)
{
	int fds[2] = {lingering(n)}, ends[2];

	assert_int_equal(pipe(ends), 0);
	fds[1] = ends[1];
	assert_int_equal(fd_message_send(socket, "files", bytes, fds, 2, 0), 0);
	close(fds[0]);
	close(fds[1]);
	return ends[0];
}

/* Asserts that the connection has ended. A peer that checks late gets an error, because its data was not
 * read. */
static void assert_end(int fd)
{
	char none;
	ssize_t n = read(fd, &none, 1);

	assert_true(n == 0 || (n < 0 && errno == ECONNRESET));
	close(fd);
}

static void close_with_files(struct net *n, size_t first_bytes, size_t files_bytes)
{
	int ends[2], pipe_fd;

	socket_pair(ends);
	assert_int_equal(send(ends[0], "first", first_bytes, 0), (int)first_bytes);
	pipe_fd = send_files(n, ends[0], files_bytes);
	closer_close(&n->closer, ends[1]);
	assert_end(ends[0]);
	assert_end(pipe_fd);
}

TEST(files_in_messages)
{
	struct net n;

	start(&n, true);
	close_with_files(&n, 5, 5);
	stop(&n);
}

/* Empty messages look like the end of the socket. */
TEST(files_in_and_behind_empty_messages)
{
	struct net n;

	start(&n, true);
	close_with_files(&n, 0, 5);
	close_with_files(&n, 0, 0);
	stop(&n);
}

TEST_IN_FOLDER(clients_that_were_not_let_in)
{
	_cleanup_(freep) char *path = path_in(*state, "s");
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), client, pipe_fd;
	struct net n;

	start(&n, true);
	strcpy(address.sun_path, path);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(fd, 1), 0);
	client = connect_to(path);
	pipe_fd = send_files(&n, client, 5);
	closer_close(&n.closer, fd);
	assert_end(pipe_fd);
	close(client);
	stop(&n);
}

TEST(more_than_a_socket_holds_is_closed)
{
	struct net n;
	int last = -1;

	start(&n, true);
	for (int i = 0; i < 3000; i++) {
		int ends[2], pipe_fds[2];

		socket_pair(ends);
		assert_int_equal(pipe(pipe_fds), 0);
		assert_int_equal(fd_message_send(ends[0], "files", 5, &pipe_fds[1], 1, 0), 0);
		close(pipe_fds[1]);
		closer_close(&n.closer, ends[1]);
		close(ends[0]);
		if (last >= 0)
			close(last);
		last = pipe_fds[0];
	}
	assert_end(last);
	stop(&n);
}

TEST(without_a_helper)
{
	struct net n;

	start(&n, false);
	close_with_files(&n, 5, 5);
	assert_true(n.closer.fd < 0);
	stop(&n);
}

/* In the usual case the client has gone, or sends no more, and no process is started. */
TEST(empty_sockets_are_closed_here)
{
	struct net n;

	start(&n, true);
	for (int gone = 0; gone < 2; gone++) {
		int ends[2];

		socket_pair(ends);
		if (gone)
			close(ends[0]);
		closer_close(&n.closer, ends[1]);
		if (!gone)
			assert_end(ends[0]);
		assert_true(n.closer.fd < 0);
		errno = 0;
		assert_int_equal(close(ends[1]), -1);
		assert_int_equal(errno, EBADF);
	}
	stop(&n);
}

/* Data that was sent to the client still arrives, and then the end. */
TEST(the_last_line_arrives)
{
	struct net n;
	char line[8];
	int ends[2];

	start(&n, true);
	socket_pair(ends);
	assert_int_equal(send(ends[0], "unread", 6, 0), 6);
	assert_int_equal(send(ends[1], "last", 4, 0), 4);
	closer_close(&n.closer, ends[1]);
	assert_int_equal(recv(ends[0], line, sizeof(line), 0), 4);
	assert_end(ends[0]);
	stop(&n);
}
