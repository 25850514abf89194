/* SPDX-License-Identifier: Apache-2.0 */
#include "external_access.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/file_open.h"
#include "lib/file_safety.h"

#define ACL        "system.posix_acl_access"
#define EVERYBODY  0111u
#define READ       4u
#define SEARCH     1u
#define FUSE_MAGIC 0x65735546
#define SCHEME_END "://"

/* Returns true if this line of mountinfo is of a FUSE mount that lets all users in, or of virtiofs. The
 * options at its end are the kernel's; the user who mounted may choose the text before them. */
static bool lets_all_in(char *line)
{
	const char *kind = strstr(line, " - ");
	char *options = strrchr(line, ' ');

	if (!kind || !options)
		return false;
	if (strncmp(kind + 3, "fuse", 4) != 0)
		return true;
	options[strcspn(options, "\n")] = '\0';
	for (char *at = options; (at = strstr(at, ",allow_other")); at++)
		if (strchr(",", at[strlen(",allow_other")]))
			return true;
	return false;
}

/* Only the user who mounted may enter most FUSE mounts, whatever the modes of their files. */
static bool is_private_mount(int fd, const struct stat *st)
{
	_cleanup_(fclosep) FILE *mounts = NULL;
	_cleanup_(freep) char *line = NULL;
	size_t n_allocated = 0;
	struct statfs fs;

	if (fstatfs(fd, &fs) == 0 && fs.f_type != FUSE_MAGIC)
		return false;
	mounts = fopen("/proc/self/mountinfo", "re");
	while (mounts && getline(&line, &n_allocated, mounts) > 0) {
		unsigned major_number, minor_number;

		if (sscanf(line, "%*d %*d %u:%u", &major_number, &minor_number) == 2 &&
		    makedev(major_number, minor_number) == st->st_dev)
			return !lets_all_in(line);
	}
	return true;
}

/* An access control list may take from some user what the mode gives to all. */
static bool may_all(int fd, unsigned right)
{
	struct stat st;
	char path[FD_PATH_BYTES];

	return fstat(fd, &st) == 0 && !is_private_mount(fd, &st) &&
	       (st.st_mode & right * EVERYBODY) == right * EVERYBODY &&
	       getxattr(fd_path(fd, path), ACL, NULL, 0) < 0 && (errno == ENODATA || errno == EOPNOTSUPP);
}

/* Returns true if everybody may read the file, by this path without links. */
static bool is_public(int fd, const char *path)
{
	_cleanup_(closep) int folder =
	    may_all(fd, READ) ? open("/", O_PATH | O_DIRECTORY | O_CLOEXEC) : -EBADF;
	char name[NAME_MAX + 1];
	struct stat st, found;
	const char *slash;

	for (path++; folder >= 0 && may_all(folder, SEARCH) && (slash = strchr(path, '/'));
	     path = slash + 1) {
		if (slash - path > NAME_MAX)
			return false;
		snprintf(name, sizeof(name), "%.*s", (int)(slash - path), path);
		int next = openat(folder, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

		close(folder);
		folder = next;
	}
	return folder >= 0 && !strchr(path, '/') && may_all(folder, SEARCH) && fstat(fd, &st) == 0 &&
	       fstatat(folder, path, &found, AT_SYMLINK_NOFOLLOW) == 0 && found.st_dev == st.st_dev &&
	       found.st_ino == st.st_ino;
}

/* Returns true if the place is this name, or a folder or prefix in front of it. */
static bool is_below(const char *name, const char *place, size_t n)
{
	while (n > 1 && place[n - 1] == '/')
		n--;
	return n > 0 && strncmp(name, place, n) == 0 &&
	       (name[n] == '\0' || name[n] == '/' || place[n - 1] == '/');
}

static bool is_listed_file(const char *name, const char *place, size_t n)
{
	_cleanup_(freep) char *copy = strndup(place, n);
	_cleanup_(freep) char *real = copy && copy[0] == '/' ? realpath(copy, NULL) : NULL;

	return real && is_below(name, real, strlen(real));
}

/* name: of a file, without links. */
static bool is_listed(const char *name)
{
	const char *place = secure_getenv(EXTERNAL_PLACES);

	for (size_t n; place && *place; place += n + (place[n] == ',')) {
		n = strcspn(place, ",");
		if (name[0] == '/' ? is_listed_file(name, place, n) : is_below(name, place, n))
			return true;
	}
	return false;
}

bool external_is_public(int fd, const char *path)
{
	return is_public(fd, path) || is_listed(path);
}

static bool is_ours(const struct external_maker *m)
{
	return m->is_trusted ||
	       (m->has_uid && (m->uid == 0 || (m->uid == geteuid() && !file_safety_is_anybody(m->uid))));
}

static int refuse(const struct external *e, struct error *err)
{
	char maker[64] = "whoever made this dataset";

	if (e->maker.has_uid)
		snprintf(maker, sizeof(maker), "user %u, who made this dataset,", (unsigned)e->maker.uid);
	return error_set(
	    err, -EACCES,
	    "%s is not read, because %s may lack the right to read it: index it into a dataset of "
	    "your own with `dieselctl index`, or, if you trust this one, set " EXTERNAL_PLACES
	    " to its folder",
	    e->name, maker);
}

int external_check_others(const struct external *e, struct error *err)
{
	return is_ours(&e->maker) ? 0 : external_check(e, err);
}

int external_may_read(const struct external *e, int fd, const struct stat *st, struct error *err)
{
	char link[FD_PATH_BYTES], path[PATH_MAX];

	if (is_ours(&e->maker) ||
	    (e->maker.has_uid && e->maker.uid == st->st_uid && !file_safety_is_anybody(st->st_uid)))
		return 0;
	ssize_t n = readlink(fd_path(fd, link), path, sizeof(path) - 1);

	if (n < 1)
		return error_errno(err, -errno, "cannot find the folder of %s", e->name);
	path[n] = '\0';
	return path[0] == '/' && external_is_public(fd, path) ? 0 : refuse(e, err);
}

/* Returns the length of the bucket's own URL. */
static size_t bucket_length(const char *url)
{
	const char *host = strstr(url, SCHEME_END);

	return host ? strlen(SCHEME_END) + (size_t)(host - url) + strcspn(host + strlen(SCHEME_END), "/") : 0;
}

int external_may_read_object(const struct external *e, struct error *err)
{
	const char *bucket = e->maker.bucket;

	return is_ours(&e->maker) || (bucket && is_below(e->name, bucket, bucket_length(bucket))) ||
		       is_listed(e->name)
		   ? 0
		   : refuse(e, err);
}
