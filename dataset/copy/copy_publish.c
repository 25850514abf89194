/* SPDX-License-Identifier: Apache-2.0 */
/* Makes metadata and snapshots of a copy, of which the chunks are complete. */
#include "copy_private.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "dataset/frozen.h"
#include "dataset/snapshot.h"
#include "dataset/snapshot/snapshot_build.h"
#include "dataset/snapshot_retained.h"
#include "lib/cleanup.h"

/* Copies a snapshot to the staged one of the copy, and verifies it there. */
static int stage(const struct copy_source *s, struct writer *w, uint64_t version, struct error *err)
{
	_cleanup_(closep) int from = -EBADF, fd = -EBADF;
	struct snapshot *snapshot = NULL;
	int r = copy_source_snapshot(s, version, &from, err);

	if (r < 0)
		return r;
	r = writer_stage_copy(w, from);
	fd = r < 0 ? r : openat(w->dir_fd, SNAPSHOT_STAGED_FILE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return error_errno(err, r < 0 ? r : -errno, "cannot write the snapshot of %s", w->path);
	r = snapshot_open_fd(fd, s->path, &snapshot, err);
	if (r == 0)
		r = snapshot_verify(snapshot, err);
	if (r == 0 && snapshot_info(snapshot)->version != version)
		r = error_set(err, -EBADMSG,
			      "the snapshot of version %" PRIu64 " of %s is of version %" PRIu64, version,
			      s->path, snapshot_info(snapshot)->version);
	snapshot_close(snapshot);
	return r;
}

/* Copies the snapshots of earlier versions to a folder. Readers find them before the newest one, but no
 * dataset that they belong to. */
static int keep_earlier(const struct copy_source *s, struct writer *w, const uint64_t *versions, size_t n,
			struct error *err)
{
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++) {
		if (versions[i] >= s->version)
			continue;
		r = stage(s, w, versions[i], err);
		if (r == 0)
			r = writer_keep_staged(w, versions[i], err);
	}
	return r;
}

/* Adds the chunks and the log to the metadata of the copy, within the transaction. */
static int fill_metadata(const struct copy_options *o, const struct copy_source *s, struct writer *w,
			 const struct change **ret_last, struct error *err)
{
	size_t n, n_changes = s->changes.bytes / sizeof(struct change);
	const struct meta_chunk *chunks = copy_chunks_of(s, &n);
	const struct change *changes = (const struct change *)s->changes.data;
	int r = s->has_digests ? meta_keep_digests(w->meta, err) : 0;

	for (size_t i = 0; i < n && r == 0; i++) {
		_cleanup_(freep) void *head = NULL;
		struct digest sha256 = chunks[i].sha256;
		struct chunk_view view;

		r = store_read_head(w->store, &chunks[i].id, &head, &view, err);
		if (r == 0)
			r = meta_add_chunk(w->meta, &view, err);
		if (r == 0 && s->has_digests && !chunks[i].has_sha256)
			r = store_digest(w->store, &chunks[i].id, &sha256, err);
		if (r == 0 && s->has_digests)
			r = meta_put_digest(w->meta, &chunks[i].id, &sha256, err);
		if (o->progress)
			o->progress("committing", i + 1, n, 0, o->context);
	}
	*ret_last = NULL;
	for (size_t i = 0; i < n_changes && r == 0; i++) {
		if (changes[i].version < s->version)
			r = meta_put_change(w->meta, &changes[i], err);
		else if (changes[i].version == s->version)
			*ret_last = &changes[i];
	}
	return r;
}

static int commit(const struct copy_options *o, const struct copy_source *s, struct writer *w,
		  struct error *err)
{
	struct meta_info now = {0};
	const struct change *last;
	size_t n;

	copy_chunks_of(s, &n);
	int r = fill_metadata(o, s, w, &last, err);

	if (r == 0)
		r = meta_info(w->meta, &now, err);
	if (r == 0 && (now.n_chunks != n || now.n_paths != s->n_samples))
		r = error_set(err, -EBADMSG,
			      "the chunks of %s have %" PRIu64 " samples, its metadata %" PRIu64
			      ": run `dieselctl verify`",
			      s->path, now.n_paths, s->n_samples);
	if (r == 0)
		r = meta_commit(w->meta, s->version, last, err);
	if (r == 0)
		w->begun = false;
	return r;
}

/* Leaves the copy without metadata of its own. */
static void drop_metadata(struct writer *w)
{
	meta_rollback(w->meta, true);
	w->begun = false;
	frozen_drop_metadata(w->dir_fd, w->path, NULL);
}

/* Replaces the metadata of the copy: by none if it is frozen, or by those that the original has on a server.
 */
static int replace_metadata(const struct copy_source *s, struct writer *w, struct error *err)
{
	int r = s->is_frozen ? frozen_mark(w->dir_fd, w->path, err) : 0;

	if (r < 0)
		return r;
	drop_metadata(w);
	return s->is_frozen ? 0 : meta_redis_move(s->place->dir_fd, s->path, w->dir_fd, w->path, err);
}

static int publish_in_folder(const struct copy_options *o, const struct copy_source *s, struct writer *w,
			     const uint64_t *versions, size_t n, struct error *err)
{
	int r = keep_earlier(s, w, versions, n, err);

	if (r == 0)
		r = stage(s, w, s->version, err);
	if (r == 0)
		r = writer_keep_staged(w, s->version, err);
	bool replaces = s->is_frozen || s->gives_redis;

	if (r == 0 && !replaces && w->info.version == 0)
		r = commit(o, s, w, err);
	if (r == 0)
		r = snapshot_publish(w->dir_fd, w->path, err);
	return r == 0 && replaces ? replace_metadata(s, w, err) : r;
}

/* A bucket publishes version, metadata and snapshot together. Snapshots of earlier versions follow, because a
 * reader would take the first one for the newest. */
static int publish_in_bucket(const struct copy_options *o, const struct copy_source *s, struct writer *w,
			     const uint64_t *versions, size_t n, struct error *err)
{
	const struct backend_keep keep = {.n = UINT64_MAX};
	int r = 0;

	if (w->place->version != s->version) {
		r = stage(s, w, s->version, err);
		if (r == 0)
			r = commit(o, s, w, err);
		if (r == 0)
			r = snapshot_publish(w->dir_fd, w->path, err);
		if (r == 0)
			r = backend_publish(w->place, s->version, &keep, err);
	}
	for (size_t i = n; i > 0 && r == 0; i--) {
		_cleanup_(closep) int fd = -EBADF;

		if (versions[i - 1] >= s->version)
			continue;
		r = copy_source_snapshot(s, versions[i - 1], &fd, err);
		if (r == 0)
			r = backend_keep_version(w->place, versions[i - 1], fd, err);
	}
	return r;
}

int copy_publish(const struct copy_options *o, const struct copy_source *s, struct writer *w,
		 struct copy_result *result, struct error *err)
{
	_cleanup_(freep) uint64_t *versions = NULL;
	size_t n = 0;
	int r = copy_source_kept(s, &versions, &n, err);

	if (r == 0)
		r = w->place->ops ? publish_in_bucket(o, s, w, versions, n, err)
				  : publish_in_folder(o, s, w, versions, n, err);
	result->version = s->version;
	result->n_samples = s->n_samples;
	result->n_snapshots = n;
	return r;
}
