/* SPDX-License-Identifier: Apache-2.0 */
#include "copy_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataset/frozen.h"
#include "dataset/snapshot.h"
#include "dataset/snapshot_retained.h"
#include "lib/array.h"
#include "lib/cleanup.h"
#include "lib/file_open.h"

static int take_chunk(const struct meta_chunk *chunk, void *context)
{
	return buffer_append(context, chunk, sizeof(*chunk));
}

static int take_change(const struct change *change, void *context)
{
	return buffer_append(context, change, sizeof(*change));
}

static int read_metadata(struct copy_source *s, struct error *err)
{
	struct meta *m;
	struct meta_info info = {0};
	int r = meta_open_at(s->place->dir_fd, s->place->folder, META_READ, &m, err);

	if (r < 0)
		return r;
	r = meta_info(m, &info, err);
	if (r == 0 && info.version == 0)
		r = error_set(err, -ENODATA, "%s is empty: no sample was ever packed into it", s->path);
	if (r == 0)
		r = meta_each_chunk(m, take_chunk, &s->chunks, err);
	if (r == 0)
		r = meta_each_change(m, take_change, &s->changes, err);
	meta_free(m);
	s->version = info.version;
	s->n_samples = info.n_paths;
	s->has_digests = info.has_digests;
	return r;
}

/* The chunks of a frozen dataset are those of its store, because a freeze has removed all others. */
static int list_chunks(struct copy_source *s, struct error *err)
{
	_cleanup_(freep) struct store_object *objects = NULL;
	size_t n = 0, likely = 0;
	int r = store_list(s->store, NULL, &objects, &n, err);

	for (size_t i = 0; i < n && r == 0; i++) {
		_cleanup_(freep) void *head = NULL;
		struct chunk_view view;

		r = store_read_head_of(s->store, &objects[i], &likely, &head, &view, err);
		if (r < 0)
			break;
		const struct meta_chunk chunk = {.id = objects[i].id, .head_xxh3 = view.header->head_xxh3};

		r = buffer_append(&s->chunks, &chunk, sizeof(chunk));
	}
	return r;
}

/* Finds the chunks that refer to other files. A chunk without a live sample may refer to a state that is
 * gone.
 */
static int find_outside(struct copy_source *s, const struct snapshot *snapshot, struct error *err)
{
	const struct snapshot_info *info = snapshot_info(snapshot);
	struct snapshot_chunk chunk;
	int r = 0;

	for (uint64_t i = 0; info->is_external && i < info->n_chunks && r == 0; i++) {
		r = snapshot_chunk_get(snapshot, i, &chunk);
		if (r == 0 && chunk.is_external && chunk.n_samples) {
			s->n_outside += chunk.n_samples;
			r = buffer_append(&s->outside, &chunk.id, sizeof(chunk.id));
		}
	}
	return r < 0 ? error_errno(err, r, "cannot read the snapshot of %s", s->path) : 0;
}

/* Compares the snapshot with the metadata. A frozen dataset has its version from the snapshot. */
static int check_snapshot(struct copy_source *s, struct error *err)
{
	struct snapshot *snapshot;
	int r = snapshot_open_at(s->place->dir_fd, s->place->folder, &snapshot, err);

	if (r < 0)
		return r;
	const struct snapshot_info *info = snapshot_info(snapshot);

	if (s->is_frozen) {
		s->version = info->version;
		s->n_samples = info->n_samples;
		s->has_digests = info->has_digests;
	} else if (info->version != s->version) {
		r = error_set(
		    err, -ESTALE,
		    "the snapshot of %s has another version than its metadata: run `dieselctl snapshot`",
		    s->path);
	}
	if (r == 0)
		r = find_outside(s, snapshot, err);
	snapshot_close(snapshot);
	return r;
}

static int check_folder(const struct copy_source *s, bool is_ours, struct error *err)
{
	int fd = s->place->dir_fd;
	struct writer_sign sign;
	char who[WRITER_SIGN_NAME];

	if (fd < 0)
		return file_error(err, fd, "open", s->path);
	if (!meta_is_dataset(fd) && !frozen_is(fd, "."))
		return error_set(err, -ENOENT, "%s is not a dataset", s->path);
	if (!is_ours && writer_at_work(s->path, &sign))
		return error_set(err, -EBUSY,
				 "%s is being changed by another dieselctl (%s); try again later", s->path,
				 writer_sign_name(&sign, who, sizeof(who)));
	return 0;
}

int copy_source_open(const char *path, bool is_ours, struct copy_source *ret, struct error *err)
{
	struct copy_source s = {.path = path};
	struct stat st;
	int r = backend_open(path, BACKEND_READ, &s.place, err);

	if (r == 0 && !s.place->ops)
		r = check_folder(&s, is_ours, err);
	if (r == 0) {
		s.is_frozen = frozen_is(s.place->dir_fd, ".");
		s.has_redis =
		    !s.is_frozen && fstatat(s.place->dir_fd, META_REDIS_FILE, &st, AT_SYMLINK_NOFOLLOW) == 0;
		r = backend_store(s.place, false, &s.store, err);
	}
	if (r == 0)
		r = s.is_frozen ? list_chunks(&s, err) : read_metadata(&s, err);
	if (r == 0)
		r = check_snapshot(&s, err);
	if (r < 0) {
		copy_source_close(&s);
		return err && !err->text[0] ? error_errno(err, r, "%s", path) : r;
	}
	*ret = s;
	return 0;
}

void copy_source_close(struct copy_source *s)
{
	store_free(s->store);
	backend_close(s->place);
	buffer_free(&s->chunks);
	buffer_free(&s->changes);
	buffer_free(&s->outside);
}

int copy_source_snapshot(const struct copy_source *s, uint64_t version, int *ret_fd, struct error *err)
{
	struct place *place = NULL;
	int r = 0, fd;

	if (!s->place->ops && version != s->version)
		return snapshot_retained_open(s->place->dir_fd, s->path, version, ret_fd, err);
	if (version != s->version)
		r = backend_open_version(s->path, version, &place, err);
	if (r < 0)
		return r;
	fd = file_to_read(place ? place->dir_fd : s->place->dir_fd, SNAPSHOT_FILE, false);
	backend_close(place);
	if (fd < 0)
		return file_error(err, fd, "open the snapshot of", s->path);
	*ret_fd = fd;
	return 0;
}
