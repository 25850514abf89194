/* SPDX-License-Identifier: Apache-2.0 */

/* A read-only file system in user space that shows another folder: fuse_mirror SOURCE MOUNTPOINT. Its files
 * are not cached, so that every read asks this process. Runs in the foreground until it is unmounted. */

#define FUSE_USE_VERSION 31

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int source_fd;

/* "/a/b" -> "a/b", relative to the source. */
static const char *inner(const char *path)
{
	return path[1] ? path + 1 : ".";
}

static int mirror_getattr(const char *path, struct stat *st, struct fuse_file_info *info)
{
	(void)info;
	return fstatat(source_fd, inner(path), st, AT_SYMLINK_NOFOLLOW) ? -errno : 0;
}

static int mirror_readdir(const char *path, void *buffer, fuse_fill_dir_t fill, off_t offset,
			  struct fuse_file_info *info, enum fuse_readdir_flags flags)
{
	int fd = openat(source_fd, inner(path), O_RDONLY | O_DIRECTORY);
	DIR *folder = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	(void)offset;
	(void)info;
	(void)flags;
	if (!folder)
		return -errno;
	while ((entry = readdir(folder)))
		fill(buffer, entry->d_name, NULL, 0, 0);
	closedir(folder);
	return 0;
}

static int mirror_open(const char *path, struct fuse_file_info *info)
{
	int fd = openat(source_fd, inner(path), O_RDONLY);

	if (fd < 0)
		return -errno;
	info->fh = (uint64_t)fd;
	return 0;
}

static int mirror_read(const char *path, char *buffer, size_t size, off_t offset, struct fuse_file_info *info)
{
	ssize_t n = pread((int)info->fh, buffer, size, offset);

	(void)path;
	return n < 0 ? -errno : (int)n;
}

static int mirror_release(const char *path, struct fuse_file_info *info)
{
	(void)path;
	return close((int)info->fh) ? -errno : 0;
}

int main(int argc, char **argv)
{
	static const struct fuse_operations operations = {.getattr = mirror_getattr,
							  .readdir = mirror_readdir,
							  .open = mirror_open,
							  .read = mirror_read,
							  .release = mirror_release};
	char *arguments[] = {argv[0], (char *)"-f", argc > 2 ? argv[2] : NULL};

	if (argc != 3)
		return 2;
	source_fd = open(argv[1], O_RDONLY | O_DIRECTORY);
	if (source_fd < 0) {
		perror(argv[1]);
		return 1;
	}
	return fuse_main(3, arguments, &operations, NULL);
}
