/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's side, and the keeper: the one process with privileges, which looks at nothing. */
#include "assist.h"

#include <errno.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "assist_message.h"
#include "daemon/apart/child.h"
#include "judge_ahead.h"
#include "lib/capabilities.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/error.h"
#include "lib/fd_message.h"
#include "lib/kernel_calls.h"
#include "lib/log.h"
#include "lib/sandbox.h"

#define HELPER_FD      (CHILD_FD + 1)
#define RESTART_MIN_MS 500 /* before a watcher that ended is started again; doubled each time */
#define RESTART_MAX_MS 60000

static const uint64_t kept_capabilities =
    CAPABILITY(CAP_BPF) | CAPABILITY(CAP_PERFMON) | CAPABILITY(CAP_SYS_PTRACE) | CAPABILITY(CAP_SYS_ADMIN) |
    CAPABILITY(CAP_SYS_CHROOT) | CAPABILITY(CAP_SETUID) | CAPABILITY(CAP_SETGID);

static bool only_observes; /* set before the keeper is forked, and never after that */

/* ---- the keeper ---------------------------------------------------------------------------------------- */

_Noreturn static void reader_process(int fd, const struct assist_order *order)
{
	if (fd != HELPER_FD && dup2(fd, HELPER_FD) < 0)
		_exit(1);
	close(CHILD_FD);
	(void)kernel_close_range(HELPER_FD + 1, UINT32_MAX);
	_exit(assist_reader_run(HELPER_FD, order, only_observes));
}

static int watcher_start(int daemon_fd)
{
	int fds[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return -errno;
	pid = fork();
	if (pid == 0) {
		close(fds[0]);
		assist_watch_run(daemon_fd, fds[1]);
		_exit(0);
	}
	close(fds[1]);
	if (pid > 0)
		return fds[0];
	close(fds[0]);
	return -EAGAIN;
}

/* Makes readers for the watcher, until that ends. */
static void serve_watcher(int daemon_fd, int watcher_fd)
{
	struct pollfd ends[2] = {{.fd = daemon_fd, .events = POLLIN}, {.fd = watcher_fd, .events = POLLIN}};
	int fds[FD_MESSAGE_MAX_FDS];
	struct assist_order order;
	size_t n_fds;

	while (poll(ends, 2, -1) >= 0 || errno == EINTR) {
		if (ends[0].revents) /* the daemon says nothing: it is gone */
			_exit(0);
		if (!ends[1].revents)
			continue;
		if (fd_message_receive(watcher_fd, &order, sizeof(order), 0, fds, &n_fds) != sizeof(order) ||
		    n_fds != 1)
			return;
		if (fork() == 0)
			reader_process(fds[0], &order);
		close(fds[0]);
	}
}

static void keeper_run(int fd)
{
	const struct sigaction no_children = {.sa_handler = SIG_IGN, .sa_flags = SA_NOCLDWAIT};
	struct assist_job none = {.why = "the process that watches jobs has ended; it is started again"};
	struct pollfd daemon = {.fd = fd, .events = POLLIN};
	int wait_ms = RESTART_MIN_MS, watcher_fd;
	uint64_t begin_ns;

	if (capabilities_keep(kept_capabilities) < 0)
		_exit(1);
	(void)sandbox_filter(SANDBOX_ASSIST_KEEPER);
	prctl(PR_SET_NAME, "dieseld-keeper");
	sigaction(SIGCHLD, &no_children, NULL);
	do {
		begin_ns = clock_monotonic_ns();
		watcher_fd = watcher_start(fd);
		if (watcher_fd >= 0) {
			serve_watcher(fd, watcher_fd);
			close(watcher_fd);
		}
		(void)send(fd, &none, sizeof(none), MSG_DONTWAIT | MSG_NOSIGNAL);
		if (clock_monotonic_ns() - begin_ns > RESTART_MAX_MS * NS_PER_MS)
			wait_ms = RESTART_MIN_MS;
		else if (wait_ms < RESTART_MAX_MS)
			wait_ms *= 2;
	} while (poll(&daemon, 1, wait_ms) == 0);
	_exit(0);
}

int assist_fork(bool observe, struct assist_child *ret, struct error *err)
{
	int fd;
	pid_t pid;

	if (geteuid() != 0)
		return error_set(
		    err, -EPERM,
		    "--assist takes root: files are read ahead with the rights of each job's user");
	only_observes = observe;
	pid = child_fork("the process that reads ahead", keeper_run, &fd, err);
	if (pid < 0)
		return pid;
	*ret = (struct assist_child){.fd = fd, .pid = pid};
	return 0;
}

/* ---- the daemon ---------------------------------------------------------------------------------------- */

struct assist {
	uv_poll_t readable;
	int fd;
	char problem[240];
	struct assist_job jobs[ASSIST_JOBS_MAX];
	uint32_t n_jobs;
	uint64_t files, bytes; /* read ahead for all jobs so far */
	bool closed;
};

static void on_closed(uv_handle_t *handle)
{
	struct assist *a = handle->data;

	closep(&a->fd);
	a->fd = -EBADF;
}

static void forget(struct assist *a, uint32_t i)
{
	a->jobs[i] = a->jobs[--a->n_jobs];
}

/* A job's reader says what it has done so far; it may say anything. */
static void count(struct assist *a, const struct assist_figures *before, const struct assist_figures *now)
{
	if (now->files > before->files)
		a->files += now->files - before->files;
	if (now->bytes > before->bytes)
		a->bytes += now->bytes - before->bytes;
}

static void on_job(struct assist *a, const struct assist_job *job)
{
	const struct assist_figures none = {0};
	uint32_t i = 0;

	while (i < a->n_jobs && a->jobs[i].pid != job->pid)
		i++;
	if (i == ASSIST_JOBS_MAX)
		return;
	count(a, i < a->n_jobs ? &a->jobs[i].figures : &none, &job->figures);
	if (i == a->n_jobs)
		a->n_jobs++;
	else if (a->jobs[i].state != job->state)
		log_info("assist: process %lld (%s): %s: %s", (long long)job->pid, job->name,
			 assist_job_state(job), job->why);
	a->jobs[i] = *job;
	if (job->ended)
		forget(a, i);
}

static void lose(struct assist *a, const char *why)
{
	snprintf(a->problem, sizeof(a->problem), "%s", why);
	log_warning("--assist: nothing is read ahead: %s", why);
	a->n_jobs = 0;
}

/* Of the whole, not of a job: see struct assist_job. */
static void on_word(struct assist *a, const struct assist_job *word)
{
	if (*word->why)
		lose(a, word->why);
	else
		a->problem[0] = '\0';
	if (word->ended)
		assist_stop(a);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
	struct assist *a = poll->data;
	struct assist_job job;
	ssize_t n = recv(a->fd, &job, sizeof(job), MSG_DONTWAIT);

	(void)status;
	(void)events;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n != sizeof(job) || job.state >= ASSIST_N_STATES) {
		lose(a, "the process that does it has ended; restart dieseld");
		assist_stop(a);
		return;
	}
	job.why[sizeof(job.why) - 1] = job.name[sizeof(job.name) - 1] = '\0';
	if (!job.pid)
		on_word(a, &job);
	else
		on_job(a, &job);
}

int assist_start(uv_loop_t *loop, struct assist_child *child, struct assist **ret)
{
	struct assist *a = calloc(1, sizeof(*a));
	int r;

	if (!a)
		return -ENOMEM;
	a->fd = child->fd;
	r = uv_poll_init(loop, &a->readable, a->fd);
	if (r < 0) {
		free(a);
		return r;
	}
	child->fd = -EBADF;
	a->readable.data = a;
	uv_poll_start(&a->readable, UV_READABLE, on_readable);
	*ret = a;
	return 0;
}

void assist_stop(struct assist *a)
{
	if (!a || a->closed)
		return;
	a->closed = true;
	uv_close((uv_handle_t *)&a->readable, on_closed);
}

void assist_free(struct assist *a)
{
	free(a);
}

const char *assist_problem(const struct assist *a)
{
	return a->problem;
}

const struct assist_job *assist_job_at(const struct assist *a, uint32_t i)
{
	return i < a->n_jobs ? &a->jobs[i] : NULL;
}

void assist_totals(const struct assist *a, uint64_t *ret_files, uint64_t *ret_bytes)
{
	*ret_files = a->files;
	*ret_bytes = a->bytes;
}

const char *assist_job_state(const struct assist_job *job)
{
	return assist_state_name((enum assist_state)job->state);
}
