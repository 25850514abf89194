/* SPDX-License-Identifier: Apache-2.0 */
#include "copy_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataset/snapshot.h"
#include "lib/cleanup.h"
#include "lib/file_open.h"

static bool has(int fd, const char *name)
{
	struct stat st;

	return fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

int copy_folder_parent(const char *path, struct copy_folder *ret, struct error *err)
{
	struct copy_folder f = {.parent_fd = -EBADF, .fd = -EBADF};
	size_t length = strlen(path);

	while (length > 1 && path[length - 1] == '/')
		length--;
	f.path = strndup(path, length);
	if (!f.path)
		return error_errno(err, -ENOMEM, "%s", path);
	f.parent_fd = file_folder(f.path, true, &f.name);
	if (f.parent_fd < 0) {
		int r = f.parent_fd == -EISDIR
			    ? error_set(err, -EINVAL,
					"%s has no name in its folder: give the dataset's full path", path)
			    : file_error(err, f.parent_fd, "open the folder of", path);

		free(f.path);
		return r;
	}
	*ret = f;
	return 0;
}

/* Checks that the folder is a dataset that this program can read: by its snapshot, or else by its metadata.
 * On a server, the metadata must answer. */
static int check_dataset(const struct copy_folder *f, struct error *err)
{
	struct error why = ERROR_INIT;
	struct snapshot *snapshot = NULL;
	struct meta *meta = NULL;

	if (has(f->fd, COPY_REMOVED_FILE))
		return 0;
	int by_snapshot = has(f->fd, "chunks") ? snapshot_open_at(f->fd, f->path, &snapshot, NULL) : -ENOENT;
	int by_meta = has(f->fd, META_SQLITE_FILE) || has(f->fd, META_REDIS_FILE)
			  ? meta_open_at(f->fd, f->path, META_READ, &meta, &why)
			  : -ENOENT;

	snapshot_close(snapshot);
	meta_free(meta);
	if (by_snapshot == -EPROTONOSUPPORT || by_meta == -EPROTONOSUPPORT)
		return error_set(err, -EPROTONOSUPPORT,
				 "%s has a format that this program does not support; update it", f->path);
	if (by_meta < 0 && by_meta != -EBADMSG && by_meta != -EXDEV && has(f->fd, META_REDIS_FILE)) {
		if (err)
			*err = why;
		return by_meta;
	}
	return by_snapshot == 0 || by_meta == 0
		   ? 0
		   : error_set(err, -EINVAL, "%s is not a dataset that this program can read", f->path);
}

int copy_folder_check_writers(const struct copy_folder *f, struct error *err)
{
	writer_sweep_spools(f->fd, f->path);
	return has(f->fd, WRITER_SPOOLS)
		   ? error_set(err, -EBUSY, "%s is being written by other processes; try again later",
			       f->path)
		   : 0;
}

int copy_folder_open(const char *path, struct copy_folder *ret, struct error *err)
{
	struct copy_folder f;
	struct stat st;
	int r = copy_folder_parent(path, &f, err);

	if (r < 0)
		return r;
	f.fd = openat(f.parent_fd, f.name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (f.fd < 0) {
		r = -errno;
		if (r == -ENOTDIR && fstatat(f.parent_fd, f.name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    S_ISLNK(st.st_mode))
			r = -ELOOP;
		r = r == -ENOENT ? error_set(err, r, "there is no dataset %s", f.path)
				 : file_error(err, r, "open", f.path);
	}
	if (r == 0)
		r = check_dataset(&f, err);
	if (r == 0)
		r = writer_lock_take(f.fd, f.path, &f.lock, err);
	if (r == 0)
		r = copy_folder_check_writers(&f, err);
	if (r < 0)
		copy_folder_close(&f);
	else
		*ret = f;
	return r;
}

void copy_folder_close(struct copy_folder *f)
{
	writer_lock_free(f->lock);
	closep(&f->fd);
	closep(&f->parent_fd);
	free(f->path);
	*f = (struct copy_folder){.fd = -EBADF, .parent_fd = -EBADF};
}
