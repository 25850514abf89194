/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A directory of its own for each test: *state is its path. Included by each test once. */

#include "../test.h"

#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static inline int scratch_setup(void **state)
{
	const char *root = getenv("TMPDIR");
	char *path;

	if (asprintf(&path, "%s/diesel-test-XXXXXX", root ? root : "/tmp") < 0)
		return -1;
	*state = mkdtemp(path);
	return *state ? 0 : -1;
}

static inline int scratch_remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static inline int scratch_teardown(void **state)
{
	nftw(*state, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS);
	free(*state);
	return 0;
}

static inline char *scratch_path(const char *root, const char *name)
{
	char *path;

	assert_true(asprintf(&path, "%s/%s", root, name) >= 0);
	return path;
}

/* Makes the directories above it too. */
static inline void scratch_write(const char *root, const char *name, const char *text)
{
	char *path = scratch_path(root, name);

	for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		mkdir(path, 0777);
		*slash = '/';
	}
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	fputs(text, file);
	fclose(file);
	free(path);
}

static inline bool scratch_exists(const char *root, const char *name)
{
	char *path = scratch_path(root, name);
	struct stat st;
	bool exists = lstat(path, &st) == 0;

	free(path);
	return exists;
}
