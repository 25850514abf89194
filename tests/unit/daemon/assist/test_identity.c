/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/assist/identity.h"
#include "lib/cleanup.h"

TEST_IN_FOLDER(a_job_s_cgroup_is_opened_and_no_other)
{
	const char *folder = *state;
	_cleanup_(freep) char *mounted = path_in(folder, "cgroup");

	write_text(folder, "cgroup/job/cgroup.procs", "");
	write_text(folder, "cgroup/memory/job/cgroup.procs", "");
	write_text(folder, "elsewhere/cgroup.procs", "");
	int fd = identity_open_group(mounted, "", "/job");
	assert_true(fd >= 0);
	close(fd);
	fd = identity_open_group(mounted, "/memory", "/job");
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(identity_open_group(mounted, "", "/none"), -ENOENT);
	/* A process sees such a path if its cgroup namespace does not contain the group. */
	assert_int_equal(identity_open_group(mounted, "", "/../elsewhere"), -EXDEV);
	assert_int_equal(identity_open_group(mounted, "/memory", "/../../elsewhere"), -EXDEV);
}
