/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/dataset.h"

#include <errno.h>
#include <stdlib.h>

#include "dataset/place.h"

struct dataset {
	struct place *place;
	struct snapshot *snapshot;
	struct store *store;
};

int dataset_open(const char *path, struct dataset **ret, struct error *err)
{
	struct dataset *d = calloc(1, sizeof(*d));

	if (!d)
		return error_errno(err, -ENOMEM, "%s", path);
	int r = place_open(path, PLACE_SNAPSHOT, &d->place, err);

	if (r == 0)
		r = snapshot_open(d->place->folder, &d->snapshot, err);
	if (r == 0)
		r = snapshot_verify(d->snapshot, err);
	if (r == 0)
		r = place_store(d->place, false, &d->store, err);
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
	place_close(d->place);
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
