/* SPDX-License-Identifier: Apache-2.0 */

/* A file system in user space that shows another folder: fuse_mirror SOURCE MOUNTPOINT [CONTROL]. Its
 * files are not cached, so that every read reaches this process. Runs in the foreground until it is
 * unmounted. Every user has access.
 *
 * While a file CONTROL/open, CONTROL/read or CONTROL/flush exists, such requests for files in a folder (a
 * dataset's chunks) get no answer, and CONTROL/hangs appears. With CONTROL/write, writes get no answer
 * either. With CONTROL/fail, reads and writes there fail, and with CONTROL/readonly only writes.
 *
 * With FUSE_MIRROR_READ_MS, each read takes that long, and files are cached like those of a network file
 * system. With FUSE_MIRROR_MB_S=N, all reads and writes together get N megabytes per second, one after
 * the other, like those of a disk without priorities. */

#define FUSE_USE_VERSION 31

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int source_fd, control_fd = -1, read_ms, mb_s;
static _Atomic int64_t busy_until_ns;

/* "/a/b" -> "a/b", relative to the source. */
static const char *inner(const char *path)
{
	return path[1] ? path + 1 : ".";
}

static void hang(const char *request, const char *path)
{
	if (control_fd < 0 || !strchr(path + 1, '/'))
		return;
	while (faccessat(control_fd, request, F_OK, 0) == 0) {
		int fd = openat(control_fd, "hangs", O_CREAT | O_WRONLY, 0644);

		if (fd >= 0)
			close(fd);
		usleep(10000);
	}
}

/* Returns the errno with which this request fails, or 0. */
static int fault(const char *path, int is_write)
{
	if (control_fd < 0 || !strchr(path + 1, '/'))
		return 0;
	if (is_write && faccessat(control_fd, "readonly", F_OK, 0) == 0)
		return EROFS;
	return faccessat(control_fd, "fail", F_OK, 0) == 0 ? EIO : 0;
}

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000 + now.tv_nsec;
}

static void take_time(size_t bytes)
{
	int64_t before = busy_until_ns, end;

	if (!mb_s)
		return;
	do {
		int64_t now = now_ns();

		end = (before > now ? before : now) + (int64_t)bytes * 1000 / mb_s;
	} while (!atomic_compare_exchange_weak(&busy_until_ns, &before, end));
	while (now_ns() < end)
		usleep((useconds_t)((end - now_ns()) / 1000 + 1));
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
	int fd = openat(source_fd, inner(path), info->flags & O_ACCMODE);

	hang("open", path);
	if (fd < 0)
		return -errno;
	info->fh = (uint64_t)fd;
	info->keep_cache = read_ms > 0;
	return 0;
}

static int mirror_read(const char *path, char *buffer, size_t size, off_t offset, struct fuse_file_info *info)
{
	ssize_t n = pread((int)info->fh, buffer, size, offset);

	hang("read", path);
	if (fault(path, 0))
		return -fault(path, 0);
	if (read_ms)
		usleep((useconds_t)read_ms * 1000);
	take_time(size);
	return n < 0 ? -errno : (int)n;
}

static int mirror_create(const char *path, mode_t mode, struct fuse_file_info *info)
{
	int fd = fault(path, 1) ? -1 : openat(source_fd, inner(path), O_RDWR | O_CREAT | O_TRUNC, mode);

	if (fd < 0)
		return fault(path, 1) ? -fault(path, 1) : -errno;
	info->fh = (uint64_t)fd;
	return 0;
}

static int mirror_write(const char *path, const char *buffer, size_t size, off_t offset,
			struct fuse_file_info *info)
{
	ssize_t n;

	hang("write", path);
	if (fault(path, 1))
		return -fault(path, 1);
	take_time(size);
	n = pwrite((int)info->fh, buffer, size, offset);
	return n < 0 ? -errno : (int)n;
}

static int mirror_truncate(const char *path, off_t size, struct fuse_file_info *info)
{
	if (fault(path, 1))
		return -fault(path, 1);
	return ftruncate((int)info->fh, size) ? -errno : 0;
}

static int mirror_mkdir(const char *path, mode_t mode)
{
	return mkdirat(source_fd, inner(path), mode) ? -errno : 0;
}

static int mirror_rename(const char *from, const char *to, unsigned flags)
{
	if (flags || fault(to, 1))
		return flags ? -EINVAL : -fault(to, 1);
	return renameat(source_fd, inner(from), source_fd, inner(to)) ? -errno : 0;
}

static int mirror_unlink(const char *path)
{
	if (fault(path, 1))
		return -fault(path, 1);
	return unlinkat(source_fd, inner(path), 0) ? -errno : 0;
}

static int mirror_rmdir(const char *path)
{
	return unlinkat(source_fd, inner(path), AT_REMOVEDIR) ? -errno : 0;
}

static int mirror_flush(const char *path, struct fuse_file_info *info)
{
	(void)info;
	hang("flush", path);
	return 0;
}

static int mirror_release(const char *path, struct fuse_file_info *info)
{
	(void)path;
	return close((int)info->fh) ? -errno : 0;
}

/* Inode numbers are those of the source, so that they stay the same when the kernel forgets an inode. */
static void *mirror_init(struct fuse_conn_info *connection, struct fuse_config *config)
{
	(void)connection;
	config->use_ino = 1;
	return NULL;
}

int main(int argc, char **argv)
{
	static const struct fuse_operations operations = {.init = mirror_init,
							  .getattr = mirror_getattr,
							  .readdir = mirror_readdir,
							  .open = mirror_open,
							  .read = mirror_read,
							  .create = mirror_create,
							  .write = mirror_write,
							  .truncate = mirror_truncate,
							  .mkdir = mirror_mkdir,
							  .rename = mirror_rename,
							  .unlink = mirror_unlink,
							  .rmdir = mirror_rmdir,
							  .flush = mirror_flush,
							  .release = mirror_release};
	char *arguments[] = {argv[0], (char *)"-f", (char *)"-oallow_other,max_threads=100",
			     argc > 2 ? argv[2] : NULL};

	if (argc != 3 && argc != 4)
		return 2;
	if (getenv("FUSE_MIRROR_READ_MS"))
		read_ms = atoi(getenv("FUSE_MIRROR_READ_MS"));
	if (getenv("FUSE_MIRROR_MB_S"))
		mb_s = atoi(getenv("FUSE_MIRROR_MB_S"));
	if (argc == 4)
		control_fd = open(argv[3], O_RDONLY | O_DIRECTORY);
	source_fd = open(argv[1], O_RDONLY | O_DIRECTORY);
	if (source_fd < 0) {
		perror(argv[1]);
		return 1;
	}
	return fuse_main(4, arguments, &operations, NULL);
}
