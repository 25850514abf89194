/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/limits.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/minmax.h"
#include "lib/proc.h"

#define FILE_BYTES_MAX (64 << 10)

/* The names of the memory controller's files in one version of control groups. */
struct memory_names {
	const char *limits[2];
	const char *usage, *inactive, *active, *oom_file, *oom_key;
};

static const struct memory_names memory_v1 = {{"memory.limit_in_bytes", NULL},
					      "memory.usage_in_bytes",
					      "total_inactive_file",
					      "total_active_file",
					      "memory.oom_control",
					      "oom_kill"};
/* Above memory.high the kernel throttles the group's processes, so it counts as a limit. */
static const struct memory_names memory_v2 = {{"memory.max", "memory.high"},
					      "memory.current",
					      "inactive_file",
					      "active_file",
					      "memory.events",
					      "oom_kill"};

static char *read_text(const char *folder, const char *name)
{
	char path[PATH_MAX], *text = NULL;

	if (snprintf(path, sizeof(path), "%s/%s", folder, name) >= (int)sizeof(path) ||
	    proc_read_file(path, FILE_BYTES_MAX, &text, NULL) < 0)
		return NULL;
	return text;
}

/* Reads a file that holds one number. Returns false if the file holds anything else, such as "max". */
static bool read_number(const char *folder, const char *name, uint64_t *ret)
{
	_cleanup_(freep) char *text = name ? read_text(folder, name) : NULL;

	return text && sscanf(text, "%" SCNu64, ret) == 1;
}

/* Returns the number after a key in a file of lines "key number", or 0 if the key is missing. */
static uint64_t read_key(const char *folder, const char *name, const char *key)
{
	_cleanup_(freep) char *text = read_text(folder, name);
	size_t length = strlen(key);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (!strncmp(line, key, length) && line[length] == ' ')
			return strtoull(line + length, NULL, 10);
	}
	return 0;
}

/* Returns the group's limit; UINT64_MAX: it has none. */
static uint64_t memory_limit(const char *folder, const struct memory_names *names)
{
	uint64_t limit = UINT64_MAX, value;

	for (size_t i = 0; i < 2; i++) {
		if (read_number(folder, names->limits[i], &value))
			limit = min_u64(limit, value);
	}
	/* Version 1 writes "no limit" as a number near 2^63. */
	return limit > UINT64_MAX / 4 ? UINT64_MAX : limit;
}

static void take_memory(const char *folder, const struct memory_names *names, struct limits *limits)
{
	uint64_t limit = memory_limit(folder, names), used, cache;

	if (limit == UINT64_MAX)
		return;
	if (!limits->memory_limit_bytes || limit < limits->memory_limit_bytes)
		limits->memory_limit_bytes = limit;
	if (!read_number(folder, names->usage, &used))
		return;
	limits->memory_free_bytes = min_u64(limits->memory_free_bytes, limit - min_u64(limit, used));
	cache =
	    read_key(folder, "memory.stat", names->inactive) + read_key(folder, "memory.stat", names->active);
	used -= min_u64(used, cache);
	limits->memory_headroom_bytes = min_u64(limits->memory_headroom_bytes, limit - min_u64(limit, used));
}

static void take_quota(double cores, uint64_t used_ns, struct limits *limits)
{
	if (!(cores > 0) || cores >= limits->cpu_quota_cores)
		return;
	limits->cpu_quota_cores = cores;
	limits->cpu_used_ns = used_ns;
}

static void take_cpu_v2(const char *folder, struct limits *limits)
{
	_cleanup_(freep) char *text = read_text(folder, "cpu.max");
	uint64_t quota_us, period_us;

	if (text && sscanf(text, "%" SCNu64 " %" SCNu64, &quota_us, &period_us) == 2 && period_us > 0)
		take_quota((double)quota_us / (double)period_us,
			   read_key(folder, "cpu.stat", "usage_usec") * NS_PER_US, limits);
}

static void take_cpu_v1(const char *folder, struct limits *limits)
{
	uint64_t quota_us, period_us, used_ns = 0;

	/* Without a quota the file contains -1, which reads as a number above INT64_MAX. */
	if (!read_number(folder, "cpu.cfs_quota_us", &quota_us) || quota_us > INT64_MAX ||
	    !read_number(folder, "cpu.cfs_period_us", &period_us) || period_us == 0)
		return;
	(void)read_number(folder, "cpuacct.usage", &used_ns);
	take_quota((double)quota_us / (double)period_us, used_ns, limits);
}

/* ---- hierarchies --------------------------------------------------------------------------------------- */

/* One line of /proc/self/cgroup: "4:cpu,cpuacct:/group". The line of version 2 names no controllers. */
struct cgroup_membership {
	char controllers[128];
	char group[PATH_MAX];
};

typedef void (*group_visit)(void *user, const char *folder, bool own);

static bool has_word(const char *list, const char *word)
{
	size_t length = strlen(word);

	for (const char *at = list; (at = strstr(at, word)); at += length)
		if ((at == list || at[-1] == ',') && (!at[length] || at[length] == ','))
			return true;
	return false;
}

/* Visits a group and all groups above it, as far as they are visible. In a container the path may be that of
 * the host, of which only the mount point exists here. */
static void walk_up(const char *mount, const char *group, group_visit visit, void *user)
{
	char folder[PATH_MAX];
	size_t root = strlen(mount);
	bool own = true;

	if (snprintf(folder, sizeof(folder), "%s%s", mount, strcmp(group, "/") ? group : "") >=
	    (int)sizeof(folder))
		return;
	for (;;) {
		char *slash;

		if (access(folder, F_OK) == 0) {
			visit(user, folder, own);
			own = false;
		}
		slash = strrchr(folder, '/');
		if (!slash || (size_t)(slash - folder) < root)
			return;
		*slash = '\0';
	}
}

/* Calls visit for each group of this process that has the controller, and for all groups above it. A
 * controller of
 * "" means the groups of version 2. */
static void each_group(const char *root, const char *controller, group_visit visit, void *user)
{
	static const char *const mounts_v2[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
	char path[PATH_MAX], mount[PATH_MAX];
	_cleanup_(freep) char *text = NULL;
	char *save = NULL;

	snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
	if (proc_read_file(path, FILE_BYTES_MAX, &text, NULL) < 0)
		return;
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		struct cgroup_membership m = {0};
		char *controllers = strchr(line, ':');
		char *group = controllers ? strchr(++controllers, ':') : NULL;

		if (!group)
			continue;
		*group++ = '\0';
		snprintf(m.controllers, sizeof(m.controllers), "%s", controllers);
		snprintf(m.group, sizeof(m.group), "%s", group);
		if (controller[0] && has_word(m.controllers, controller)) {
			/* A hierarchy is mounted under the list of its controllers, with a link for each
			 * controller. */
			snprintf(mount, sizeof(mount), "%s/sys/fs/cgroup/%s", root, controller);
			walk_up(mount, m.group, visit, user);
		} else if (!controller[0] && !m.controllers[0]) {
			for (size_t i = 0; i < 2; i++) {
				snprintf(mount, sizeof(mount), "%s%s/cgroup.procs", root, mounts_v2[i]);
				if (access(mount, F_OK) < 0)
					continue;
				snprintf(mount, sizeof(mount), "%s%s", root, mounts_v2[i]);
				walk_up(mount, m.group, visit, user);
			}
		}
	}
}

static void take_kills(const char *folder, const struct memory_names *names, struct limits *limits)
{
	limits->oom_kills += read_key(folder, names->oom_file, names->oom_key);
}

static void visit_v2(void *user, const char *folder, bool own)
{
	take_memory(folder, &memory_v2, user);
	take_cpu_v2(folder, user);
	if (own)
		take_kills(folder, &memory_v2, user);
}

static void visit_memory_v1(void *user, const char *folder, bool own)
{
	take_memory(folder, &memory_v1, user);
	if (own)
		take_kills(folder, &memory_v1, user);
}

static void visit_cpu_v1(void *user, const char *folder, bool own)
{
	(void)own;
	take_cpu_v1(folder, user);
}

void limits_read(const char *root, struct limits *ret_limits)
{
	struct limits limits = {.cpu_quota_cores = INFINITY};
	struct proc_meminfo memory;
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/proc", root);
	if (proc_meminfo_read(path, &memory) == 0) {
		limits.machine_bytes = limits.memory_limit_bytes = memory.total_bytes;
		limits.memory_headroom_bytes = memory.available_bytes;
		limits.memory_free_bytes = memory.free_bytes;
	}
	each_group(root, "", visit_v2, &limits);
	each_group(root, "memory", visit_memory_v1, &limits);
	each_group(root, "cpu", visit_cpu_v1, &limits);
	*ret_limits = limits;
}

static void take_unused(const char *folder, const struct memory_names *names, uint64_t *bytes)
{
	uint64_t limit = memory_limit(folder, names), used;

	if (limit != UINT64_MAX && read_number(folder, names->usage, &used))
		*bytes = min_u64(*bytes, limit - min_u64(limit, used));
}

static void visit_unused_v1(void *user, const char *folder, bool own)
{
	(void)own;
	take_unused(folder, &memory_v1, user);
}

static void visit_unused_v2(void *user, const char *folder, bool own)
{
	(void)own;
	take_unused(folder, &memory_v2, user);
}

uint64_t limits_unused_bytes(const char *root)
{
	struct proc_meminfo memory;
	uint64_t bytes = UINT64_MAX;
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/proc", root);
	if (proc_meminfo_read(path, &memory) == 0)
		bytes = memory.available_bytes;
	each_group(root, "", visit_unused_v2, &bytes);
	each_group(root, "memory", visit_unused_v1, &bytes);
	return bytes;
}

struct limit_pressure {
	const char *resource;
	char *buffer;
	size_t size;
	int result;
};

static void visit_pressure(void *user, const char *folder, bool own)
{
	struct limit_pressure *p = user;

	if (p->result == 0 || !own)
		return;
	if (snprintf(p->buffer, p->size, "%s/%s.pressure", folder, p->resource) < (int)p->size &&
	    access(p->buffer, R_OK) == 0)
		p->result = 0;
}

int limits_pressure_path(const char *root, const char *resource, char *buffer, size_t size)
{
	struct limit_pressure p = {resource, buffer, size, -ENOENT};

	each_group(root, "", visit_pressure, &p);
	if (p.result == 0)
		return 0;
	if (snprintf(buffer, size, "%s/proc/pressure/%s", root, resource) >= (int)size)
		return -ENAMETOOLONG;
	return access(buffer, R_OK) == 0 ? 0 : -ENOENT;
}
