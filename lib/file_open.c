/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/file_open.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/cleanup.h"

#define FLAGS     (O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
#define MAX_LINKS 40 /* maximum number of links to follow, as in the kernel */

struct path_walk {
	char rest[PATH_MAX]; /* rest of the path */
	int fd;              /* the folder reached so far */
	int n_links;
	bool was_led; /* a link of `leader`, who is neither root nor this user, led here */
	uid_t leader;
	bool to_file; /* the path may end with a file */
};

static int restart(struct path_walk *w, const char *rest)
{
	closep(&w->fd);
	w->fd = open(rest[0] == '/' ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	return w->fd < 0 ? -errno : 0;
}

/* Prepends the target of a link to the rest of the path. */
static int follow(struct path_walk *w, int link_fd, const struct stat *st, const char *rest)
{
	char whole[PATH_MAX];
	ssize_t n = readlinkat(link_fd, "", whole, sizeof(whole));

	if (n < 0)
		return -errno;
	if (++w->n_links > MAX_LINKS || (w->was_led && w->leader != st->st_uid && st->st_uid != 0))
		return -ELOOP;
	if (st->st_uid != 0 && st->st_uid != geteuid()) {
		w->was_led = true;
		w->leader = st->st_uid;
	}
	if ((size_t)n + strlen(rest) + 2 > sizeof(whole))
		return -ENAMETOOLONG;
	snprintf(whole + n, sizeof(whole) - (size_t)n, "/%s", rest);
	memcpy(w->rest, whole, sizeof(whole));
	return whole[0] == '/' ? restart(w, "/") : 0;
}

static int step(struct path_walk *w)
{
	char name[NAME_MAX + 1], rest[PATH_MAX];
	size_t skipped = strspn(w->rest, "/"), length = strcspn(w->rest + skipped, "/");

	if (length > NAME_MAX)
		return -ENAMETOOLONG;
	memcpy(name, w->rest + skipped, length);
	name[length] = '\0';
	snprintf(rest, sizeof(rest), "%s", w->rest + skipped + length);
	if (!length) {
		w->rest[0] = '\0';
		return 0;
	}
	_cleanup_(closep) int next = openat(w->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (next < 0 || fstat(next, &st) < 0)
		return -errno;
	if (S_ISLNK(st.st_mode))
		return follow(w, next, &st, rest);
	if (!S_ISDIR(st.st_mode) && (!w->to_file || rest[strspn(rest, "/")]))
		return -ENOTDIR;
	closep(&w->fd);
	w->fd = steal_fd(&next);
	memcpy(w->rest, rest, sizeof(rest));
	return 0;
}

/* Opens each part of the path separately, because the kernel follows links without reporting their owners. */
static int walk_to(const char *path, bool to_file)
{
	struct path_walk w = {.fd = -EBADF, .to_file = to_file};
	struct stat st;

	if (strlen(path) >= sizeof(w.rest))
		return -ENAMETOOLONG;
	snprintf(w.rest, sizeof(w.rest), "%s", path);
	int r = path[0] ? restart(&w, path) : -ENOENT;

	while (r == 0 && w.rest[0])
		r = step(&w);
	if (r == 0 && fstat(w.fd, &st) < 0)
		r = -errno;
	if (r == 0 && w.was_led && st.st_uid != w.leader)
		r = -ELOOP;
	if (r < 0)
		closep(&w.fd);
	return r < 0 ? r : w.fd;
}

int file_folder_open(const char *path, bool to_write)
{
	if (to_write && geteuid() == 0)
		return walk_to(path, false);
	int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int file_folder(const char *path, bool to_write, const char **ret_name)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	char folder[PATH_MAX] = ".";

	if (!name[0] || !strcmp(name, ".") || !strcmp(name, ".."))
		return path[0] ? -EISDIR : -ENOENT;
	if (slash && slash - path >= PATH_MAX)
		return -ENAMETOOLONG;
	if (slash)
		snprintf(folder, sizeof(folder), "%.*s", slash == path ? 1 : (int)(slash - path), path);
	int fd = file_folder_open(folder, to_write);

	if (fd >= 0)
		*ret_name = name;
	return fd;
}

const char *fd_path(int fd, char path[FD_PATH_BYTES])
{
	snprintf(path, FD_PATH_BYTES, "/proc/self/fd/%d", fd);
	return path;
}

int file_reopen(int fd, int flags)
{
	char path[FD_PATH_BYTES];

	fd_path(fd, path);
	int again = open(path, flags | FLAGS);

	return again < 0 ? -errno : again;
}

static bool is_same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Opening a device or a pipe may have side effects, so the name was first opened with O_PATH to check its
 * type. flags: of openat(), which opens the name if there is no /proc. */
static int open_seen(int seen, int dir_fd, const char *name, int flags)
{
	struct stat st, opened;

	if (fstat(seen, &st) < 0)
		return -errno;
	if (S_ISLNK(st.st_mode))
		return -ELOOP;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	_cleanup_(closep) int fd = file_reopen(seen, O_RDONLY);

	if (fd == -ENOENT) /* no /proc */
		fd = openat(dir_fd, name, O_RDONLY | flags | FLAGS);
	if (fd == -1)
		return -errno;
	if (fd < 0)
		return fd;
	if (fstat(fd, &opened) < 0)
		return -errno;
	return is_same(&st, &opened) ? steal_fd(&fd) : -EAGAIN;
}

int file_to_read(int dir_fd, const char *name, bool follows)
{
	int flags = follows ? 0 : O_NOFOLLOW;
	_cleanup_(closep) int seen = openat(dir_fd, name, O_PATH | flags | O_CLOEXEC);

	return seen < 0 ? -errno : open_seen(seen, dir_fd, name, flags);
}

int file_to_read_led(const char *path)
{
	const struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS};
	_cleanup_(closep) int seen = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));

	/* Most paths have no links. Old kernels and filters of containers do not know the call. */
	if (seen < 0 && errno != ELOOP && errno != ENOSYS && errno != EPERM)
		return -errno;
	if (seen < 0)
		seen = walk_to(path, true);
	return seen < 0 ? seen : open_seen(seen, AT_FDCWD, path, 0);
}

static int check_to_write(int dir_fd, int fd)
{
	struct stat st, folder;

	if (fstat(fd, &st) < 0 || fstat(dir_fd, &folder) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	if (st.st_nlink > 1 && (geteuid() == 0 || folder.st_uid != geteuid()))
		return -EMLINK;
	return geteuid() == 0 && st.st_uid != 0 && st.st_uid != folder.st_uid ? -EPERM : 0;
}

int file_to_write(int dir_fd, const char *name, int flags, mode_t mode)
{
	bool truncates = flags & O_TRUNC;
	_cleanup_(closep) int fd =
	    openat(dir_fd, name, (flags & ~O_TRUNC) | O_RDWR | O_NOFOLLOW | FLAGS, mode);

	if (fd < 0)
		return -errno;
	int r = check_to_write(dir_fd, fd);

	if (r == 0 && truncates && ftruncate(fd, 0) < 0)
		r = -errno;
	return r < 0 ? r : steal_fd(&fd);
}

bool file_is_of_writer(const struct stat *made, const struct stat *file)
{
	return made->st_uid == file->st_uid || made->st_uid == 0 || made->st_uid == geteuid() ||
	       (file->st_mode & S_IWOTH) || ((file->st_mode & S_IWGRP) && made->st_gid == file->st_gid);
}

int file_temporary(void)
{
	const char *folder = getenv("TMPDIR");
	int fd =
	    open(folder && folder[0] == '/' ? folder : "/tmp", O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600);

	if (fd < 0)
		fd = memfd_create("diesel", MFD_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int file_error(struct error *err, int r, const char *doing, const char *path)
{
	switch (r) {
	case -ELOOP:
		return error_set(err, r,
				 "cannot %s %s: the path is a link. Give the path of the link's target",
				 doing, path);
	case -EINVAL: return error_set(err, r, "cannot %s %s: not a regular file", doing, path);
	case -EMLINK:
		return error_set(err, r, "cannot %s %s: the file has other names (hard links) elsewhere",
				 doing, path);
	case -EPERM:
		return error_set(err, r,
				 "cannot %s %s: the file and its folder have different owners. Run the "
				 "command as the file's owner",
				 doing, path);
	}
	return error_errno(err, r, "cannot %s %s", doing, path);
}
