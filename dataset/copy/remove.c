/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removes a dataset from a folder. Every call names a file within an open folder, and unlink() follows no
 * link, so nothing outside of the dataset is reached. Only names that belong to a dataset are removed.
 */
#include "copy_private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataset/frozen.h"
#include "dataset/snapshot.h"
#include "dataset/snapshot/snapshot_build.h"
#include "dataset/snapshot_retained.h"
#include "lib/cleanup.h"
#include "lib/text.h"

static int cannot(const struct copy_folder *f, const char *name, struct error *err)
{
	return error_errno(err, -errno, "cannot remove %s/%s", f->path, name);
}

/* From here on a dataset is opened by nobody, and a second call recognises what is left. */
static int mark(const struct copy_folder *f, struct error *err)
{
	_cleanup_(closep) int fd =
	    openat(f->fd, COPY_REMOVED_FILE, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);

	if (fd < 0 || fsync(f->fd) < 0 || (unlinkat(f->fd, SNAPSHOT_FILE, 0) < 0 && errno != ENOENT))
		return cannot(f, SNAPSHOT_FILE, err);
	return 0;
}

static int remove_snapshots(const struct copy_folder *f, struct removal *removal, struct error *err)
{
	_cleanup_(freep) uint64_t *versions = NULL;
	_cleanup_(closep) int fd = snapshot_retained_folder(f->fd);
	char name[SNAPSHOT_RETAINED_NAME];
	size_t n = 0;

	if (fd < 0)
		return 0;
	int r = snapshot_retained_list(f->fd, &versions, &n);

	for (size_t i = 0; i < n && r == 0; i++) {
		if (unlinkat(fd, snapshot_retained_file(versions[i], name), 0) < 0)
			return cannot(f, snapshot_retained_name(versions[i], name), err);
		removal->n_snapshots++;
	}
	unlinkat(fd, ".tmp", 0);
	unlinkat(f->fd, SNAPSHOT_RETAINED_FOLDER, AT_REMOVEDIR);
	return r < 0 ? error_errno(err, r, "cannot list %s/" SNAPSHOT_RETAINED_FOLDER, f->path) : 0;
}

/* The keys of a copy made with `cp` belong to the original. */
static int remove_keys(const struct copy_folder *f, struct removal *removal, struct error *err)
{
	struct error why = ERROR_INIT;
	struct stat st;
	int r = fstatat(f->fd, META_REDIS_FILE, &st, AT_SYMLINK_NOFOLLOW) < 0
		    ? 0
		    : meta_redis_remove(f->fd, f->path, &removal->n_redis_keys, &why);

	if (r < 0 && r != -EXDEV && err)
		*err = why;
	return r == -EXDEV ? 0 : r;
}

static int remove_chunks(const struct copy_folder *f, progress_callback *progress, void *context,
			 struct removal *removal, struct error *err)
{
	_cleanup_(freep) struct store_object *objects = NULL;
	struct store *store;
	size_t n = 0;

	if (store_open_at(f->fd, f->path, false, &store, NULL) < 0)
		return 0; /* a link, which stays, or nothing */
	int r = store_list(store, NULL, &objects, &n, err);

	for (size_t i = 0; i < n && r == 0; i++) {
		r = store_remove(store, &objects[i].id, err);
		removal->n_chunks++;
		removal->bytes += objects[i].bytes;
		if (progress)
			progress("removing", i + 1, n, removal->bytes, context);
	}
	if (r == 0)
		r = store_sweep(store, err);
	store_free(store);
	unlinkat(f->fd, "chunks", AT_REMOVEDIR);
	return r;
}

static int remove_files(const struct copy_folder *f, struct error *err)
{
	static const char *const names[] = {
	    SNAPSHOT_STAGED_FILE,
	    META_SQLITE_FILE "-journal",
	    META_SQLITE_FILE,
	    META_SQLITE_FILE ".damaged",
	    META_REDIS_FILE,
	    META_REDIS_TMP,
	    FROZEN_FILE,
	    ".frozen.tmp",
	    ".purge",
	    ".purge.tmp",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (unlinkat(f->fd, names[i], 0) < 0 && errno != ENOENT && errno != EISDIR)
			return cannot(f, names[i], err);
	return 0;
}

/* Finds a file that is not the dataset's, in this folder or one below. */
static void find_other(int fd, const char *prefix, struct removal *removal)
{
	int listed = openat(fd, prefix[0] ? prefix : ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = listed < 0 ? NULL : fdopendir(listed);
	char name[200];

	if (!dir) {
		closep(&listed);
		return;
	}
	for (struct dirent *entry; !removal->other[0] && (entry = readdir(dir));)
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
		    strcmp(entry->d_name, WRITER_LOCK_FILE) != 0 &&
		    strcmp(entry->d_name, COPY_REMOVED_FILE) != 0)
			snprintf(removal->other, sizeof(removal->other), "%s%s%s", prefix,
				 prefix[0] ? "/" : "",
				 text_printable(name, sizeof(name), entry->d_name, strlen(entry->d_name)));
	closedir(dir);
}

int copy_folder_remove(struct copy_folder *f, progress_callback *progress, void *context,
		       struct removal *removal, struct error *err)
{
	int r = mark(f, err);

	if (r == 0)
		r = remove_snapshots(f, removal, err);
	if (r == 0)
		r = remove_keys(f, removal, err);
	if (r == 0)
		r = remove_chunks(f, progress, context, removal, err);
	if (r == 0)
		r = remove_files(f, err);
	if (r < 0)
		return r;
	find_other(f->fd, "chunks", removal);
	find_other(f->fd, SNAPSHOT_RETAINED_FOLDER, removal);
	find_other(f->fd, "", removal);
	unlinkat(f->fd, COPY_REMOVED_FILE, 0);
	writer_lock_free(f->lock);
	f->lock = NULL;
	if (!removal->other[0] && unlinkat(f->parent_fd, f->name, AT_REMOVEDIR) < 0)
		return error_errno(err, -errno, "removed the dataset, but not its folder %s", f->path);
	return 0;
}

int dataset_remove(const char *path, progress_callback *progress, void *context, struct removal *ret,
		   struct error *err)
{
	struct removal removal = {0};
	struct copy_folder f = {.fd = -EBADF, .parent_fd = -EBADF};
	bool in_bucket = backend_is_elsewhere(path);
	int r = in_bucket ? backend_remove(path, 0, progress, context, &removal, err)
			  : copy_folder_open(path, &f, err);

	if (r == 0 && !in_bucket)
		r = copy_folder_remove(&f, progress, context, &removal, err);
	copy_folder_close(&f);
	if (r == 0)
		*ret = removal;
	return r;
}
