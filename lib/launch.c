/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/error.h"

/* Runs in the child: waits for the signal to start. */
static _Noreturn void child_run(int go_fd, int status_fd, char *const argv[], const sigset_t *signals)
{
	char go;
	int code;

	if (signals)
		sigprocmask(SIG_SETMASK, signals, NULL);
	if (read(go_fd, &go, 1) != 1)
		_exit(127); /* the caller died before the command began */
	execvp(argv[0], argv);
	code = errno;
	if (write(status_fd, &code, sizeof(code)) < 0)
		_exit(127);
	_exit(127);
}

static void reap(pid_t pid)
{
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

/* Returns 0 once the command runs, or the -errno of a failed exec. */
static int child_status(int status_fd)
{
	int code;
	ssize_t n;

	do
		n = read(status_fd, &code, sizeof(code));
	while (n < 0 && errno == EINTR);
	return n == sizeof(code) ? -code : 0;
}

int launch_prepare(char *const argv[], const sigset_t *signals, struct launch *ret_launch, struct error *err)
{
	_cleanup_(closep) int go_read = -1, go_write = -1, status_read = -1, status_write = -1;
	int go[2], status[2];
	pid_t pid;

	if (pipe2(go, O_CLOEXEC))
		return error_errno(err, -errno, "cannot start %s", argv[0]);
	go_read = go[0];
	go_write = go[1];
	if (pipe2(status, O_CLOEXEC))
		return error_errno(err, -errno, "cannot start %s", argv[0]);
	status_read = status[0];
	status_write = status[1];
	pid = fork();
	if (pid < 0)
		return error_errno(err, -errno, "cannot start %s", argv[0]);
	if (pid == 0) {
		close(go_write);
		child_run(go_read, status_write, argv, signals);
	}
	*ret_launch = (struct launch){pid, steal_fd(&go_write), steal_fd(&status_read), argv[0]};
	return 0;
}

/*
 * Sets the error for a command that could not be run. A user who calls this program by its path in a Python
 * environment that is not activated may expect the environment's python to be found by name.
 */
static int error_not_run(const char *name, int code, struct error *err)
{
	char sibling[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", sibling, sizeof(sibling));
	char *end = n > 0 ? memrchr(sibling, '/', (size_t)n) : NULL;
	size_t space = end ? sizeof(sibling) - (size_t)(++end - sibling) : 0;

	if (code == -ENOENT && !strchr(name, '/') && strlen(name) < space) {
		memcpy(end, name, strlen(name) + 1);
		if (access(sibling, X_OK) == 0)
			return error_set(err, code,
					 "cannot run %s: it is not in PATH, but %s exists. Give this path, "
					 "or activate its environment",
					 name, sibling);
	}
	return error_errno(err, code, "cannot run %s", name);
}

int launch_go(struct launch *launch, struct error *err)
{
	int r = write(launch->go_fd, "", 1) == 1 ? child_status(launch->status_fd) : -errno;

	close(launch->go_fd);
	close(launch->status_fd);
	if (r == 0)
		return 0;
	reap(launch->pid);
	return error_not_run(launch->name, r, err);
}

/* Ends the launch without running the command. */
static void abandon(struct launch *launch)
{
	close(launch->go_fd); /* the child sees the end of the file and exits */
	close(launch->status_fd);
	reap(launch->pid);
}

int launch_watched(char *const argv[], const sigset_t *signals,
		   int (*watch)(void *user, pid_t pid, struct error *err), void *user, pid_t *ret_pid,
		   struct error *err)
{
	struct launch launch;
	int r = launch_prepare(argv, signals, &launch, err);

	if (r < 0)
		return r;
	r = watch(user, launch.pid, err);
	if (r < 0) {
		abandon(&launch);
		return r;
	}
	r = launch_go(&launch, err);
	if (r == 0)
		*ret_pid = launch.pid;
	return r;
}
