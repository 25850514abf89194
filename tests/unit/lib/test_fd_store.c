/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/fd_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/test.h"
#include "lib/fd_message.h"

static int manager_new(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	char name[64];

	/* The name is an abstract one, as containers have. */
	snprintf(name, sizeof(name), "@diesel-test-%d", getpid());
	memcpy(address.sun_path + 1, name + 1, strlen(name) - 1);
	assert_int_equal(bind(fd, (struct sockaddr *)&address,
			      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name))),
			 0);
	setenv("NOTIFY_SOCKET", name, 1);
	return fd;
}

TEST(what_is_said)
{
	int manager = manager_new(), pipe_fds[2], fds[FD_MESSAGE_MAX_FDS], n;
	char text[128] = "";
	size_t n_fds;

	assert_int_equal(pipe(pipe_fds), 0);
	assert_int_equal(fd_store_add("c12", pipe_fds[1]), 0);
	n = fd_message_receive(manager, text, sizeof(text), 0, fds, &n_fds);
	assert_int_equal(n_fds, 1);
	assert_memory_equal(text, "FDSTORE=1\nFDPOLL=0\nFDNAME=c12", (size_t)n);
	assert_int_equal(write(fds[0], "x", 1), 1);
	assert_int_equal(read(pipe_fds[0], text, 1), 1);
	assert_int_equal(fd_store_remove("c12"), 0);
	n = fd_message_receive(manager, text, sizeof(text), 0, fds, &n_fds);
	assert_int_equal(n_fds, 0);
	assert_memory_equal(text, "FDSTOREREMOVE=1\nFDNAME=c12", (size_t)n);
	close(manager);
}

TEST(a_busy_manager_is_not_waited_for)
{
	int manager = manager_new(), r = 0;

	for (int i = 0; i < 1000000 && r == 0; i++)
		r = fd_store_add("c1", 0);
	assert_int_equal(r, -EAGAIN);
	close(manager);
	assert_int_equal(fd_store_add("c1", 0), -ECONNREFUSED);
	unsetenv("NOTIFY_SOCKET");
	assert_int_equal(fd_store_add("c1", 0), 0);
}

TEST(the_store_s_size_is_systemd_s)
{
	setenv("NOTIFY_SOCKET", "@x", 1);
	assert_int_equal(fd_store_max(), 0);
	setenv("FDSTORE", "8192", 1);
	assert_int_equal(fd_store_max(), 8192);
	setenv("FDSTORE", "-1", 1);
	assert_int_equal(fd_store_max(), 0);
	setenv("FDSTORE", "99999999999999", 1);
	assert_int_equal(fd_store_max(), 0);
	setenv("FDSTORE", "7", 1);
	unsetenv("NOTIFY_SOCKET");
	assert_int_equal(fd_store_max(), 0);
	unsetenv("FDSTORE");
}

/* Runs look() in a process of its own, whose descriptors from 3 on are the passed ones. */
static void passed(const char *pid, const char *n, const char *names, void (*look)(struct fd_store_items *))
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		struct fd_store_items items;
		char own[16];

		snprintf(own, sizeof(own), "%d", getpid());
		for (int fd = 3; fd < 6; fd++)
			if (dup2(0, fd) < 0)
				_exit(2);
		close_range(6, UINT32_MAX, 0);
		setenv("LISTEN_PID", pid ? pid : own, 1);
		setenv("LISTEN_FDS", n, 1);
		setenv("LISTEN_FDNAMES", names, 1);
		if (fd_store_take(&items) < 0 || getenv("LISTEN_PID") || getenv("LISTEN_FDS") ||
		    getenv("LISTEN_FDNAMES"))
			_exit(3);
		look(&items);
		fd_store_items_free(&items);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static void expect_three(struct fd_store_items *items)
{
	static const char *const names[] = {"index", "", "c1"};

	if (items->n != 3)
		_exit(4);
	for (int i = 0; i < 3; i++)
		if (strcmp(items->items[i].name, names[i]) != 0 || items->items[i].fd != 3 + i ||
		    fcntl(3 + i, F_GETFD) != FD_CLOEXEC)
			_exit(5);
}

static void expect_one_without_name(struct fd_store_items *items)
{
	if (items->n != 3 || strcmp(items->items[0].name, "c5") != 0 || items->items[1].name[0])
		_exit(6);
}

static void expect_none(struct fd_store_items *items)
{
	if (items->n != 0 || fcntl(3, F_GETFD) != 0) /* not even touched */
		_exit(7);
}

TEST(what_is_passed)
{
	passed(NULL, "3", "index:a-name-that-is-longer-than-any-of-ours:c1", expect_three);
	passed(NULL, "3", "c5", expect_one_without_name);
	/* The number exceeds the descriptors that exist. */
	passed(NULL, "2000", "index::c1", expect_three);
	passed("1", "3", "index:c0:c1", expect_none);
	passed("", "3", "index:c0:c1", expect_none);
	passed(NULL, "-3", "index:c0:c1", expect_none);
	passed(NULL, "x", "index:c0:c1", expect_none);
}
