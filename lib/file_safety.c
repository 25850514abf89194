/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/file_safety.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_trusted(uid_t uid)
{
	struct stat top;

	/* In a user namespace, root may appear as the overflow user, who then owns "/". */
	return uid == 0 || uid == geteuid() || (stat("/", &top) == 0 && uid == top.st_uid);
}

#define OVERFLOW_UID 65534 /* the default of the sysctl kernel.overflowuid */

bool file_safety_is_anybody(uid_t uid)
{
	FILE *file = uid == OVERFLOW_UID ? fopen("/proc/self/uid_map", "re") : NULL;
	unsigned inside = 0, outside = 0, n = 0;
	int fields;

	if (!file)
		return uid == OVERFLOW_UID;
	fields = fscanf(file, "%u %u %u", &inside, &outside, &n);
	fclose(file);
	return fields != 3 || inside != outside || n != UINT32_MAX;
}

enum file_safety file_safety(const struct stat *st)
{
	if (!is_trusted(st->st_uid))
		return FILE_OF_OTHERS;
	if ((st->st_mode & (S_IWGRP | S_IWOTH)) && !(S_ISDIR(st->st_mode) && (st->st_mode & S_ISVTX)))
		return FILE_OPEN_TO_OTHERS;
	return FILE_SAFE;
}

int file_safety_above(const char *path, char at[PATH_MAX], struct stat *found)
{
	snprintf(at, PATH_MAX, "%s", path);
	for (;;) {
		char *slash = strrchr(at, '/');

		if (!slash)
			return -EINVAL;
		if (lstat(at, found) < 0)
			return -errno;
		enum file_safety safety = file_safety(found);

		if (safety != FILE_SAFE || !slash[1])
			return (int)safety;
		slash[slash == at] = '\0';
	}
}

int file_safety_around(const char *path, char real[PATH_MAX], char at[PATH_MAX], struct stat *found)
{
	const char *slash = strrchr(path, '/');
	char above[PATH_MAX] = ".";

	snprintf(at, PATH_MAX, "%s", path);
	if (!path[0] || (slash && !slash[1]))
		return -EINVAL;
	if (slash)
		snprintf(above, sizeof(above), "%.*s", slash == path ? 1 : (int)(slash - path), path);
	return realpath(above, real) ? file_safety_above(real, at, found) : -errno;
}
