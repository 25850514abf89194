/* SPDX-License-Identifier: Apache-2.0 */
#include "proof.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "dataset/snapshot.h"
#include "dataset/snapshot_retained.h"
#include "lib/cleanup.h"
#include "lib/file_open.h"
#include "place.h"
#include "shared_memory.h"

#define CHUNKS_DIRECTORY "chunks"

static void describe_fd(int fd, char *path, size_t size)
{
	char link[FD_PATH_BYTES];
	ssize_t n;

	fd_path(fd, link);
	n = readlink(link, path, size - 1);
	if (n < 0)
		n = snprintf(path, size, "the dataset");
	path[n] = '\0';
}

/* A descriptor opened with O_PATH, or for writing only, proves no right to read. */
static bool is_readable(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags >= 0 && !(flags & O_PATH) && (flags & O_ACCMODE) != O_WRONLY;
}

/* Returns a descriptor or a negative errno. May block, as storage does. */
static int access_open_beneath(int dir_fd, const char *name, uint64_t flags)
{
	struct open_how how = access_how(flags);
	long fd = syscall(SYS_openat2, dir_fd, name, &how, sizeof(how));

	return fd < 0 ? -errno : (int)fd;
}

static int open_child(int dir_fd, const char *name, uint64_t flags, const char *path, struct stat *ret_stat,
		      int *ret_fd, struct error *err)
{
	_cleanup_(closep) int fd = access_open_beneath(dir_fd, name, flags);
	char what[PATH_MAX + 16];

	snprintf(what, sizeof(what), "%s/%s", path, name);
	if (fd < 0)
		return access_open_error(err, fd, what);
	if (fstat(fd, ret_stat) < 0)
		return error_errno(err, -errno, "cannot look at %s", what);
	*ret_fd = steal_fd(&fd);
	return 0;
}

static bool is_same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static int mount_of(int fd, uint64_t *ret)
{
	struct statx stx;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &stx) < 0)
		return -errno;
	*ret = stx.stx_mask & STATX_MNT_ID ? stx.stx_mnt_id : PLACE_MOUNT_UNKNOWN;
	return 0;
}

/* Gets the snapshot's rights. Every user who may read it must be able to enter `chunks`. */
static int find_rights(int snapshot_fd, const struct stat *snapshot, int chunks_fd, const struct stat *chunks,
		       const char *path, struct access_rights *ret, struct error *err)
{
	struct access_rights own, rights;
	char what[PATH_MAX + 16];
	int r;

	snprintf(what, sizeof(what), "%s/" SNAPSHOT_FILE, path);
	r = access_rights_get(snapshot_fd, snapshot, what, &own, err);
	snprintf(what, sizeof(what), "%s/" CHUNKS_DIRECTORY, path);
	if (r == 0)
		r = access_rights_get(chunks_fd, chunks, what, &rights, err);
	if (r < 0)
		return r;
	if (!access_is_no_stricter(&rights, ACCESS_SEARCH, &own))
		return access_stricter_error(err, what, &rights, ACCESS_SEARCH, &own);
	*ret = own;
	return 0;
}

/* Finds the client's snapshot in the dataset's folder. *ret_found: it is there, as the newest snapshot or as
 * one kept for its version. The version comes from the client's file, and is a number, so that it can name no
 * other file. */
static int find_snapshot(int dir_fd, int snapshot_fd, const struct stat *theirs, const char *path,
			 bool *ret_found, int *ret_fd, struct error *err)
{
	_cleanup_(closep) int fd = -EBADF, kept_fd = -EBADF;
	char name[SNAPSHOT_RETAINED_NAME];
	struct stat ours;
	int r = open_child(dir_fd, SNAPSHOT_FILE, O_PATH, path, &ours, &fd, err);

	if (r < 0)
		return r;
	bool found = is_same_file(&ours, theirs);

	if (!found) {
		snapshot_retained_name(snapshot_retained_version(snapshot_fd), name);
		found = open_child(dir_fd, name, O_PATH, path, &ours, &kept_fd, NULL) == 0 &&
			is_same_file(&ours, theirs);
	}
	*ret_found = found;
	*ret_fd = found && kept_fd >= 0 ? steal_fd(&kept_fd) : steal_fd(&fd);
	return 0;
}

int proof_identify(int dir_fd, int snapshot_fd, struct proof *ret, struct error *err)
{
	_cleanup_(closep) int ours_fd = -EBADF, chunks_fd = -EBADF;
	struct stat directory, theirs, chunks;
	struct proof proof = PROOF_INIT;
	struct access_rights rights;
	char *path = proof.path;
	uint64_t mount_id = PLACE_MOUNT_UNKNOWN;
	bool found = false;
	int r;

	describe_fd(dir_fd, path, sizeof(proof.path));
	if (fstat(dir_fd, &directory) < 0 || fstat(snapshot_fd, &theirs) < 0)
		return error_errno(err, -errno, "cannot look at %s", path);
	if (!S_ISDIR(directory.st_mode) || !S_ISREG(theirs.st_mode) || !is_readable(snapshot_fd))
		return error_set(err, -EACCES, "%s: the client passed no readable snapshot", path);
	r = find_snapshot(dir_fd, snapshot_fd, &theirs, path, &found, &ours_fd, err);
	if (r == 0)
		r = open_child(dir_fd, CHUNKS_DIRECTORY, O_PATH | O_DIRECTORY, path, &chunks, &chunks_fd,
			       err);
	if (r < 0)
		return r;
	r = find_rights(snapshot_fd, &theirs, chunks_fd, &chunks, path, &rights, err);
	if (r < 0)
		return r;
	r = mount_of(chunks_fd, &mount_id);
	if (r < 0)
		return error_errno(err, r, "cannot look at %s/" CHUNKS_DIRECTORY, path);
	proof.identity = (struct proof_identity){.directory_dev = directory.st_dev,
						 .directory_ino = directory.st_ino,
						 .snapshot_dev = theirs.st_dev,
						 .snapshot_ino = theirs.st_ino,
						 .chunks_dev = chunks.st_dev,
						 .chunks_ino = chunks.st_ino,
						 .rights = rights};
	proof.replaced = !found;
	proof.snapshot = access_stamp(&theirs);
	proof.mount_id = mount_id;
	proof.snapshot_bytes = (uint64_t)theirs.st_size;
	proof.chunks_fd = steal_fd(&chunks_fd);
	proof.snapshot_fd = steal_fd(&ours_fd);
	*ret = proof;
	return 0;
}

void proof_close(struct proof *proof)
{
	closep(&proof->chunks_fd);
	closep(&proof->snapshot_fd);
	proof->chunks_fd = proof->snapshot_fd = -EBADF;
}

static bool rights_equal(const struct access_rights *a, const struct access_rights *b)
{
	return a->uid == b->uid && a->gid == b->gid && a->mode == b->mode && a->acl_bytes == b->acl_bytes &&
	       memcmp(a->acl, b->acl, sizeof(a->acl)) == 0;
}

bool proof_identity_equal(const struct proof_identity *a, const struct proof_identity *b)
{
	return a->directory_dev == b->directory_dev && a->directory_ino == b->directory_ino &&
	       a->snapshot_dev == b->snapshot_dev && a->snapshot_ino == b->snapshot_ino &&
	       a->chunks_dev == b->chunks_dev && a->chunks_ino == b->chunks_ino &&
	       a->is_fetched == b->is_fetched && rights_equal(&a->rights, &b->rights);
}

void proof_origin(const struct proof *proof, char *text, size_t size)
{
	snprintf(text, size, "%s/" SNAPSHOT_FILE, proof->path);
}

int proof_copy(const struct proof *proof, int snapshot_fd, int *ret_copy_fd, struct error *err)
{
	char origin[PATH_MAX + sizeof(SNAPSHOT_FILE) + 1];
	int r = shared_memory_copy_file("diesel-snapshot", snapshot_fd, proof->snapshot_bytes, ret_copy_fd);

	proof_origin(proof, origin, sizeof(origin));
	return r < 0 ? error_errno(err, r, "cannot read %s", origin) : 0;
}

int proof_verify(const struct proof *proof, int copy_fd, struct error *err)
{
	char origin[PATH_MAX + sizeof(SNAPSHOT_FILE) + 1];
	struct snapshot *s = NULL;
	int r;

	proof_origin(proof, origin, sizeof(origin));
	r = snapshot_open_fd(copy_fd, origin, &s, err);
	if (r == 0)
		r = proof->snapshot_bytes <= SNAPSHOT_WHOLE_BYTES ? snapshot_verify(s, err)
								  : snapshot_verify_tables(s, err);
	snapshot_close(s);
	return r;
}
