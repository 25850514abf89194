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
#include "lib/file_safety.h"
#include "plugin.h"

/* `at` is the file, or a folder above it. */
static int refuse(enum file_safety safety, const char *path, const char *at, const struct stat *status,
		  struct error *err)
{
	const char *what = S_ISDIR(status->st_mode) ? "the folder" : "the codec";

	if (safety == FILE_OF_OTHERS)
		return error_set(err, -EPERM,
				 "%s is not loaded: %s %s belongs to another user (uid %u) than root and "
				 "dieseld's own: chown it",
				 path, what, at, (unsigned)status->st_uid);
	return error_set(err, -EPERM, "%s is not loaded: others may write to %s %s: chmod go-w it", path,
			 what, at);
}

static int check_above(const char *path, struct error *err)
{
	char folder[PATH_MAX], at[PATH_MAX];
	struct stat status;
	int r = file_safety_around(path, folder, at, &status);

	if (r < 0)
		return error_errno(err, r, "%s", at);
	return r == FILE_SAFE ? 0 : refuse((enum file_safety)r, path, at, &status, err);
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
	if (file_safety(&status) != FILE_SAFE)
		return refuse(file_safety(&status), path, path, &status, err);
	*ret_fd = steal_fd(&fd);
	return 0;
}
