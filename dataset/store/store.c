/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataset/chunk_id.h"
#include "dataset/external.h"
#include "lib/array.h"
#include "lib/cleanup.h"
#include "lib/container_of.h"
#include "lib/fd_io.h"
#include "lib/file_open.h"
#include "lib/kernel_calls.h"

/*
 * Stores chunks as files of a directory: CHUNKS/<id>.chunk.
 *
 * A file is written as ".<id>.tmp", synced, renamed without replacing, and the directory is synced. So a file
 * with the final name is always complete, even after a power failure.
 */

#define FOLDER     "chunks"
#define SUFFIX     ".chunk"
#define TMP_SUFFIX ".tmp"
#define NAME_BYTES (CHUNK_ID_TEXT + 8)
#define FILE_MODE  0644 /* no chunk is changed, so nobody else needs to write to it, whatever the umask */

struct store_posix {
	struct store store;
	int dir_fd;
	char *path; /* path for error texts */
};

static struct store_posix *posix_of(const struct store *s)
{
	return container_of(s, struct store_posix, store);
}

static const char *object_name(const struct chunk_id *id, char name[NAME_BYTES])
{
	chunk_id_format(id, name);
	memcpy(name + CHUNK_ID_TEXT - 1, SUFFIX, sizeof(SUFFIX));
	return name;
}

static void posix_describe(const struct store *s, const struct chunk_id *id, char *text, size_t size)
{
	char name[NAME_BYTES];

	snprintf(text, size, "%s/%s", posix_of(s)->path, object_name(id, name));
}

static int object_error(const struct store *s, const struct chunk_id *id, int code, const char *doing,
			struct error *err)
{
	char text[STORE_NAME_MAX];

	error_errno(err, code, "cannot %s %s", doing, store_describe(s, id, text));
	if (code == -ENOENT)
		error_advise(err, CHUNK_MISSING);
	return code;
}

/* minimum bytes of a write with O_DIRECT. dieseld reads chunks without the page cache, so chunks are also
 * written without it if possible. Copying them there costs more than everything else, and displaces data that
 * may still be needed. Heads are read again soon. */
#define DIRECT_MIN_BYTES (1u << 20)

static bool is_for_direct(const struct iovec *part, uint64_t offset)
{
	return part->iov_len >= DIRECT_MIN_BYTES &&
	       ((uintptr_t)part->iov_base | part->iov_len | offset) % CHUNK_ALIGN == 0;
}

static int write_parts(int fd, int direct_fd, const struct iovec *parts, int n_parts)
{
	uint64_t offset = 0;
	int r = 0;

	for (int i = 0; i < n_parts && r == 0; i++) {
		r = -EINVAL; /* also for stricter file systems, and for the rest after a short write */
		if (direct_fd >= 0 && is_for_direct(&parts[i], offset))
			r = fd_write_at(direct_fd, parts[i].iov_base, parts[i].iov_len, offset);
		if (r == -EINVAL)
			r = fd_write_at(fd, parts[i].iov_base, parts[i].iov_len, offset);
		offset += parts[i].iov_len;
	}
	return r;
}

/* Renames without replacing, even if the file system lacks RENAME_NOREPLACE (NFS). */
static int rename_new(int dir_fd, const char *from, const char *to)
{
	if (kernel_rename_new(dir_fd, from, to) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -errno;
	if (linkat(dir_fd, from, dir_fd, to, 0) < 0)
		return -errno;
	unlinkat(dir_fd, from, 0);
	return 0;
}

/* Gives a replacement chunk the owner of the file that it replaces, or of the directory if there is none,
 * because a chunk with stricter permissions than the snapshot's is not served. A process that may not change
 * owners leaves the file its own. */
static int take_over(int dir_fd, const char *name, int fd)
{
	struct stat st;
	bool there = fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);

	if (!there && fstat(dir_fd, &st) < 0)
		return -errno;
	if (fchown(fd, st.st_uid, st.st_gid) < 0 && errno != EPERM)
		return -errno;
	return there && fchmod(fd, st.st_mode & 0777) < 0 ? -errno : 0;
}

static int write_object(struct store *s, const struct chunk_id *id, const struct iovec *parts, int n_parts,
			bool replace, struct error *err)
{
	int dir_fd = posix_of(s)->dir_fd;
	char name[NAME_BYTES], tmp[NAME_BYTES + 1], text[CHUNK_ID_TEXT];
	_cleanup_(closep) int fd = -EBADF, direct_fd = -EBADF;
	int r;

	snprintf(tmp, sizeof(tmp), ".%s" TMP_SUFFIX, chunk_id_format(id, text));
	fd = openat(dir_fd, tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, FILE_MODE);
	if (fd < 0)
		return object_error(s, id, -errno, "create", err);
	direct_fd = file_reopen(fd, O_WRONLY | O_DIRECT);
	object_name(id, name);
	r = write_parts(fd, direct_fd, parts, n_parts);
	if (r == 0 && replace)
		r = take_over(dir_fd, name, fd);
	if (r == 0 && fsync(fd) < 0)
		r = -errno;
	/* Some network file systems report a failed write only here. */
	if (direct_fd >= 0 && close(steal_fd(&direct_fd)) < 0 && r == 0)
		r = -errno;
	if (close(steal_fd(&fd)) < 0 && r == 0)
		r = -errno;
	if (r == 0 && replace)
		r = renameat(dir_fd, tmp, dir_fd, name) < 0 ? -errno : 0;
	else if (r == 0)
		r = rename_new(dir_fd, tmp, name);
	if (r < 0) {
		unlinkat(dir_fd, tmp, 0);
		return object_error(s, id, r, "write", err);
	}
	if (fsync(dir_fd) < 0)
		return object_error(s, id, -errno, "sync the directory of", err);
	return 0;
}

static int posix_put(struct store *s, const struct chunk_id *id, const struct iovec *parts, int n_parts,
		     struct error *err)
{
	return write_object(s, id, parts, n_parts, false, err);
}

static int posix_replace(struct store *s, const struct chunk_id *id, const struct iovec *parts, int n_parts,
			 struct error *err)
{
	return write_object(s, id, parts, n_parts, true, err);
}

static int open_object(struct store *s, const struct chunk_id *id, int *ret_fd, struct error *err)
{
	char name[NAME_BYTES], text[STORE_NAME_MAX];
	int fd = openat(posix_of(s)->dir_fd, object_name(id, name),
			O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	struct stat st;

	if (fd < 0)
		return object_error(s, id, -errno, "open", err);
	/* A FIFO or a device under a chunk's name would block or worse. */
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		close(fd);
		return error_set(err, -EBADMSG, "%s is not a regular file", store_describe(s, id, text));
	}
	*ret_fd = fd;
	return 0;
}

static int posix_size(struct store *s, const struct chunk_id *id, uint64_t *ret_bytes, struct error *err)
{
	char name[NAME_BYTES];
	struct stat st;

	if (fstatat(posix_of(s)->dir_fd, object_name(id, name), &st, AT_SYMLINK_NOFOLLOW) < 0)
		return object_error(s, id, -errno, "find", err);
	*ret_bytes = (uint64_t)st.st_size;
	return 0;
}

static int read_exactly(struct store *s, const struct chunk_id *id, int fd, uint64_t offset, void *buffer,
			size_t bytes, struct error *err)
{
	char name[STORE_NAME_MAX];
	size_t done;

	if (offset > INT64_MAX - bytes)
		return object_error(s, id, -EINVAL, "read", err);
	int r = fd_read_at(fd, buffer, bytes, offset, &done);

	if (r < 0)
		return object_error(s, id, r, "read", err);
	if (done < bytes)
		return error_set(err, -EBADMSG,
				 "%s is truncated: it ends at byte %llu, but must have %llu bytes",
				 store_describe(s, id, name), (unsigned long long)(offset + done),
				 (unsigned long long)(offset + bytes));
	return 0;
}

static int posix_read(struct store *s, const struct chunk_id *id, uint64_t offset, void *buffer, size_t bytes,
		      struct error *err)
{
	_cleanup_(closep) int fd = -EBADF;
	int r = open_object(s, id, &fd, err);

	return r < 0 ? r : read_exactly(s, id, fd, offset, buffer, bytes, err);
}

/* Looks at the opened file, as another may get the name at any time. */
static int posix_read_made(struct store *s, const struct chunk_id *id, void *buffer, size_t bytes,
			   struct external_maker *ret, struct error *err)
{
	_cleanup_(closep) int fd = -EBADF;
	struct stat st;
	int r = open_object(s, id, &fd, err);

	if (r == 0 && fstat(fd, &st) < 0)
		r = object_error(s, id, -errno, "look at", err);
	if (r < 0)
		return r;
	/* The group's bit stands for all entries of an access control list, too. */
	*ret = (struct external_maker){.has_uid = !(st.st_mode & (S_IWGRP | S_IWOTH)), .uid = st.st_uid};
	return read_exactly(s, id, fd, 0, buffer, bytes, err);
}

static int compare_objects(const void *a, const void *b)
{
	return chunk_id_compare(&((const struct store_object *)a)->id, &((const struct store_object *)b)->id);
}

/* Returns 1 and the id if this is a chunk's name. */
static int parse_object_name(const char *name, struct chunk_id *ret_id)
{
	char text[CHUNK_ID_TEXT];

	if (strlen(name) != CHUNK_ID_TEXT - 1 + strlen(SUFFIX) ||
	    strcmp(name + CHUNK_ID_TEXT - 1, SUFFIX) != 0)
		return 0;
	memcpy(text, name, CHUNK_ID_TEXT - 1);
	text[CHUNK_ID_TEXT - 1] = '\0';
	return chunk_id_parse(text, ret_id) == 0;
}

static void closedirp(DIR **dir)
{
	if (*dir)
		closedir(*dir);
}

/* Opens the directory again, so that two listings do not share a position. */
static int open_listing(const struct store_posix *p, DIR **ret, struct error *err)
{
	int fd = openat(p->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;

	if (!dir) {
		int r = -errno;

		closep(&fd);
		return error_errno(err, r, "cannot list %s", p->path);
	}
	*ret = dir;
	return 0;
}

static int posix_list(struct store *s, const struct chunk_id *after, struct store_object **ret, size_t *ret_n,
		      struct error *err)
{
	struct store_posix *p = posix_of(s);
	_cleanup_(closedirp) DIR *dir = NULL;
	_cleanup_(freep) struct store_object *objects = NULL;
	size_t n = 0, capacity = 0;
	struct dirent *entry;
	int r = open_listing(p, &dir, err);

	if (r < 0)
		return r;
	while ((errno = 0, entry = readdir(dir))) {
		struct store_object object;
		struct stat st;

		if (!parse_object_name(entry->d_name, &object.id) ||
		    (after && chunk_id_compare(&object.id, after) <= 0))
			continue;
		if (fstatat(p->dir_fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return object_error(s, &object.id, -errno, "find", err);
		object.bytes = (uint64_t)st.st_size;
		if (array_reserve(objects, n, capacity) < 0)
			return error_errno(err, -ENOMEM, "cannot list %s", p->path);
		objects[n++] = object;
	}
	if (errno)
		return error_errno(err, -errno, "cannot list %s", p->path);
	if (n)
		qsort(objects, n, sizeof(*objects), compare_objects);
	*ret = steal_pointer(objects);
	*ret_n = n;
	return 0;
}

static int posix_remove(struct store *s, const struct chunk_id *id, struct error *err)
{
	char name[NAME_BYTES];

	if (unlinkat(posix_of(s)->dir_fd, object_name(id, name), 0) < 0)
		return object_error(s, id, -errno, "remove", err);
	return 0;
}

static int write_head(int dir_fd, const char *name, const struct iovec *head)
{
	_cleanup_(closep) int fd = openat(dir_fd, name, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
	int r = fd < 0 ? -errno : fd_write_at(fd, head->iov_base, head->iov_len, 0);

	return r == 0 && fdatasync(fd) < 0 ? -errno : r;
}

static int posix_take(struct store *s, struct store *from, const struct chunk_id *id,
		      const struct chunk_id *as, const struct iovec *head, struct error *err)
{
	char old[NAME_BYTES], new[NAME_BYTES];
	int from_fd = posix_of(from)->dir_fd, to_fd = posix_of(s)->dir_fd;
	int r = write_head(from_fd, object_name(id, old), head);

	if (r < 0)
		return object_error(from, id, r, "write", err);
	object_name(as, new);
	if (kernel_move_new(from_fd, old, to_fd, new) == 0)
		return 0;
	if ((errno != EINVAL && errno != ENOSYS) || linkat(from_fd, old, to_fd, new, 0) < 0)
		return object_error(s, as, -errno, "write", err);
	unlinkat(from_fd, old, 0);
	return 0;
}

static int posix_sync(struct store *s, struct error *err)
{
	return fsync(posix_of(s)->dir_fd) < 0
		   ? error_errno(err, -errno, "cannot sync the directory %s", posix_of(s)->path)
		   : 0;
}

static int posix_sweep(struct store *s, struct error *err)
{
	struct store_posix *p = posix_of(s);
	_cleanup_(closedirp) DIR *dir = NULL;
	int r = open_listing(p, &dir, err);

	if (r < 0)
		return r;
	for (struct dirent *entry; (entry = readdir(dir));) {
		size_t length = strlen(entry->d_name);

		if (entry->d_name[0] == '.' && length == CHUNK_ID_TEXT + strlen(TMP_SUFFIX) &&
		    !strcmp(entry->d_name + CHUNK_ID_TEXT, TMP_SUFFIX) &&
		    unlinkat(p->dir_fd, entry->d_name, 0) < 0 && errno != ENOENT)
			return error_errno(err, -errno, "cannot remove %s/%s", p->path, entry->d_name);
	}
	return 0;
}

static void posix_free(struct store *s)
{
	struct store_posix *p = posix_of(s);

	closep(&p->dir_fd);
	free(p->path);
	free(p);
}

static const struct store_ops posix_ops = {
    .put = posix_put,
    .replace = posix_replace,
    .size = posix_size,
    .read = posix_read,
    .list = posix_list,
    .remove = posix_remove,
    .sweep = posix_sweep,
    .take = posix_take,
    .sync = posix_sync,
    .read_made = posix_read_made,
    .describe = posix_describe,
    .free = posix_free,
};

static int open_chunks(int dir_fd, bool create)
{
	if (dir_fd < 0)
		return dir_fd;
	if (create && mkdirat(dir_fd, FOLDER, 0777) < 0 && errno != EEXIST)
		return -errno;
	int fd = openat(dir_fd, FOLDER, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* Opens the engine for the directory DATASET/chunks, which must not be a link. */
static int store_posix_open_at(int dir_fd, const char *dataset_path, bool create, struct store **ret,
			       struct error *err)
{
	struct store_posix *p = calloc(1, sizeof(*p));

	if (!p)
		return error_errno(err, -ENOMEM, "%s", dataset_path);
	p->store.ops = &posix_ops;
	p->dir_fd = -EBADF;
	if (asprintf(&p->path, "%s/" FOLDER, dataset_path) < 0) {
		p->path = NULL;
		posix_free(&p->store);
		return error_errno(err, -ENOMEM, "%s", dataset_path);
	}
	p->dir_fd = open_chunks(dir_fd, create);
	if (p->dir_fd < 0) {
		int r = file_error(err, p->dir_fd, "open", p->path);

		posix_free(&p->store);
		return r;
	}
	*ret = &p->store;
	return 0;
}

/* Reports an operation that a read-only store lacks. id NULL: no particular object. */
static int cannot(const struct store *s, const struct chunk_id *id, struct error *err)
{
	static const struct chunk_id any;
	char name[STORE_NAME_MAX];

	return error_set(err, -EOPNOTSUPP, "%s: this store is read-only",
			 store_describe(s, id ? id : &any, name));
}

int store_open_at(int dir_fd, const char *dataset_path, bool create, struct store **ret, struct error *err)
{
	return store_posix_open_at(dir_fd, dataset_path, create, ret, err);
}

int store_open(const char *dataset_path, bool create, struct store **ret, struct error *err)
{
	_cleanup_(closep) int dir_fd = file_folder_open(dataset_path, create);

	return store_open_at(dir_fd, dataset_path, create, ret, err);
}

void store_free(struct store *s)
{
	if (s)
		s->ops->free(s);
}

int store_put(struct store *s, const struct chunk_id *id, const struct iovec *parts, int n_parts,
	      struct error *err)
{
	return s->ops->put ? s->ops->put(s, id, parts, n_parts, err) : cannot(s, id, err);
}

int store_replace(struct store *s, const struct chunk_id *id, const struct iovec *parts, int n_parts,
		  struct error *err)
{
	return s->ops->replace ? s->ops->replace(s, id, parts, n_parts, err) : cannot(s, id, err);
}

int store_size(struct store *s, const struct chunk_id *id, uint64_t *ret_bytes, struct error *err)
{
	return s->ops->size ? s->ops->size(s, id, ret_bytes, err) : cannot(s, id, err);
}

int store_read(struct store *s, const struct chunk_id *id, uint64_t offset, void *buffer, size_t bytes,
	       struct error *err)
{
	return s->ops->read(s, id, offset, buffer, bytes, err);
}

int store_read_made(struct store *s, const struct chunk_id *id, void *buffer, size_t bytes,
		    struct external_maker *ret, struct error *err)
{
	*ret = (struct external_maker){0};
	return s->ops->read_made ? s->ops->read_made(s, id, buffer, bytes, ret, err)
				 : s->ops->read(s, id, 0, buffer, bytes, err);
}

int store_list(struct store *s, const struct chunk_id *after, struct store_object **ret, size_t *ret_n,
	       struct error *err)
{
	return s->ops->list ? s->ops->list(s, after, ret, ret_n, err) : cannot(s, after, err);
}

int store_remove(struct store *s, const struct chunk_id *id, struct error *err)
{
	return s->ops->remove ? s->ops->remove(s, id, err) : cannot(s, id, err);
}

int store_sweep(struct store *s, struct error *err)
{
	return s->ops->sweep ? s->ops->sweep(s, err) : cannot(s, NULL, err);
}

int store_take(struct store *s, struct store *from, const struct chunk_id *id, const struct chunk_id *as,
	       const struct iovec *head, struct error *err)
{
	return s->ops->take && from->ops == s->ops ? s->ops->take(s, from, id, as, head, err)
						   : cannot(s, id, err);
}

int store_sync(struct store *s, struct error *err)
{
	return s->ops->sync ? s->ops->sync(s, err) : cannot(s, NULL, err);
}

char *store_describe(const struct store *s, const struct chunk_id *id, char text[STORE_NAME_MAX])
{
	s->ops->describe(s, id, text, STORE_NAME_MAX);
	return text;
}
