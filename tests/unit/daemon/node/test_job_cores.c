/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/node/job_cores.h"
#include "lib/cleanup.h"

static void give_away(const char *root, const char *name)
{
	_cleanup_(freep) char *path = path_in(root, name);

	assert_int_equal(chown(path, 12345, 12345), 0);
}

TEST_IN_FOLDER(the_tightest_group_gives_a_job_s_cores)
{
	const char *root = *state;
	struct job_cores c, other;

	write_text(root, "sys/fs/cgroup/cpuset.cpus.effective", "0-4095\n");
	write_text(root, "sys/fs/cgroup/slurm/cpu.max", "max 100000\n");
	write_text(root, "sys/fs/cgroup/slurm/cpuset.cpus.effective", "0-4095\n");
	write_text(root, "sys/fs/cgroup/slurm/job_1/cpuset.cpus.effective", "0\n");
	write_text(root, "sys/fs/cgroup/slurm/job_1/step_0/cgroup.procs", "");
	write_text(root, "proc/10/cgroup", "1:name=x:/y\n0::/slurm/job_1/step_0\n");
	job_cores_read(root, 10, &c);
	assert_int_equal(c.has_cpus, sysconf(_SC_NPROCESSORS_ONLN) > 1);
	assert_int_equal(CPU_COUNT(&c.cpus), 1);
	/* The tightest of all quotas counts, and jobs of one group share it. */
	write_text(root, "sys/fs/cgroup/kubepods/cpu.max", "90000 100000\n");
	write_text(root, "sys/fs/cgroup/kubepods/cpuset.cpus.effective", "0-4095\n");
	write_text(root, "sys/fs/cgroup/kubepods/pod/cpu.max", "50000 100000\n");
	write_text(root, "sys/fs/cgroup/kubepods/pod/a/cpu.max", "max 100000\n");
	write_text(root, "sys/fs/cgroup/kubepods/pod/b/cpu.max", "max 100000\n");
	write_text(root, "proc/11/cgroup", "0::/kubepods/pod/a\n");
	write_text(root, "proc/12/cgroup", "0::/kubepods/pod/b\n");
	job_cores_read(root, 11, &c);
	job_cores_read(root, 12, &other);
	assert_false(c.has_cpus);
	assert_true(c.quota == 0.5);
	assert_true(c.group && c.group == other.group);
	/* Version 1 counts if version 2 has no controllers. */
	write_text(root, "sys/fs/cgroup/cpuset/slurm/uid_7/cpuset.effective_cpus", "0\n");
	write_text(root, "proc/17/cgroup", "5:cpuset:/slurm/uid_7/job_4/step_0\n4:cpu,cpuacct:/\n0::/\n");
	job_cores_read(root, 17, &c);
	assert_int_equal(c.has_cpus, sysconf(_SC_NPROCESSORS_ONLN) > 1);
	/* Groups that are not visible set no limits. */
	write_text(root, "proc/13/cgroup", "0::/../../elsewhere\n");
	write_text(root, "proc/14/cgroup", "0::/gone\n");
	write_text(root, "proc/15/cgroup", "nonsense");
	for (pid_t pid = 13; pid <= 16; pid++) {
		job_cores_read(root, pid, &c);
		assert_true(!c.has_cpus && c.quota == 0);
	}
}

/* Groups that a user creates below its own group give it no cores. */
TEST_IN_FOLDER(groups_of_users)
{
	const char *root = *state;
	struct job_cores c;

	if (geteuid() != 0)
		skip();
	write_text(root, "sys/fs/cgroup/user.slice/u/cpu.max", "max 100000\n");
	write_text(root, "sys/fs/cgroup/user.slice/u/own/cpu.max", "50000 100000\n");
	write_text(root, "sys/fs/cgroup/user.slice/u/own/cpuset.cpus.effective", "0\n");
	write_text(root, "proc/10/cgroup", "0::/user.slice/u/own\n");
	job_cores_read(root, 10, &c);
	assert_true(c.quota == 0.5);
	give_away(root, "sys/fs/cgroup/user.slice/u/own/cpu.max");
	give_away(root, "sys/fs/cgroup/user.slice/u/own/cpuset.cpus.effective");
	job_cores_read(root, 10, &c);
	assert_true(!c.has_cpus && c.quota == 0);
}

static struct job_cores cpus(uint64_t group, int first, int n)
{
	struct job_cores c = {.has_cpus = true, .group = group};

	for (int i = first; i < first + n; i++)
		CPU_SET(i, &c.cpus);
	return c;
}

TEST(what_is_left)
{
	const struct job_cores alice = cpus(1, 0, 6), mallory = cpus(2, 6, 8), all = {.quota = 0},
			       quota = {.quota = 3.5, .group = 3}, large = {.quota = 12, .group = 4};
	const struct job_cores daemon = cpus(0, 0, 16), part = cpus(0, 12, 4);
	struct user_cores jobs[] = {{1, &alice}, {1, &alice}, {2, &mallory}, {3, &all}, {3, &all}, {3, &all}};

	assert_int_equal(job_cores_left(jobs, 0, 1, &daemon.cpus, 16), 16);
	assert_int_equal(job_cores_left(jobs, 6, 1, &daemon.cpus, 16), 8);
	assert_int_equal(job_cores_left(jobs, 6, 2, &daemon.cpus, 16), 10);
	assert_int_equal(job_cores_left(jobs, 6, 3, &daemon.cpus, 16), 2);
	/* Only the cores on which the daemon may run count. */
	assert_int_equal(job_cores_left(jobs, 6, 1, &part.cpus, 16), 2);
	assert_int_equal(job_cores_left(jobs, 2, 3, &part.cpus, 16), 4);
	/* Quotas apply to any cores, once for each group. A user has at least as many cores as its own jobs
	 * have, and one. */
	jobs[3].cores = jobs[4].cores = &quota;
	assert_int_equal(job_cores_left(jobs, 5, 1, &daemon.cpus, 16), 6);
	assert_int_equal(job_cores_left(jobs, 5, 9, &daemon.cpus, 16), 1);
	jobs[3].cores = &large;
	assert_int_equal(job_cores_left(jobs, 5, 3, &daemon.cpus, 16), 15);
	assert_int_equal(job_cores_left(jobs, 5, 1, &daemon.cpus, 16), 6);
	/* Cores that two jobs share are not taken from either. */
	jobs[2].cores = &alice;
	assert_int_equal(job_cores_left(jobs, 3, 2, &daemon.cpus, 16), 16);
}
