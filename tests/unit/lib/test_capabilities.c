/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/capabilities.h"
#include "lib/proc.h"

/* Runs a check in a child, since a dropped capability cannot be regained. Its exit status is the line that
 * failed. */
static void in_child(int (*check)(void))
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0)
		_exit(check());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

#define CHECK(condition)                                                                                     \
	do {                                                                                                 \
		if (!(condition))                                                                            \
			return __LINE__ & 255 ? __LINE__ & 255 : 1;                                          \
	} while (0)

/* Returns the kernel's own information. */
static uint64_t seen(void)
{
	struct proc_status status;

	return proc_status_read("/proc", getpid(), &status) == 0 ? status.effective_capabilities
								 : ~UINT64_C(0);
}

static int keeps_what_it_has(void)
{
	uint64_t wanted = CAPABILITY(CAP_DAC_READ_SEARCH) | CAPABILITY(CAP_BPF), had, now;

	CHECK(capabilities_get(&had) == 0);
	CHECK(capabilities_keep(wanted) == 0);
	CHECK(seen() == (had & wanted));
	CHECK(capabilities_get(&now) == 0 && now == (had & wanted));
	CHECK(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
	/* The capability cannot be regained. */
	CHECK(capabilities_keep(~UINT64_C(0)) == 0);
	CHECK(seen() == (had & wanted));
	CHECK(capabilities_keep(0) == 0);
	CHECK(seen() == 0);
	return 0;
}

static int keeps_them_as_nobody(void)
{
	CHECK(capabilities_keep_as(CAPABILITY(CAP_DAC_READ_SEARCH), 65534, 65534) == 0);
	CHECK(seen() == CAPABILITY(CAP_DAC_READ_SEARCH));
	CHECK(getuid() == 65534 && geteuid() == 65534 && getgid() == 65534);
	CHECK(getgroups(0, NULL) == 0);
	CHECK(setuid(0) < 0);
	return 0;
}

TEST(a_process_keeps_the_named_capabilities)
{
	in_child(keeps_what_it_has);
}

TEST(another_user_keeps_the_named_capabilities)
{
	uint64_t had = 0,
		 needed = CAPABILITY(CAP_DAC_READ_SEARCH) | CAPABILITY(CAP_SETUID) | CAPABILITY(CAP_SETGID);

	assert_int_equal(capabilities_get(&had), 0);
	if ((had & needed) != needed) {
		print_message("not run: needs root\n");
		skip();
	}
	in_child(keeps_them_as_nobody);
}
