/* SPDX-License-Identifier: Apache-2.0 */
/* Which files may be loaded: whoever can change one can run programs as the daemon's user. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "plugin.h"

static bool is_trusted(uid_t uid)
{
	struct stat top;

	/* In a user namespace, root may be somebody without a name. */
	return uid == 0 || uid == geteuid() || (stat("/", &top) == 0 && uid == top.st_uid);
}

/* `at` is the file, or a folder above it. In a sticky folder, such as /tmp, others can add, but not replace.
 */
static int check(const char *path, const char *at, const struct stat *status, struct error *err)
{
	const char *what = S_ISDIR(status->st_mode) ? "the folder" : "the codec";

	if (!is_trusted(status->st_uid))
		return error_set(err, -EPERM,
				 "%s is not loaded: %s %s belongs to another user (uid %u) than root and "
				 "dieseld's own: chown it",
				 path, what, at, (unsigned)status->st_uid);
	if ((status->st_mode & (S_IWGRP | S_IWOTH)) &&
	    !(S_ISDIR(status->st_mode) && status->st_mode & S_ISVTX))
		return error_set(err, -EPERM, "%s is not loaded: others may write to %s %s: chmod go-w it",
				 path, what, at);
	return 0;
}

static int check_above(const char *path, struct error *err)
{
	char at[PATH_MAX];
	struct stat status;
	char *slash;

	snprintf(at, sizeof(at), "%s", path);
	do {
		int r;

		slash = strrchr(at, '/');
		slash[slash == at] = '\0';
		if (lstat(at, &status) < 0)
			return error_errno(err, -errno, "%s", at);
		r = check(path, at, &status, err);
		if (r < 0)
			return r;
	} while (slash != at);
	return 0;
}

int plugin_file_open(const char *path, int *ret_fd, struct error *err)
{
	_cleanup_(closep) int fd = -EBADF;
	char real[PATH_MAX];
	struct stat status;
	int r;

	if (path[0] != '/')
		return error_set(err, -EINVAL, "a codec is named by its absolute path, not %s", path);
	if (!realpath(path, real))
		return error_errno(err, -errno, "%s is not loaded", path);
	if (strcmp(real, path) != 0)
		return error_set(err, -ELOOP,
				 "%s is not loaded: it is not the file's own path: name it %s, without links",
				 path, real);
	r = check_above(path, err);
	if (r < 0)
		return r;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	if (fd < 0 || fstat(fd, &status) < 0)
		return error_errno(err, -errno, "%s is not loaded", path);
	if (!S_ISREG(status.st_mode))
		return error_set(err, -EINVAL, "%s is not loaded: it is no file", path);
	r = check(path, path, &status, err);
	if (r < 0)
		return r;
	*ret_fd = steal_fd(&fd);
	return 0;
}
