/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/dataset.h"

#include <errno.h>
#include <stdlib.h>

#include "checksum.h"
#include "lib/text.h"

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

int dataset_read_sample(const struct dataset *d, const struct snapshot_sample *sample, void *buffer,
			size_t size, struct error *err)
{
	struct snapshot_chunk chunk;
	char name[STORE_NAME_MAX], path[160];
	int r = snapshot_chunk_get(d->snapshot, sample->chunk, &chunk);

	if (r < 0 || sample->encoding != CHUNK_ENCODING_RAW || size < sample->stored_bytes)
		return error_errno(err, -EINVAL, "cannot read sample '%s'",
				   text_printable(path, sizeof(path), sample->path, sample->path_length));
	r = store_read(d->store, &chunk.id, sample->offset, buffer, sample->stored_bytes, err);
	if (r < 0)
		return r;
	if (checksum_xxh3(buffer, sample->stored_bytes) != sample->xxh3)
		return error_set(err, -EBADMSG, "%s: sample '%s' at byte %llu is damaged (checksum mismatch)",
				 store_describe(d->store, &chunk.id, name),
				 text_printable(path, sizeof(path), sample->path, sample->path_length),
				 (unsigned long long)sample->offset);
	return 0;
}
