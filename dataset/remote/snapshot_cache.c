/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshot_cache.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataset/snapshot.h"
#include "lib/cleanup.h"

#define CHUNKS_FOLDER "chunks"
#define LABEL_BYTES   100
#define NAME_BYTES    (22 + 2 * DIGEST_BYTES) /* a number, a dash and a digest */

/* Makes a folder's name that shows the dataset. Two datasets may get the same name: versions are identified
 * by their content. */
static void label(const char *url, char text[LABEL_BYTES])
{
	const char *from = strstr(url, "://");
	size_t n = 0;

	for (from = from ? from + 3 : url; *from && n + 1 < LABEL_BYTES; from++, n++)
		text[n] = isalnum((unsigned char)*from) || (strchr("-_.", *from) && n > 0) ? *from : '_';
	text[n] = '\0';
}

/* Makes the folder and those above it. */
static int make_folders(const char *folder, struct error *err)
{
	_cleanup_(freep) char *path = strdup(folder);

	if (!path)
		return error_errno(err, -ENOMEM, "%s", folder);
	for (char *at = path + 1;; at++) {
		char kept = *at;

		if (kept != '/' && kept != '\0')
			continue;
		*at = '\0';
		if (mkdir(path, 0700) < 0 && errno != EEXIST)
			return error_errno(err, -errno, "cannot make the folder %s (XDG_CACHE_HOME)", path);
		*at = kept;
		if (!kept)
			return 0;
	}
}

/* Returns the path of the folder of all versions. -ENOMEM; -ENOENT: neither XDG_CACHE_HOME nor HOME is set.
 */
static int folder_of(const char *url, char **ret)
{
	const char *cache = secure_getenv("XDG_CACHE_HOME"), *home = secure_getenv("HOME");
	bool has_cache = cache && cache[0] == '/';
	char name[LABEL_BYTES], *folder;

	if (!has_cache && !(home && home[0] == '/'))
		return -ENOENT;
	label(url, name);
	if (asprintf(&folder, "%s%s/diesel/s3/%s", has_cache ? cache : home, has_cache ? "" : "/.cache",
		     name) < 0)
		return -ENOMEM;
	*ret = folder;
	return 0;
}

static void name_version(const struct manifest *m, char text[NAME_BYTES])
{
	int n = snprintf(text, NAME_BYTES, "%llu-", (unsigned long long)m->version);

	for (size_t i = 0; i < DIGEST_BYTES; i++)
		n += snprintf(text + n, NAME_BYTES - (size_t)n, "%02x", m->snapshot.sha256.bytes[i]);
}

/* Opens a folder. Fails if another user could put a snapshot there. */
static int open_own(const char *folder, int *ret, struct error *err)
{
	_cleanup_(closep) int fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return errno == ENOENT ? -ENOENT : error_errno(err, -errno, "cannot open %s", folder);
	if (st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)))
		return error_set(err, -EPERM, "%s can be changed by other users: remove it", folder);
	*ret = steal_fd(&fd);
	return 0;
}

static int lock(int fd, int how)
{
	while (flock(fd, how) < 0)
		if (errno != EINTR)
			return -errno;
	return 0;
}

/* Returns true if the open folder still has its name: it may have been removed before it was locked. */
static bool is_named(const char *folder, int fd)
{
	struct stat named, ours;

	return lstat(folder, &named) == 0 && fstat(fd, &ours) == 0 && named.st_dev == ours.st_dev &&
	       named.st_ino == ours.st_ino;
}

static bool has_snapshot(int fd, const struct manifest *m)
{
	struct stat st;

	return fstatat(fd, SNAPSHOT_FILE, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
	       (uint64_t)st.st_size == m->snapshot.bytes;
}

static int open_locked(const char *folder, int *ret, struct error *err)
{
	for (;;) {
		_cleanup_(closep) int fd = -EBADF;
		int r = make_folders(folder, err);

		if (r == 0)
			r = open_own(folder, &fd, err);
		if (r == -ENOENT)
			continue;
		if (r == 0 && (r = lock(fd, LOCK_SH)) < 0)
			error_errno(err, r, "cannot lock %s", folder);
		if (r < 0)
			return r;
		if (!is_named(folder, fd))
			continue;
		*ret = steal_fd(&fd);
		return 0;
	}
}

/* Removes the versions that nobody has open. The next version's call tries again to remove what cannot be
 * removed now. */
static void remove_others(const char *all, const char *but)
{
	DIR *dir = opendir(all);
	const struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		_cleanup_(closep) int fd = -EBADF;

		if (entry->d_name[0] == '.' || !strcmp(entry->d_name, but))
			continue;
		fd = openat(dirfd(dir), entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
			continue;
		unlinkat(fd, SNAPSHOT_FILE, 0);
		unlinkat(fd, SNAPSHOT_CACHE_PART, 0);
		unlinkat(fd, CHUNKS_FOLDER, AT_REMOVEDIR);
		unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR);
	}
	if (dir)
		closedir(dir);
}

int snapshot_cache_open(const char *url, const struct manifest *m, char **ret_folder, int *ret_fd,
			bool *ret_is_whole, struct error *err)
{
	_cleanup_(freep) char *all = NULL, *folder = NULL;
	_cleanup_(closep) int fd = -EBADF;
	char name[NAME_BYTES];
	int r = folder_of(url, &all);

	if (r == -ENOENT)
		return error_set(err, r, "%s: no folder to keep its snapshot in: set XDG_CACHE_HOME or HOME",
				 url);
	if (r < 0)
		return error_errno(err, r, "%s", url);
	name_version(m, name);
	if (asprintf(&folder, "%s/%s", all, name) < 0) {
		folder = NULL;
		return error_errno(err, -ENOMEM, "%s", url);
	}
	r = open_locked(folder, &fd, err);
	if (r == 0 && mkdirat(fd, CHUNKS_FOLDER, 0700) < 0 && errno != EEXIST)
		r = error_errno(err, -errno, "cannot make %s/" CHUNKS_FOLDER, folder);
	if (r < 0)
		return r;
	bool is_whole = has_snapshot(fd, m);

	if (!is_whole) { /* other processes that need this version wait, and then find it */
		r = lock(fd, LOCK_EX);
		if (r < 0)
			return error_errno(err, r, "cannot lock %s", folder);
		is_whole = has_snapshot(fd, m);
		if (is_whole)
			r = lock(fd, LOCK_SH);
		remove_others(all, name);
	}
	*ret_folder = steal_pointer(folder);
	*ret_fd = steal_fd(&fd);
	*ret_is_whole = is_whole;
	return r;
}

int snapshot_cache_keep(const char *folder, int fd, struct error *err)
{
	_cleanup_(closep) int file = openat(fd, SNAPSHOT_CACHE_PART, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	int r = 0;

	/* Without fsync(), a power failure could leave another content of this length. */
	if (file < 0 || fsync(file) < 0 || renameat(fd, SNAPSHOT_CACHE_PART, fd, SNAPSHOT_FILE) < 0)
		r = error_errno(err, -errno, "cannot write %s/" SNAPSHOT_FILE, folder);
	if (r == 0 && (r = lock(fd, LOCK_SH)) < 0)
		error_errno(err, r, "cannot lock %s", folder);
	return r;
}
