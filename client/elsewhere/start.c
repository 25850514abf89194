/* SPDX-License-Identifier: Apache-2.0 */
#include "start.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/diesel.h"
#include "lib/cleanup.h"

#define MAX_ARGUMENTS 16

extern char **environ;

static char *_Atomic program;

int diesel_dieselctl(const char *path)
{
	char *copy = strdup(path);

	if (!copy)
		return -ENOMEM;
	program = copy; /* the old string may be in use, so it is not freed; calls are few */
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

/* Starts a process with a session of its own, so that Ctrl-C does not reach it, and with no descriptors of
 * this process that it could keep open. It forks and exits at once: the process that continues is not a child
 * of the caller. */
static int spawn(const char *path, char *const argv[], int channel_fd)
{
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

int start_dieselctl(char *const arguments[], int type, const char *dataset, int *ret_channel_fd,
		    struct error *err)
{
	_cleanup_(closep) int ours = -EBADF, theirs = -EBADF;
	char *argv[MAX_ARGUMENTS] = {(char *)"dieselctl"};
	const char *path = find_program();
	int ends[2], r;

	for (size_t i = 0; arguments[i] && i + 2 < MAX_ARGUMENTS; i++)
		argv[i + 1] = arguments[i];
	if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends) < 0)
		return error_errno(err, -errno, "%s", dataset);
	ours = ends[0];
	theirs = ends[1];
	r = spawn(path, argv, theirs);
	if (r == -ENOENT || r == -EACCES)
		return error_set(err, -ENOENT,
				 "%s: program %s not found: set DIESEL_DIESELCTL to its path, which is "
				 "build/release/bin/dieselctl in the source tree, or install the wheel of "
				 "`./dev wheel tools`",
				 dataset, path);
	if (r < 0)
		return error_errno(err, r, "%s: cannot start %s", dataset, path);
	*ret_channel_fd = steal_fd(&ours);
	return 0;
}

int start_broken(const char *dataset, struct error *err)
{
	return error_set(err, -EPROTO, "%s: %s exited without a message: is it version " DIESEL_VERSION "?",
			 dataset, find_program());
}
