/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/meta.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataset/frozen.h"
#include "dataset/snapshot.h"
#include "lib/cleanup.h"
#include "lib/file_open.h"

/* A folder named chunks does not make a dataset: a class of images may have that name. */
bool meta_is_dataset(int dir_fd)
{
	return faccessat(dir_fd, "chunks", F_OK, 0) == 0 &&
	       (faccessat(dir_fd, SNAPSHOT_FILE, F_OK, 0) == 0 ||
		faccessat(dir_fd, META_SQLITE_FILE, F_OK, 0) == 0 ||
		faccessat(dir_fd, META_REDIS_FILE, F_OK, 0) == 0);
}

int meta_open_at(int dir_fd, const char *dataset_path, enum meta_mode mode, struct meta **ret,
		 struct error *err)
{
	struct stat st;

	if (mode != META_REPLACE && dir_fd >= 0 && frozen_is(dir_fd, "."))
		return frozen_error(dataset_path, err);
	return dir_fd >= 0 && fstatat(dir_fd, META_REDIS_FILE, &st, AT_SYMLINK_NOFOLLOW) == 0
		   ? meta_redis_open(dir_fd, dataset_path, mode, ret, err)
		   : meta_sqlite_open(dir_fd, dataset_path, mode, ret, err);
}

int meta_open(const char *dataset_path, enum meta_mode mode, struct meta **ret, struct error *err)
{
	_cleanup_(closep) int dir_fd = file_folder_open(dataset_path, mode > META_CHECK);

	return meta_open_at(dir_fd, dataset_path, mode, ret, err);
}

void meta_free(struct meta *m)
{
	if (m)
		m->ops->free(m);
}

int meta_info(struct meta *m, struct meta_info *ret, struct error *err)
{
	return m->ops->info(m, ret, err);
}

int meta_begin(struct meta *m, const struct chunk_id *floor, struct meta_info *ret, struct error *err)
{
	return m->ops->begin(m, floor, ret, err);
}

int meta_clear(struct meta *m, struct error *err)
{
	return m->ops->clear(m, err);
}

int meta_add_chunk(struct meta *m, const struct chunk_view *view, struct error *err)
{
	return m->ops->add_chunk(m, view, err);
}

int meta_remove_chunk(struct meta *m, const struct chunk_id *id, struct error *err)
{
	return m->ops->remove_chunk(m, id, err);
}

int meta_keep_digests(struct meta *m, struct error *err)
{
	return m->ops->keep_digests(m, err);
}

int meta_put_digest(struct meta *m, const struct chunk_id *id, const struct digest *sha256, struct error *err)
{
	return m->ops->put_digest(m, id, sha256, err);
}

int meta_put_change(struct meta *m, const struct change *change, struct error *err)
{
	return m->ops->put_change(m, change, err);
}

int meta_commit(struct meta *m, uint64_t version, const struct change *change, struct error *err)
{
	return m->ops->commit(m, version, change, err);
}

void meta_rollback(struct meta *m, bool forget_pending)
{
	m->ops->rollback(m, forget_pending);
}

int meta_find(struct meta *m, const char *path, size_t path_length, struct meta_path *ret, struct error *err)
{
	return m->ops->find(m, path, path_length, ret, err);
}

int meta_each_chunk(struct meta *m, meta_chunk_callback *callback, void *context, struct error *err)
{
	return m->ops->each_chunk(m, callback, context, err);
}

int meta_each_path(struct meta *m, meta_path_callback *callback, void *context, struct error *err)
{
	return m->ops->each_path(m, callback, context, err);
}

int meta_each_change(struct meta *m, meta_change_callback *callback, void *context, struct error *err)
{
	return m->ops->each_change(m, callback, context, err);
}
