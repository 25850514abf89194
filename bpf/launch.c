/* SPDX-License-Identifier: Apache-2.0 */
#include "private.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/cleanup.h"

/* The child: waits for the word to go, so that it is tagged before its first own instruction. */
static _Noreturn void child_run(int go_fd, int status_fd, char *const argv[], const sigset_t *signals)
{
	char go;
	int code;

	if (signals)
		sigprocmask(SIG_SETMASK, signals, NULL);
	if (read(go_fd, &go, 1) != 1)
		_exit(127); /* the collector died before the command began */
	execvp(argv[0], argv);
	code = errno;
	if (write(status_fd, &code, sizeof(code)) < 0)
		_exit(127);
	_exit(127);
}

static int reap(pid_t pid)
{
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return 0;
}

/* Returns the errno of a failed exec as a negative number; 0: the command runs. */
static int child_status(int status_fd)
{
	int code;
	ssize_t n;

	do
		n = read(status_fd, &code, sizeof(code));
	while (n < 0 && errno == EINTR);
	return n == sizeof(code) ? -code : 0;
}

int collector_launch(struct collector *collector, char *const argv[], const sigset_t *signals, pid_t *ret_pid,
		     struct error *err)
{
	_cleanup_(closep) int go_read = -1, go_write = -1, status_read = -1, status_write = -1;
	int go[2], status[2], r;
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
	close(steal_fd(&status_write));
	r = collector_tag(collector, pid, err);
	if (r) {
		close(steal_fd(&go_write)); /* end of file: the child leaves */
		reap(pid);
		return r;
	}
	if (write(go_write, "", 1) != 1)
		r = -errno;
	else
		r = child_status(status_read);
	if (r) {
		reap(pid);
		return error_errno(err, r, "cannot run %s", argv[0]);
	}
	*ret_pid = pid;
	return 0;
}
