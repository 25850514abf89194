/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/sandbox.h"

#define MIB (1u << 20)

static int ends[2];
static struct sandbox_limits limits = {.memory_bytes = 64 * MIB, .cpu_s = 1};

/* Returns the exit of a process that enters the sandbox and runs action(); 256: it could not enter. */
static int run(void (*action)(void))
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		if (sandbox_enter(&limits) < 0)
			_exit(255);
		action();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 255) {
		print_message("no seccomp filters here\n");
		skip();
	}
	return status;
}

static void nothing(void)
{
}

static void compute(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	volatile char *p = malloc(4 * MIB), *q = mmap(NULL, 4096, PROT_READ, MAP_SHARED, ends[1], 0);

	if (!p)
		_exit(1);
	memset((void *)p, 1, 4 * MIB);
	free((void *)p);
	if (pthread_once(&once, nothing) != 0)
		_exit(3);
	(void)q;
	if (send(ends[1], "done", 4, 0) != 4)
		_exit(2);
}

/* Acts as a process that receives its orders inside the sandbox. */
static void serve(void)
{
	struct itimerval far = {.it_value = {.tv_sec = 1000}};
	char text[8];
	struct iovec iov = {.iov_base = text, .iov_len = sizeof(text)};
	struct msghdr header = {.msg_iov = &iov, .msg_iovlen = 1};

	if (setitimer(ITIMER_PROF, &far, NULL) < 0)
		_exit(1);
	if (recvmsg(ends[1], &header, 0) != 3)
		_exit(2);
	close(ends[1]);
}

static void open_a_file(void)
{
	(void)open("/dev/null", O_RDONLY);
}

static void fork_one(void)
{
	(void)fork();
}

static void signal_another(void)
{
	(void)kill(getppid(), 0);
}

static void map_code(void)
{
	(void)mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* Waits in a futex, which is forbidden. Only calls that wake other threads are allowed (compute()). */
static void wait_for_a_lock(void)
{
	static uint32_t word;

	(void)syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &(struct timespec){.tv_nsec = 1}, NULL, 0);
}

static void loop(void)
{
	for (volatile int forever = 1; forever;)
		;
}

static void take_memory(void)
{
	for (int i = 0; i < 256; i++) {
		if (mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
			_exit(7);
	}
}

TEST(what_it_allows)
{
	char text[8];

	socket_pair(ends);
	assert_int_equal(run(compute), 0);
	assert_int_equal(recv(ends[0], text, sizeof(text), 0), 4);
	close(ends[0]);
	close(ends[1]);
}

TEST(a_forbidden_call_kills_the_process)
{
	void (*const actions[])(void) = {open_a_file, fork_one, signal_another, map_code, wait_for_a_lock};

	for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++) {
		int status = run(actions[i]);

		assert_true(WIFSIGNALED(status));
		assert_int_equal(WTERMSIG(status), SIGSYS);
	}
}

TEST(who_serves_may_receive)
{
	socket_pair(ends);
	assert_int_equal(send(ends[0], "ask", 3, 0), 3);
	limits.serves = true;
	assert_int_equal(run(serve), 0);
	int status = run(open_a_file);
	assert_true(WIFSIGNALED(status));
	limits.serves = false;
	assert_int_equal(send(ends[0], "ask", 3, 0), 3);
	status = run(serve);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGSYS);
	close(ends[0]);
	close(ends[1]);
}

TEST(endless_work_in_a_sandbox_ends)
{
	int status = run(loop);

	assert_true(WIFSIGNALED(status));
	assert_true(WTERMSIG(status) == SIGXCPU || WTERMSIG(status) == SIGKILL);
	status = run(take_memory);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 7);
}

/* ---- the filters of processes that do more ----------------------------------------------------------------
 */

static void *thread(void *user)
{
	*(int *)user = 1;
	return NULL;
}

/* Returns whether the call fails with this error. The calls have arguments with which none could succeed. */
static bool fails(long r, int how)
{
	return r < 0 && errno == how;
}

/* Returns 0, or the number of the first check that failed. */
static int look(enum sandbox_profile profile)
{
	const bool has_network =
	    profile == SANDBOX_DAEMON || profile == SANDBOX_PEER || profile == SANDBOX_PEER_KEEPER;
	const bool forks = profile == SANDBOX_DAEMON || profile == SANDBOX_FORK_SERVER ||
			   profile == SANDBOX_SENSOR_KEEPER || profile == SANDBOX_ASSIST_KEEPER ||
			   profile == SANDBOX_PEER_KEEPER;
	const bool loads = profile == SANDBOX_SENSOR_KEEPER || profile == SANDBOX_ASSIST_KEEPER;
	const bool has_files = profile != SANDBOX_CLOSER;
	char *none[] = {NULL};
	int ran = 0, fd;
	pthread_t id;

	if (!fails(execve("/bin/true", none, none), EPERM))
		return 1;
#ifndef DIESEL_SANITIZED /* LeakSanitizer uses ptrace */
	if (!fails(syscall(SYS_ptrace, -1, 0, 0, 0), EPERM))
		return 2;
#endif
	if (!fails(syscall(SYS_mount, "a", "/nowhere", "tmpfs", 0, NULL), EPERM))
		return 3;
	if (!fails(syscall(SYS_unshare, 0x10000000 /* CLONE_NEWUSER */), EPERM))
		return 4;
	if (!fails(syscall(SYS_clone, 0x10000000 | SIGCHLD, 0, 0, 0, 0), EPERM))
		return 5;
	if (!fails(syscall(SYS_process_vm_writev, getppid(), NULL, 0, NULL, 0, 0), EPERM))
		return 6;
	if (!fails(syscall(SYS_keyctl, 0, 0, 0, 0, 0), EPERM))
		return 7;
	if (!fails(syscall(SYS_socket, 17 /* AF_PACKET */, SOCK_RAW, 0), EPERM))
		return 8;
	fd = socket(AF_INET, SOCK_STREAM, 0);
	if ((fd >= 0) != has_network)
		return 9;
	/* There is no program to load, so an allowed call fails by itself. */
	if (!fails(syscall(SYS_bpf, 5 /* BPF_PROG_LOAD */, NULL, UINT32_MAX), loads ? E2BIG : EPERM))
		return 10;
	fd = open("/dev/null", O_RDONLY);
	if ((fd >= 0) != has_files)
		return 11;
	if (pthread_create(&id, NULL, thread, &ran) == 0) {
		(void)pthread_join(id, NULL);
		if (!ran || !has_files)
			return 12;
	} else if (has_files) {
		return 13;
	}
	pid_t pid = fork();
	if (pid == 0)
		_exit(0);
	if ((pid > 0) != forks)
		return 14;
	if (!fails(syscall(SYS_tgkill, getppid(), getppid(), 0), EPERM))
		return 15;
	return 0;
}

TEST(each_profile_allows_its_calls)
{
	for (int profile = SANDBOX_DAEMON; profile < SANDBOX_N_PROFILES; profile++) {
		int status;
		pid_t pid = fork();

		if (pid == 0) {
			int r = sandbox_filter((enum sandbox_profile)profile);

			_exit(r < 0 ? 255 : look((enum sandbox_profile)profile));
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		if (WIFEXITED(status) && WEXITSTATUS(status) == 255) {
			print_message("no seccomp filters here\n");
			skip();
		}
		if (status != 0)
			print_message("profile %d: status %#x\n", profile, (unsigned)status);
		assert_int_equal(status, 0);
	}
}

/* A later filter takes away rights that an earlier one allowed, as when a fork server becomes another kind of
 * process. */
TEST(filters_add_up)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		if (sandbox_filter(SANDBOX_FORK_SERVER) < 0)
			_exit(255);
		if (sandbox_filter(SANDBOX_CLOSER) < 0)
			_exit(1);
		if (!fails(open("/dev/null", O_RDONLY), EPERM) || fork() >= 0)
			_exit(2);
		_exit(sandbox_filter(SANDBOX_DAEMON) < 0 || fails(open("/dev/null", O_RDONLY), EPERM) ? 0
												      : 3);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(status == 0 || WEXITSTATUS(status) == 255);
}
