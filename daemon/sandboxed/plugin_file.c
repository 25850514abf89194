/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which files may be loaded: anybody who can change one can run code as the daemon's user. */
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
				 "%s is not loaded: %s %s belongs to user %u, but must belong to root or to "
				 "dieseld's user. Run: chown root %s",
				 path, what, at, (unsigned)status->st_uid, at);
	return error_set(err, -EPERM, "%s is not loaded: others may write to %s %s. Run: chmod go-w %s", path,
			 what, at, at);
}

/* Opens the file's folder, starting at the root. Each folder is checked through the descriptor that is used
 * to open the next one, so it cannot be replaced in between. */
static int open_folder(const char *path, int *ret_fd, struct error *err)
{
	_cleanup_(closep) int fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	char at[PATH_MAX] = "/", name[NAME_MAX + 1];
	const char *next = path + 1, *slash;
	struct stat status;

	for (;;) {
		enum file_safety safety;
		int below;

		if (fd < 0 || fstat(fd, &status) < 0)
			return error_errno(err, -errno, "%s", at);
		safety = file_safety(&status);
		if (safety != FILE_SAFE)
			return refuse(safety, path, at, &status, err);
		slash = strchr(next, '/');
		if (!slash)
			break;
		snprintf(at, sizeof(at), "%.*s", (int)(slash - path), path);
		snprintf(name, sizeof(name), "%.*s", (int)(slash - next), next);
		below = openat(fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		closep(&fd);
		fd = below;
		next = slash + 1;
	}
	*ret_fd = steal_fd(&fd);
	return 0;
}

int plugin_file_open(const char *path, int *ret_fd, struct error *err)
{
	_cleanup_(closep) int fd = -EBADF, folder_fd = -EBADF;
	char real[PATH_MAX];
	struct stat status;
	int r;

	if (path[0] != '/')
		return error_set(err, -EINVAL, "the path of a codec must be absolute, not %s", path);
	if (!realpath(path, real))
		return error_errno(err, -errno, "%s is not loaded", path);
	if (strcmp(real, path) != 0)
		return error_set(
		    err, -ELOOP,
		    "%s is not loaded: the path contains symbolic links. Use the path without them: %s", path,
		    real);
	r = open_folder(path, &folder_fd, err);
	if (r < 0)
		return r;
	fd = openat(folder_fd, strrchr(path, '/') + 1,
		    O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	if (fd < 0 || fstat(fd, &status) < 0)
		return error_errno(err, -errno, "%s is not loaded", path);
	if (!S_ISREG(status.st_mode))
		return error_set(err, -EINVAL, "%s is not loaded: not a regular file", path);
	if (file_safety(&status) != FILE_SAFE)
		return refuse(file_safety(&status), path, path, &status, err);
	*ret_fd = steal_fd(&fd);
	return 0;
}
