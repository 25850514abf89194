/* SPDX-License-Identifier: Apache-2.0 */
#include "fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/diesel.h"
#include "client/fetch_channel.h"
#include "lib/cleanup.h"
#include "lib/fd_message.h"

#define SCHEME "s3://"

extern char **environ;

static char *_Atomic program;

bool fetch_is_elsewhere(const char *name)
{
	return strncmp(name, SCHEME, strlen(SCHEME)) == 0;
}

int diesel_dieselctl(const char *path)
{
	char *copy = strdup(path);

	if (!copy)
		return -ENOMEM;
	program = copy; /* the old one may be in use: it is not freed, and there are few */
	return 0;
}

static const char *find_program(void)
{
	const char *given = getenv("DIESEL_DIESELCTL");

	if (given && *given)
		return given;
	given = program;
	return given ? given : "dieselctl";
}

/* With a session of its own, so that Ctrl-C is not for it, and nothing of this process's that it could keep
 * open. It forks and ends at once: what goes on is nobody's child here. */
static int spawn(const char *path, const char *url, const char *socket_path, int channel_fd)
{
	char *const argv[] = {(char *)"dieselctl",
			      (char *)"fetch",
			      (char *)"--socket",
			      (char *)socket_path,
			      (char *)"--",
			      (char *)url,
			      NULL};
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t none, all;
	pid_t pid;
	int r;

	sigemptyset(&none);
	sigfillset(&all);
	if (posix_spawn_file_actions_init(&actions) != 0)
		return -ENOMEM;
	if (posix_spawnattr_init(&attributes) != 0) {
		posix_spawn_file_actions_destroy(&actions);
		return -ENOMEM;
	}
	r = posix_spawn_file_actions_adddup2(&actions, channel_fd, STDIN_FILENO);
	if (r == 0)
		r = posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
	if (r == 0)
		r = posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setsigdefault(&attributes, &all);
	posix_spawnattr_setflags(&attributes,
				 POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
	if (r == 0)
		r = posix_spawnp(&pid, path, &actions, &attributes, argv, environ);
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&actions);
	if (r != 0)
		return -r;
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return 0;
}

/* -EINTR: a signal, whose handler decides whether to go on. */
static int receive(int channel_fd, const char *url, const char *path, struct shown *ret, struct error *err)
{
	struct pollfd p = {.fd = channel_fd, .events = POLLIN};
	struct fetch_reply reply;
	int fds[FD_MESSAGE_MAX_FDS], n;
	size_t n_fds;

	if (poll(&p, 1, -1) < 0)
		return error_errno(err, -errno, "cannot wait for %s", path);
	n = fd_message_receive(channel_fd, &reply, sizeof(reply), 0, fds, &n_fds);
	if (n == sizeof(reply) && reply.result == 0 && n_fds == 2) {
		ret->dir_fd = fds[0];
		ret->snapshot_fd = fds[1];
		return 0;
	}
	for (size_t i = 0; n > 0 && i < n_fds; i++)
		closep(&fds[i]);
	if (n != sizeof(reply) || reply.result >= 0)
		return error_set(
		    err, -EPROTO,
		    "%s: %s, which should read it, ended without a word: is it of version " DIESEL_VERSION
		    "?",
		    url, path);
	reply.text[sizeof(reply.text) - 1] = '\0';
	return error_set(err, reply.result, "%s", reply.text);
}

int fetch_start(const char *url, const char *socket_path, struct shown *ret, struct error *err)
{
	_cleanup_(closep) int ours = -EBADF, theirs = -EBADF;
	const char *path = find_program();
	int ends[2], r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return error_errno(err, -errno, "%s", url);
	ours = ends[0];
	theirs = ends[1];
	r = spawn(path, url, socket_path, theirs);
	closep(&theirs);
	theirs = -EBADF;
	if (r == -ENOENT || r == -EACCES)
		return error_set(err, -ENOENT,
				 "%s: the program that reads buckets, %s, is not there: install the package "
				 "diesel, or set DIESEL_DIESELCTL to where it is",
				 url, path);
	if (r < 0)
		return error_errno(err, r, "%s: cannot start %s", url, path);
	r = receive(ours, url, path, ret, err);
	if (r == 0)
		ret->channel_fd = steal_fd(&ours);
	return r;
}
