/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/external.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/fd_io.h"
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

static bool external_is_public(int fd, const char *path)
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

static int external_may_read(const struct external *e, int fd, const struct stat *st, struct error *err)
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

static int external_may_read_object(const struct external *e, struct error *err)
{
	const char *bucket = e->maker.bucket;

	return is_ours(&e->maker) || (bucket && is_below(e->name, bucket, bucket_length(bucket))) ||
		       is_listed(e->name)
		   ? 0
		   : refuse(e, err);
}

#define DIRECT_MIN_BYTES ((size_t)128 << 10)

static const struct external_ops *registered;

void external_register(const struct external_ops *ops)
{
	registered = ops;
}

bool external_is_registered(const char *name)
{
	return registered && strncmp(name, registered->scheme, strlen(registered->scheme)) == 0;
}

static bool is_range(const struct chunk_header *h, const struct chunk_external *e)
{
	uint64_t payload = h->file_bytes - h->payload_offset;

	return e->bytes <= payload && payload - e->bytes < CHUNK_ALIGN && e->offset <= e->source_bytes &&
	       e->bytes <= e->source_bytes - e->offset && e->is_last <= 1;
}

int external_in_head(const struct chunk_header *h, struct external *ret)
{
	uint64_t at = h->blocks_offset;
	struct chunk_external e;
	const char *name;

	if (h->flags & (CHUNK_FLAG_TOMBSTONE | CHUNK_FLAG_COMPRESSED) || h->payload_offset > h->file_bytes ||
	    h->file_bytes > CHUNK_MAX_BYTES + (uint64_t)CHUNK_SAMPLE_MAX_BYTES ||
	    h->stored_bytes != h->payload_offset || at < sizeof(*h) || at > h->payload_offset ||
	    h->payload_offset - at < sizeof(e))
		return -EBADMSG;
	memcpy(&e, (const char *)h + at, sizeof(e));
	name = (const char *)h + at + sizeof(e);
	if (!is_range(h, &e) || e.name_length == 0 || e.name_length > EXTERNAL_NAME_MAX ||
	    e.name_length > h->payload_offset - at - sizeof(e) || memchr(name, 0, e.name_length))
		return -EBADMSG;
	if (ret) {
		ret->range = e;
		ret->maker = (struct external_maker){0};
		memcpy(ret->name, name, e.name_length);
		ret->name[e.name_length] = '\0';
	}
	return 0;
}

void external_trust(struct external *e)
{
	e->maker = (struct external_maker){.is_trusted = true};
}

int external_list(const char *name, external_list_callback *callback, void *context, struct error *err)
{
	if (!external_is_registered(name))
		return error_set(err, -EINVAL, "%s cannot be listed, because it is not in a bucket", name);
	return registered->list(name, callback, context, err);
}

static int open_source(const char *name, struct stat *ret, struct error *err)
{
	_cleanup_(closep) int fd = name[0] == '/' ? file_to_read_led(name) : -EINVAL;

	if (fd == -ELOOP)
		return error_set(
		    err, -EACCES,
		    "%s is not read, because a link of another user leads to it: index the link's "
		    "target with `dieselctl index`",
		    name);
	if (fd < 0)
		return error_errno(err, fd, "cannot open %s", name);
	if (fstat(fd, ret) < 0)
		return error_errno(err, -errno, "cannot look at %s", name);
	if (!S_ISREG(ret->st_mode))
		return error_set(err, -EINVAL, "%s is not a regular file", name);
	return steal_fd(&fd);
}

static uint64_t mtime_of(const struct stat *st)
{
	return (uint64_t)st->st_mtim.tv_sec * NS_PER_S + (uint64_t)st->st_mtim.tv_nsec;
}

char *external_find_name(const char *name)
{
	_cleanup_(closep) int fd = external_is_registered(name) ? -EBADF : file_to_read_led(name);
	_cleanup_(freep) char *target = fd == -ELOOP ? realpath(name, NULL) : NULL;
	_cleanup_(closep) int target_fd = target ? file_to_read(AT_FDCWD, target, false) : -EBADF;

	return target_fd >= 0 && external_is_public(target_fd, target) ? steal_pointer(target) : strdup(name);
}

int external_stat(const char *name, uint64_t *ret_bytes, uint64_t *ret_stamp, struct error *err)
{
	_cleanup_(closep) int fd = -EBADF;
	struct stat st;

	if (external_is_registered(name))
		return registered->stat(name, ret_bytes, ret_stamp, err);
	fd = open_source(name, &st, err);
	if (fd < 0)
		return fd;
	*ret_bytes = (uint64_t)st.st_size;
	*ret_stamp = mtime_of(&st);
	return 0;
}

static int compare(const struct external *e, uint64_t bytes, uint64_t stamp, struct error *err)
{
	if (bytes != e->range.source_bytes)
		return error_set(
		    err, -EBADMSG,
		    "%s has changed since it was indexed (it has %llu bytes, and had %llu): index it again "
		    "with `dieselctl index`",
		    e->name, (unsigned long long)bytes, (unsigned long long)e->range.source_bytes);
	if (stamp != e->range.stamp)
		return error_set(err, -EBADMSG,
				 "%s has changed since it was indexed (it has another modification time or "
				 "ETag): index it "
				 "again with `dieselctl index`",
				 e->name);
	return 0;
}

/* Compares a file that was opened, and checks that it may be read for whoever made the chunk. */
static int check_file(const struct external *e, int fd, const struct stat *st, struct error *err)
{
	int r = external_may_read(e, fd, st, err);

	return r < 0 ? r : compare(e, (uint64_t)st->st_size, mtime_of(st), err);
}

static int advised(int r, struct error *err)
{
	if (r == -ENOENT)
		error_advise(err, "the dataset has samples in it: restore it, or remove its samples with "
				  "`dieselctl rm -r`");
	return r;
}

int external_check(const struct external *e, struct error *err)
{
	_cleanup_(closep) int fd = -EBADF;
	uint64_t bytes, stamp;
	struct stat st;

	if (!external_is_registered(e->name)) {
		fd = open_source(e->name, &st, err);
		return fd < 0 ? advised(fd, err) : check_file(e, fd, &st, err);
	}
	int r = external_may_read_object(e, err);

	if (r == 0)
		r = advised(registered->stat(e->name, &bytes, &stamp, err), err);
	return r < 0 ? r : compare(e, bytes, stamp, err);
}

/* Reads past the page cache if that is possible: filling it takes longer than the disk, and dieseld caches.
 */
static int read_some(int fd, uint64_t offset, void *buffer, size_t bytes, size_t *n_read)
{
	size_t direct = bytes - bytes % CHUNK_ALIGN;
	int flags = fcntl(fd, F_GETFL), r;

	*n_read = 0;
	if (bytes < DIRECT_MIN_BYTES || offset % CHUNK_ALIGN || (uintptr_t)buffer % CHUNK_ALIGN ||
	    fcntl(fd, F_SETFL, flags | O_DIRECT) < 0)
		direct = 0;
	r = direct ? fd_read_at(fd, buffer, direct, offset, n_read) : 0;
	if (direct)
		(void)fcntl(fd, F_SETFL, flags);
	if (r < 0 && r != -EINVAL) /* stricter file systems */
		return r;
	size_t first = r < 0 ? 0 : *n_read, done;

	if (r == 0 && first < direct)
		return 0; /* the end of the file */
	r = fd_read_at(fd, (char *)buffer + first, bytes - first, offset + first, &done);
	*n_read = first + done;
	return r;
}

static int read_exactly(int fd, const char *name, uint64_t offset, void *buffer, size_t bytes,
			struct error *err)
{
	size_t done;
	int r = read_some(fd, offset, buffer, bytes, &done);

	if (r < 0)
		return error_errno(err, r, "cannot read %s", name);
	if (done < bytes)
		return error_set(err, -EBADMSG, "%s is truncated: it ends at byte %llu", name,
				 (unsigned long long)(offset + done));
	return 0;
}

int external_read_source(const char *name, uint64_t offset, void *buffer, size_t bytes, uint64_t *ret_stamp,
			 struct error *err)
{
	_cleanup_(closep) int fd = -EBADF;
	struct stat st;

	if (external_is_registered(name))
		return registered->read(name, offset, buffer, bytes, ret_stamp, err);
	fd = open_source(name, &st, err);
	if (fd < 0)
		return fd;
	*ret_stamp = mtime_of(&st);
	return read_exactly(fd, name, offset, buffer, bytes, err);
}

/* Compares the source before and after the read, so that no byte of a source that is being written is passed
 * on. */
static int read_file(const struct external *e, uint64_t offset, void *buffer, size_t bytes, struct error *err)
{
	_cleanup_(closep) int fd = -EBADF;
	struct stat st;
	int r;

	fd = open_source(e->name, &st, err);
	if (fd < 0)
		return advised(fd, err);
	r = check_file(e, fd, &st, err);
	if (r == 0)
		r = read_exactly(fd, e->name, offset, buffer, bytes, err);
	if (r == 0 && fstat(fd, &st) < 0)
		return error_errno(err, -errno, "cannot look at %s", e->name);
	return r < 0 ? r : compare(e, (uint64_t)st.st_size, mtime_of(&st), err);
}

int external_read(const struct external *e, uint64_t offset, void *buffer, size_t bytes, struct error *err)
{
	uint64_t left = offset < e->range.bytes ? e->range.bytes - offset : 0;
	size_t n = bytes < left ? bytes : (size_t)left;
	uint64_t stamp;
	int r;

	memset((char *)buffer + n, 0, bytes - n);
	if (n == 0)
		return external_check(e, err);
	if (!external_is_registered(e->name))
		return read_file(e, e->range.offset + offset, buffer, n, err);
	r = external_may_read_object(e, err);
	if (r == 0)
		r = advised(registered->read(e->name, e->range.offset + offset, buffer, n, &stamp, err), err);
	return r < 0 ? r : compare(e, e->range.source_bytes, stamp, err);
}
