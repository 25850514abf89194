/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/version.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dataset/chunk/buffer.h"
#include "dataset/chunk_id.h"
#include "dataset/meta.h"
#include "dataset/snapshot.h"
#include "dataset/snapshot_retained.h"
#include "lib/cleanup.h"
#include "lib/container_of.h"
#include "dataset/snapshot/snapshot_build.h"

struct version_place {
	struct place place;
	struct place *of; /* the dataset's place in its current version */
};

struct version_replay {
	const char *name;
	uint64_t version;
	struct change wanted, last; /* entries of the log; version 0: none */
	struct store *store;
	struct meta *to;
	struct buffer columns; /* of the samples' layout */
	struct error *err;
};

static struct version_place *version_of(struct place *p)
{
	return container_of(p, struct version_place, place);
}

static int version_store(struct place *p, struct store **ret, struct error *err)
{
	return backend_store(version_of(p)->of, false, ret, err);
}

static int version_publish(struct place *p, uint64_t version, const struct backend_keep *keep,
			   struct error *err)
{
	(void)version;
	(void)keep;
	return error_set(err, -EROFS, "%s: an old version cannot be changed", p->folder);
}

static void version_close(struct place *p)
{
	static const char *const files[] = {META_SQLITE_FILE, META_SQLITE_FILE "-journal", SNAPSHOT_FILE,
					    ".snapshot.tmp"};
	struct version_place *v = version_of(p);

	for (size_t i = 0; p->folder && i < sizeof(files) / sizeof(files[0]); i++) {
		_cleanup_(freep) char *path = NULL;

		if (asprintf(&path, "%s/%s", p->folder, files[i]) < 0)
			path = NULL;
		else
			unlink(path);
	}
	if (p->folder)
		rmdir(p->folder);
	closep(&p->dir_fd);
	free(p->folder);
	backend_close(v->of);
	free(v);
}

static const struct backend_ops version_ops = {
    .scheme = "", /* never registered */
    .store = version_store,
    .publish = version_publish,
    .close = version_close,
};

static int take_change(const struct change *change, void *context)
{
	struct version_replay *r = context;

	r->last = *change;
	if (change->version == r->version)
		r->wanted = *change;
	return 0;
}

static int check_version(struct meta *meta, struct version_replay *r, const struct meta_info *info)
{
	int result = meta_each_change(meta, take_change, r, r->err);

	if (result < 0)
		return result;
	if (r->version > info->version)
		return error_set(r->err, -ENOENT, SNAPSHOT_NO_VERSION, r->name, r->version, info->version);
	bool follows = r->last.version == info->version;

	if (r->wanted.version && follows && r->version >= r->last.oldest)
		return 0;
	return error_set(r->err, -ENOENT,
			 "version %" PRIu64 " of %s cannot be read%s: the oldest readable version is %" PRIu64
			 "; `dieselctl log` lists the versions",
			 r->version, r->name, r->wanted.version ? " any more" : " (no log describes it)",
			 follows ? r->last.oldest : info->version);
}

static int replay_chunk(const struct meta_chunk *chunk, void *context)
{
	struct version_replay *r = context;
	_cleanup_(freep) void *head = NULL;
	struct chunk_view view;
	char name[STORE_NAME_MAX];

	if (!r->wanted.has_newest || chunk_id_compare(&chunk->id, &r->wanted.newest) > 0)
		return 0;
	int result = store_read_head(r->store, &chunk->id, &head, &view, r->err);

	if (result < 0) {
		error_prefix(r->err, "cannot rebuild the old version, which needs all of its chunks");
		return result;
	}
	if (view.header->head_xxh3 != chunk->head_xxh3)
		return error_set(r->err, -EBADMSG,
				 "%s is not the file that the metadata describes; restore it",
				 store_describe(r->store, &chunk->id, name));
	struct columns columns = {0};

	(void)chunk_columns(view.header, &columns); /* the head was checked */
	if (columns.bytes && !r->columns.bytes && buffer_append(&r->columns, columns.data, columns.bytes) < 0)
		return error_errno(r->err, -ENOMEM, "%s", r->name);
	result = meta_add_chunk(r->to, &view, r->err);
	if (result == 0 && chunk->has_sha256)
		result = meta_put_digest(r->to, &chunk->id, &chunk->sha256, r->err);
	return result;
}

static int replay_all(struct meta *meta, struct version_replay *r, const struct meta_info *info)
{
	static const struct chunk_id lowest;
	struct meta_info before;
	int result = meta_begin(r->to, &lowest, &before, r->err);

	if (result == 0 && info->has_digests)
		result = meta_keep_digests(r->to, r->err);
	if (result == 0)
		result = meta_each_chunk(meta, replay_chunk, r, r->err);
	return result < 0 ? result : meta_commit(r->to, r->version, &r->wanted, r->err);
}

static int make_snapshot(struct version_replay *r, const char *folder)
{
	const struct snapshot_source from = {.meta = r->to, .columns = {r->columns.data, r->columns.bytes}};
	_cleanup_(closep) int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int result = fd < 0 ? error_errno(r->err, -errno, "cannot open %s", folder)
			    : snapshot_stage(&from, r->version, r->wanted.time_ns, fd, folder, NULL, r->err);

	return result < 0 ? result : snapshot_publish(fd, folder, r->err);
}

static int make_folder(struct place *p, struct error *err)
{
	const char *below = secure_getenv("TMPDIR");

	if (asprintf(&p->folder, "%s/dieselctl-XXXXXX", below && *below ? below : "/var/tmp") < 0) {
		p->folder = NULL;
		return error_errno(err, -ENOMEM, "TMPDIR");
	}
	if (mkdtemp(p->folder)) {
		backend_open_folder(p, false);
		return 0;
	}
	int r = error_errno(err, -errno, "cannot make the folder %s (TMPDIR)", p->folder);

	free(p->folder);
	p->folder = NULL;
	return r;
}

static int fill(struct version_place *v, struct meta *meta, const struct meta_info *info,
		struct version_replay *r)
{
	int result = check_version(meta, r, info);

	if (result == 0)
		result = make_folder(&v->place, r->err);
	if (result == 0)
		result = backend_store(v->of, false, &r->store, r->err);
	if (result == 0)
		result = meta_sqlite_open(v->place.dir_fd, v->place.folder, META_CREATE, &r->to, r->err);
	if (result == 0)
		result = replay_all(meta, r, info);
	if (result == 0)
		result = make_snapshot(r, v->place.folder);
	meta_free(r->to);
	store_free(r->store);
	buffer_free(&r->columns);
	return result;
}

int version_open(const char *name, uint64_t version, struct place **ret, struct error *err)
{
	struct version_replay replay = {.name = name, .version = version, .err = err};
	struct version_place *v = calloc(1, sizeof(*v));
	struct meta_info info = {0};
	struct meta *meta = NULL;

	if (!v)
		return error_errno(err, -ENOMEM, "%s", name);
	v->place.ops = &version_ops;
	v->place.dir_fd = -EBADF;
	v->place.version = version;
	int r = backend_open(name, BACKEND_READ, &v->of, err);

	if (r == 0 && version)
		r = meta_open_at(v->of->dir_fd, v->of->folder, META_READ, &meta, err);
	if (r == 0 && version)
		r = meta_info(meta, &info, err);
	if (r == 0 && version != info.version)
		r = fill(v, meta, &info, &replay);
	meta_free(meta);
	if (r < 0) {
		version_close(&v->place);
		return r;
	}
	if (version == info.version) {
		*ret = v->of;
		free(v);
		return 0;
	}
	*ret = &v->place;
	return 0;
}
