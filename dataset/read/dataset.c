/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/dataset.h"

#include <errno.h>
#include <stdlib.h>

struct dataset {
	struct snapshot *snapshot;
	struct store *store;
};

int dataset_open(const char *path, struct dataset **ret, struct error *err)
{
	struct dataset *d = calloc(1, sizeof(*d));

	if (!d)
		return error_errno(err, -ENOMEM, "%s", path);
	int r = snapshot_open(path, &d->snapshot, err);

	if (r == 0)
		r = snapshot_verify(d->snapshot, err);
	if (r == 0)
		r = store_open(path, false, &d->store, err);
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
