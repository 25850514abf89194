/* SPDX-License-Identifier: Apache-2.0 */
#include "support.h"

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

/* What becomes of a process that enters the sandbox and does that; 256: it could not enter. */
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

/* As a process that is told what to do from within. */
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

/* What only wakes is allowed (compute()). */
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

static void test_what_it_allows(void **state)
{
	char text[8];

	socket_pair(ends);
	assert_int_equal(run(compute), 0);
	assert_int_equal(recv(ends[0], text, sizeof(text), 0), 4);
	close(ends[0]);
	close(ends[1]);
}

static void test_what_kills(void **state)
{
	void (*const actions[])(void) = {open_a_file, fork_one, signal_another, map_code, wait_for_a_lock};

	for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++) {
		int status = run(actions[i]);

		assert_true(WIFSIGNALED(status));
		assert_int_equal(WTERMSIG(status), SIGSYS);
	}
}

static void test_who_serves_may_receive(void **state)
{
	int status;

	socket_pair(ends);
	assert_int_equal(send(ends[0], "ask", 3, 0), 3);
	limits.serves = true;
	assert_int_equal(run(serve), 0);
	status = run(open_a_file);
	assert_true(WIFSIGNALED(status));
	limits.serves = false;
	assert_int_equal(send(ends[0], "ask", 3, 0), 3);
	status = run(serve);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGSYS);
	close(ends[0]);
	close(ends[1]);
}

static void test_it_ends(void **state)
{
	int status = run(loop);

	assert_true(WIFSIGNALED(status));
	assert_true(WTERMSIG(status) == SIGXCPU || WTERMSIG(status) == SIGKILL);
	status = run(take_memory);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 7);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_what_it_allows),
	    cmocka_unit_test(test_what_kills),
	    cmocka_unit_test(test_who_serves_may_receive),
	    cmocka_unit_test(test_it_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
