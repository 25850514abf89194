/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps snapshots of earlier versions in a folder (snapshot_retained.h). A version's snapshot is linked there
 * after the version is committed, and before it becomes the newest. So each is complete, and of a published
 * version. It is removed before any chunk that it needs. The next writer that publishes or removes chunks
 * completes the work of a dead writer.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataset/snapshot_retained.h"
#include "lib/cleanup.h"
#include "lib/fd_io.h"
#include "dataset/snapshot/snapshot_build.h"
#include "writer_private.h"

#define TMP_FILE   ".tmp"
#define COPY_BYTES ((size_t)1 << 20)

/* Returns true if the file system has no hard links. Then only the newest snapshot is kept. */
static bool has_no_links(int r)
{
	return r == -EPERM || r == -EOPNOTSUPP || r == -ENOSYS || r == -EMLINK;
}

static int link_as(const struct writer *w, const char *file, uint64_t version)
{
	char name[SNAPSHOT_RETAINED_NAME];

	if (mkdirat(w->dir_fd, SNAPSHOT_RETAINED_FOLDER, 0777) < 0 && errno != EEXIST)
		return -errno;
	_cleanup_(closep) int fd = snapshot_retained_folder(w->dir_fd);

	if (fd < 0)
		return fd;
	unlinkat(fd, TMP_FILE, 0); /* left by a dead writer */
	if (linkat(w->dir_fd, file, fd, TMP_FILE, 0) < 0 ||
	    renameat(fd, TMP_FILE, fd, snapshot_retained_file(version, name)) < 0 || fsync(fd) < 0)
		return -errno;
	return 0;
}

static bool is_kept(const struct writer *w, uint64_t version)
{
	_cleanup_(closep) int fd = snapshot_retained_folder(w->dir_fd);
	char name[SNAPSHOT_RETAINED_NAME];

	return fd >= 0 &&
	       faccessat(fd, snapshot_retained_file(version, name), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

void writer_keep_published(const struct writer *w)
{
	uint64_t version = w->place->ops ? 0 : writer_snapshot_version(w);

	if (version && !is_kept(w, version))
		(void)link_as(w, SNAPSHOT_FILE, version);
}

int writer_keep_staged(struct writer *w, uint64_t version, struct error *err)
{
	int r = w->place->ops ? 0 : link_as(w, SNAPSHOT_STAGED_FILE, version);

	return r < 0 && !has_no_links(r) ? error_errno(err, r,
						       "cannot keep the snapshot of version %" PRIu64
						       " in %s/" SNAPSHOT_RETAINED_FOLDER,
						       version, w->path)
					 : 0;
}

int writer_trim_retained(const struct writer *w, uint64_t newest, struct backend_keep keep, struct error *err)
{
	_cleanup_(freep) uint64_t *versions = NULL;
	char name[SNAPSHOT_RETAINED_NAME];
	size_t n = 0;
	int r = w->place->ops ? 0 : snapshot_retained_list(w->dir_fd, &versions, &n);
	_cleanup_(closep) int fd = n ? snapshot_retained_folder(w->dir_fd) : -EBADF;

	for (size_t i = 0; i < n && r == 0; i++) {
		if (versions[i] >= keep.oldest && versions[i] <= newest && n - i <= keep.n)
			continue;
		if (unlinkat(fd, snapshot_retained_file(versions[i], name), 0) < 0 && errno != ENOENT)
			r = -errno;
	}
	return r < 0
		   ? error_errno(err, r, "cannot remove earlier snapshots from %s/" SNAPSHOT_RETAINED_FOLDER,
				 w->path)
		   : 0;
}

int writer_stage_copy(const struct writer *w, int from)
{
	_cleanup_(freep) void *buffer = malloc(COPY_BYTES);
	size_t done = COPY_BYTES;
	int r = buffer ? 0 : -ENOMEM;

	unlinkat(w->dir_fd, SNAPSHOT_STAGED_FILE, 0);
	_cleanup_(closep) int fd = openat(w->dir_fd, SNAPSHOT_STAGED_FILE,
					  O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);

	if (fd < 0)
		return -errno;
	for (uint64_t at = 0; r == 0 && done == COPY_BYTES; at += done) {
		r = fd_read_at(from, buffer, COPY_BYTES, at, &done);
		if (r == 0)
			r = fd_write(fd, buffer, done);
	}
	return r == 0 && fsync(fd) < 0 ? -errno : r;
}

int writer_keep_version(struct writer *w, uint64_t version, int fd, struct error *err)
{
	uint64_t oldest = 0;

	if (w->place->ops)
		return error_set(
		    err, -EOPNOTSUPP,
		    "%s is in a bucket, where the snapshot of an earlier version cannot be rebuilt", w->path);
	int r = writer_hold(w, err);

	if (r == 0)
		r = writer_find_oldest(w, w->info.version, &oldest, err);
	if (r < 0)
		return r;
	if (version < oldest)
		return error_set(err, -ENOENT, "version %" PRIu64 " of %s was purged meanwhile", version,
				 w->path);
	r = writer_stage_copy(w, fd);
	if (r == 0)
		r = link_as(w, SNAPSHOT_STAGED_FILE, version);
	snapshot_unstage(w->dir_fd);
	return r < 0 ? error_errno(err, r,
				   "cannot keep the snapshot of version %" PRIu64
				   " in %s/" SNAPSHOT_RETAINED_FOLDER,
				   version, w->path)
		     : 0;
}

void writer_keep_snapshots(struct writer *w, uint64_t n)
{
	w->n_kept = n;
}
