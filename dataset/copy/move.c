/* SPDX-License-Identifier: Apache-2.0 */
#include "copy_private.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/kernel_calls.h"

/* Returns true if the name, or with "" the folder itself, is this folder. */
static bool leads_to(int dir_fd, const char *name, int fd)
{
	struct stat named, st;

	return fstat(fd, &st) == 0 &&
	       fstatat(dir_fd, name, &named, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) == 0 &&
	       named.st_dev == st.st_dev && named.st_ino == st.st_ino;
}

/* Renames without replacing. NFS cannot do that in one call, but replaces nothing except an empty folder. */
static int rename_new(const struct copy_folder *from, const struct copy_folder *to)
{
	struct stat st;

	if (kernel_move_new(from->parent_fd, from->name, to->parent_fd, to->name) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -errno;
	if (fstatat(to->parent_fd, to->name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return -EEXIST;
	return renameat(from->parent_fd, from->name, to->parent_fd, to->name) < 0 ? -errno : 0;
}

static void sync_folder(int parent_fd)
{
	_cleanup_(closep) int fd = openat(parent_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0)
		(void)fsync(fd);
}

/* Renames the folder. A neighbour with write permission in the parent folder may exchange the name meanwhile:
 * then it gets its file back. -EXDEV: another file system. */
static int rename_folder(const struct copy_folder *from, const char *path, struct error *err)
{
	struct copy_folder to;
	int r = copy_folder_parent(path, &to, err);

	if (r < 0)
		return r;
	r = rename_new(from, &to);
	if (r == 0 && !leads_to(to.parent_fd, to.name, from->fd)) {
		(void)kernel_move_new(to.parent_fd, to.name, from->parent_fd, from->name);
		r = error_set(err, -EBUSY, "%s was replaced meanwhile; nothing was moved", from->path);
	} else if (r == -EEXIST) {
		error_set(err, r, "%s exists: choose another name", to.path);
	} else if (r < 0 && r != -EXDEV) {
		error_errno(err, r, "cannot rename %s to %s", from->path, to.path);
	}
	if (r == 0) {
		sync_folder(to.parent_fd);
		sync_folder(from->parent_fd);
	}
	copy_folder_close(&to);
	return r;
}

static int copy_and_remove(const struct copy_options *o, struct copy_folder *folder,
			   struct copy_result *result, struct removal *removed, struct error *err)
{
	bool from_bucket = backend_is_elsewhere(o->from);
	struct copy_source s;
	int r = copy_source_open(o->from, true, &s, err);

	if (r < 0)
		return r;
	if (!from_bucket && !leads_to(s.place->dir_fd, "", folder->fd)) {
		copy_source_close(&s);
		return error_set(err, -EBUSY, "%s was replaced meanwhile; nothing was moved", folder->path);
	}
	s.gives_redis = s.has_redis && !o->meta_url && !backend_is_elsewhere(o->to);
	r = copy_of_source(o, &s, result, err);
	copy_source_close(&s);
	if (r < 0)
		return r;
	if (!from_bucket)
		r = copy_folder_check_writers(folder, err);
	if (r < 0) {
		error_prefix(err, "copied, but");
		return r;
	}
	r = from_bucket ? backend_remove(o->from, result->version, o->progress, o->context, removed, err)
			: copy_folder_remove(folder, o->progress, o->context, removed, err);
	if (r < 0)
		error_prefix(err, "copied, but");
	return r;
}

int dataset_move(const struct copy_options *o, struct copy_result *ret, struct removal *ret_removed,
		 struct error *err)
{
	bool from_bucket = backend_is_elsewhere(o->from);
	struct copy_folder folder = {.fd = -EBADF, .parent_fd = -EBADF};
	struct copy_result result = {0};
	struct removal removed = {0};
	int r = from_bucket ? 0 : copy_folder_open(o->from, &folder, err);

	if (r < 0)
		return r;
	r = from_bucket || backend_is_elsewhere(o->to) || o->meta_url ? -EXDEV
								      : rename_folder(&folder, o->to, err);
	result.is_renamed = r == 0;
	if (r == -EXDEV)
		r = copy_and_remove(o, &folder, &result, &removed, err);
	copy_folder_close(&folder);
	if (r < 0)
		return r;
	*ret = result;
	*ret_removed = removed;
	return 0;
}
