/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/error.h"
#include "lib/launch.h"

static char touch[] = "touch", missing[] = "/nonexistent/command";
static char path[256];

static int setup(void **state)
{
	if (make_folder(state) < 0)
		return -1;
	snprintf(path, sizeof(path), "%s/made", (const char *)*state);
	return 0;
}

TEST(runs_only_when_told)
{
	char *const argv[] = {touch, path, NULL};
	struct error err = ERROR_INIT;
	struct launch launch;
	int status;

	assert_int_equal(launch_prepare(argv, NULL, &launch, &err), 0);
	usleep(50000); /* long enough for an error to show */
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(launch_go(&launch, &err), 0);
	assert_int_equal(waitpid(launch.pid, &status, 0), launch.pid);
	assert_int_equal(status, 0);
	assert_int_equal(access(path, F_OK), 0);
	assert_int_equal(unlink(path), 0);
}

static int refuse(void *user, pid_t pid, struct error *err)
{
	*(pid_t *)user = pid;
	return error_set(err, -EPERM, "not this one");
}

TEST(a_command_that_cannot_be_watched_never_runs)
{
	char *const argv[] = {touch, path, NULL};
	struct error err = ERROR_INIT;
	pid_t pid = 0, unset = 7;

	assert_int_equal(launch_watched(argv, NULL, refuse, &pid, &unset, &err), -EPERM);
	assert_string_equal(err.text, "not this one");
	assert_int_equal(unset, 7);
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, NULL, 0), -1);
	assert_int_equal(access(path, F_OK), -1);
}

TEST(no_such_command)
{
	char *const argv[] = {missing, NULL};
	struct error err = ERROR_INIT;
	struct launch launch;

	assert_int_equal(launch_prepare(argv, NULL, &launch, &err), 0);
	assert_int_equal(launch_go(&launch, &err), -ENOENT);
	assert_non_null(strstr(err.text, "/nonexistent/command"));
	assert_int_equal(waitpid(launch.pid, NULL, 0), -1);
}

int main(void)
{
	return run_unit_tests(setup, remove_folder);
}
