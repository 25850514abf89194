/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshot_build.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "dataset/chunk_id.h"
#include "lib/cleanup.h"
#include "lib/file_open.h"
#include "lib/text.h"

/* The snapshot file being written. */
struct staged_snapshot {
	struct snapshot_target target;
	int dataset_fd;
	const struct snapshot_progress *progress; /* or NULL */
};

struct build_context {
	struct snapshot_builder *builder;
	const char *dataset_path;
	struct error *err;
};

static int add_chunk(const struct meta_chunk *chunk, void *context)
{
	struct build_context *c = context;
	int r = snapshot_builder_add_chunk(c->builder, chunk);

	return r < 0 ? error_errno(c->err, r, "snapshot") : 0;
}

static int add_path(const struct meta_path *path, void *context)
{
	struct build_context *c = context;
	char text[200];
	int r = snapshot_builder_add_path(c->builder, path);

	if (r == -EINVAL)
		return error_set(
		    c->err, -EBADMSG,
		    "%s: the metadata places '%s' in an unknown chunk, or where no sample can be; run "
		    "`dieselctl rebuild`",
		    c->dataset_path, text_printable(text, sizeof(text), path->path, path->path_length));
	return r < 0 ? error_errno(c->err, r, "cannot sort the paths of %s", c->dataset_path) : 0;
}

static void builder_freep(struct snapshot_builder **b)
{
	snapshot_builder_free(*b);
}

static int build(struct meta *meta, const struct staged_snapshot *s, struct error *err)
{
	struct meta_info info = {0};
	_cleanup_(builder_freep) struct snapshot_builder *builder = NULL;
	int r = snapshot_builder_new(s->dataset_fd, SNAPSHOT_BUILD_BYTES, &builder);
	struct build_context c = {.builder = builder, .dataset_path = s->target.origin, .err = err};

	if (r < 0)
		return error_errno(err, r, "snapshot");
	if (s->progress && s->progress->callback) {
		r = meta_info(meta, &info, err);
		snapshot_builder_show(builder, info.n_paths, s->progress->callback, s->progress->context);
	}
	if (r == 0)
		r = meta_each_chunk(meta, add_chunk, &c, err);
	if (r == 0)
		r = meta_each_path(meta, add_path, &c, err);
	return r < 0 ? r : snapshot_builder_finish(builder, &s->target, err);
}

static void snapshot_closep(struct snapshot **s)
{
	snapshot_close(*s);
}

struct chunk_search {
	const struct snapshot *base;
	uint64_t n_found; /* number of the base's chunks found */
};

static int find_chunk(const struct meta_chunk *chunk, void *context)
{
	struct chunk_search *search = context;
	struct snapshot_chunk next;

	if (snapshot_chunk_get(search->base, search->n_found, &next) == 0 &&
	    chunk_id_compare(&next.id, &chunk->id) == 0 && next.head_xxh3 == chunk->head_xxh3 &&
	    next.file_bytes == chunk->file_bytes)
		search->n_found++;
	return 0;
}

/* Returns true if the base describes the metadata's state `before`, judged by its counts and its chunks. */
static bool is_of(const struct snapshot *base, struct meta *meta, const struct meta_info *before)
{
	const struct snapshot_info *info = snapshot_info(base);
	struct chunk_search search = {.base = base};

	return info->version == before->version && info->n_samples == before->n_paths &&
	       meta_each_chunk(meta, find_chunk, &search, NULL) == 0 && search.n_found == info->n_chunks;
}

/* Updates the snapshot. On SNAPSHOT_NOT_UPDATED the file is left empty. */
static int update(const struct snapshot_source *from, const struct staged_snapshot *s, struct error *err)
{
	_cleanup_(snapshot_closep) struct snapshot *base = NULL;
	_cleanup_(closep) int base_fd = -EBADF;
	int r = SNAPSHOT_NOT_UPDATED;

	if (!from->changes)
		return r;
	base_fd = file_to_read(s->dataset_fd, SNAPSHOT_FILE, false);
	if (base_fd >= 0 && snapshot_open_fd(base_fd, s->target.origin, &base, NULL) == 0 &&
	    is_of(base, from->meta, from->before))
		r = snapshot_update(base, from->changes, &s->target, err);
	if (r == SNAPSHOT_NOT_UPDATED && ftruncate(s->target.fd, 0) < 0)
		return error_errno(err, -errno, "cannot write %s/" SNAPSHOT_STAGED_FILE, s->target.origin);
	return r;
}

static int write_file(const struct snapshot_source *from, const struct staged_snapshot *s, struct error *err)
{
	if (from->builder && s->progress)
		snapshot_builder_show(from->builder, 0, s->progress->callback, s->progress->context);
	if (from->builder)
		return snapshot_builder_finish(from->builder, &s->target, err);
	int r = update(from, s, err);

	return r == SNAPSHOT_NOT_UPDATED ? build(from->meta, s, err) : r;
}

int snapshot_stage(const struct snapshot_source *from, uint64_t version, uint64_t created_ns, int dataset_fd,
		   const char *dataset_path, const struct snapshot_progress *progress, struct error *err)
{
	unlinkat(dataset_fd, SNAPSHOT_STAGED_FILE,
		 0); /* left by a dead writer, because the caller holds the writer lock */
	_cleanup_(closep) int fd = openat(dataset_fd, SNAPSHOT_STAGED_FILE,
					  O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);

	if (fd < 0)
		return error_errno(err, -errno, "cannot create %s/" SNAPSHOT_STAGED_FILE, dataset_path);
	const struct staged_snapshot staged = {
	    {fd, dataset_path, version, created_ns, from->columns}, dataset_fd, progress};
	int r = write_file(from, &staged, err);

	if (r < 0) {
		snapshot_unstage(dataset_fd);
		return r;
	}
	if (fsync(fd) < 0)
		r = -errno;
	if (close(steal_fd(&fd)) < 0 && r == 0)
		r = -errno;
	if (r < 0) {
		snapshot_unstage(dataset_fd);
		return error_errno(err, r, "cannot write %s/" SNAPSHOT_STAGED_FILE, dataset_path);
	}
	return 0;
}

int snapshot_publish(int dataset_fd, const char *dataset_path, struct error *err)
{
	if (renameat(dataset_fd, SNAPSHOT_STAGED_FILE, dataset_fd, SNAPSHOT_FILE) < 0 ||
	    fsync(dataset_fd) < 0)
		return error_errno(err, -errno,
				   "cannot publish %s/" SNAPSHOT_FILE "; run `dieselctl snapshot`",
				   dataset_path);
	return 0;
}

void snapshot_unstage(int dataset_fd)
{
	unlinkat(dataset_fd, SNAPSHOT_STAGED_FILE, 0);
}
