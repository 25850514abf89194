/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/array.h"
#include "lib/cleanup.h"
#include "lib/proc.h"
#include "lib/sorted.h"

#define DEPTH_MAX 32 /* maximum depth of groups; deeper ones are left out, and real hierarchies have none */

struct members {
	pid_t *pids;
	size_t n, n_allocated;
};

static void closedirp(DIR **directory)
{
	if (*directory)
		closedir(*directory);
}

static bool is_group(const char *folder)
{
	char path[PATH_MAX];
	int n = snprintf(path, sizeof(path), "%s/cgroup.procs", folder);

	return n < (int)sizeof(path) && access(path, F_OK) == 0;
}

/* A line of mountinfo: "... ROOT MOUNT_POINT OPTIONS [TAGS] - TYPE SOURCE ..." */
static bool is_hierarchy(char *line, const char *type, char **ret_point)
{
	char *tail = strstr(line, " - "), *point = line;
	size_t length = strlen(type);

	if (!tail || strncmp(tail + 3, type, length) || tail[3 + length] != ' ')
		return false;
	for (int i = 0; i < 4; i++) {
		point = strchr(point, ' ');
		if (!point)
			return false;
		point++;
	}
	point[strcspn(point, " ")] = '\0';
	proc_unescape(point);
	*ret_point = point;
	return true;
}

static int find_below(FILE *mounts, const char *type, const char *path, char *buffer, size_t size)
{
	_cleanup_(freep) char *line = NULL;
	size_t n_line = 0;

	rewind(mounts);
	while (getline(&line, &n_line, mounts) > 0) {
		char *point;
		int n;

		if (!is_hierarchy(line, type, &point))
			continue;
		n = snprintf(buffer, size, "%s/%s", point, path + strspn(path, "/"));
		if (n >= (int)size)
			return -ENAMETOOLONG;
		if (is_group(buffer))
			return 0;
	}
	return -ENOENT;
}

int cgroup_find(const char *proc_root, const char *path, char *buffer, size_t size)
{
	_cleanup_(fclosep) FILE *mounts = NULL;
	char file[PATH_MAX];
	int r;

	if (strlen(path) >= size)
		return -ENAMETOOLONG;
	if (is_group(path)) {
		memcpy(buffer, path, strlen(path) + 1);
		return 0;
	}
	if (snprintf(file, sizeof(file), "%s/self/mountinfo", proc_root) >= (int)sizeof(file))
		return -ENAMETOOLONG;
	mounts = fopen(file, "re");
	if (!mounts)
		return -errno;
	r = find_below(mounts, "cgroup2", path, buffer, size);
	return r == -ENOENT ? find_below(mounts, "cgroup", path, buffer, size) : r;
}

static int member_add(struct members *members, pid_t pid)
{
	if (array_reserve(members->pids, members->n, members->n_allocated) < 0)
		return -ENOMEM;
	members->pids[members->n++] = pid;
	return 0;
}

static int procs_read(const char *folder, struct members *members)
{
	_cleanup_(fclosep) FILE *file = NULL;
	char path[PATH_MAX], line[32];

	if (snprintf(path, sizeof(path), "%s/cgroup.procs", folder) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	file = fopen(path, "re");
	if (!file)
		return -errno;
	while (fgets(line, sizeof(line), file)) {
		long pid = strtol(line, NULL, 10);

		/* 0 means a process outside of this PID namespace. */
		if (pid > 0 && pid < INT_MAX && member_add(members, (pid_t)pid) < 0)
			return -ENOMEM;
	}
	return 0;
}

static int group_read(const char *folder, int depth, struct members *members)
{
	_cleanup_(closedirp) DIR *directory = NULL;
	struct dirent *entry;
	int r = procs_read(folder, members);

	if (r < 0)
		return r;
	directory = opendir(folder);
	while (directory && depth < DEPTH_MAX && (entry = readdir(directory))) {
		char path[PATH_MAX];

		if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
			continue;
		if (snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name) >= (int)sizeof(path))
			continue;
		if (group_read(path, depth + 1, members) == -ENOMEM)
			return -ENOMEM;
	}
	return 0;
}

int cgroup_processes(const char *folder, pid_t **ret_pids, size_t *ret_n)
{
	struct members members = {0};
	int r = group_read(folder, 0, &members);

	if (r < 0) {
		free(members.pids);
		return r;
	}
	if (members.n)
		qsort(members.pids, members.n, sizeof(*members.pids), compare_int);
	*ret_pids = members.pids;
	*ret_n = members.n;
	return 0;
}
