/* SPDX-License-Identifier: Apache-2.0 */
#include "sensor_keeper.h"

#include <errno.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/apart/child.h"
#include "lib/capabilities.h"
#include "lib/error.h"
#include "lib/log.h"
#include "lib/sandbox.h"
#include "sensor.h"
#include "sensor_message.h"
#include "sensor_watch.h"

#define NOBODY 65534

/* A watcher is killed after so many looks, one per second, without a sign of life: at work, and while it
 * loads the programs. Looks are counted rather than time, because after everything was frozen the first look
 * is only one. */
#define HUNG_LOOKS    10
#define LOADING_LOOKS 90

uint64_t sensor_keeper_capabilities(void)
{
	return CAPABILITY(CAP_BPF) | CAPABILITY(CAP_PERFMON) | CAPABILITY(CAP_SYS_PTRACE) |
	       CAPABILITY(CAP_DAC_READ_SEARCH);
}

/* Waits for the next START. Returns false if the daemon is gone. */
static bool wait_for_start(int fd)
{
	for (;;) {
		struct sensor_request request;
		ssize_t n = recv(fd, &request, sizeof(request), 0);

		if (n == 0 || (n < 0 && errno != EINTR))
			return false;
		if (n == sizeof(request) && request.type == SENSOR_START)
			return true;
	}
}

/* Waits for the watcher's end, and kills it when it no longer moves: a stopped or looping watcher holds the
 * programs, and only the keeper can start another one. Returns its wait status. */
static int watcher_wait(int fd, pid_t pid, const _Atomic uint32_t *beat)
{
	static const struct sensor_reply hung = {.type = SENSOR_HUNG};
	const struct timespec second = {.tv_sec = 1};
	uint32_t last = 0, now, looks = 0;
	int status = 0;
	sigset_t ended;
	pid_t r;

	sigemptyset(&ended);
	sigaddset(&ended, SIGCHLD);
	while ((r = waitpid(pid, &status, WNOHANG)) == 0 || (r < 0 && errno == EINTR)) {
		if (sigtimedwait(&ended, NULL, &second) >= 0)
			continue;
		now = atomic_load_explicit(beat, memory_order_relaxed);
		looks = now == last ? looks + 1 : 0;
		last = now;
		if (looks != (now ? HUNG_LOOKS : LOADING_LOOKS))
			continue;
		(void)send(fd, &hung, sizeof(hung), MSG_NOSIGNAL | MSG_DONTWAIT);
		kill(pid, SIGKILL);
	}
	return status;
}

/* Runs a watcher; returns its wait status. */
static int watcher_run(int fd, _Atomic uint32_t *beat)
{
	pid_t keeper = getpid(), pid;

	atomic_store(beat, 0);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != keeper)
			_exit(0);
		_exit(sensor_watch_run(fd, beat));
	}
	return pid < 0 ? EXIT_FAILURE << 8 : watcher_wait(fd, pid, beat);
}

/* watcher_wait() waits for SIGCHLD with sigtimedwait(). */
static void block_sigchld(void)
{
	sigset_t blocked;

	sigemptyset(&blocked);
	sigaddset(&blocked, SIGCHLD);
	sigprocmask(SIG_SETMASK, &blocked, NULL);
}

static void keeper_run(int fd)
{
	_Atomic uint32_t *beat =
	    mmap(NULL, sizeof(*beat), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int r;

	if (beat == MAP_FAILED)
		_exit(1);
	block_sigchld();
	r = geteuid() == 0 ? capabilities_keep_as(sensor_keeper_capabilities(), NOBODY, NOBODY)
			   : capabilities_keep(sensor_keeper_capabilities());
	/* A user namespace may not have the user nobody. */
	if (r < 0)
		r = capabilities_keep(sensor_keeper_capabilities());
	if (r < 0)
		_exit(1);
	(void)sandbox_filter(SANDBOX_SENSOR_KEEPER);
	prctl(PR_SET_NAME, "dieseld-keeper");
	while (wait_for_start(fd)) {
		const struct sensor_reply gone = {.type = SENSOR_GONE, .code = watcher_run(fd, beat)};

		if (send(fd, &gone, sizeof(gone), MSG_NOSIGNAL) < 0)
			break;
	}
	_exit(0);
}

int sensor_fork(struct sensor_child *ret_child, struct error *err)
{
	int fd;
	pid_t pid = child_fork("the sensing child", keeper_run, &fd, err);

	if (pid < 0)
		return pid;
	*ret_child = (struct sensor_child){.fd = fd, .pid = pid};
	return 0;
}

int sensor_drop_privileges(struct error *err)
{
	/* CAP_DAC_OVERRIDE and CAP_FOWNER: socket, lock and history may be in another user's directory. A
	 * service unit can take them away. */
	uint64_t keep =
	    CAPABILITY(CAP_DAC_READ_SEARCH) | CAPABILITY(CAP_DAC_OVERRIDE) | CAPABILITY(CAP_FOWNER);
	int r = capabilities_keep(keep);

	return r < 0 ? error_errno(err, r, "cannot give up privileges") : 0;
}
