/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/bus_error.h"

/* Reads a page of a file that was truncated after it was mapped. */
static void read_what_is_gone(const char *path)
{
	FILE *file = fopen(path, "w+");
	volatile char *map;

	if (!file || ftruncate(fileno(file), 8192) < 0)
		_exit(9);
	map = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fileno(file), 0);
	if (map == MAP_FAILED || map[4096] != 0 || ftruncate(fileno(file), 100) < 0)
		_exit(9);
	_exit(map[4096] ? 8 : 7);
}

/* Runs work() in a child. Returns its wait status and its output. */
static int run(void (*work)(const char *), const char *path, char *ret_said, size_t size)
{
	int status, ends[2];

	assert_int_equal(pipe(ends), 0);
	pid_t pid = fork();
	if (pid == 0) {
		setrlimit(RLIMIT_CORE, &(struct rlimit){0});
		dup2(ends[1], STDERR_FILENO);
		bus_error_init("prog");
		work(path);
		_exit(6);
	}
	close(ends[1]);
	ssize_t n = read(ends[0], ret_said, size - 1);
	assert_true(n >= 0);
	ret_said[n] = '\0';
	close(ends[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

TEST(a_truncated_file_is_one_line)
{
	char path[] = "/tmp/bus\033errorXXXXXX", said[1024], wanted[64];
	int fd = mkstemp(path);
	int status = run(read_what_is_gone, path, said, sizeof(said));

	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 1);
	path[8] = '?';
	snprintf(wanted, sizeof(wanted), "prog: %s can no longer be read", path);
	assert_ptr_equal(strstr(said, wanted), said);
	assert_ptr_equal(strchr(said, '\n'), said + strlen(said) - 1);
	path[8] = '\033';
	unlink(path);
	close(fd);
}

static void send_signal(const char *path)
{
	(void)path;
	kill(getpid(), SIGBUS);
}

TEST(other_causes_kill_as_ever)
{
	char said[64];
	int status = run(send_signal, "", said, sizeof(said));

	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGBUS);
	assert_string_equal(said, "");
}
