/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "dataset/frozen.h"
#include "dataset/snapshot.h"
#include "writer_private.h"

static bool has(const struct writer *w, const char *name)
{
	struct stat st;

	return fstatat(w->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

int writer_check_frozen(const struct writer *w, struct error *err)
{
	if (w->place->ops)
		return 0;
	if (w->purpose != WRITER_REBUILD && frozen_is(w->dir_fd, "."))
		return frozen_error(w->path, err);
	/* The metadata file, which is locked, has been removed. */
	if (w->meta && !has(w, META_SQLITE_FILE) && !has(w, META_REDIS_FILE))
		return error_set(err, -EBUSY,
				 "%s was changed by another dieselctl meanwhile; run the same command again",
				 w->path);
	return 0;
}

/* Checks that the snapshot suffices without the metadata. */
static int check_snapshot(const struct writer *w, struct error *err)
{
	struct snapshot *s = NULL;
	int r = snapshot_open_at(w->place->dir_fd, w->place->folder, &s, err);

	if (r == 0)
		r = snapshot_verify(s, err);
	if (r == 0 && snapshot_info(s)->version != w->info.version)
		r = error_set(
		    err, -ESTALE,
		    "the snapshot of %s has another version than its metadata: run `dieselctl snapshot`",
		    w->path);
	snapshot_close(s);
	return r;
}

int writer_freeze(struct writer *w, struct error *err)
{
	struct writer_result result;

	if (w->place->ops)
		return error_set(err, -EOPNOTSUPP,
				 "cannot freeze %s: it is in a bucket, where jobs and read-only tools "
				 "already need nothing but the snapshot",
				 w->path);
	if (w->info.version == 0)
		return error_set(err, -ENODATA, "%s is empty: no sample was ever packed into it", w->path);
	int r = writer_finish_drops(w, err);

	if (r == 0)
		r = writer_commit(w, &result, err); /* of nothing */
	if (r == 0)
		r = check_snapshot(w, err);
	if (r == 0)
		r = frozen_mark(w->dir_fd, w->path, err);
	return r < 0 ? r : frozen_drop_metadata(w->dir_fd, w->path, err);
}
