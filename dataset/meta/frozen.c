/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/frozen.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataset/meta.h"
#include "lib/cleanup.h"
#include "lib/fd_io.h"

#define TMP_FILE ".frozen.tmp"
#define TEXT     "DIESEL frozen 1\n"

bool frozen_is(int dir_fd, const char *path)
{
	_cleanup_(freep) char *file = NULL;
	struct stat st;

	if (asprintf(&file, "%s/" FROZEN_FILE, path) < 0)
		file = NULL;
	return file && fstatat(dir_fd, file, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

int frozen_error(const char *dataset_path, struct error *err)
{
	return error_set(err, -EROFS,
			 "%s is frozen (it has a snapshot but no metadata). To change the dataset, first run "
			 "`dieselctl rebuild %s`",
			 dataset_path, dataset_path);
}

int frozen_mark(int dir_fd, const char *dataset_path, struct error *err)
{
	unlinkat(dir_fd, TMP_FILE, 0); /* left by a dead writer */
	_cleanup_(closep) int fd =
	    openat(dir_fd, TMP_FILE, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
	int r = fd < 0 ? -errno : fd_write(fd, TEXT, strlen(TEXT));

	if (r == 0 &&
	    (fsync(fd) < 0 || renameat(dir_fd, TMP_FILE, dir_fd, FROZEN_FILE) < 0 || fsync(dir_fd) < 0))
		r = -errno;
	return r < 0 ? error_errno(err, r, "cannot write %s/" FROZEN_FILE, dataset_path) : 0;
}

int frozen_drop_metadata(int dir_fd, const char *dataset_path, struct error *err)
{
	static const char *const files[] = {META_SQLITE_FILE "-journal", META_SQLITE_FILE, META_REDIS_FILE};
	int r = 0;

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]) && r == 0; i++)
		if (unlinkat(dir_fd, files[i], 0) < 0 && errno != ENOENT)
			r = error_errno(err, -errno, "cannot remove %s/%s", dataset_path, files[i]);
	return r < 0 || fsync(dir_fd) == 0 ? r : error_errno(err, -errno, "%s", dataset_path);
}

int frozen_unmark(int dir_fd, const char *dataset_path, struct error *err)
{
	if ((unlinkat(dir_fd, FROZEN_FILE, 0) < 0 && errno != ENOENT) || fsync(dir_fd) < 0)
		return error_errno(err, -errno, "cannot remove %s/" FROZEN_FILE, dataset_path);
	return 0;
}
