/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl_own_daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wordexp.h>

#include "client/admin.h"
#include "client/diesel.h"
#include "lib/cleanup.h"

/* Same values as in on_demand.py, which starts the same daemon. */
#define START_MS   60000
#define MAX_WORDS  64
#define MORE_SCORE "100" /* so the kernel kills the daemon before the job */

static const char *const not_inherited[] = {
    "NOTIFY_SOCKET", "WATCHDOG_PID",    "WATCHDOG_USEC",  "LISTEN_PID",    "LISTEN_FDS",   "LISTEN_FDNAMES",
    "FDSTORE",       "STATE_DIRECTORY", "JOURNAL_STREAM", "INVOCATION_ID", "DIESEL_SOCKET"};

/* Finds the dieseld in $DIESEL_DAEMON, else in the folder of this program. */
static int find_program(char program[PATH_MAX], struct error *err)
{
	const char *given = getenv("DIESEL_DAEMON");
	ssize_t n = readlink("/proc/self/exe", program, PATH_MAX - sizeof("dieseld"));

	if (n > 0) {
		program[n] = '\0';
		strcpy(strrchr(program, '/') + 1, "dieseld");
	}
	if (given && *given)
		snprintf(program, PATH_MAX, "%s", given);
	return access(program, X_OK) == 0
		   ? 0
		   : error_set(
			 err, -ECONNREFUSED,
			 "no dieseld at " DIESEL_DEFAULT_SOCKET
			 ", and no program %s to start: start dieseld, and pass its socket with --socket",
			 program);
}

static void close_words(wordexp_t *words)
{
	wordfree(words);
}

/* Runs dieseld in the child process, which outlives its parent. */
static __attribute__((noreturn)) void become_daemon(const char *const argv[], const char *log)
{
	int null = open("/dev/null", O_RDONLY),
	    out = open(log, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0600),
	    score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	extern char **environ;

	if (setsid() < 0 || null < 0 || out < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 ||
	    dup2(out, 2) < 0 || chdir("/") < 0)
		_exit(1);
	if (score >= 0 && write(score, MORE_SCORE, strlen(MORE_SCORE)) < 0)
		(void)0; /* fails if the score is already higher, which is fine */
	for (size_t i = 0; i < sizeof(not_inherited) / sizeof(not_inherited[0]); i++)
		unsetenv(not_inherited[i]);
	for (char **e = environ; *e;) /* the daemon must not get the job's credentials */
		if (strncmp(*e, "AWS_", 4) == 0 && strchr(*e, '='))
			unsetenv(strndupa(*e, strcspn(*e, "=")));
		else
			e++;
	execv(argv[0], (char *const *)argv);
	dprintf(2, "%s: %s\n", argv[0], strerror(errno));
	_exit(1);
}

/* Waits until the daemon is ready. */
static int spawn(const char *const argv[], const char *log, int ready[2], struct error *err)
{
	struct pollfd poll_fd = {.fd = ready[0], .events = POLLIN};
	char word[8];
	pid_t child = fork();

	if (child == 0) {
		close(ready[0]);
		if (fork() != 0)
			_exit(0);
		become_daemon(argv, log);
	}
	close(ready[1]);
	ready[1] = -EBADF;
	if (child < 0)
		return error_errno(err, -errno, "cannot start %s", argv[0]);
	(void)waitpid(child, NULL, 0);
	if (poll(&poll_fd, 1, START_MS) > 0 && read(ready[0], word, sizeof(word)) > 0)
		return 0;
	return error_set(err, -ECONNREFUSED, "dieseld does not start: its log is %s", log);
}

static int start(const char *program, const char *folder, const char *socket, struct error *err)
{
	char log[PATH_MAX + 16], fd_text[16];
	const char *more = getenv("DIESEL_DAEMON_OPTIONS");
	_cleanup_(close_words) wordexp_t words = {0};
	const char *argv[MAX_WORDS] = {program, "--socket",         socket, "--metrics",
				       "off",   "--exit-when-idle", "300"};
	size_t n = 7;
	int ready[2], r;

	if (more && wordexp(more, &words, WRDE_NOCMD) != 0)
		return error_set(err, -ECONNREFUSED, "DIESEL_DAEMON_OPTIONS is not right: %s", more);
	for (size_t i = 0; i < words.we_wordc && n < MAX_WORDS - 3; i++)
		argv[n++] = words.we_wordv[i];
	snprintf(log, sizeof(log), "%s/dieseld.log", folder);
	if (pipe(ready) < 0) /* the daemon gets the end for writing */
		return error_errno(err, -errno, "cannot start dieseld");
	snprintf(fd_text, sizeof(fd_text), "%d", ready[1]);
	argv[n++] = "--ready-fd";
	argv[n++] = fd_text;
	r = spawn(argv, log, ready, err);
	close(ready[0]);
	if (ready[1] >= 0)
		close(ready[1]);
	return r;
}

/* socket NULL: DIESEL_SOCKET. 0, -ETIMEDOUT, or as admin_open(). */
static int answers(const char *socket, uint32_t timeout_s, struct error *err)
{
	struct admin_client *admin = NULL;
	int r = admin_open(socket, timeout_s, &admin, err);

	admin_close(admin);
	return r;
}

/* Starts the daemon if none runs. A lock makes sure that only one process does so; others wait. */
static int ensure(const char *folder, const char *socket, uint32_t timeout_s, struct error *err)
{
	char program[PATH_MAX], lock[PATH_MAX + 16];
	int r;

	if (answers(socket, timeout_s, NULL) == 0)
		return 0;
	r = find_program(program, err);
	if (r < 0) {
		rmdir(folder); /* succeeds only if the folder is empty */
		return r;
	}
	snprintf(lock, sizeof(lock), "%s/start.lock", folder);
	_cleanup_(closep) int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0 || flock(fd, LOCK_EX) < 0)
		return error_errno(err, -errno, "cannot lock %s", lock);
	r = answers(socket, timeout_s, NULL) == 0 ? 0 : start(program, folder, socket, err);
	if (r == 0 && answers(socket, timeout_s, NULL) < 0)
		r = error_set(err, -ECONNREFUSED, "dieseld does not answer: its log is %s/dieseld.log",
			      folder);
	return r;
}

int ctl_own_daemon(const char *given, uint32_t timeout_s, char text[CTL_SOCKET_MAX], const char **socket,
		   struct error *err)
{
	const char *told = getenv("DIESEL_SOCKET");
	struct error problems = ERROR_INIT;
	char folder[PATH_MAX];

	if (diesel_dieselctl("/proc/self/exe") < 0) /* that reads for datasets outside of a folder */
		return error_errno(err, -ENOMEM, "cannot start");
	*socket = given;
	/* The caller finds other problems of the named daemon when it reads the dataset. */
	if (given || (told && *told))
		return answers(given, timeout_s, err) == -ETIMEDOUT ? -ETIMEDOUT : 0;
	if (answers(DIESEL_DEFAULT_SOCKET, timeout_s, NULL) == 0)
		return 0;
	*socket = text;
	if (admin_own_folder(folder, &problems) < 0)
		return error_set(err, -ECONNREFUSED,
				 "no dieseld at " DIESEL_DEFAULT_SOCKET
				 ", and no folder for a daemon of your own: %s",
				 problems.text);
	if (snprintf(text, CTL_SOCKET_MAX, "%s/dieseld-" DIESEL_VERSION ".sock", folder) >= CTL_SOCKET_MAX)
		return error_set(err, -ECONNREFUSED, "%s is too long for the path of a socket", folder);
	return ensure(folder, text, timeout_s, err);
}
