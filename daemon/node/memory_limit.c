/* SPDX-License-Identifier: Apache-2.0 */
#include "memory_limit.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"

static void take_smaller(uint64_t *limit, uint64_t value)
{
	if (value > 0 && (*limit == 0 || value < *limit))
		*limit = value;
}

static uint64_t read_number(const char *path)
{
	_cleanup_(fclosep) FILE *f = fopen(path, "re");
	char text[64], *end;
	unsigned long long value;

	if (!f || !fgets(text, sizeof(text), f))
		return 0;
	value = strtoull(text, &end, 10); /* "max" gives 0 */
	return end == text ? 0 : value;
}

uint64_t memory_machine_bytes(const char *root)
{
	char path[512], line[256];
	_cleanup_(fclosep) FILE *f = NULL;
	unsigned long long kib;

	snprintf(path, sizeof(path), "%s/proc/meminfo", root);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "MemTotal: %llu kB", &kib) == 1)
			return kib * 1024;
	}
	return 0;
}

/* Takes in the limits of a group and of all its parents. */
static void walk_up(const char *mount, const char *group, const char *file, uint64_t *limit)
{
	char directory[1024], path[1100];

	snprintf(directory, sizeof(directory), "%s", group);
	for (;;) {
		char *slash;

		snprintf(path, sizeof(path), "%s%s/%s", mount, strcmp(directory, "/") == 0 ? "" : directory,
			 file);
		take_smaller(limit, read_number(path));
		slash = strrchr(directory, '/');
		if (!slash || !directory[0])
			return;
		*slash = '\0';
	}
}

uint64_t memory_limit_bytes(const char *root)
{
	uint64_t limit = memory_machine_bytes(root);
	char path[512], line[1024], mount[512];
	_cleanup_(fclosep) FILE *f = NULL;

	snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		char *controllers = strchr(line, ':'),
		     *group = controllers ? strchr(controllers + 1, ':') : NULL;

		if (!group)
			continue;
		*group++ = '\0';
		group[strcspn(group, "\n")] = '\0';
		if (controllers[1] == '\0') {
			static const char *const mounts[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};

			for (size_t i = 0; i < 2; i++) {
				snprintf(mount, sizeof(mount), "%s%s", root, mounts[i]);
				walk_up(mount, group, "memory.max", &limit);
				/* The kernel makes the service wait from here on. */
				walk_up(mount, group, "memory.high", &limit);
			}
		} else if (strcmp(controllers + 1, "memory") == 0) {
			snprintf(mount, sizeof(mount), "%s/sys/fs/cgroup/memory", root);
			walk_up(mount, group, "memory.limit_in_bytes", &limit);
		}
	}
	return limit;
}
