/* SPDX-License-Identifier: Apache-2.0 */
#include "repair_origin.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataset/meta.h"
#include "lib/cleanup.h"
#include "lib/fd_io.h"

int repair_origin_open(const char *name, struct repair_origin *ret, struct error *err)
{
	struct repair_origin o = {.name = name, .source_fd = -EBADF};
	_cleanup_(closep) int fd = -EBADF;
	int r;

	if (!backend_is_elsewhere(name)) {
		fd = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fd < 0)
			return error_errno(err, -errno,
					   "cannot open %s, a replica or a source to repair from", name);
		if (!meta_is_dataset(fd)) {
			o.source_fd = steal_fd(&fd);
			*ret = o;
			return 0;
		}
	}
	r = backend_open(name, BACKEND_SNAPSHOT, &o.place, err);
	if (r == 0)
		r = backend_store(o.place, false, &o.store, err);
	if (r < 0) {
		repair_origin_close(&o);
		return r;
	}
	*ret = o;
	return 0;
}

void repair_origin_close(struct repair_origin *o)
{
	store_free(o->store);
	backend_close(o->place);
	closep(&o->source_fd);
}

/* Links are followed, as when the source was packed. */
static int open_file(const struct repair_origin *o, const char *path, size_t path_length, struct stat *ret_st,
		     int *ret_fd)
{
	_cleanup_(freep) char *name = strndup(path, path_length);
	_cleanup_(closep) int fd = -EBADF;

	if (!name)
		return -ENOMEM;
	fd = openat(o->source_fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0 || fstat(fd, ret_st) < 0)
		return -errno;
	if (!S_ISREG(ret_st->st_mode))
		return -ESTALE;
	*ret_fd = steal_fd(&fd);
	return 0;
}

int repair_origin_read(const struct repair_origin *o, const char *path, size_t path_length, uint64_t bytes,
		       unsigned char **ret)
{
	_cleanup_(freep) unsigned char *data = NULL;
	_cleanup_(closep) int fd = -EBADF;
	struct stat st;
	size_t done;
	int r = open_file(o, path, path_length, &st, &fd);

	if (r < 0)
		return r;
	if ((uint64_t)st.st_size != bytes)
		return -ESTALE;
	data = malloc(bytes ? bytes : 1);
	if (!data)
		return -ENOMEM;
	r = fd_read(fd, data, bytes, &done);
	if (r < 0)
		return r;
	if (done < bytes)
		return -ESTALE;
	*ret = steal_pointer(data);
	return 0;
}

int repair_origin_size(const struct repair_origin *o, const char *path, size_t path_length,
		       uint64_t *ret_bytes)
{
	_cleanup_(closep) int fd = -EBADF;
	struct stat st;
	int r = open_file(o, path, path_length, &st, &fd);

	if (r == 0)
		*ret_bytes = (uint64_t)st.st_size;
	return r;
}
