/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/limits.h"

#define MIB (UINT64_C(1) << 20)

/* a folder that looks like /, with proc and sys */
static const char *base;

static void put(const char *path, const char *text)
{
	write_text(base, path, text);
}

static int tree_make(void **state)
{
	if (make_folder(state) < 0)
		return -1;
	base = *state;
	put("proc/meminfo",
	    "MemTotal: 8388608 kB\nMemFree: 1024 kB\nMemAvailable: 4194304 kB\nCached: 0 kB\n");
	return 0;
}

TEST_WITH(without_groups_the_machine_limits, tree_make, remove_folder)
{
	struct limits limits;

	limits_read(base, &limits);
	assert_int_equal(limits.memory_limit_bytes, 8192 * MIB);
	assert_int_equal(limits.memory_headroom_bytes, 4096 * MIB);
	assert_int_equal(limits.memory_free_bytes, 1 * MIB);
	assert_true(isinf(limits.cpu_quota_cores));
	limits_read("/nonexistent", &limits);
	assert_int_equal(limits.memory_limit_bytes, 0);
	assert_int_equal(limits.memory_headroom_bytes, 0);
}

/* The tightest group on the way up counts, for the limit and for the headroom. These may be two groups. */
TEST_WITH(the_tightest_nested_group_counts, tree_make, remove_folder)
{
	struct limits limits;

	put("proc/self/cgroup", "0::/pod/box\n");
	put("sys/fs/cgroup/cgroup.procs", "");
	put("sys/fs/cgroup/pod/memory.max", "1073741824\n");
	put("sys/fs/cgroup/pod/memory.current", "1048576000\n");
	put("sys/fs/cgroup/pod/memory.stat", "anon 5\ninactive_file 0\nactive_file 0\n");
	put("sys/fs/cgroup/pod/cpu.max", "150000 100000\n");
	put("sys/fs/cgroup/pod/cpu.stat", "usage_usec 7000000\nuser_usec 1\n");
	put("sys/fs/cgroup/pod/box/memory.max", "max\n");
	put("sys/fs/cgroup/pod/box/memory.high", "536870912\n");
	put("sys/fs/cgroup/pod/box/memory.current", "500000000\n");
	put("sys/fs/cgroup/pod/box/memory.stat", "inactive_file 100000000\nactive_file 200000000\n");
	put("sys/fs/cgroup/pod/box/memory.events", "low 0\noom 4\noom_kill 3\noom_group_kill 0\n");
	put("sys/fs/cgroup/pod/box/cpu.max", "max 100000\n");
	limits_read(base, &limits);
	assert_int_equal(limits.machine_bytes, 8192 * MIB);
	assert_int_equal(limits.memory_limit_bytes, 512 * MIB);
	assert_int_equal(limits.memory_headroom_bytes, 1073741824 - 1048576000);
	assert_float_equal(limits.cpu_quota_cores, 1.5, 1e-9);
	assert_int_equal(limits.cpu_used_ns, UINT64_C(7000000000));
	assert_int_equal(limits.oom_kills, 3);
	assert_int_equal(limits_unused_bytes(base), 1073741824 - 1048576000);
	/* The group's page cache can be reclaimed, so 212 MiB are left in the group, and the machine's 4 GiB
	 * above it. */
	put("sys/fs/cgroup/pod/memory.max", "max\n");
	limits_read(base, &limits);
	assert_int_equal(limits_unused_bytes(base), 536870912 - 500000000);
	assert_int_equal(limits.memory_headroom_bytes, 536870912 - 200000000);
	assert_int_equal(limits.memory_free_bytes, 1 * MIB);
	put("proc/meminfo", "MemTotal: 8388608 kB\nMemFree: 4194304 kB\nMemAvailable: 4194304 kB\n");
	limits_read(base, &limits);
	assert_int_equal(limits.memory_free_bytes, 536870912 - 500000000);
}

/* A container sees the host's path, but only its own group as the mount point. */
TEST_WITH(container_without_namespace, tree_make, remove_folder)
{
	struct limits limits;

	put("proc/self/cgroup", "0::/docker/0123\n");
	put("sys/fs/cgroup/cgroup.procs", "");
	put("sys/fs/cgroup/memory.max", "268435456\n");
	put("sys/fs/cgroup/memory.current", "67108864\n");
	put("sys/fs/cgroup/memory.events", "oom_kill 1\n");
	limits_read(base, &limits);
	assert_int_equal(limits.memory_limit_bytes, 256 * MIB);
	assert_int_equal(limits.memory_headroom_bytes, 192 * MIB);
	assert_int_equal(limits.oom_kills, 1);
}

TEST_WITH(groups_of_version_one_are_read, tree_make, remove_folder)
{
	struct limits limits;

	put("proc/self/cgroup", "4:memory:/a/b\n3:cpu,cpuacct:/a\n0::/\n");
	put("sys/fs/cgroup/unified/cgroup.procs", "");
	put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
	put("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "2147483648\n");
	put("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "1610612736\n");
	put("sys/fs/cgroup/memory/a/memory.stat", "total_inactive_file 536870912\ntotal_active_file 0\n");
	put("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
	put("sys/fs/cgroup/memory/a/b/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
	put("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "50000\n");
	put("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
	put("sys/fs/cgroup/cpu/a/cpuacct.usage", "123\n");
	put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
	put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
	limits_read(base, &limits);
	assert_int_equal(limits.memory_limit_bytes, 2048 * MIB);
	assert_int_equal(limits.memory_headroom_bytes, 1024 * MIB);
	assert_float_equal(limits.cpu_quota_cores, 0.5, 1e-9);
	assert_int_equal(limits.cpu_used_ns, 123);
	assert_int_equal(limits.oom_kills, 2);
}

TEST_WITH(rubbish_in_limits_does_no_harm, tree_make, remove_folder)
{
	struct limits limits;

	put("proc/self/cgroup", "rubbish\n:\n0:\n::\n0::/x\n");
	put("sys/fs/cgroup/cgroup.procs", "");
	put("sys/fs/cgroup/x/memory.max", "-5\n");
	put("sys/fs/cgroup/x/memory.current", "99999999999999999999999\n");
	put("sys/fs/cgroup/x/cpu.max", "100000 0\n");
	put("sys/fs/cgroup/x/memory.stat", "inactive_file\nactive_file 18446744073709551615\n");
	limits_read(base, &limits);
	assert_int_equal(limits.memory_limit_bytes, 8192 * MIB);
	assert_true(isinf(limits.cpu_quota_cores));
}

TEST_WITH(pressure_is_read_where_a_group_has_it, tree_make, remove_folder)
{
	char path[512], want[512];

	put("proc/self/cgroup", "0::/pod/box\n");
	put("sys/fs/cgroup/cgroup.procs", "");
	put("sys/fs/cgroup/pod/memory.pressure", "");
	put("sys/fs/cgroup/pod/box/cgroup.procs", "");
	assert_int_equal(limits_pressure_path(base, "memory", path, sizeof(path)), -ENOENT);
	put("proc/pressure/memory", "");
	assert_int_equal(limits_pressure_path(base, "memory", path, sizeof(path)), 0);
	snprintf(want, sizeof(want), "%s/proc/pressure/memory", base);
	assert_string_equal(path, want);
	put("sys/fs/cgroup/pod/box/memory.pressure", "");
	assert_int_equal(limits_pressure_path(base, "memory", path, sizeof(path)), 0);
	snprintf(want, sizeof(want), "%s/sys/fs/cgroup/pod/box/memory.pressure", base);
	assert_string_equal(path, want);
}
