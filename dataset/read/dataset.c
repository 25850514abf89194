/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/dataset.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "dataset/compress.h"
#include "dataset/backend.h"
#include "dataset/snapshot_retained.h"
#include "dataset/version.h"
#include "lib/cleanup.h"

struct dataset {
	struct place *place;
	struct snapshot *snapshot;
	struct store *store;
};

/* Verifies a large snapshot by its checksums only: checking every sample would take a second, too long for a
 * caller that reads one sample of many. */
static int verify_snapshot(const struct snapshot *s, struct error *err)
{
	if (snapshot_info(s)->file_bytes <= SNAPSHOT_WHOLE_BYTES)
		return snapshot_verify(s, err);
	int r = snapshot_verify_tables(s, err);

	return r < 0 ? r : snapshot_check_rest(s, err);
}

static int open_kept(const struct dataset *d, const char *path, uint64_t version, struct snapshot **ret,
		     struct error *err)
{
	_cleanup_(closep) int fd = -EBADF;

	if (!version || d->place->ops)
		return snapshot_open_at(d->place->dir_fd, d->place->folder, ret, err);
	if (d->place->dir_fd < 0)
		return error_errno(err, d->place->dir_fd, "cannot open %s", path);
	int r = snapshot_retained_open(d->place->dir_fd, path, version, &fd, err);

	return r < 0 ? r : snapshot_open_fd(fd, path, ret, err);
}

/* An earlier version whose snapshot is not kept is rebuilt from the heads of its chunks. */
static int open_place(struct dataset *d, const char *path, uint64_t version, struct error *err)
{
	struct error why = ERROR_INIT;
	int r = backend_open_version(path, version, &d->place, &why);

	if (r == 0)
		r = open_kept(d, path, version, &d->snapshot, &why);
	if (r == -ENOENT && version) {
		backend_close(steal_pointer(d->place));
		r = version_open(path, version, &d->place, &why);
		if (r == 0)
			r = snapshot_open_at(d->place->dir_fd, d->place->folder, &d->snapshot, &why);
	}
	if (r < 0 && err)
		*err = why;
	return r;
}

int dataset_open_version(const char *path, uint64_t version, struct dataset **ret, struct error *err)
{
	struct dataset *d = calloc(1, sizeof(*d));

	if (!d)
		return error_errno(err, -ENOMEM, "%s", path);
	int r = open_place(d, path, version, err);

	if (r == 0)
		r = verify_snapshot(d->snapshot, err);
	if (r == 0)
		r = backend_store(d->place, false, &d->store, err);
	if (r == 0)
		r = store_of_snapshot(d->store, snapshot_info(d->snapshot), compress_decode, &d->store, err);
	if (r < 0) {
		dataset_close(d);
		return r;
	}
	*ret = d;
	return 0;
}

void dataset_close(struct dataset *d)
{
	if (!d)
		return;
	snapshot_close(d->snapshot);
	store_free(d->store);
	backend_close(d->place);
	free(d);
}

const struct snapshot *dataset_snapshot(const struct dataset *d)
{
	return d->snapshot;
}

struct store *dataset_store(const struct dataset *d)
{
	return d->store;
}
