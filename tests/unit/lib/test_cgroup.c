/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cgroup.h"

/* A tree that looks like /proc and two hierarchies, version 1 and 2. */
static const char *base;

static const char *at(const char *path)
{
	static char text[4][512];
	static int next;

	next = (next + 1) % 4;
	snprintf(text[next], sizeof(text[next]), "%s/%s", base, path);
	return text[next];
}

static int tree_make(void **state)
{
	char mounts[2048];

	if (make_folder(state) < 0)
		return -1;
	base = *state;
	make_folders(base, "two/gone");
	snprintf(mounts, sizeof(mounts),
		 "22 1 0:5 / /dev rw - devtmpfs dev rw\n"
		 "30 1 0:20 / %s/one rw,relatime shared:3 - cgroup cgroup rw,memory\n"
		 "31 1 0:21 / %s/two rw,relatime - cgroup2 cgroup2 rw\n"
		 "32 1 0:22 / - cgroup\n"
		 "33 1 0:23 / %s/one\\040and\\134more rw - cgroup cgroup rw\n",
		 base, base, base);
	write_text(base, "proc/self/mountinfo", mounts);
	write_text(base, "one/docker/cgroup.procs", "7\n");
	write_text(base, "one/old/cgroup.procs", "");
	write_text(base, "one and\\more/named/cgroup.procs", "8\n");
	write_text(base, "two/docker/cgroup.procs", "30\n0\n9\n");
	write_text(base, "two/docker/inner/cgroup.procs", "100\n4\nrubbish\n");
	return 0;
}

TEST(a_cgroup_is_found_in_version_two_first)
{
	char buffer[256];

	assert_int_equal(cgroup_find(at("proc"), "/docker", buffer, sizeof(buffer)), 0);
	assert_string_equal(buffer, at("two/docker")); /* version 2 has priority */
	assert_int_equal(cgroup_find(at("proc"), "docker/inner", buffer, sizeof(buffer)), 0);
	assert_string_equal(buffer, at("two/docker/inner"));
	assert_int_equal(cgroup_find(at("proc"), "/old", buffer, sizeof(buffer)), 0);
	assert_string_equal(buffer, at("one/old"));
	assert_int_equal(cgroup_find(at("proc"), "/named", buffer, sizeof(buffer)), 0);
	assert_string_equal(buffer, at("one and\\more/named"));
	assert_int_equal(cgroup_find(at("proc"), at("one/docker"), buffer, sizeof(buffer)), 0);
	assert_string_equal(buffer, at("one/docker"));
}

TEST(a_missing_cgroup_is_not_found)
{
	char buffer[256], tiny[8];

	assert_int_equal(cgroup_find(at("proc"), "/nothing", buffer, sizeof(buffer)), -ENOENT);
	assert_int_equal(cgroup_find(at("proc"), "/gone", buffer, sizeof(buffer)), -ENOENT);
	assert_int_equal(cgroup_find(at("one"), "/docker", buffer, sizeof(buffer)), -ENOENT);
	assert_int_equal(cgroup_find(at("proc"), "/docker", tiny, sizeof(tiny)), -ENAMETOOLONG);
}

TEST(processes_of_nested_cgroups_are_sorted)
{
	pid_t *pids = NULL;
	size_t n = 99;

	assert_int_equal(cgroup_processes(at("two/docker"), &pids, &n), 0);
	assert_int_equal(n, 4);
	assert_int_equal(pids[0], 4);
	assert_int_equal(pids[1], 9);
	assert_int_equal(pids[2], 30);
	assert_int_equal(pids[3], 100);
	free(pids);
	assert_int_equal(cgroup_processes(at("one/old"), &pids, &n), 0);
	assert_int_equal(n, 0);
	free(pids);
	assert_int_equal(cgroup_processes(at("two/gone"), &pids, &n), -ENOENT);
}

int main(void)
{
	return run_unit_tests(tree_make, remove_folder);
}
